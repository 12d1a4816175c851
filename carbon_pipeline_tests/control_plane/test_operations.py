"""Operations as people ask for them: lists by filter, and the story of one by its id or the beginning of it."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from carbon_pipeline.control_plane.records import Credential, OperationFilter, Workspace
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger, _select_unsettled, _select_watched
from carbon_pipeline.control_plane.sql.rows import Query
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import UsageError
from carbon_pipeline.ledger.states import OperationStatus, Ruling, SyncStatus
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.plane import Plane
from carbon_pipeline_tests.control_plane.samples import (
    ACTOR,
    FACTS,
    PLANNED,
    backdate,
    end,
    leave,
    moment,
    publish,
    request,
    status_of,
)

OPEN, COMMITTING = OperationStatus.OPEN, OperationStatus.COMMITTING


def rename(engine: Engine, old: UUID, new: str) -> None:
    """Give an operation another id, with all that refers to it, so that ids can be alike."""
    tables = ("dataset_transaction_events", "dataset_transaction_files", "iceberg_sync_log")
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        for table in tables:
            connection.execute(
                text(f"UPDATE carbon.{table} SET operation_id = :new WHERE operation_id = :old"),
                {"new": new, "old": old},
            )
        connection.execute(
            text("UPDATE carbon.dataset_transactions SET id = :new WHERE id = :old"), {"new": new, "old": old}
        )


def test_unsettled_operations_come_oldest_first(plane: Plane) -> None:
    """With age and lease by the database's clock, their datasets, and the snapshot that a committing one planned;
    settled ones are not among them, and the limit keeps the oldest."""
    now = plane.leave(1, OPEN)
    oldest = plane.leave(2, COMMITTING)
    middle = plane.leave(3, OPEN, ledger=SqlLedger(plane.engine, code_version="0.1.0", warehouses={}))
    end(plane.ledger, plane.leave(4, OPEN), Ruling.FAILED)
    backdate(plane.engine, oldest.id, hours=2)
    backdate(plane.engine, middle.id, hours=1)
    unsettled = plane.ledger.unsettled(10)
    assert [each.operation.id for each in unsettled] == [oldest.id, middle.id, now.id]
    assert [round(each.age_seconds / 3600) for each in unsettled] == [2, 1, 0]
    assert [each.lease_is_live for each in unsettled] == [False, True, False]
    assert [each.operation.snapshot_id for each in unsettled] == [PLANNED, None, None]
    assert unsettled[0].operation.dataset == plane.dataset(2)
    assert unsettled[2].operation == now
    assert [each.operation.id for each in plane.ledger.unsettled(2)] == [oldest.id, middle.id]


@pytest.mark.parametrize("query", [_select_unsettled(10), _select_watched(24)], ids=["unsettled", "watched"])
def test_a_sweep_does_not_read_the_whole_ledger(engine: Engine, query: Query) -> None:
    """What it asks for has an index of its own: however long the ledger is, it reads what is unsettled or recent."""
    statement = query.compile(engine, compile_kwargs={"literal_binds": True})
    with engine.connect() as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}").scalars())
    assert "unsettled_by_opening" in plan or "one_unsettled_operation" in plan or "aborted_by_settling" in plan


def test_what_had_been_committing_is_watched(plane: Plane) -> None:
    """Of aborted operations those that may have sent a request, for so many hours; never the others."""
    wanted = []
    for number, ruling in enumerate((Ruling.FENCED, Ruling.REFUSED)):
        wanted.append(plane.leave(number, COMMITTING))
        end(plane.ledger, wanted[-1], ruling)
    end(plane.ledger, plane.leave(2, OPEN), Ruling.NEVER_LANDED)
    end(plane.ledger, plane.leave(3, COMMITTING), Ruling.NO_EVIDENCE)
    end(plane.ledger, plane.leave(4, COMMITTING), Ruling.LANDED)
    long_ago = plane.leave(5, COMMITTING)
    end(plane.ledger, long_ago, Ruling.FENCED)
    backdate(plane.engine, long_ago.id, hours=25)
    watched = plane.ledger.watched(24)
    assert [each.id for each in watched] == [each.id for each in wanted]
    assert {(each.status, each.snapshot_id) for each in watched} == {(OperationStatus.ABORTED, PLANNED)}
    assert [each.id for each in plane.ledger.watched(48)] == [long_ago.id, *(each.id for each in wanted)]


def test_operations_are_listed_by_filter(plane: Plane) -> None:
    """The newest first: unsettled ones, failed ones, all; of one dataset by any of its names; so many at the most."""
    left = {status: plane.leave(number, status).id for number, status in enumerate((OPEN, COMMITTING))}
    for number, ruling in enumerate((Ruling.FAILED, Ruling.NO_EVIDENCE, Ruling.LANDED), start=2):
        operation = plane.leave(number, OPEN if ruling is Ruling.FAILED else COMMITTING)
        end(plane.ledger, operation, ruling)
    list_of = plane.directory.operations
    assert [line.id for line in list_of(OperationFilter.OPEN)] == [left[COMMITTING], left[OPEN]]
    assert [line.ruling for line in list_of(OperationFilter.FAILED)] == [Ruling.NO_EVIDENCE, Ruling.FAILED]
    assert [line.dataset.name for line in list_of()] == ["t4", "t3", "t2", "t1", "t0"]
    assert [line.dataset.name for line in list_of(limit=2)] == ["t4", "t3"]
    for name in ("t3", "default.t3", "public.t3"):
        assert [line.ruling for line in list_of(dataset=name)] == [Ruling.NO_EVIDENCE]
    with pytest.raises(UsageError, match="no dataset t77"):
        list_of(dataset="t77")


def test_a_list_keeps_to_its_workspace(
    directory: Directory, ledger: SqlLedger, dataset: Dataset, users: Relation, workspace: Workspace
) -> None:
    """Another tenant's operations are not in it."""
    publish(ledger, dataset, users)
    stranger = directory.create_workspace(f"apart from {workspace.name}", owner="eve")
    assert [line.dataset.id for line in directory.operations(workspace=workspace)] == [dataset.id]
    assert directory.operations(workspace=stranger) == ()


