"""The lake port on Iceberg, over a real SQL catalog and real files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException, RESTError
from pyiceberg.types import PrimitiveType
from requests import ReadTimeout

from carbon_pipeline.errors import CommitRefused, LakeError, StorageFailed
from carbon_pipeline.lake.iceberg import files, plan, stamps
from carbon_pipeline.lake.iceberg.janitor import IcebergJanitor
from carbon_pipeline.lake.outcome import Landed, Outcome, Refused, Unknown
from carbon_pipeline.ratify.evidence import Absent, OffMain, OnMain, TargetReplaced, Unreachable, Witness, WitnessOnly
from carbon_pipeline.schema.row_identity import IDENTITY_COLUMNS
from carbon_pipeline_tests.lake.faulty_catalog import FaultyCatalog
from carbon_pipeline_tests.lake.workshop import GOODS, ID, MARK, NOTE, Workshop, batch_of, column, goods, mapping_of

FAULTY = {"py-catalog-impl": "carbon_pipeline_tests.lake.faulty_catalog.FaultyCatalog"}


@pytest.fixture
def faulty(tmp_path: Path) -> Workshop:
    """A lake whose catalog can fail, with one commit in it."""
    FaultyCatalog.before = FaultyCatalog.after = None
    workshop = Workshop(tmp_path, FAULTY)
    workshop.publish(goods(10))
    FaultyCatalog.requests = 0
    return workshop


def raising(error: BaseException) -> Callable[[], None]:
    """A fault."""

    def fail() -> NoReturn:
        raise error

    return fail


def test_a_replacement_is_one_snapshot(workshop: Workshop) -> None:
    """Each write adds exactly one snapshot, whose rows are the new ones alone and whose summary says whose it is."""
    workshop.publish(goods(1000))
    permit, staged = workshop.stage(goods(10))
    outcome = workshop.lake.commit(permit, staged)
    assert isinstance(outcome, Landed)
    metadata = workshop.table.metadata
    assert [s.snapshot_id for s in metadata.snapshots][1:] == [outcome.facts.snapshot_id]
    assert metadata.snapshots[0].snapshot_id == outcome.facts.parent_snapshot_id
    assert (outcome.facts.rows, outcome.facts.data_files, outcome.facts.has_identity) == (10, 1, True)
    assert sorted(workshop.rows()["id"].to_pylist()) == list(range(10))
    operation = permit.intent.operation
    summary = metadata.snapshots[1].summary
    assert summary is not None
    assert summary[stamps.OPERATION_ID] == str(operation.id)
    assert (summary[stamps.SEQ], summary[stamps.ROWS], summary["deleted-records"]) == ("2", "10", "1000")
    assert workshop.table.properties[stamps.WATERMARK] == f"2:{operation.id}"


def test_an_empty_table_can_be_published(workshop: Workshop) -> None:
    """No rows are a publication like any other, and rows can come back after it."""
    for rows in (0, 5, 0, 3):
        assert workshop.publish(goods(rows)).facts.rows == rows
        assert workshop.rows().num_rows == rows


def test_identity_continues_over_batches(workshop: Workshop) -> None:
    """Row indexes are contiguous in reading order, row ids are unique, creation time is the operation's opening."""
    workshop.publish(goods(2500, batch_rows=100))
    rows = workshop.rows().sort_by("__row_index")
    assert rows["__row_index"].to_pylist() == list(range(2500)) == rows["id"].to_pylist()
    assert len(set(rows["__row_id"].to_pylist())) == 2500
    assert len(set(rows["__created_at"].to_pylist())) == 1


def test_evidence_before_and_after(workshop: Workshop) -> None:
    """A staged operation is absent; a committed one is on main, also when others came after it."""
    permit, staged = workshop.stage(goods(5))
    operation = permit.intent.operation
    absence = workshop.lake.observe(operation)
    assert isinstance(absence, Absent)
    assert absence.head_snapshot_id is None
    workshop.lake.commit(permit, staged)
    assert isinstance(workshop.lake.observe(operation), OnMain)
    workshop.publish(goods(1))
    assert isinstance(workshop.lake.observe(operation), OnMain)


