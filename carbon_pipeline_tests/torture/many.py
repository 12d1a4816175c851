"""Very many datasets with an unsettled operation each, settled in one cycle.

They are copies of one real dataset with one real snapshot: rows of the control plane and of the catalog by plain SQL,
and a metadata file each. What has landed can be read in full, through the original's files.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table

from carbon_pipeline.control_plane.records import SweepTrigger
from carbon_pipeline.lake.iceberg import stamps
from carbon_pipeline.lake.iceberg.catalog import CatalogConfig, Catalogs
from carbon_pipeline.ratify.sweep import SweepReport, Terms
from carbon_pipeline_tests.torture.figures import Figures
from carbon_pipeline_tests.torture.ground import Arena
from carbon_pipeline_tests.torture.invariants import Kind, Violation, local, table_of


class Fate(StrEnum):
    """What became of a write whose process is gone."""

    LANDED = "landed"
    ABSENT = "committing, never landed"
    OPEN = "open"


RULED = {Fate.LANDED: "landed", Fate.ABSENT: "fenced", Fate.OPEN: "never_landed"}
CAP = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One dataset with its operation."""

    name: str
    dataset_id: UUID
    operation_id: UUID
    table_uuid: UUID
    location: str
    fate: Fate

    @property
    def metadata_file(self) -> str:
        """Where the catalog says that its table is."""
        return f"{self.location}/metadata/00000-{self.table_uuid}.metadata.json"


class CountingCatalog(SqlCatalog):
    """Counts how often each table is loaded. What the catalog does inside a commit is its own affair."""

    loads: Counter[str]
    _commits: int = 0

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        """The table, counted."""
        if not self._commits:
            self.loads[Catalog.table_name_from(identifier)] += 1
        return super().load_table(identifier)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """The commit, its own look not counted."""
        self._commits += 1
        try:
            return super().commit_table(table, requirements, updates)
        finally:
            self._commits -= 1


class CountingCatalogs(Catalogs):
    """The arena's one catalog, counting."""

    def __init__(self, config: CatalogConfig) -> None:
        super().__init__({config.name: config})
        self.counting = CountingCatalog(config.name, **config.properties)
        self.counting.loads = Counter()

    def open(self, name: str) -> Catalog:
        """The one."""
        assert name == self.counting.name
        return self.counting


def make(arena: Arena, fates: Sequence[Fate]) -> list[Copy]:
    """A dataset with an unsettled operation for each of these fates."""
    target = arena.field(rows=3)
    assert target.sync().error is None
    dataset, table = target.dataset, table_of(target)
    assert dataset is not None
    assert table is not None
    template = json.loads(Path(local(table.metadata_location)).read_text())
    folder = dataset.location.rpartition("/")[0]
    copies = [_copy(f"{target.table}_{number}", folder, fate) for number, fate in enumerate(fates)]
    for copy in copies:
        path = Path(local(copy.metadata_file))
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(_metadata(template, copy)))
    _register(arena, copies, dataset.identifier)
    _open(arena, copies, target.table, template["current-snapshot-id"])
    return copies


def _copy(name: str, folder: str, fate: Fate) -> Copy:
    dataset_id = uuid4()
    return Copy(
        name=name,
        dataset_id=dataset_id,
        operation_id=uuid4(),
        table_uuid=uuid4(),
        location=f"{folder}/{dataset_id}",
        fate=fate,
    )


def _metadata(template: Mapping[str, Any], copy: Copy) -> dict[str, Any]:
    """The template's metadata as the copy's: with its snapshot, stamped anew, where the copy has landed."""
    metadata = {**template, "table-uuid": str(copy.table_uuid), "location": copy.location, "metadata-log": []}
    metadata["properties"] = {**template["properties"], stamps.DATASET: str(copy.dataset_id)}
    if copy.fate is Fate.LANDED:
        [snapshot] = template["snapshots"]
        summary = {**snapshot["summary"], stamps.OPERATION_ID: str(copy.operation_id)}
        return {**metadata, "snapshots": [{**snapshot, "summary": summary}]}
    gone = {"snapshots": [], "snapshot-log": [], "refs": {}, "last-sequence-number": 0}
    return {**metadata, **gone, "current-snapshot-id": None}


