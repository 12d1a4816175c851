"""Connections to the control plane, and its errors in our own words.

An address is taken apart here and handed on as fields: libpq and its drivers quote pieces of an address that they
cannot read, and with them pieces of the password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, unquote

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from carbon_pipeline.errors import CarbonError, ControlPlaneError, SchemaVersionError

DRIVER = "postgresql+psycopg"

_CONNECT_ARGUMENTS: dict[str, object] = {
    "connect_timeout": 10,
    "application_name": "carbon",
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # Keepalives are for an idle connection; this is for what was sent and never acknowledged. Milliseconds.
    "tcp_user_timeout": 60_000,
    # A pooler in transaction mode does not keep prepared statements.
    "prepare_threshold": None,
}

_URL = re.compile(
    r"(?:postgres|postgresql)(?:\+psycopg)?://"
    r"(?:(?P<user>[^:@/?#\s]*)(?::(?P<password>[^@/?#\s]*))?@)?"
    r"(?P<host>[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?:/(?P<database>[^/?#@\s]*))?(?:\?(?P<query>[^#@\s]*))?"
)

_UNDEFINED_OBJECTS = frozenset({"3F000", "42P01", "42704", "42703"})
"""No such schema, table, type or column (PostgreSQL manual, "PostgreSQL Error Codes")."""


def read_url(text: str) -> URL:
    """The address that *text* spells, for our driver; `ControlPlaneError` without the text when it spells none."""
    match = _URL.fullmatch(text.strip())
    if match is None:
        raise ControlPlaneError(
            "the control plane's address is not one of PostgreSQL",
            remedy="Write postgresql://user:password@host:port/database, with @ / ? # % in user and password as %40 "
            "%2F %3F %23 %25.",
        )
    user, password, host, port, database = (
        unquote(part) if part else None for part in match.group("user", "password", "host", "port", "database")
    )
    query = dict(parse_qsl(match["query"] or ""))
    return URL.create(
        DRIVER,
        username=user,
        password=query.pop("password", password),
        host=host.strip("[]") if host else None,
        port=int(port) if port else None,
        database=database,
        query=query,
    )


def engine_from_url(text: str) -> Engine:
    """An engine for `postgresql://…` or `postgres://…`. Nothing connects yet."""
    return _engine(read_url(text))


def engine_from_fields(*, host: str, port: int, user: str, password: str, database: str) -> Engine:
    """An engine for a server whose address is known in parts. Nothing connects yet."""
    return _engine(URL.create(DRIVER, username=user, password=password, host=host, port=port, database=database))


def _engine(url: URL) -> Engine:
    return create_engine(
        url,
        # What the address itself says about, say, connect_timeout wins.
        connect_args={name: value for name, value in _CONNECT_ARGUMENTS.items() if name not in url.query},
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        hide_parameters=True,
    )


@contextmanager
def dedicated_connection(engine: Engine) -> Iterator[Connection]:
    """A connection outside the pool, closed for good at the end: for what lives as long as its session."""
    with engine.connect() as connection:
        connection.detach()
        yield connection


@contextmanager
def control_plane_errors(remedy: str | None = None) -> Iterator[None]:
    """Say what the database says in our words, without the statement, its parameters or the row.

    The original is not chained: its detail quotes whole rows.
    """
    try:
        yield
    except DBAPIError as error:
        raise _translated(error, remedy) from None
    except SQLAlchemyError as error:
        raise ControlPlaneError(f"the control plane failed ({type(error).__name__})", remedy=remedy) from None


def _translated(error: DBAPIError, remedy: str | None) -> CarbonError:
    original = error.orig
    if not isinstance(original, psycopg.Error):
        return ControlPlaneError(f"the control plane failed ({type(error).__name__})", remedy=remedy)
    if original.sqlstate in _UNDEFINED_OBJECTS:
        return SchemaVersionError(
            f"the control plane lacks something: {original.diag.message_primary}",
            remedy="Run `carbon up`, which brings its schema to this program's version.",
        )
    if original.sqlstate is None or error.connection_invalidated:
        return ControlPlaneError(f"the control plane does not answer: {_first_line(original)}", remedy=remedy)
    return ControlPlaneError(
        f"the control plane refused: {original.diag.message_primary} (SQLSTATE {original.sqlstate})", remedy=remedy
    )


def _first_line(error: psycopg.Error) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
