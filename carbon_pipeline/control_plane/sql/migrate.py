"""Bring the control plane's schema to this program's version, once, however many processes try."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from threading import Lock

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from carbon_pipeline.control_plane.sql.engine import control_plane_errors
from carbon_pipeline.control_plane.sql.models import SCHEMA
from carbon_pipeline.errors import SchemaVersionError

VERSION_TABLE = "carbon_schema_version"

_LOCK_KEY = 0x636172626F6E  # "carbon" in ASCII
_LOCK_TIMEOUT_SECONDS = 60

# Alembic keeps the running migration in module globals, so one process runs one at a time.
_one_at_a_time = Lock()


def migrate(engine: Engine) -> None:
    """Upgrade the schema in one transaction; nothing happens when it is current.

    `SchemaVersionError` when the schema is of a version that this program does not know, so a newer one's.
    """
    with control_plane_errors(), engine.begin() as connection:
        if revision_of(connection) == _head():
            return
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_SECONDS}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        current = revision_of(connection)
        _refuse_unknown(current)
        if current != _head():
            # Not IF NOT EXISTS: that asks for the right to create one even where an administrator did already.
            if connection.scalar(text("SELECT to_regnamespace(:schema)"), {"schema": SCHEMA}) is None:
                connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
            _upgrade(connection)


def check_version(connection: Connection) -> None:
    """Raise `SchemaVersionError` unless program and schema have the same version."""
    current = revision_of(connection)
    _refuse_unknown(current)
    if current != _head():
        raise SchemaVersionError(
            f"the control plane's schema is at {current or 'nothing'}, this program needs {_head()}",
            remedy="Run `carbon up`, which brings it to this program's version.",
        )


def revision_of(connection: Connection) -> str | None:
    """The revision that the schema is at; none before the first migration."""
    table = f"{SCHEMA}.{VERSION_TABLE}"
    if connection.scalar(text("SELECT to_regclass(:table)"), {"table": table}) is None:
        return None
    revision: str | None = connection.scalar(text(f"SELECT version_num FROM {table}"))  # noqa: S608 - two constants
    return revision


def _refuse_unknown(revision: str | None) -> None:
    if revision is not None and revision not in _known():
        raise SchemaVersionError(
            f"the control plane's schema is at {revision}, this program knows up to {_head()} and is older"
        )


def _upgrade(connection: Connection) -> None:
    config = _config()
    config.attributes.update(connection=connection, version_table=VERSION_TABLE, schema=SCHEMA)
    with _one_at_a_time:
        command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    # Alembic's configuration interpolates percent signs.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@cache
def _known() -> frozenset[str]:
    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


@cache
def _head() -> str:
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise SchemaVersionError("the program came without its migrations", remedy="Install it again.")
    return head