_COPIES = (
    "CREATE TEMP TABLE copies (name text, dataset_id uuid, operation_id uuid, table_uuid text, location text,"
    " metadata_file text, is_open boolean)"
)


def _put(connection: Any, copies: Sequence[Copy]) -> None:
    connection.execute(_COPIES)
    with connection.cursor().copy("COPY copies FROM STDIN") as into:
        for copy in copies:
            into.write_row((
                copy.name, copy.dataset_id, copy.operation_id, str(copy.table_uuid), copy.location,
                copy.metadata_file, copy.fate is Fate.OPEN,
            ))  # fmt: skip


def _register(arena: Arena, copies: Sequence[Copy], identifier: tuple[str, str]) -> None:
    with arena.admin(arena.catalog_database) as connection:
        _put(connection, copies)
        connection.execute(
            "INSERT INTO iceberg_tables SELECT (jsonb_populate_record(t, jsonb_build_object("
            " 'table_name', c.name, 'metadata_location', c.metadata_file, 'previous_metadata_location', NULL))).*"
            " FROM iceberg_tables t, copies c WHERE t.table_namespace = %s AND t.table_name = %s",
            identifier,
        )


def _nulls(names: str) -> str:
    """Arguments of `jsonb_build_object` that make each of these columns null."""
    return ", ".join(f"'{name}', NULL" for name in names.split())


_NEVER_COMMITTED = _nulls(
    "row_count size_bytes data_files snapshot_id columns primary_key foreign_keys keys_failed schema_version"
    " committed_operation_id committed_seq source_system_identifier source_lsn source_time updated_at"
)
_AS_OPENED = _nulls(
    "ruling reason settled_at committing_at planned_snapshot_id snapshot_id parent_snapshot_id rows size_bytes"
    " data_files has_identity base_snapshot_id"
)


def _open(arena: Arena, copies: Sequence[Copy], table: str, snapshot_id: int) -> None:
    """Datasets, and their operations: opened, and moved on to `committing` but for those that stay open."""
    with arena.control() as connection, connection.transaction():
        _put(connection, copies)
        source_oid = connection.execute(
            "SELECT greatest(max(source_oid), 3000000000) AS oid FROM carbon.datasets"
        ).fetchone()
        connection.execute(
            "INSERT INTO carbon.datasets SELECT (jsonb_populate_record(d, jsonb_build_object('id', c.dataset_id,"
            " 'source_oid', %s + row_number() OVER (), 'source_name', c.name, 'partition_key', c.name, 'name', c.name,"
            f" 'table_name', c.name, 'location', c.location, {_NEVER_COMMITTED}))).*"
            " FROM carbon.datasets d, copies c WHERE d.source_name = %s",
            (source_oid.oid if source_oid else None, table),
        )
        connection.execute(
            "INSERT INTO carbon.dataset_transactions SELECT (jsonb_populate_record(t, jsonb_build_object("
            " 'id', c.operation_id, 'dataset_id', c.dataset_id, 'status', 'open', 'table_name', c.name,"
            f" 'table_uuid', c.table_uuid, 'lease_until', t.opened_at, {_AS_OPENED}))).*"
            " FROM carbon.dataset_transactions t JOIN carbon.datasets d ON d.id = t.dataset_id, copies c"
            " WHERE d.source_name = %s AND t.status = 'committed'",
            (table,),
        )
        connection.execute(
            "INSERT INTO carbon.iceberg_sync_log (operation_id, dataset_id) SELECT operation_id, dataset_id FROM copies"
        )
        connection.execute(
            "UPDATE carbon.dataset_transactions SET status = 'committing', committing_at = clock_timestamp(),"
            " planned_snapshot_id = %s WHERE id IN (SELECT operation_id FROM copies WHERE NOT is_open)",
            (snapshot_id,),
        )


