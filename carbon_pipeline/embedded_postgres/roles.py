"""Databases and roles inside the embedded server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from carbon_pipeline.embedded_postgres.login import EmbeddedServer, connect
from carbon_pipeline.errors import EmbeddedServerError

_LONGEST_NAME = 63
_LOCK = 0x636172626F6E  # "carbon": one advisory lock for all changes made here, so that those at once take turns


def ensure_database(server: EmbeddedServer, name: str) -> bool:
    """Makes the database unless it is there. True if it was made."""
    _check_name(name)
    with _taking_turns(server, f"database {name}") as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            return False
        # From template0, because nobody can be connected to it, which would make CREATE DATABASE fail.
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        return True


def ensure_role(server: EmbeddedServer, name: str, password: str) -> None:
    """Makes the role unless it is there, lets it log in with this password, and denies it to be superuser.

    Only the SCRAM verifier travels, so no log or activity view could show the password.
    """
    _check_name(name)
    if name == server.user:
        raise EmbeddedServerError(f"{name} is the embedded server's own superuser", remedy="Choose another role name.")
    if not password:
        raise EmbeddedServerError(f"role {name} needs a password", remedy="Give one that is not empty.")
    with _taking_turns(server, f"role {name}") as connection:
        verifier = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        exists = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone()
        statement = sql.SQL("{} ROLE {} LOGIN NOSUPERUSER PASSWORD {}").format(
            sql.SQL("ALTER" if exists else "CREATE"), sql.Identifier(name), sql.Literal(verifier)
        )
        connection.execute(statement)


@contextmanager
def _taking_turns(server: EmbeddedServer, thing: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    try:
        with connect(server) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
            yield connection
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise EmbeddedServerError(f"{thing} could not be made: {reason}") from error


def _check_name(name: str) -> None:
    if not 0 < len(name.encode()) <= _LONGEST_NAME or "\0" in name:
        raise EmbeddedServerError(f"{name!r} cannot name a database or role",
                                  remedy=f"Use 1 to {_LONGEST_NAME} bytes.")  # fmt: skip
