"""The claim on one dataset: everything a writer does to the ledger, on the connection that holds the dataset's lock.

Each step is a short transaction of its own. When the connection dies, PostgreSQL frees the lock, and with the lock the
claim is gone: it never connects anew, because by then another writer may be at work.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import RLock
from typing import Any
from uuid import UUID

from psycopg.errors import UniqueViolation
from sqlalchemy import Connection, Engine, Interval, func, literal, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.control_plane.sql.engine import control_plane_errors
from carbon_pipeline.control_plane.sql.models import OperationRow, SyncLogRow
from carbon_pipeline.control_plane.sql.rows import Found, facts_of, operation_of, relation_document
from carbon_pipeline.control_plane.sql.settlement import entry_of, settle_operation
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import ControlPlaneError, LedgerConflict
from carbon_pipeline.identity import DatasetId
from carbon_pipeline.ledger.operation import Entry, Intent, OpenRequest, Operation, Permit, Settlement
from carbon_pipeline.ledger.port import Claim
from carbon_pipeline.ledger.states import UNSETTLED, OperationStatus

_LOST = "Nothing is lost: the next sync of this table settles what this one left."


# One statement whatever the number of files. A writer that announces a file again repeats itself, no more.
_ANNOUNCE = text(
    "INSERT INTO carbon.dataset_transaction_files (operation_id, path)"
    " SELECT :operation_id, unnest(CAST(:paths AS text[])) ON CONFLICT DO NOTHING"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a ledger grants every claim."""

    code_version: str
    lease_seconds: float
    beat_seconds: float
    """How far apart heartbeats are written, however often `beat` is called."""


