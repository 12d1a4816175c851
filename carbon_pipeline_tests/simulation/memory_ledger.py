"""The ledger in memory, as one process sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import ControlPlaneError, DatasetHeld, LedgerConflict, SourceReplaced
from carbon_pipeline.gate.verdict import Actor, Role
from carbon_pipeline.identity import CredentialId, OperationId, WorkspaceId
from carbon_pipeline.ledger.operation import (
    Entry,
    Intent,
    LeftBehind,
    OpenRequest,
    Operation,
    Permit,
    Settlement,
    Unsettled,
)
from carbon_pipeline.ledger.port import Claim, FileList, Ledger
from carbon_pipeline.ledger.states import RULINGS, UNSETTLED, OperationStatus, Ruling
from carbon_pipeline.source.relation import Introspection, Relation
from carbon_pipeline_tests.simulation.control_plane import ControlPlane, OperationRow, Session, SyncLogRow
from carbon_pipeline_tests.simulation.process import Process

T = TypeVar("T")

WAIT_SECONDS = 30.0

SHOWS_THE_SOURCE = frozenset({Ruling.LANDED, Ruling.NOOP})


def _away() -> BaseException:
    return ControlPlaneError("the control plane does not answer")


class MemoryLedger(Ledger):
    """The control plane as the path of one table sees it."""

    def __init__(self, plane: ControlPlane, process: Process) -> None:
        self._plane = plane
        self._process = process
        process.at_death = lambda: plane.cut(process)

    def _call(self, name: str, act: Callable[[], T]) -> T:
        return self._process.cross(f"ledger.{name}", act, _away)

    def coordinate(self, credential_id: CredentialId, relation: Relation, found: Introspection) -> Dataset:
        """See `Ledger.coordinate`."""
        credential = self._plane.credentials[credential_id]
        if found.system_identifier != credential.system_identifier:
            raise SourceReplaced("another system answers")
        return self._call("coordinate", lambda: self._plane.find_or_mint(credential, relation, found))

    def role_of(self, actor: Actor, workspace_id: WorkspaceId) -> Role | None:
        """See `Ledger.role_of`."""
        return self._call("role_of", lambda: self._plane.members.get((workspace_id, actor.user)))

    @contextmanager
    def claim(self, dataset: Dataset, actor: Actor, *, wait_seconds: float | None = None) -> Iterator[Claim]:
        """See `Ledger.claim`. Waiting lets the clock go on, and nothing else."""
        session = Session(self._plane, dataset.id, self._process)
        wait = WAIT_SECONDS if wait_seconds is None else wait_seconds
        try:
            self._process.cross("ledger.claim", lambda: self._take(session, dataset, wait), _away, session.lose)
            yield MemoryClaim(self._plane, session, dataset)
        finally:
            session.lose()

    def _take(self, session: Session, dataset: Dataset, wait_seconds: float) -> None:
        holder = self._plane.locks.get(dataset.id)
        if holder is not None:
            self._plane.clock.advance(wait_seconds)
            raise DatasetHeld(f"{dataset.coordinate} is held by {holder.process.name}")
        self._plane.locks[dataset.id] = session

    def unsettled(self, limit: int) -> Sequence[Unsettled]:
        """See `Ledger.unsettled`."""

        def look() -> Sequence[Unsettled]:
            now = self._plane.clock.now
            return [
                Unsettled(
                    operation=row.operation,
                    age_seconds=(now - row.operation.opened_at).total_seconds(),
                    lease_is_live=row.lease_until > now,
                )
                for row in self._plane.unsettled()
            ][:limit]

        return self._call("unsettled", look)

    def watched(self, hours: float) -> Sequence[Operation]:
        """See `Ledger.watched`."""

        def look() -> Sequence[Operation]:
            since = self._plane.clock.now - timedelta(hours=hours)
            return [
                row.operation
                for row in self._plane.operations.values()
                if row.status is OperationStatus.ABORTED
                and row.committing_at is not None
                and row.settled_at is not None
                and row.settled_at >= since
            ]

        return self._call("watched", look)


class MemoryClaim(Claim):
    """A claim whose lock its session holds."""

    def __init__(self, plane: ControlPlane, session: Session, dataset: Dataset) -> None:
        self._plane = plane
        self._session = session
        self._process = session.process
        self._dataset = dataset

    def _call(self, name: str, act: Callable[[], T]) -> T:
        return self._process.cross(f"claim.{name}", lambda: self._connected(act), _away, self._session.lose)

    def _connected(self, act: Callable[[], T]) -> T:
        if not self._session.is_open:
            raise ControlPlaneError("the claim is gone with its connection")
        return act()

    def unsettled(self) -> Operation | None:
        """See `Claim.unsettled`."""
        return self._call("unsettled", self._unsettled)

    def _unsettled(self) -> Operation | None:
        rows = (row for row in self._plane.unsettled() if row.operation.dataset.id == self._dataset.id)
        row = next(rows, None)
        return None if row is None else row.operation

    def open(self, request: OpenRequest) -> Intent:
        """See `Claim.open`. One unsettled operation per dataset: the unique index says so."""
        if request.admitted.dataset.id != self._dataset.id:
            raise ValueError("a claim cannot open an operation of another dataset")
        return self._call("open", lambda: self._insert(request))

    def _insert(self, request: OpenRequest) -> Intent:
        if self._unsettled() is not None:
            raise LedgerConflict(f"another operation of {self._dataset.coordinate} was opened first")
        own = (row for row in self._plane.operations.values() if row.operation.dataset.id == self._dataset.id)
        operation = Operation(
            id=OperationId(self._plane.new_uuid()),
            dataset=self._dataset,
            seq=1 + max((row.operation.seq for row in own), default=0),
            status=OperationStatus.OPEN,
            writer=request.writer,
            mode=request.mode,
            table_uuid=request.head.table_uuid,
            base_snapshot_id=request.head.base_snapshot_id,
            moment=request.moment,
            opened_at=self._plane.clock.now,
            snapshot_id=None,
        )
        before = self._plane.dataset(self._dataset.id).committed_moment
        row = OperationRow(operation=operation, lease_until=self._plane.lease_end(), committed_before=before)
        self._plane.operations[operation.id] = row
        self._plane.sync_log[operation.id] = [SyncLogRow()]
        self._plane.record(row, OperationStatus.OPEN, None, self._process)
        return Intent(operation=operation, code_version="simulated")

    def beat(self, intent: Intent, rows: int, size_bytes: int, files: Sequence[str] = ()) -> None:
        """See `Claim.beat`."""

        def write() -> None:
            row = self._open_row(intent)
            row.lease_until = self._plane.lease_end()
            row.rows_written = rows
            row.files += files

        self._call("beat", write)

    def advance(self, intent: Intent, snapshot_id: int) -> Permit:
        """See `Claim.advance`."""

        def write() -> Permit:
            row = self._open_row(intent)
            row.lease_until = self._plane.lease_end()
            row.operation = replace(row.operation, snapshot_id=snapshot_id)
            row.committing_at = self._plane.clock.now
            self._plane.move(row, OperationStatus.COMMITTING, None, self._process)
            row.committing_tick = self._plane.clock.ticked
            return Permit(intent=intent)

        return self._call("advance", write)

    def _open_row(self, intent: Intent) -> OperationRow:
        row = self._row(intent.operation)
        if row.status is not OperationStatus.OPEN:
            raise LedgerConflict(f"operation {row.id} is {row.status}")
        return row

    def _row(self, operation: Operation) -> OperationRow:
        row = self._plane.operations.get(operation.id)
        if row is None or row.operation.dataset.id != self._dataset.id:
            raise LedgerConflict(f"operation {operation.id} is not one of {self._dataset.coordinate}")
        return row

    def settle(self, operation: Operation, settlement: Settlement) -> Entry:
        """See `Claim.settle`. Operation, sync log and dataset move together or not at all."""
        return self._call("settle", lambda: self._close(operation, settlement))

    def _close(self, operation: Operation, settlement: Settlement) -> Entry:
        row = self._row(operation)
        self._guard(row, settlement)
        row.reason, row.facts = settlement.reason, settlement.facts
        self._plane.move(row, RULINGS[settlement.ruling].status, settlement.ruling, self._process)
        self._complete(row, settlement)
        return Entry(
            operation_id=row.id,
            dataset_id=self._dataset.id,
            seq=row.operation.seq,
            ruling=settlement.ruling,
            status=row.status,
            facts=settlement.facts,
            seconds=(self._plane.clock.now - row.operation.opened_at).total_seconds(),
        )

    def _guard(self, row: OperationRow, settlement: Settlement) -> None:
        if row.status not in RULINGS[settlement.ruling].comes_from:
            raise LedgerConflict(f"operation {row.id} is {row.status}")
        if settlement.ruling is Ruling.LANDED and settlement.facts is None:
            raise ControlPlaneError("a landed operation has its facts")

    def _complete(self, row: OperationRow, settlement: Settlement) -> None:
        """The sync log and what the dataset shows."""
        shows = settlement.ruling in SHOWS_THE_SOURCE
        [log] = self._plane.sync_log[row.id]
        log.status = RULINGS[settlement.ruling].sync
        log.moment = row.operation.moment if shows else None
        if shows:
            self._show(row.id)
        elif settlement.ruling is Ruling.ROLLED_BACK:
            self._lower(row, settlement.shown_operation_id)

    def _lower(self, row: OperationRow, shown_id: OperationId | None) -> None:
        """Fall back to what main still shows, where that is an earlier committed operation; else to nothing."""
        shown = None if shown_id is None else self._plane.operations.get(shown_id)
        seq = None if shown is None else shown.operation.seq
        if shown is None or seq is None or shown.status is not OperationStatus.COMMITTED or seq >= row.operation.seq:
            self._show(None)
        elif self._shown_seq() > seq:
            self._show(shown.id)
        else:
            self._confirm()

    def _shown_seq(self) -> int:
        committed = self._plane.datasets[self._dataset.id].committed
        return 0 if committed is None else self._plane.operations[committed].operation.seq

    def _show(self, operation_id: OperationId | None) -> None:
        self._plane.datasets[self._dataset.id].committed = operation_id
        self._confirm()

    def _confirm(self) -> None:
        """For the invariants: this process has just said that what the dataset shows is so."""
        self._plane.datasets[self._dataset.id].committed_by = self._process


class MemoryFileList(FileList):
    """The files that the ledger knows of, as one process sees them."""

    def __init__(self, plane: ControlPlane, process: Process) -> None:
        self._plane = plane
        self._process = process

    def left_behind(self, min_age_hours: float, limit: int) -> Sequence[LeftBehind]:
        """See `FileList.left_behind`."""

        def look() -> Sequence[LeftBehind]:
            return [
                LeftBehind(operation=row.operation, paths=tuple(row.files))
                for row in self._plane.operations.values()
                if row.files and not row.files_removed and self._is_left(row, min_age_hours)
            ][:limit]

        return self._process.cross("files.left_behind", look, _away)

    def _is_left(self, row: OperationRow, min_age_hours: float) -> bool:
        if row.status in UNSETTLED or row.status is not OperationStatus.ABORTED or row.settled_at is None:
            return False
        return self._plane.clock.now - row.settled_at >= timedelta(hours=min_age_hours)

    def mark_removed(self, left: LeftBehind) -> None:
        """See `FileList.mark_removed`."""

        def write() -> None:
            self._plane.operations[left.operation.id].files_removed = True

        self._process.cross("files.mark_removed", write, _away)
