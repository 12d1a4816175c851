"""Migrating: once, however many try; never backwards; and what the models say is what stands in the database."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from multiprocessing import get_context

import pytest
from alembic import command
from sqlalchemy import Engine, text

from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.control_plane.sql.migrate import VERSION_TABLE, _config, migrate, revision_of
from carbon_pipeline.control_plane.sql.models import SCHEMA, Row
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CarbonError, SchemaVersionError
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline_tests.control_plane.samples import ACTOR, Address, ledger_on, ruled


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
        assert revision_of(connection) == "0002"


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
    with pytest.raises(SchemaVersionError, match="at 9999, this program knows up to 0002 and is older"):
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
        set_revision(engine, "0002")


def test_an_empty_database_says_what_to_do(fresh_address: Address, dataset: Dataset) -> None:
    """Without a schema the ledger names the command that makes it."""
    ledger = SqlLedger(fresh_address.engine(), code_version="0.1.0", warehouses={})
    message = "at nothing, this program needs 0002 — Run `carbon up`"
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


def migrate_to(engine: Engine, revision: str) -> None:
    """Bring an empty database to an earlier revision, as an earlier program did."""
    config = _config()
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        config.attributes.update(connection=connection, version_table=VERSION_TABLE, schema=SCHEMA)
        command.upgrade(config, revision)


FIRST_REVISION_DATA = """
INSERT INTO carbon.workspaces (id, name, slug) VALUES ('00000000-0000-0000-0000-00000000000a', 'old', 'old');
INSERT INTO carbon.workspace_members (workspace_id, user_id, role)
    VALUES ('00000000-0000-0000-0000-00000000000a', 'ada', 'owner');
INSERT INTO carbon.catalogs (id, name, kind, uri_host, governance)
    VALUES ('00000000-0000-0000-0000-00000000000b', 'main', 'sql', '127.0.0.1', 'own');
INSERT INTO carbon.schemas (id, workspace_id, catalog_id, name) VALUES
    ('00000000-0000-0000-0000-00000000000c', '00000000-0000-0000-0000-00000000000a',
     '00000000-0000-0000-0000-00000000000b', 'default');
INSERT INTO carbon.user_credentials
        (id, workspace_id, name, slug, kind, sealed_connection, system_identifier, created_by)
    VALUES ('00000000-0000-0000-0000-00000000000d', '00000000-0000-0000-0000-00000000000a', 'shop', 'shop', 'postgres',
            '', 7600000000000000001, 'ada');
INSERT INTO carbon.datasets (workspace_id, credential_id, system_identifier, source_oid, source_schema, source_name,
        partition_key, catalog_id, schema_id, schema_name, name, namespace, table_name, location)
    SELECT '00000000-0000-0000-0000-00000000000a', '00000000-0000-0000-0000-00000000000d', 7600000000000000001, n,
        'public', name, 'public.' || name, '00000000-0000-0000-0000-00000000000b',
        '00000000-0000-0000-0000-00000000000c', 'default', name, 'old__default', name, 'file:///warehouse/' || name
    FROM unnest(ARRAY['landed', 'committing', 'failed', 'opened']) WITH ORDINALITY AS names (name, n);
INSERT INTO carbon.dataset_transactions (dataset_id, seq, writer, mode, catalog_uri, warehouse, namespace, table_name,
        table_uuid, actor_user, actor_engine, policy, code_version, holder, source_system_identifier, source_lsn,
        source_time, relation, lease_until)
    SELECT id, 1, 'sync.full', 'replace', 'u', 'w', namespace, table_name, 't', 'ada', 'carbon_pipeline', 'role:owner',
        '0.1.0', 'host:1', 7600000000000000001, '0/10', '2024-02-29T12:00Z',
        '{"schema": "public", "name": "x", "columns": [], "primary_key": [], "foreign_keys": [], "keys_failed": null}',
        now() FROM carbon.datasets;
