"""The ledger on PostgreSQL."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC

from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import SQLAlchemyError

from carbon_pipeline.control_plane.sql.claim import SqlClaim, Terms, unsettled_standing
from carbon_pipeline.control_plane.sql.coordinates import find_or_mint
from carbon_pipeline.control_plane.sql.engine import control_plane_errors, dedicated_connection
from carbon_pipeline.control_plane.sql.migrate import check_version
from carbon_pipeline.control_plane.sql.models import MemberRow
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import DatasetHeld
from carbon_pipeline.gate.verdict import Actor, Role
from carbon_pipeline.identity import CredentialId, DatasetId, WorkspaceId
from carbon_pipeline.ledger.port import Claim, Ledger
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
    def claim(self, dataset: Dataset, actor: Actor) -> Iterator[Claim]:
        """Take the dataset's lock, on a connection of its own; `DatasetHeld` names the holder when it stays taken."""
        with ExitStack() as stack:
            with control_plane_errors():
                connection = stack.enter_context(dedicated_connection(self._engine))
                backend_pid = self._take(connection, dataset, actor)
            stack.callback(_unlock, connection)
            yield SqlClaim(connection, backend_pid=backend_pid, engine=self._engine, dataset=dataset, terms=self._terms)

    def _take(self, connection: Connection, dataset: Dataset, actor: Actor) -> int:
        """Take the lock and say which server process holds it."""
        with connection.begin():
            check_version(connection)
            connection.execute(_SESSION, {"name": session_name(actor)})
        key = lock_key(dataset.id)
        give_up_at = time.monotonic() + self._wait_seconds
        while (backend_pid := _try_lock(connection, key)) is None:
            if time.monotonic() >= give_up_at:
                with connection.begin():
                    raise _held(connection, dataset, key)
            time.sleep(_POLL_SECONDS)
        return backend_pid


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
