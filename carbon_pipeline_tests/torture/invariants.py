"""What must hold of a dataset after any fault, recovery and re-run, checked with reads of its own.

The numbers are those of the design's list of what must never happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from carbon_pipeline.lake.iceberg import stamps
from carbon_pipeline.verify.digest import Equality
from carbon_pipeline_tests.torture.ground import Arena, Field


class Kind(StrEnum):
    """What a violation counts as."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    ABORTED_VISIBLE = "aborted-visible"
    OPEN_FOR_EVER = "open-for-ever"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that is not as it must be."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(slots=True, kw_only=True)
class Disturbance:
    """What other engines did to a table, which the ledger is not to blame for."""

    expired: set[int] = field(default_factory=set)
    rolled_back: bool = False


@dataclass(slots=True, kw_only=True)
class _Look:
    """Everything that the checks read, read once."""

    table: Table | None
    operations: Mapping[UUID, Any]
    chain: list[Snapshot]
    sync_log: Counter[tuple[UUID, str]]
    dataset: Any
    announced: Mapping[str, UUID]


def violations(target: Field, *, disturbed: Disturbance | None = None, rerun: bool = True) -> list[Violation]:
    """Everything that is wrong with a dataset; with *rerun* its newest write is taken to have run to its end."""
    disturbance = disturbed or Disturbance()
    look = _look(target)
    found = [
        *_open(look),
        *_committed(look, disturbance),
        *_stamps(look),
        *_sync_log(look),
        *_readable(look),
        *_orphans(look, disturbance),
    ]
    if rerun or not disturbance.rolled_back:
        found += _fresh(look, disturbance)
    if rerun:
        found += _equal(target)
    return found


def _look(target: Field) -> _Look:
    dataset = target.dataset
    table = None if dataset is None else table_of(target)
    of_dataset = " WHERE dataset_id = (SELECT id FROM carbon.datasets WHERE source_name = %s)"
    with target.arena.control() as connection:
        operations = connection.execute(
            "SELECT id, seq, status::text, ruling::text, snapshot_id, planned_snapshot_id, source_time"
            f" FROM carbon.dataset_transactions{of_dataset}", (target.table,),
        ).fetchall()  # fmt: skip
        log = connection.execute(
            f"SELECT operation_id, status::text FROM carbon.iceberg_sync_log{of_dataset}", (target.table,)
        ).fetchall()
        files = connection.execute(
            "SELECT f.path, f.operation_id FROM carbon.dataset_transaction_files f"
            f" JOIN carbon.dataset_transactions t ON t.id = f.operation_id{of_dataset}", (target.table,),
        ).fetchall()  # fmt: skip
        row = connection.execute(
            "SELECT snapshot_id, committed_operation_id, row_count, source_time FROM carbon.datasets"
            " WHERE source_name = %s", (target.table,),
        ).fetchone()  # fmt: skip
    return _Look(
        table=table,
        operations={operation.id: operation for operation in operations},
        chain=[] if table is None else ancestry(table),
        sync_log=Counter((entry.operation_id, entry.status) for entry in log),
        dataset=row,
        announced={file.path: file.operation_id for file in files},
    )


def table_of(target: Field) -> Table | None:
    """The dataset's table as the catalog has it; none before it is made."""
    dataset = target.dataset
    assert dataset is not None
    try:
        return target.arena.deployment.catalogs.open(dataset.catalog).load_table(dataset.identifier)
    except NoSuchTableError:
        return None


def ancestry(table: Table) -> list[Snapshot]:
    """Main's snapshots from its head back, as far as they are there."""
    chain, at = [], table.metadata.current_snapshot()
    while at is not None:
        chain.append(at)
        at = table.metadata.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
    return chain


def stamp_of(snapshot: Snapshot) -> UUID | None:
    """The operation that a snapshot says it is of."""
    stamp = snapshot.summary[stamps.OPERATION_ID] if snapshot.summary else None
    return UUID(stamp) if stamp else None


def _open(look: _Look) -> Iterator[Violation]:
    """7: nothing stays open for ever."""
    for operation in look.operations.values():
        if operation.status in {"open", "committing"}:
            yield Violation(kind=Kind.OPEN_FOR_EVER, text=f"operation {operation.id} is {operation.status}")


def _committed(look: _Look, disturbance: Disturbance) -> Iterator[Violation]:
    """3: every committed operation has its snapshot, on main unless another engine moved main or expired it."""
    on_main = {snapshot.snapshot_id for snapshot in look.chain}
    kept = {snapshot.snapshot_id for snapshot in look.table.metadata.snapshots} if look.table else set()
    excused = disturbance.expired | (kept if disturbance.rolled_back else set())
    for operation in look.operations.values():
        snapshot_id = operation.snapshot_id or operation.planned_snapshot_id
        if operation.status == "committed" and snapshot_id not in on_main | excused:
            text = f"operation {operation.id} is committed ({operation.ruling}), snapshot {snapshot_id} is not on main"
            yield Violation(kind=Kind.LOST, text=text)


def _stamps(look: _Look) -> Iterator[Violation]:
    """3: every stamped snapshot has one operation, which is not aborted."""
    snapshots = look.table.metadata.snapshots if look.table else []
    counted = Counter(stamp for snapshot in snapshots if (stamp := stamp_of(snapshot)) is not None)
    for operation_id, times in counted.items():
        operation = look.operations.get(operation_id)
        if operation is None:
            yield Violation(kind=Kind.OTHER, text=f"a snapshot names operation {operation_id}, which nobody knows")
        elif operation.status == "aborted":
            text = f"operation {operation_id} is aborted ({operation.ruling}), and the table has its snapshot"
            yield Violation(kind=Kind.ABORTED_VISIBLE, text=text)
        if times > 1:
            yield Violation(kind=Kind.DUPLICATED, text=f"{times} snapshots name operation {operation_id}")