def test_an_expired_snapshot_leaves_its_watermark(workshop: Workshop) -> None:
    """The table property is a second witness of the newest commit."""
    permit, staged = workshop.stage(goods(5))
    workshop.lake.commit(permit, staged)
    evidence = workshop.lake.observe(permit.intent.operation)
    assert isinstance(evidence, OnMain)
    assert workshop.fence(workshop.open().operation)
    with workshop.table.maintenance.expire_snapshots() as expiry:
        expiry.by_id(evidence.facts.snapshot_id)
    witnesses = workshop.lake.observe(permit.intent.operation)
    assert witnesses == WitnessOnly(witnesses=frozenset(Witness))


def test_expired_behind_a_rollback_is_not_absent(workshop: Workshop) -> None:
    """Landed, rolled back, and expired: main is unbroken, but the watermark and an old metadata file tell."""
    base = workshop.publish(goods(4)).facts.snapshot_id
    permit, staged = workshop.stage(goods(5))
    workshop.lake.commit(permit, staged)
    operation = permit.intent.operation
    workshop.table.manage_snapshots().rollback_to_snapshot(base).commit()
    off_main = workshop.lake.observe(operation)
    assert isinstance(off_main, OffMain)
    assert off_main.shown_operation_id is not None
    assert off_main.shown_operation_id != operation.id
    with workshop.table.maintenance.expire_snapshots() as expiry:
        expiry.by_id(staged.snapshot_id)
    evidence = workshop.lake.observe(operation)
    assert evidence == WitnessOnly(witnesses=frozenset({Witness.WATERMARK, Witness.METADATA_LOG}))


def test_every_file_is_announced_before_it_is_written(workshop: Workshop) -> None:
    """What staging and committing leave in the warehouse is what was announced, the catalog's metadata apart."""
    workshop.publish(goods(50))
    written = {f"file://{path}" for path in (workshop.folder / "warehouse").rglob("*") if path.is_file()}
    assert {path for path in written if not path.endswith(".metadata.json")} == set(workshop.announced)


