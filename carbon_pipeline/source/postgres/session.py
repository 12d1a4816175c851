"""The one way to a source: every connection is opened here, read-only, with every setting that shapes a value fixed."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from carbon_pipeline.control_plane.records import Connection, TlsMode
from carbon_pipeline.errors import SourceError, UsageError
from carbon_pipeline.source.postgres.failures import Subject, explain_login, explained

Session = psycopg.Connection[Any]

_VERSION_MIN = 14
"""From 14 on, extract(epoch …) is an exact numeric; before, it was a double that cannot hold microseconds."""

_AUTHORITIES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Limits of a session and of a reading."""

    connect_seconds: int = 15
    lock_seconds: int = 10
    """Small, because whoever queues behind our wait for a lock waits as well: their whole traffic."""
    look_seconds: int = 300
    """For one catalogue query."""
    read_seconds: int = 24 * 3600
    """For one COPY or digest, the time that the lake takes included."""
    idle_seconds: int = 900
    """Between opening the snapshot and reading its first row: the ledger and the catalog have their turn then."""
    chunk_bytes: int = 4 * 1024 * 1024
    chunk_rows: int = 65_536
    """A batch ends at either; one row may be larger than the first."""


DEFAULT_OPTIONS = Options()


VALUE_SETTINGS = {
    "row_security": "off",  # refuses to read where policies would hide rows, instead of hiding them
    "search_path": "",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmloption": "content",
    "standard_conforming_strings": "on",
}
"""What decides which rows are read, and how a value is spelt."""


def settings(options: Options, *, statement_seconds: int, local: bool = False) -> sql.Composed:
    """The SET statements of a session or, `local`, of one transaction.

    SET and not set_config(): a SELECT would take the transaction's snapshot before we hold a lock.
    """
    values: dict[str, str] = VALUE_SETTINGS | {
        "default_transaction_read_only": "on",
        "statement_timeout": f"{statement_seconds}s",
        "lock_timeout": f"{options.lock_seconds}s",
        "idle_in_transaction_session_timeout": f"{options.idle_seconds}s",
        "synchronize_seqscans": "off",  # so that two readings of an unchanged table number its rows alike
        "jit": "off",  # compiling the expressions of a table of a thousand columns takes longer than running them
    }
    scope = sql.SQL("SET LOCAL" if local else "SET")
    return sql.SQL("; ").join(
        sql.SQL("{} {} = {}").format(scope, sql.Identifier(name), sql.Literal(value)) for name, value in values.items()
    )


@contextmanager
def connected(connection: Connection, application_name: str, options: Options = DEFAULT_OPTIONS) -> Iterator[Session]:
    """A session in autocommit mode. Leaving closes the socket at once, whatever is still under way."""
    session = _connect(connection, application_name, options)
    try:
        with explained(Subject.of_database(connection.user, connection.database)):
            _check_version(session)
            session.execute(settings(options, statement_seconds=options.look_seconds))
        yield session
    finally:
        session.close()


def begin(session: Session, options: Options, *, statement_seconds: int) -> None:
    """Begins the read-only transaction whose first query will fix its snapshot.

    The settings are said again because a pooler may hand each transaction to another server process.
    """
    statement = sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {}").format(
        settings(options, statement_seconds=statement_seconds, local=True)
    )
    session.execute(statement)


def _connect(connection: Connection, application_name: str, options: Options) -> Session:
    """Keywords and never a URL: a URL in a message would show the password, and may smuggle in keywords of its own."""
    _check_host(connection.host)
    try:
        return psycopg.connect(
            host=connection.host,
            port=connection.port,
            dbname=connection.database,
            user=connection.user,
            password=connection.password,
            # An empty value keeps the caller's PG* variables out; a file that is not there, ~/.pgpass.
            hostaddr="", options="", passfile="/nonexistent", target_session_attrs="any", gssencmode="disable",
            sslmode=connection.tls.value,
            sslrootcert=_authorities(connection),
            client_encoding="UTF8",
            connect_timeout=options.connect_seconds,
            keepalives=1, keepalives_idle=30, keepalives_interval=10, keepalives_count=3, tcp_user_timeout=60_000,
            application_name=application_name,
            autocommit=True,
            prepare_threshold=None,
        )  # fmt: skip
    except psycopg.Error as error:
        failed = explain_login(error, Subject.of_database(connection.user, connection.database))
        raise failed from None


def _check_host(host: str) -> None:
    """libpq takes a list of hosts and a socket's folder as well; a source is one server."""
    if not host or "," in host or host[0] in "/@":
        raise UsageError("a source's host is one name or address", remedy="Give the host alone; the port goes apart.")


def _check_version(session: Session) -> None:
    version = session.info.server_version // 10_000
    if version < _VERSION_MIN:
        raise SourceError(
            f"the source is PostgreSQL {version}; {_VERSION_MIN} or newer is needed", remedy="Upgrade the source."
        )


def _authorities(connection: Connection) -> str | None:
    """Whom to trust. The system's list is looked up, because a bundled OpenSSL looks where it was built."""
    if connection.tls_root_certificate or connection.tls not in {TlsMode.VERIFY_CA, TlsMode.VERIFY_FULL}:
        return connection.tls_root_certificate
    named = ssl.get_default_verify_paths().cafile
    return named or next((str(path) for path in _AUTHORITIES if path.is_file()), "system")