def _sync_log(look: _Look) -> Iterator[Violation]:
    """4: one succeeded row of the sync log per committed operation, and none for others."""
    for operation in look.operations.values():
        wanted = int(operation.status == "committed")
        if look.sync_log[operation.id, "succeeded"] != wanted:
            yield Violation(kind=Kind.OTHER, text=f"the sync log of {operation.id} does not say {operation.status}")


def _fresh(look: _Look, disturbance: Disturbance) -> Iterator[Violation]:
    """5: what the dataset says it shows is what main shows, or older; its snapshot may have expired under a fence."""
    if look.dataset is None or look.dataset.snapshot_id in {None, *disturbance.expired}:
        return
    shown = {stamp_of(snapshot): snapshot for snapshot in reversed(look.chain)}
    snapshot = shown.get(look.dataset.committed_operation_id)
    if snapshot is None or snapshot.summary is None:
        yield Violation(kind=Kind.OTHER, text=f"the dataset shows {look.dataset.committed_operation_id}, main does not")
        return
    if (
        snapshot.summary[stamps.SOURCE_TIME]
        != look.operations[look.dataset.committed_operation_id].source_time.isoformat()
    ):
        yield Violation(kind=Kind.OTHER, text="the dataset's moment is not its snapshot's")
    if look.dataset.snapshot_id != snapshot.snapshot_id:
        yield Violation(kind=Kind.OTHER, text="the dataset's snapshot is not its operation's")


def _readable(look: _Look) -> Iterator[Violation]:
    """2 and 6: main can be read in full, has as many rows as it says, and no key twice."""
    if look.table is None or not look.chain:
        return
    try:
        ids = [number for path in data_files(look.table) for number in pq.read_table(path)["id"].to_pylist()]
    except OSError as error:
        yield Violation(kind=Kind.LOST, text=f"main cannot be read: {error}")
        return
    summary = look.chain[0].summary
    if summary is not None and len(ids) != int(summary["total-records"] or -1):
        yield Violation(kind=Kind.LOST, text=f"main has {len(ids)} rows and says {summary['total-records']}")
    if len(ids) != len(set(ids)):
        yield Violation(kind=Kind.DUPLICATED, text=f"{len(ids) - len(set(ids))} keys are there twice")


def data_files(table: Table) -> list[str]:
    """The local paths of main's data files."""
    return [local(task.file.file_path) for task in table.scan().plan_files()]


def local(path: str) -> str:
    """A file URI as a path."""
    return path.removeprefix("file://")


def _equal(target: Field) -> Iterator[Violation]:
    """1: the target equals the source at one snapshot, as a multiset."""
    [verified] = target.arena.deployment.verify(target.credential, (target.table,))
    if verified.comparison is None or verified.comparison.verdict is not Equality.EQUAL:
        yield Violation(kind=Kind.LOST, text=f"lake and source differ: {verified.comparison or verified.error}")


def _orphans(look: _Look, disturbance: Disturbance) -> Iterator[Violation]:
    """10: what nothing refers to was announced by an operation that did not land. A catalog's own metadata files and
    the manifest lists of fences that lost are of no operation; of the latter there are few."""
    if look.table is None:
        return
    referenced = _referenced(look.table)
    for path in map(str, Path(local(look.table.location())).rglob("*")):
        if not Path(path).is_file() or path in referenced or path.endswith(".metadata.json"):
            continue
        operation = look.operations.get(look.announced.get(f"file://{path}") or UUID(int=0))
        if operation is None and not Path(path).name.startswith("snap-"):
            yield Violation(kind=Kind.OTHER, text=f"{path} was never announced")
        elif operation is not None and operation.status == "committed" and not disturbance.expired:
            text = f"{path} is of committed operation {operation.id}, and nothing refers to it"
            yield Violation(kind=Kind.OTHER, text=text)
            return


def unannounced(target: Field) -> int:
    """How many manifest lists of fences that lost lie about."""
    look = _look(target)
    if look.table is None:
        return 0
    referenced = _referenced(look.table)
    files = Path(local(look.table.location())).rglob("snap-*")
    return sum(str(path) not in referenced and f"file://{path}" not in look.announced for path in files)


def _referenced(table: Table) -> set[str]:
    found: set[str] = set()
    manifests: set[str] = set()
    for snapshot in table.metadata.snapshots:
        found.add(local(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in manifests:
                continue
            manifests.add(manifest.manifest_path)
            found.add(local(manifest.manifest_path))
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            found.update(local(entry.data_file.file_path) for entry in entries)
    return found


def secrets_in(arena: Arena) -> list[Violation]:
    """9: no secret in anything that was printed, written to the lake or put on record."""
    needles = [secret.encode() for secret in arena.secrets]
    found = [
        Violation(kind=Kind.OTHER, text=f"a secret is in {path}")
        for path in (*arena.outputs.iterdir(), *arena.warehouse.rglob("*"))
        if path.is_file() and any(needle in path.read_bytes() for needle in needles)
    ]
    return found + [Violation(kind=Kind.OTHER, text=f"a secret is in {table}") for table in _telling_tables(arena)]


def _telling_tables(arena: Arena) -> Iterator[str]:
    with arena.control() as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'carbon'").fetchall()
        for (table,) in tables:
            for secret in arena.secrets:
                row = connection.execute(
                    f"SELECT count(*) FROM carbon.{table} t WHERE strpos(t::text, %s) > 0", (secret,)
                ).fetchone()
                if row and row[0]:
                    yield table


def said(found: Iterable[Violation]) -> str:
    """All of them, for an assertion's message."""
    return "; ".join(map(str, found))