def test_staging_that_fails_in_the_manifests_leaves_nothing(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data files are deleted too when the manifests cannot be written."""
    monkeypatch.setattr(plan, "write_manifest_list", lambda **_: raising(OSError(28, "No space left on device"))())
    with pytest.raises(StorageFailed):
        workshop.stage(goods(5))
    assert workshop.data_files() == []


def test_a_janitor_removes_only_what_nothing_refers_to(workshop: Workshop) -> None:
    """Files of a dead operation go; those of any snapshot, and whatever is outside the dataset's place, stay."""
    janitor = IcebergJanitor(workshop.catalogs)
    workshop.publish(goods(5))
    kept = list(workshop.announced)
    _, dead = workshop.stage(goods(6))
    listed = [*kept, *dead.files]
    unreferenced = janitor.unreferenced(workshop.dataset, listed)
    assert list(unreferenced) == list(dead.files)
    janitor.remove(workshop.dataset, unreferenced)
    janitor.remove(workshop.dataset, unreferenced)
    assert workshop.rows().num_rows == 5
    for outside in ("/etc/passwd", f"{workshop.dataset.location}/../other/x.parquet"):
        with pytest.raises(LakeError, match="outside the place"):
            janitor.remove(workshop.dataset, [outside])


@pytest.mark.parametrize("earlier_commits", [0, 2])
def test_a_fence_stops_a_late_commit(workshop: Workshop, earlier_commits: int) -> None:
    """After the fence the request is refused by the catalog itself, on a table without a snapshot as well."""
    for _ in range(earlier_commits):
        workshop.publish(goods(4))
    permit, staged = workshop.stage(goods(5))
    operation = permit.intent.operation
    assert workshop.fence(operation)
    assert isinstance(workshop.lake.commit(permit, staged), Refused)
    assert isinstance(workshop.lake.observe(operation), Absent)
    assert workshop.rows().num_rows == (4 if earlier_commits else 0)
    assert workshop.publish(goods(6)).facts.rows == 6


def test_a_fence_keeps_the_totals(workshop: Workshop) -> None:
    """A fence changes no row, and its summary says so."""
    workshop.publish(goods(7))
    assert workshop.fence(workshop.open().operation)
    head = workshop.table.metadata.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (head.summary["total-records"], head.summary["total-data-files"]) == ("7", "1")
    assert head.schema_id == workshop.table.schema().schema_id
    assert workshop.rows().num_rows == 7


def test_a_fence_on_a_moved_head_is_not_set(workshop: Workshop) -> None:
    """A fence asserts the head that the caller has seen."""
    workshop.publish(goods(1))
    operation = workshop.open().operation
    seen = workshop.lake.observe(operation)
    assert isinstance(seen, Absent)
    workshop.publish(goods(2))
    assert not workshop.lake.fence(operation, seen)
    assert len(workshop.table.metadata.snapshots) == 2


def test_a_second_fence_changes_nothing_that_matters(workshop: Workshop) -> None:
    """Two who rule at once may both fence; the rows stay."""
    workshop.publish(goods(3))
    operation = workshop.open().operation
    assert workshop.fence(operation)
    assert workshop.fence(operation)
    assert workshop.rows().num_rows == 3


def test_field_ids_follow_columns(workshop: Workshop) -> None:
    """A renamed column keeps its field id, a retyped one and a new one get ids that were never used."""
    workshop.publish(goods(3))
    before = {field.name: field.field_id for field in workshop.table.schema().fields}
    changed = mapping_of(column(1, "key", "int4"), column(3, "mark", "text"), column(5, "added", "text"))
    workshop.publish([batch_of(changed, [1], ["a"], ["b"])], changed)
    schema = workshop.table.schema()
    after = {field.name: field.field_id for field in schema.fields}
    assert after["key"] == before["id"]
    assert {after["mark"], after["added"]}.isdisjoint(before.values())
    assert {name: after[name] for name in IDENTITY_COLUMNS} == {name: before[name] for name in IDENTITY_COLUMNS}
    assert "note" not in after
    assert workshop.rows().select(["key", "mark", "added"]).to_pylist() == [{"key": 1, "mark": "a", "added": "b"}]


def test_a_schema_that_comes_back_is_the_old_one(workshop: Workshop) -> None:
    """A change and its reversal leave two schemas, not three, and reading works at each step."""
    workshop.publish(goods(3))
    renamed = mapping_of(column(1, "key", "int4"), *GOODS.relation.columns[1:])
    for mapping in (renamed, GOODS):
        workshop.publish([batch.rename_columns(mapping.arrow_schema.names) for batch in goods(2)], mapping)
        assert workshop.rows().num_rows == 2
    assert [schema.schema_id for schema in workshop.table.metadata.schemas] == [0, 1]
    assert workshop.table.schema().schema_id == 0


def test_swapped_names_stay_apart(workshop: Workshop) -> None:
    """Two columns that exchange their names keep their field ids."""
    mapping = mapping_of(column(1, "a", "int4"), column(2, "b", "int4"))
    swapped = mapping_of(column(1, "b", "int4"), column(2, "a", "int4"))
    workshop.publish([batch_of(mapping, [1], [2])], mapping)
    before = {field.name: field.field_id for field in workshop.table.schema().fields}
    workshop.publish([batch_of(swapped, [1], [2])], swapped)
    after = {field.name: field.field_id for field in workshop.table.schema().fields}
    assert (after["b"], after["a"]) == (before["a"], before["b"])
    assert workshop.rows().select(["b", "a"]).to_pylist() == [{"b": 1, "a": 2}]


def test_a_table_made_again_keeps_ids_by_name(workshop: Workshop) -> None:
    """In a relation with another oid, attnums mean other columns: there the name decides."""
    workshop.publish(goods(1))
    before = {field.name: field.field_id for field in workshop.table.schema().fields}
    again = mapping_of(column(1, "mark", "uuid"), column(2, "id", "int4"), oid=2)
    marks = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    batch = pa.RecordBatch.from_arrays([marks, pa.array([1], pa.int32())], schema=again.arrow_schema)
    workshop.publish([batch], again)
    after = {field.name: field.field_id for field in workshop.table.schema().fields}
    assert (after["mark"], after["id"]) == (before["mark"], before["id"])


def test_files_carry_field_ids_and_statistics(workshop: Workshop) -> None:
    """The Parquet schema has the table's field ids, and the manifest the counts and bounds of the columns."""
    workshop.publish(goods(100))
    [path] = workshop.data_files()
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in pq.ParquetFile(path).schema_arrow}
    assert ids == {field.name: field.field_id for field in workshop.table.schema().fields}
    # Not `inspect.files()`: PyIceberg 0.12 cannot make its table when a column is a UUID.
    [task] = workshop.table.scan().plan_files()
    file, schema = task.file, workshop.table.schema()

    def bounds(name: str) -> tuple[object, object]:
        field = schema.find_field(name)
        assert isinstance(field.field_type, PrimitiveType)
        lower, upper = file.lower_bounds[field.field_id], file.upper_bounds[field.field_id]
        return from_bytes(field.field_type, lower), from_bytes(field.field_type, upper)

    assert (file.record_count, file.file_size_in_bytes) == (100, path.stat().st_size)
    assert bounds("id") == bounds("__row_index") == (0, 99)
    assert bounds("note") == ("note 0", "note 99")
    assert bounds("price") == (Decimal("0.00"), Decimal("0.99"))
    assert file.null_value_counts[ids["note"]] == 0


