"""The ledger on PostgreSQL."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, timedelta

from sqlalchemy import Connection, Engine, Interval, func, literal, select, text
from sqlalchemy.exc import SQLAlchemyError

from carbon_pipeline.control_plane.sql.claim import SqlClaim, Terms, unsettled_standing
from carbon_pipeline.control_plane.sql.coordinates import find_or_mint
from carbon_pipeline.control_plane.sql.engine import control_plane_errors, dedicated_connection
from carbon_pipeline.control_plane.sql.migrate import check_version
from carbon_pipeline.control_plane.sql.models import MemberRow, OperationRow
from carbon_pipeline.control_plane.sql.rows import (
    Found,
    Query,
    dataset_of,
    operation_of,
    operation_part,
    select_operations,
)
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import DatasetHeld
from carbon_pipeline.gate.verdict import Actor, Role
from carbon_pipeline.identity import CredentialId, DatasetId, WorkspaceId
from carbon_pipeline.ledger.operation import Operation, Unsettled
from carbon_pipeline.ledger.port import Claim, Ledger
from carbon_pipeline.ledger.states import UNSETTLED, OperationStatus
from carbon_pipeline.source.relation import Introspection, Relation

_POLL_SECONDS = 0.1

# The session lives as long as the write, mostly idle. It must neither be ended for that nor outlive a machine that
# vanished, and what it commits is on disk: nothing reaches the lake on the strength of a promise.
_SESSION = text(
    "SELECT set_config('idle_session_timeout', '0', false),"
    " set_config('idle_in_transaction_session_timeout', '60s', false),"
    " set_config('statement_timeout', '60s', false),"
    " set_config('tcp_keepalives_idle', '30', false),"
    " set_config('tcp_keepalives_interval', '10', false),"
    " set_config('tcp_keepalives_count', '3', false),"
    " set_config('synchronous_commit',"
    "   CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,"
    "   false),"
    " set_config('application_name', :name, false)"
)

# pg_locks shows the two halves of a 64-bit key (PostgreSQL manual, "pg_locks").
_HOLDER = text(
    "SELECT a.application_name, a.pid, a.backend_start"
    " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.datname = current_database()"
    " AND l.classid::bigint = :high AND l.objid::bigint = :low"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class SqlLedger(Ledger):
    """The control plane in PostgreSQL, as the path of one table sees it."""

    def __init__(
        self,
        engine: Engine,
        *,
        code_version: str,
        warehouses: Mapping[str, str],
        wait_seconds: float = 30,
        lease_seconds: float = 120,
        beat_seconds: float = 5,
    ) -> None:
        """*warehouses* are the warehouse URIs of the catalogs that this process knows, by the catalog's name."""
        self._engine = engine
        self._warehouses = dict(warehouses)
        self._wait_seconds = wait_seconds
        self._terms = Terms(code_version=code_version, lease_seconds=lease_seconds, beat_seconds=beat_seconds)

    def coordinate(self, credential_id: CredentialId, relation: Relation, found: Introspection) -> Dataset:
        """The relation's dataset, found or minted."""
        with control_plane_errors():
            return find_or_mint(self._engine, self._warehouses, credential_id, relation, found)

    def role_of(self, actor: Actor, workspace_id: WorkspaceId) -> Role | None:
        """The actor's role in a workspace; none for a stranger."""
        with control_plane_errors(), self._engine.connect() as connection:
            return connection.scalar(
                select(MemberRow.role).where(MemberRow.workspace_id == workspace_id, MemberRow.user_id == actor.user)
            )

    @contextmanager
    def claim(self, dataset: Dataset, actor: Actor, *, wait_seconds: float | None = None) -> Iterator[Claim]:
        """Take the dataset's lock, on a connection of its own; `DatasetHeld` names the holder when it stays taken.

        With *wait_seconds* 0 it tries once.
        """
        with ExitStack() as stack:
            with control_plane_errors():
                connection = stack.enter_context(dedicated_connection(self._engine))
                wait = self._wait_seconds if wait_seconds is None else wait_seconds
                backend_pid = self._take(connection, dataset, actor, wait)
            stack.callback(_unlock, connection)
            yield SqlClaim(connection, backend_pid=backend_pid, engine=self._engine, dataset=dataset, terms=self._terms)

    def unsettled(self, limit: int) -> Sequence[Unsettled]:
        """Unsettled operations of every dataset, the oldest first."""
        return tuple(
            Unsettled(
                operation=_operation(row), age_seconds=float(row.age_seconds), lease_is_live=bool(row.lease_is_live)
            )
            for row in self._rows(_select_unsettled(limit))
        )

    def watched(self, hours: float) -> Sequence[Operation]:
        """Operations aborted in these last hours after they had been `committing`."""
        return tuple(_operation(row) for row in self._rows(_select_watched(hours)))

    def _rows(self, query: Query) -> Sequence[Found]:
        with control_plane_errors(), self._engine.connect() as connection:
            return connection.execute(query).all()

    def _take(self, connection: Connection, dataset: Dataset, actor: Actor, wait_seconds: float) -> int:
        """Take the lock and say which server process holds it."""
        with connection.begin():
            check_version(connection)
            connection.execute(_SESSION, {"name": session_name(actor)})
        key = lock_key(dataset.id)
        give_up_at = time.monotonic() + wait_seconds
        while (backend_pid := _try_lock(connection, key)) is None:
            if time.monotonic() >= give_up_at:
                with connection.begin():
                    raise _held(connection, dataset, key)
            time.sleep(_POLL_SECONDS)
        return backend_pid