class SqlClaim(Claim):
    """A claim whose lock is held by *connection*'s session."""

    def __init__(
        self, connection: Connection, *, backend_pid: int, engine: Engine, dataset: Dataset, terms: Terms
    ) -> None:
        self._connection = connection
        self._engine = engine
        self._dataset = dataset
        self._terms = terms
        self._backend_pid = backend_pid
        self._beat_due = 0.0
        # A lake may report its progress from several threads; a connection belongs to one at a time.
        self._one_at_a_time = RLock()

    def unsettled(self) -> Operation | None:
        """The dataset's open or committing operation, if there is one."""
        with self._transaction() as connection:
            row = _unsettled(connection, self._dataset.id)
            return None if row is None else operation_of(row, self._dataset)

    def open(self, request: OpenRequest) -> Intent:
        """Record a new operation, and its pending sync-log row, durably."""
        if request.admitted.dataset.id != self._dataset.id:
            raise ValueError(f"a claim on {self._dataset.id} cannot open an operation of {request.admitted.dataset.id}")
        with self._transaction() as connection:
            try:
                row = connection.execute(self._insert(request)).one()
            except IntegrityError as error:
                if not _is_race(error):
                    raise
                raise LedgerConflict(f"another operation of {self._dataset.coordinate} was opened first") from None
            connection.execute(insert(SyncLogRow).values(operation_id=row.id, dataset_id=self._dataset.id))
        self._beat_due = time.monotonic() + self._terms.beat_seconds
        return Intent(operation=operation_of(row, self._dataset), code_version=self._terms.code_version)

    def beat(self, intent: Intent, rows: int, size_bytes: int, files: Sequence[str] = ()) -> None:
        """Extend the operation's lease, and record how far it is and the *files* that it is about to write.

        Cheap to call often: without files it writes every few seconds.
        """
        with self._one_at_a_time:
            if not files and time.monotonic() < self._beat_due:
                return
            self._beat_due = time.monotonic() + self._terms.beat_seconds
            self._move(intent, files, rows_written=rows, bytes_written=size_bytes)

    def advance(self, intent: Intent, snapshot_id: int) -> Permit:
        """Move the operation from `open` to `committing`; `LedgerConflict` when somebody ended it first."""
        committing = OperationStatus.COMMITTING
        self._move(intent, status=committing, committing_at=func.clock_timestamp(), planned_snapshot_id=snapshot_id)
        operation = replace(intent.operation, status=committing, snapshot_id=snapshot_id)
        return Permit(intent=replace(intent, operation=operation))

    def settle(self, operation: Operation, settlement: Settlement) -> Entry:
        """End the operation in one transaction: operation, sync log and dataset facts."""
        self._refuse_when_lost()
        try:
            with self._transaction() as connection:
                row = settle_operation(connection, self._dataset.id, operation.id, settlement)
                if row is None:
                    raise LedgerConflict(_standing(connection, operation.id))
                return entry_of(row)
        except ControlPlaneError:
            entry = self._entry_if_it_took(operation, settlement) if self._connection.invalidated else None
            if entry is None:
                raise
            return entry

    def _entry_if_it_took(self, operation: Operation, settlement: Settlement) -> Entry | None:
        """The connection broke, perhaps between COMMIT and its answer: what does the row say?"""
        with control_plane_errors(_LOST), self._engine.connect() as fresh:
            row = fresh.execute(select(OperationRow.__table__).where(OperationRow.id == operation.id)).one()
        took = row.ruling is settlement.ruling and row.reason == settlement.reason and facts_of(row) == settlement.facts
        return entry_of(row) if took else None

    def _insert(self, request: OpenRequest) -> Any:
        admitted, head, moment = request.admitted, request.head, request.moment
        last_seq = (
            select(func.coalesce(func.max(OperationRow.seq), 0))
            .where(OperationRow.dataset_id == self._dataset.id)
            .scalar_subquery()
        )
        namespace, table_name = self._dataset.identifier
        return (
            insert(OperationRow)
            .values(
                dataset_id=self._dataset.id,
                seq=last_seq + 1,
                writer=request.writer.value,
                mode=request.mode.value,
                catalog_uri=head.catalog_uri,
                warehouse=head.warehouse,
                namespace=namespace,
                table_name=table_name,
                table_uuid=head.table_uuid,
                base_snapshot_id=head.base_snapshot_id,
                actor_user=admitted.actor.user,
                actor_engine=admitted.actor.engine,
                policy=admitted.policy,
                code_version=self._terms.code_version,
                run_id=request.run_id,
                holder=f"{socket.gethostname()}:{os.getpid()}",
                source_system_identifier=moment.system_identifier,
                source_lsn=moment.lsn,
                source_time=moment.time,
                relation=relation_document(request.mapping),
                lease_until=self._lease_end(),
            )
            .returning(OperationRow.__table__)
        )

    def _move(self, intent: Intent, files: Sequence[str] = (), **values: Any) -> None:
        """The compare-and-set of everything that only an open operation may undergo, files it announces included."""
        operation_id = intent.operation.id
        with self._transaction() as connection:
            moved = connection.execute(
                update(OperationRow)
                .where(
                    OperationRow.id == operation_id,
                    OperationRow.dataset_id == self._dataset.id,
                    OperationRow.status == OperationStatus.OPEN,
                )
                .values(heartbeat_at=func.clock_timestamp(), lease_until=self._lease_end(), **values)
            )
            if not moved.rowcount:
                raise LedgerConflict(_standing(connection, operation_id))
            if files:
                connection.execute(_ANNOUNCE, {"operation_id": operation_id, "paths": list(files)})

    def _lease_end(self) -> Any:
        return func.clock_timestamp() + literal(timedelta(seconds=self._terms.lease_seconds), Interval)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._one_at_a_time, control_plane_errors(_LOST):
            self._refuse_when_lost()
            with self._connection.begin():
                if self._connection.scalar(text("SELECT pg_backend_pid()")) != self._backend_pid:
                    raise ControlPlaneError(
                        "the control plane is behind a pooler that moves a session from backend to backend, "
                        "so a lock cannot be held",
                        remedy="Give the server's own address, or a pooler in session mode.",
                    )
                yield self._connection

    def _refuse_when_lost(self) -> None:
        if self._connection.invalidated or self._connection.closed:
            raise ControlPlaneError(
                f"the claim on {self._dataset.coordinate} is gone with its connection", remedy=_LOST
            )


def _is_race(error: IntegrityError) -> bool:
    """Whether an insert lost to another operation, and not to a rule that it breaks."""
    return isinstance(error.orig, UniqueViolation)


def unsettled_standing(connection: Connection, dataset_id: DatasetId) -> str | None:
    """The dataset's unsettled operation in a phrase, if there is one."""
    row = _unsettled(connection, dataset_id)
    return None if row is None else _standing(connection, row.id)


def _unsettled(connection: Connection, dataset_id: DatasetId) -> Found | None:
    return connection.execute(
        select(OperationRow.__table__).where(OperationRow.dataset_id == dataset_id, OperationRow.status.in_(UNSETTLED))
    ).one_or_none()


def _standing(connection: Connection, operation_id: UUID) -> str:
    row = connection.execute(
        select(OperationRow.status, OperationRow.ruling).where(OperationRow.id == operation_id)
    ).one_or_none()
    if row is None:
        return f"operation {operation_id} is not in the ledger"
    ruled = "" if row.ruling is None else f", ruled {row.ruling}"
    return f"operation {operation_id} is {row.status}{ruled}"
