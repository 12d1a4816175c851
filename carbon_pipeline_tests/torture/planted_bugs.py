"""Plausible mistakes, made on purpose. A suite that does not go red on one of them cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId

from carbon_pipeline.control_plane.sql.claim import SqlClaim
from carbon_pipeline.lake.iceberg import lake
from carbon_pipeline.lake.iceberg.commit import look, send_once
from carbon_pipeline.lake.iceberg.lake import IcebergLake
from carbon_pipeline.lake.iceberg.observe import landed_in
from carbon_pipeline.lake.iceberg.plan import CommitPlan, PlanWriter
from carbon_pipeline.lake.outcome import Landed, Outcome, SnapshotFacts
from carbon_pipeline.lake.port import Staged
from carbon_pipeline.ledger.operation import Intent, Operation, Permit
from carbon_pipeline.ratify.evidence import Absent, Evidence, OnMain

Patch = tuple[Any, str, Any]


def _no_fence() -> Patch:
    """An absent operation is aborted without the fence that keeps its request from landing later."""
    return IcebergLake, "fence", lambda *_: True


def _rebased() -> Patch:
    """A commit is put on top of whatever main shows by now, as PyIceberg's own loop does it."""

    def commit(catalog: Any, table: Any, plan: CommitPlan, operation: Operation) -> Outcome:
        fresh = catalog.load_table(table.name())
        place = {
            "parent_snapshot_id": fresh.metadata.current_snapshot_id,
            "sequence_number": fresh.metadata.next_sequence_number(),
        }
        updates = tuple(
            update.model_copy(update={"snapshot": update.snapshot.model_copy(update=place)})
            if isinstance(update, AddSnapshotUpdate)
            else update
            for update in plan.updates
        )
        kept = tuple(each for each in plan.requirements if not isinstance(each, AssertRefSnapshotId))
        rebased = CommitPlan(snapshot_id=plan.snapshot_id, updates=updates, requirements=kept)
        facts = landed_in(send_once(catalog, fresh, rebased), operation)
        assert facts is not None
        return Landed(facts=facts)

    return lake, "commit", commit


def _not_announced() -> Patch:
    """Files are written that the ledger never heard of."""
    original = SqlClaim.beat

    def beat(self: SqlClaim, intent: Intent, rows: int, size_bytes: int, files: Sequence[str] = ()) -> None:
        original(self, intent, rows, size_bytes)

    return SqlClaim, "beat", beat


def _believes_itself() -> Patch:
    """The writer takes its commit for landed without asking the catalog, whatever came of it."""

    def believe(self: IcebergLake, permit: Permit, staged: Staged) -> Outcome:
        facts = SnapshotFacts(
            snapshot_id=staged.snapshot_id,
            parent_snapshot_id=permit.intent.operation.base_snapshot_id,
            rows=staged.rows,
            size_bytes=staged.size_bytes,
            data_files=1,
            has_identity=True,
        )
        return Landed(facts=facts)

    return IcebergLake, "commit", believe


def _blind() -> Patch:
    """Ratify does not see a landed snapshot and takes the operation for absent."""

    def blind(catalog: Any, operation: Operation) -> Evidence:
        seen = look(catalog, operation)
        if not isinstance(seen, OnMain):
            return seen
        table = catalog.load_table(operation.dataset.identifier)
        return Absent(head_snapshot_id=table.metadata.current_snapshot_id, seen=table)

    return lake, "look", blind


def _everything_twice() -> Patch:
    """Each data file is put into the manifest twice."""
    original = PlanWriter.replace

    def replace(self: PlanWriter, files: Any, stamp: dict[str, str], properties: dict[str, str]) -> CommitPlan:
        return original(self, [file for file in files for _ in range(2)], stamp, properties)

    return PlanWriter, "replace", replace


BUGS: dict[str, Callable[[], Patch]] = {
    "aborted without a fence": _no_fence,
    "a commit rebased on whatever came": _rebased,
    "files are not announced": _not_announced,
    "landed without asking the catalog": _believes_itself,
    "a landed snapshot is overlooked": _blind,
    "every data file counted twice": _everything_twice,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The mistake, until the block ends."""
    owner, attribute, replacement = BUGS[name]()
    original = getattr(owner, attribute)
    setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        setattr(owner, attribute, original)