def _select_unsettled(limit: int) -> Query:
    now = func.clock_timestamp()
    return (
        select_operations()
        .add_columns(
            func.extract("epoch", now - OperationRow.opened_at).label("age_seconds"),
            (OperationRow.lease_until > now).label("lease_is_live"),
        )
        .where(OperationRow.status.in_(UNSETTLED))
        .order_by(OperationRow.opened_at, OperationRow.id)
        .limit(limit)
    )


def _select_watched(hours: float) -> Query:
    """An operation that was aborted while it was `open` has sent no request that could land late."""
    since = func.clock_timestamp() - literal(timedelta(hours=hours), Interval)
    return (
        select_operations()
        .where(
            OperationRow.status == OperationStatus.ABORTED,
            OperationRow.committing_at.is_not(None),
            OperationRow.settled_at >= since,
        )
        .order_by(OperationRow.settled_at, OperationRow.id)
    )


def _operation(row: Found) -> Operation:
    return operation_of(operation_part(row), dataset_of(row))


def lock_key(dataset_id: DatasetId) -> int:
    """The dataset's advisory lock: 64 bits, signed."""
    return int.from_bytes(hashlib.sha256(b"carbon dataset " + dataset_id.bytes).digest()[:8], signed=True)


def session_name(actor: Actor) -> str:
    """Who holds a claim, as `pg_stat_activity` shows it (PostgreSQL keeps 63 letters)."""
    return f"carbon pid {os.getpid()} on {socket.gethostname()} as {actor.user}"[:63]


def _try_lock(connection: Connection, key: int) -> int | None:
    """The server process that has the lock now; none when it is another session's."""
    with connection.begin():
        pid: int | None = connection.scalar(
            text("SELECT pg_backend_pid() WHERE pg_try_advisory_lock(:key)"), {"key": key}
        )
        return pid


def _unlock(connection: Connection) -> None:
    """Free the lock now; closing the connection would do it a moment later, when the server notices."""
    with suppress(SQLAlchemyError):
        if not connection.invalidated:
            connection.execute(text("SELECT pg_advisory_unlock_all()"))
            connection.commit()


def _held(connection: Connection, dataset: Dataset, key: int) -> DatasetHeld:
    high, low = (key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF
    row = connection.execute(_HOLDER, {"high": high, "low": low}).first()
    holder = "a writer that has just finished" if row is None else row.application_name or f"backend {row.pid}"
    # Another role's session shows its name but not when it began.
    since = "" if row is None or row.backend_start is None else f", since {row.backend_start.astimezone(UTC):%F %T} UTC"
    standing = unsettled_standing(connection, dataset.id)
    return DatasetHeld(f"{dataset.coordinate} is held by {holder}{since}" + (f" ({standing})" if standing else ""))