INSERT INTO carbon.iceberg_sync_log (operation_id, dataset_id) SELECT id, dataset_id FROM carbon.dataset_transactions;
UPDATE carbon.dataset_transactions SET status = 'committing', committing_at = clock_timestamp()
    WHERE table_name IN ('landed', 'committing');
UPDATE carbon.dataset_transactions SET status = 'committed', ruling = 'landed', reason = 'r', snapshot_id = 7, rows = 1,
    size_bytes = 1, data_files = 1, has_identity = true, settled_at = clock_timestamp() WHERE table_name = 'landed';
UPDATE carbon.dataset_transactions SET status = 'aborted', ruling = 'failed', reason = 'r',
    settled_at = clock_timestamp() WHERE table_name = 'failed';
UPDATE carbon.iceberg_sync_log l SET status = CASE table_name WHEN 'landed' THEN 'succeeded' ELSE 'failed' END
    ::carbon.sync_status, finished_at = now() FROM carbon.dataset_transactions t
    WHERE t.id = l.operation_id AND table_name IN ('landed', 'failed');
"""
"""A ledger as revision 0001 kept it, an operation in each kind of state, written in that revision's own SQL."""


@pytest.fixture
def upgraded(fresh_address: Address) -> Iterator[Engine]:
    """A control plane that ran at 0001, and was brought to this program's version with all that is in it."""
    engine = fresh_address.engine()
    migrate_to(engine, "0001")
    with engine.begin() as connection:
        connection.execute(text(FIRST_REVISION_DATA))
    before = dump_of_operations(engine)
    migrate(engine)
    assert dump_of_operations(engine) == before
    yield engine
    engine.dispose()


def dump_of_operations(engine: Engine) -> list[str]:
    """What revision 0001 knew of every operation."""
    query = "SELECT (to_jsonb(t) - 'planned_snapshot_id')::text FROM carbon.dataset_transactions t ORDER BY id"
    with engine.connect() as connection:
        return list(connection.scalars(text(query)))


def test_an_older_ledger_gets_its_history(upgraded: Engine) -> None:
    """Nothing that was on record changes; each operation has the events that its row tells of, and they name no
    session, because none was on record."""
    moves = {
        line.dataset.name: [
            (event.from_status, event.to_status, event.ruling, event.snapshot_id, event.session)
            for event in Directory(upgraded).operation(str(line.id)).events
        ]
        for line in Directory(upgraded).operations()
    }
    opened = (None, OperationStatus.OPEN, None, None, None)
    committing = (OperationStatus.OPEN, OperationStatus.COMMITTING, None, None, None)
    assert moves == {
        "opened": [opened],
        "committing": [opened, committing],
        "landed": [opened, committing, (OperationStatus.COMMITTING, OperationStatus.COMMITTED, Ruling.LANDED, 7, None)],
        "failed": [opened, (OperationStatus.OPEN, OperationStatus.ABORTED, Ruling.FAILED, None, None)],
    }


def test_what_was_unsettled_before_can_be_settled_after(upgraded: Engine) -> None:
    """An operation that was committing when its program knew of no planned snapshot has none, and ends by evidence as
    any other; an open one moves on under the new rules; both leave their events."""
    ledger, directory = ledger_on(upgraded), Directory(upgraded)
    left = {each.operation.dataset.name: each.operation for each in ledger.unsettled(10)}
    assert left["committing"].snapshot_id is None
    for name, ruling in (("committing", Ruling.LANDED), ("opened", Ruling.NEVER_LANDED)):
        with ledger.claim(left[name].dataset, ACTOR) as claim:
            assert claim.unsettled() == left[name]
            claim.settle(left[name], ruled(ruling))
        assert directory.operation(str(left[name].id)).events[-1].ruling is ruling
        assert directory.operation(str(left[name].id)).events[-1].session is not None
    assert ledger.unsettled(10) == ()