def swept(arena: Arena, aborts_max: int) -> tuple[SweepReport, Counter[str], float]:
    """One cycle: its report, how often each table was loaded, and how long it took."""
    catalogs = CountingCatalogs(arena.deployment.catalogs.config("main"))
    begun = time.monotonic()
    deployment = replace(arena.deployment, catalogs=catalogs)
    report = deployment.ratify(SweepTrigger.LIBRARY, Terms(min_age_seconds=0, aborts_max=aborts_max))
    return report, catalogs.counting.loads, time.monotonic() - begun


def fates(count: int, aborts: int) -> list[Fate]:
    """So many datasets, of which so many will be aborted: half of them after the request, half before."""
    gone = [Fate.ABSENT if number % 2 else Fate.OPEN for number in range(aborts)]
    return [*gone, *[Fate.LANDED] * (count - aborts)]


def under_the_cap(arena: Arena, count: int) -> tuple[list[Violation], float]:
    """As many aborts as the cap allows: all settle in one cycle, each table loaded once, each ruled as it should."""
    copies = make(arena, fates(count, CAP))
    report, loads, seconds = swept(arena, CAP)
    found = _wrongly_ruled(arena, copies)
    if report.alarm is not None:
        found.append(Violation(kind=Kind.OTHER, text=f"an alarm under the cap: {report.alarm}"))
    # An operation that was aborted after its request is looked at again by the watch for late landings.
    most = {Fate.LANDED: 1, Fate.ABSENT: 2, Fate.OPEN: 0}
    often = [copy for copy in copies if loads[copy.name] > most[copy.fate]]
    if often:
        text = f"{len(often)} tables were loaded too often, {often[0].fate} {loads[often[0].name]} times"
        found.append(Violation(kind=Kind.OTHER, text=text))
    return found, seconds


def over_the_cap(arena: Arena, count: int) -> list[Violation]:
    """One more than the cap allows: none is aborted and an alarm is raised, until a person raises the cap."""
    copies = make(arena, fates(count, CAP + 1))
    report, _, _ = swept(arena, CAP)
    found = []
    if report.alarm is None:
        found.append(Violation(kind=Kind.OTHER, text="no alarm over the cap"))
    rulings = _rulings(arena, copies)
    aborted = [copy for copy in copies if copy.fate is not Fate.LANDED and rulings[copy.operation_id] is not None]
    if aborted:
        found.append(Violation(kind=Kind.OTHER, text=f"{len(aborted)} operations were aborted over the cap"))
    swept(arena, CAP + 1)
    return found + _wrongly_ruled(arena, copies)


def _rulings(arena: Arena, copies: Sequence[Copy]) -> dict[UUID, str | None]:
    with arena.control() as connection:
        rows = connection.execute(
            "SELECT id, ruling::text FROM carbon.dataset_transactions WHERE id = ANY (%s)",
            ([copy.operation_id for copy in copies],),
        ).fetchall()
    return {row.id: row.ruling for row in rows}


def _wrongly_ruled(arena: Arena, copies: Sequence[Copy]) -> list[Violation]:
    rulings = _rulings(arena, copies)
    wrong = Counter(
        (copy.fate, rulings[copy.operation_id]) for copy in copies if rulings[copy.operation_id] != RULED[copy.fate]
    )
    return [
        Violation(
            kind=Kind.OPEN_FOR_EVER if ruling is None else Kind.OTHER,
            text=f"{times} operations {fate} were ruled {ruling}",
        )
        for (fate, ruling), times in wrong.items()
    ]


def run(arena: Arena, figures: Figures, *, count: int) -> float:
    """Both, and how many seconds the one cycle took."""
    found, seconds = under_the_cap(arena, count)
    figures.note(f"{count} datasets", found)
    figures.note("over the cap", over_the_cap(arena, min(count, 200)))
    return seconds