def test_a_line_says_where_an_operation_stands(
    directory: Directory, ledger: SqlLedger, dataset: Dataset, users: Relation, credential: Credential
) -> None:
    """A landed one has its time, its rows and its snapshot; one at work its lease and how far it is."""
    landed = publish(ledger, dataset, users)
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        claim.beat(intent, 1_000, 9_000)
        working, done = directory.operations(workspace=credential.workspace)
        assert (working.id, working.seq, working.status) == (intent.operation.id, 2, OPEN)
        assert (working.lease_is_live, working.rows_written, working.seconds) == (True, 1_000, None)
        assert (working.rows, working.snapshot_id, working.ruling) == (None, None, None)
    assert (done.id, done.credential, done.user, done.run_id) == (landed, credential.name, "ada", None)
    assert (done.rows, done.snapshot_id, done.lease_is_live) == (FACTS.rows, PLANNED, False)
    assert done.seconds is not None
    assert 0 < done.seconds <= done.age_seconds
    assert done.dataset == directory.dataset(f"{dataset.coordinate}", credential.workspace).dataset


def test_a_story_has_everything(
    engine: Engine, directory: Directory, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """Who, when, from where, under which rule and code, to which destination, from which base to which snapshot, as of
    which source moment, with what it came to: all that was recorded at open, on the way and at the end."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users, base_snapshot_id=2**62))
        claim.beat(intent, 5, 50, ["s3://w/1.parquet", "s3://w/2.parquet"])
        open_story = directory.operation(str(intent.operation.id))
        claim.advance(intent, PLANNED)
    end(ledger, intent.operation, Ruling.LANDED)
    story = directory.operation(str(intent.operation.id))
    assert (story.engine, story.policy, story.code_version) == ("carbon_pipeline", "role:owner", "0.1.0")
    assert ":" in story.holder
    assert (story.relation, story.moment) == ("public.users", moment())
    assert (story.catalog_uri, story.warehouse, story.identifier) == (
        "postgresql://127.0.0.1/lakehouse",
        "file:///warehouse",
        dataset.identifier,
    )
    assert (story.table_uuid, story.base_snapshot_id) == ("9c12d441-03fe-4693-9a96-a0705ddf69c1", 2**62)
    assert (open_story.planned_snapshot_id, story.planned_snapshot_id) == (None, PLANNED)
    assert (story.line.snapshot_id, story.parent_snapshot_id) == (PLANNED, FACTS.parent_snapshot_id)
    assert (story.size_bytes, story.data_files, story.has_identity) == (FACTS.size_bytes, FACTS.data_files, True)
    assert (story.line.rows_written, story.bytes_written) == (5, 50)
    assert open_story.lease_until > open_story.heartbeat_at
    assert open_story.sync_log.status is SyncStatus.PENDING
    assert (story.sync_log.status, story.sync_log.source_time) == (SyncStatus.SUCCEEDED, moment().time)
    assert story.committing_at is not None
    assert story.settled_at is not None
    assert [event.to_status for event in story.events] == [OPEN, COMMITTING, OperationStatus.COMMITTED]
    assert [(file.path, file.removed_at) for file in story.files] == [
        ("s3://w/1.parquet", None),
        ("s3://w/2.parquet", None),
    ]


def test_a_story_is_found_by_the_beginning_of_its_id(plane: Plane) -> None:
    """Eight digits are enough where they are enough; with or without dashes, in capitals or not. Where several begin
    alike they are named, and more digits decide."""
    ids = ["abcdef01-1111-4111-8111-111111111111", "abcdef01-1112-4111-8111-111111111111"]
    for number, new in enumerate(ids):
        rename(plane.engine, plane.leave(number, OPEN).id, new)
    find = plane.directory.operation
    for spelling in ("abcdef01-1112", "ABCDEF011112", f" {ids[1]} ", ids[1].replace("-", "")):
        assert str(find(spelling).line.id) == ids[1]
    with pytest.raises(
        UsageError, match=rf"several operations: {ids[0]} \(default.t0\), {ids[1]} \(default.t1\) — Give"
    ):
        find("abcdef01")
    with pytest.raises(UsageError, match="there is no operation abcdef02"):
        find("abcdef02")
    for wrong in ("abcdef0", "", "%", "abcdefgh", "abcdef01' OR 1=1", ids[0] + "0"):
        with pytest.raises(UsageError, match="is not an operation's id"):
            find(wrong)


def test_many_ambiguous_ids_are_cut_short(plane: Plane) -> None:
    """Five are named, and that there are more."""
    for number in range(7):
        rename(plane.engine, plane.leave(number, OPEN).id, f"abcdef01-0000-4000-8000-{number:012}")
    with pytest.raises(UsageError, match=r"000000000004 \(default.t4\), … —"):
        plane.directory.operation("abcdef01")


def test_open_records_all_that_the_protocol_asks_for(
    engine: Engine, directory: Directory, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """Before a byte is written every part of the intent is on record; only what comes later is still unknown."""
    left = leave(ledger, dataset, users, OPEN)
    with engine.connect() as connection:
        row = connection.execute(
            text("SELECT * FROM carbon.dataset_transactions WHERE id = :id"), {"id": left.id}
        ).one()
    unknown = {name for name, value in row._asdict().items() if value is None}
    later = {"ruling", "reason", "committing_at", "planned_snapshot_id", "settled_at", "snapshot_id"}
    later |= {"parent_snapshot_id", "rows", "size_bytes", "data_files", "has_identity"}
    assert unknown == later | {"base_snapshot_id", "run_id"}, "the request had neither a base nor a run"
    assert row.lease_until > row.heartbeat_at
    assert status_of(directory, dataset) is OPEN
