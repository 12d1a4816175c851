"""The only proof of life: a login with our password, answered by a server that has our data."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

HOST = "127.0.0.1"
SUPERUSER = "carbon"
_SECONDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """A running server and how to log in to it as its superuser."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    data_directory: Path
    log_file: Path


def connect(server: EmbeddedServer) -> psycopg.Connection[tuple[object, ...]]:
    """Connects in autocommit mode to the maintenance database.

    Whatever a PG* variable of the caller could change is said here. `require_auth` keeps the password from a foreign
    server on our port, which could otherwise ask for it in plain text.
    """
    return psycopg.connect(
        host=server.host, hostaddr=server.host, port=server.port, user=server.user, password=server.password,
        dbname="postgres", connect_timeout=_SECONDS, require_auth="scram-sha-256", channel_binding="disable",
        sslmode="disable", gssencmode="disable", target_session_attrs="any", options="-c statement_timeout=0",
        client_encoding="utf8", application_name="carbon", autocommit=True,
    )  # fmt: skip


def refusal(server: EmbeddedServer) -> str | None:
    """Why this is not our server, in one line; nothing if it is."""
    try:
        with connect(server) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.Error as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[-1]
    found = str(row[0]) if row else ""
    if os.path.realpath(found) == os.path.realpath(server.data_directory):
        return None
    return f"the server on port {server.port} has other data: {found}"