def found_by(workshop: Workshop, row_filter: str) -> int:
    """How many rows PyIceberg finds, which skips files by their bounds."""
    return int(workshop.table.scan(row_filter=row_filter).to_arrow().num_rows)


def test_bounds_hold_where_parquet_has_none(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet keeps no bounds for long texts; the file must not be skipped by those of its other row groups."""
    monkeypatch.setattr(files, "ROW_GROUP_ROWS_MAX", 1)
    mapping = mapping_of(ID, NOTE)
    long = "z" * 5000
    rows = [batch_of(mapping, [n], [note]) for n, note in enumerate(["abc", long, None])]
    workshop.publish(rows, mapping)
    assert found_by(workshop, f"note = '{long}'") == 1
    assert found_by(workshop, "note = 'abc'") == 1
    assert found_by(workshop, "id = 7") == 0


@pytest.mark.parametrize("type_name", ["date", "timestamp", "timestamptz"])
def test_times_beyond_pythons_are_written(workshop: Workshop, type_name: str) -> None:
    """BC and years after 9999 are values like any other, and their bounds are right."""
    mapping = mapping_of(column(1, "v", type_name))
    width, wide = (pa.int32(), 3_000_000) if type_name == "date" else (pa.int64(), 2**62)
    values = pa.array([-wide, None, wide], width).view(mapping.arrow_schema.field(0).type)
    workshop.publish([pa.RecordBatch.from_arrays([values], schema=mapping.arrow_schema)], mapping)
    [task] = workshop.table.scan().plan_files()
    size = width.bit_width // 8
    assert task.file.lower_bounds[1] == (-wide).to_bytes(size, "little", signed=True)
    assert task.file.upper_bounds[1] == wide.to_bytes(size, "little", signed=True)
    assert task.file.null_value_counts[1] == 1
    zone = {"date": "", "timestamp": "T00:00:00", "timestamptz": "T00:00:00+00:00"}[type_name]
    assert found_by(workshop, f"v > '2020-01-01{zone}'") == 1


def test_large_tables_roll_into_files(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups and files close when they are full; every row is in exactly one of them."""
    monkeypatch.setattr(files, "ROW_GROUP_ROWS_MAX", 200)
    monkeypatch.setattr(files, "FILE_ROWS_MAX", 400)
    facts = workshop.publish(goods(1000, batch_rows=100)).facts
    assert facts.data_files == 3
    assert [pq.ParquetFile(path).metadata.num_row_groups for path in workshop.data_files()] == [2, 2, 1]
    assert sorted(workshop.rows()["id"].to_pylist()) == list(range(1000))
    assert facts.size_bytes == sum(path.stat().st_size for path in workshop.data_files())


def test_a_failing_reading_leaves_no_file(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before the failure is deleted, closed files and the open one; the failure goes on."""
    monkeypatch.setattr(files, "ROW_GROUP_ROWS_MAX", 100)
    monkeypatch.setattr(files, "FILE_ROWS_MAX", 200)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from goods(500, batch_rows=100)
        assert len(workshop.data_files()) >= 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workshop.stage(breaking())
    assert workshop.data_files() == []
    assert workshop.publish(goods(3)).facts.rows == 3


def test_a_warehouse_that_cannot_be_written_says_so(workshop: Workshop) -> None:
    """A file where the folder should be is a storage failure, and nothing is left behind."""
    intent = workshop.open()
    blocked = Path(workshop.table.location().removeprefix("file://")) / "data"
    blocked.write_text("in the way")
    with pytest.raises(StorageFailed):
        workshop.lake.stage(intent, GOODS, goods(3), workshop.announced.extend)
    assert workshop.data_files() == []


def test_a_table_of_another_dataset_is_refused(workshop: Workshop) -> None:
    """The owner is a property of the table; without ours nothing is written."""
    workshop.publish(goods(1))
    workshop.dataset = workshop.new_dataset("t")
    with pytest.raises(CommitRefused, match="belongs to dataset"):
        workshop.open()


def test_a_table_of_nobody_is_refused(workshop: Workshop) -> None:
    """A table that some other tool made under our name is left alone."""
    workshop.publish(goods(1))
    with workshop.table.transaction() as transaction:
        transaction.remove_properties(stamps.DATASET)
    with pytest.raises(CommitRefused, match="nobody"):
        workshop.open()


def test_a_base_that_moved_is_noticed_before_writing(workshop: Workshop) -> None:
    """Staging looks at main first: rows for an outdated base are not even written."""
    intent = workshop.open()
    workshop.publish(goods(1))
    published = workshop.data_files()
    with pytest.raises(CommitRefused):
        workshop.lake.stage(intent, GOODS, goods(5), workshop.announced.extend)
    assert workshop.data_files() == published


def test_a_replaced_table_is_recognised(workshop: Workshop) -> None:
    """A table dropped, or dropped and made again, is another one: its UUID says so."""
    permit, staged = workshop.stage(goods(2))
    catalog = workshop.catalogs.open("main")
    catalog.drop_table(workshop.dataset.identifier)
    assert isinstance(workshop.lake.observe(permit.intent.operation), TargetReplaced)
    workshop.open()
    assert isinstance(workshop.lake.commit(permit, staged), Unknown)
    assert isinstance(workshop.lake.observe(permit.intent.operation), TargetReplaced)
    assert workshop.rows().num_rows == 0


ERRORS = [
    RESTError("502"),
    ReadTimeout("no answer"),
    CommitFailedException("409 to a request that landed"),
    ConnectionResetError("cut"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_after_landing_is_landed(faulty: Workshop, error: Exception) -> None:
    """Whatever the answer says, our snapshot on main is what counts. Its manifests are still there."""
    FaultyCatalog.after = raising(error)
    assert isinstance(faulty.write(goods(20)), Landed)
    assert faulty.rows().num_rows == 20
    assert FaultyCatalog.requests == 1


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_without_a_trace_is_unknown(faulty: Workshop, error: Exception) -> None:
    """Main still at our base proves nothing: the request may be on its way. It is sent once, and no file is deleted."""
    FaultyCatalog.before = raising(error)
    permit, staged = faulty.stage(goods(20))
    outcome = faulty.lake.commit(permit, staged)
    assert isinstance(outcome, Unknown)
    assert outcome.cause is error
    assert FaultyCatalog.requests == 1
    assert all(Path(name.removeprefix("file://")).is_file() for name in staged.files)


def overtaken(workshop: Workshop, error: Exception) -> Callable[[], None]:
    """Another commit comes between our last look and our request, which then fails with *error*."""

    def before() -> None:
        FaultyCatalog.before = None
        workshop.publish(goods(30))
        raise error

    return before


def test_a_table_that_moved_on_gets_no_request(faulty: Workshop) -> None:
    """The table is looked at once more before the request: with another commit on our base it is not sent."""
    permit, staged = faulty.stage(goods(20))
    faulty.publish(goods(30))
    sent = FaultyCatalog.requests
    assert isinstance(faulty.lake.commit(permit, staged), Refused)
    assert FaultyCatalog.requests == sent
    assert faulty.rows().num_rows == 30


def test_a_request_that_landed_is_not_sent_again(faulty: Workshop) -> None:
    """A commit that is tried a second time finds its own marker."""
    permit, staged = faulty.stage(goods(20))
    first, second = faulty.lake.commit(permit, staged), faulty.lake.commit(permit, staged)
    assert isinstance(first, Landed)
    assert first == second
    assert len(faulty.table.metadata.snapshots) == 2


def test_a_conflict_with_another_commit_is_refused(faulty: Workshop) -> None:
    """409, another commit on top of our base, nothing of ours: that is proof."""
    permit, staged = faulty.stage(goods(20))
    FaultyCatalog.before = overtaken(faulty, CommitFailedException("409"))
    assert isinstance(faulty.lake.commit(permit, staged), Refused)
    assert faulty.rows().num_rows == 30


def test_another_error_with_another_commit_is_unknown(faulty: Workshop) -> None:
    """Without a 409 nobody has said that our request was turned down."""
    permit, staged = faulty.stage(goods(20))
    FaultyCatalog.before = overtaken(faulty, RESTError("502"))
    assert isinstance(faulty.lake.commit(permit, staged), Unknown)


def interrupted(workshop: Workshop, *, applied: bool) -> Outcome:
    """A commit with a person's Ctrl-C inside the request."""
    if applied:
        FaultyCatalog.after = raising(KeyboardInterrupt())
    else:
        FaultyCatalog.before = raising(KeyboardInterrupt())
    return workshop.write(goods(20))


@pytest.mark.parametrize("applied", [True, False])
def test_an_interruption_is_unknown(faulty: Workshop, *, applied: bool) -> None:
    """Ctrl-C in the request is handed back as the cause; the catalog is not asked any more, and later it tells."""
    outcome = interrupted(faulty, applied=applied)
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.cause, KeyboardInterrupt)
    assert faulty.rows().num_rows == (20 if applied else 10)


def test_a_silent_catalog_proves_nothing(faulty: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, and then no answer to the question either: unknown, and observing says unreachable."""
    permit, staged = faulty.stage(goods(20))
    FaultyCatalog.before = raising(ReadTimeout("slow"))
    monkeypatch.setattr(FaultyCatalog, "load_table", lambda *_: raising(ReadTimeout("slow"))())
    assert isinstance(faulty.lake.commit(permit, staged), Unknown)
    assert isinstance(faulty.lake.observe(permit.intent.operation), Unreachable)


@pytest.mark.parametrize("applied", [True, False])
def test_a_fence_with_a_lost_answer_is_looked_up(faulty: Workshop, *, applied: bool) -> None:
    """The fence stands if main's head is it, whatever the answer to its request was."""
    operation = faulty.open().operation
    if applied:
        FaultyCatalog.after = raising(ReadTimeout("slow"))
    else:
        FaultyCatalog.before = raising(ReadTimeout("slow"))
    assert faulty.fence(operation) is applied


def test_dropped_columns_leave_the_schema(workshop: Workshop) -> None:
    """A column that the source dropped is gone from the schema, and its id is not given to another."""
    workshop.publish(goods(1))
    dropped = {field.name: field.field_id for field in workshop.table.schema().fields}["note"]
    fewer = mapping_of(ID, MARK, column(9, "note", "text"))
    marks = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int32()), marks, pa.array(["n"])], schema=fewer.arrow_schema)
    workshop.publish([batch], fewer)
    assert {field.name: field.field_id for field in workshop.table.schema().fields}["note"] > dropped
