"""Migrating: once, however many try; never backwards; and what the models say is what stands in the database."""

from __future__ import annotations

import logging
from multiprocessing import get_context

import pytest
from sqlalchemy import Engine, text

from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.control_plane.sql.migrate import VERSION_TABLE, migrate, revision_of
from carbon_pipeline.control_plane.sql.models import SCHEMA, Row
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CarbonError, SchemaVersionError
from carbon_pipeline_tests.control_plane.samples import ACTOR, Address


def migrate_at(address: Address) -> str:
    """In another process: migrate, and say how it went."""
    try:
        migrate(address.engine())
    except CarbonError as error:
        return str(error)
    return "migrated"


def set_revision(engine: Engine, revision: str) -> None:
    """Pretend that another version of the program was here."""
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.{VERSION_TABLE} SET version_num = :r"), {"r": revision})


def test_four_processes_at_once(fresh_address: Address) -> None:
    """All of them find a current schema, and one of them made it."""
    with get_context("spawn").Pool(4) as pool:
        assert pool.map(migrate_at, [fresh_address] * 4, chunksize=1) == ["migrated"] * 4
    with fresh_address.engine().connect() as connection:
        assert revision_of(connection) == "0001"


def test_a_current_schema_is_left_alone(fresh_address: Address) -> None:
    """Migrating again does nothing, and takes no lock that a reader would wait for."""
    engine = fresh_address.engine()
    migrate(engine)
    with engine.connect() as connection:
        connection.execute(text(f"LOCK TABLE {SCHEMA}.dataset_transactions IN ACCESS EXCLUSIVE MODE"))
        migrate(engine)


def test_an_older_program_is_refused(fresh_address: Address) -> None:
    """A schema of a version that this program does not know is a newer one's: it is named, and not touched."""
    engine = fresh_address.engine()
    migrate(engine)
    set_revision(engine, "9999")
    with pytest.raises(SchemaVersionError, match="at 9999, this program knows up to 0001 and is older"):
        migrate(engine)
    with engine.connect() as connection:
        assert revision_of(connection) == "9999"


def test_a_program_that_became_older_opens_nothing(engine: Engine, ledger: SqlLedger, dataset: Dataset) -> None:
    """A worker that runs on while the schema moves ahead of it can claim no dataset any more."""
    set_revision(engine, "9999")
    try:
        with pytest.raises(SchemaVersionError, match="is older"), ledger.claim(dataset, ACTOR):
            pass
    finally:
        set_revision(engine, "0001")


def test_an_empty_database_says_what_to_do(fresh_address: Address, dataset: Dataset) -> None:
    """Without a schema the ledger names the command that makes it."""
    ledger = SqlLedger(fresh_address.engine(), code_version="0.1.0", warehouses={})
    message = "at nothing, this program needs 0001 — Run `carbon up`"
    with pytest.raises(SchemaVersionError, match=message), ledger.claim(dataset, ACTOR):
        pass
    with pytest.raises(SchemaVersionError, match="carbon up"):
        ledger.role_of(ACTOR, dataset.workspace_id)


def test_migrating_is_silent(fresh_address: Address, capfd: pytest.CaptureFixture[str]) -> None:
    """It prints nothing and leaves the process's logging as it was."""
    before = (logging.root.level, list(logging.root.handlers), logging.getLogger("alembic").level)
    migrate(fresh_address.engine())
    assert (logging.root.level, list(logging.root.handlers), logging.getLogger("alembic").level) == before
    assert capfd.readouterr() == ("", "")


Columns = dict[tuple[str, str], tuple[str, bool]]
"""Type and nullability by table and column."""


def columns_of_the_models(engine: Engine) -> Columns:
    """What the models say, in PostgreSQL's spelling."""
    return {
        (table.name, column.name): (
            column.type.compile(dialect=engine.dialect).lower().replace(", ", ","),
            bool(column.nullable),
        )
        for table in Row.metadata.tables.values()
        for column in table.columns
    }


def columns_of(engine: Engine) -> Columns:
    """What stands in the database."""
    catalogue = text(
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE c.relkind = 'r' AND c.relnamespace = CAST(:schema AS regnamespace) AND c.relname <> :version"
    )
    with engine.connect() as connection:
        connection.execute(text("SET LOCAL search_path = ''"))  # so that every type is spelt with its schema
        rows = connection.execute(catalogue, {"schema": SCHEMA, "version": VERSION_TABLE}).all()
    return {(row.relname, row.attname): (row.type, row.nullable) for row in rows}


def test_the_models_are_what_the_migrations_made(engine: Engine) -> None:
    """Every table and column of the models is in the database with that type and nullability, and no other."""
    assert columns_of(engine) == columns_of_the_models(engine)
