"""The database itself keeps the ledger's rules: raw SQL, from whoever, cannot break them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select, text
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.control_plane.records import Credential, EventKind, Governance, SweepTrigger, Workspace
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.control_plane.sql.models import RulingRow, TransitionRow
from carbon_pipeline.destination.coordinate import DEFAULTED, Dataset, DestinationOrigin
from carbon_pipeline.gate.verdict import Role
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ledger.states import (
    RULINGS,
    TRANSITIONS,
    UNSETTLED,
    OperationStatus,
    Ruling,
    SyncStatus,
)
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.samples import ACTOR, PLANNED, mint, publish, relation, request, ruled

ENUMS = {
    "operation_status": OperationStatus,
    "operation_ruling": Ruling,
    "sync_status": SyncStatus,
    "member_role": Role,
    "catalog_governance": Governance,
    "operation_event_kind": EventKind,
    "sweep_trigger": SweepTrigger,
}

TRANSACTIONS = "carbon.dataset_transactions"


def run(engine: Engine, statement: str, **values: Any) -> None:
    """One raw statement, committed."""
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def refused(engine: Engine, statement: str, **values: Any) -> str:
    """The database's reason for refusing a raw statement."""
    with pytest.raises(IntegrityError) as refusal:
        run(engine, statement, **values)
    return str(refusal.value.orig)


def operation_at(ledger: SqlLedger, dataset: Dataset, made: Relation, status: OperationStatus) -> Operation:
    """An operation of the dataset that stands at *status*."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, made))
        if status is not OperationStatus.OPEN:
            claim.advance(intent, PLANNED)
        if status not in UNSETTLED:
            ruling = next(
                ruling
                for ruling, rule in RULINGS.items()
                if rule.status is status and OperationStatus.COMMITTING in rule.comes_from
            )
            claim.settle(intent.operation, ruled(ruling))
        return intent.operation


@pytest.mark.parametrize("name", ENUMS)
def test_enums_have_the_labels_of_python(engine: Engine, name: str) -> None:
    """A label that one side lacks would be found out in production only."""
    labels = text(
        "SELECT e.enumlabel FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid"
        " WHERE t.typname = :name AND t.typnamespace = 'carbon'::regnamespace ORDER BY e.enumsortorder"
    )
    with engine.connect() as connection:
        assert connection.scalars(labels, {"name": name}).all() == [member.value for member in ENUMS[name]]


def test_transitions_and_rulings_are_those_of_python(engine: Engine) -> None:
    """The tables that the triggers read say what `ledger/states.py` says."""
    with engine.connect() as connection:
        moves = {(row.from_status, row.to_status) for row in connection.execute(select(TransitionRow.__table__))}
        rulings = {
            row.ruling: (row.status, row.sync_status, frozenset(row.comes_from))
            for row in connection.execute(select(RulingRow.__table__))
        }
    assert moves == {(status, target) for status, targets in TRANSITIONS.items() for target in targets}
    assert rulings == {ruling: (rule.status, rule.sync, rule.comes_from) for ruling, rule in RULINGS.items()}


@pytest.mark.parametrize("table", ["operation_transitions", "operation_rulings"])
def test_only_a_migration_changes_the_rules(engine: Engine, table: str) -> None:
    """The tables of rules take no changes."""
    assert "only a migration" in refused(engine, f"DELETE FROM carbon.{table}")
    assert "only a migration" in refused(engine, f"TRUNCATE carbon.{table} CASCADE")


def raw_move(connection: Connection, operation: Operation, ruling: Ruling | None, status: OperationStatus) -> None:
    """Move an operation and its sync log by hand, with everything that a whole row needs."""
    fact = 1 if ruling is Ruling.LANDED else None
    connection.execute(
        text(
            f"UPDATE {TRANSACTIONS} SET status = CAST(:status AS carbon.operation_status),"
            " ruling = CAST(:ruling AS carbon.operation_ruling), reason = :reason,"
            " committing_at = coalesce(committing_at, now()),"
            " planned_snapshot_id = coalesce(planned_snapshot_id, CASE :status WHEN 'committing' THEN 1 END),"
            " settled_at = CASE WHEN CAST(:ruling AS text) IS NULL THEN NULL ELSE now() END,"
            " snapshot_id = :fact, rows = :fact, size_bytes = :fact, data_files = :fact,"
            " has_identity = CAST(:fact AS bigint) = 1 WHERE id = :id"
        ),
        {
            "id": operation.id,
            "status": status.value,
            "ruling": ruling,
            "reason": None if ruling is None else "by hand",
            "fact": fact,
        },
    )
    connection.execute(
        text(
            "UPDATE carbon.iceberg_sync_log SET status = CAST(:status AS carbon.sync_status), finished_at ="
            " CASE :status WHEN 'pending' THEN NULL ELSE now() END WHERE operation_id = :id"
        ),
        {"id": operation.id, "status": SyncStatus.PENDING if ruling is None else RULINGS[ruling].sync},
    )
    connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))


def events_of(connection: Connection, operation: Operation) -> list[OperationStatus]:
    """The moves of an operation that are on record."""
    return [
        OperationStatus(status)
        for status in connection.scalars(
            text("SELECT to_status FROM carbon.dataset_transaction_events WHERE operation_id = :id ORDER BY id"),
            {"id": operation.id},
        )
    ]


def is_legal(before: OperationStatus, target: OperationStatus, ruling: Ruling | None) -> bool:
    """What `ledger/states.py` says of a move; an unsettled operation that stays where it is has not moved."""
    if ruling is None:
        return before in UNSETTLED and target in UNSETTLED and (target is before or target in TRANSITIONS[before])
    return RULINGS[ruling].status is target and before in RULINGS[ruling].comes_from


@pytest.mark.parametrize("before", OperationStatus)
def test_every_move_by_raw_sql(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation, before: OperationStatus
) -> None:
    """From every status to every status, with every ruling and with none: exactly the legal moves succeed, and each
    of them leaves one event, though no code of ours makes it."""
    operation = operation_at(ledger, dataset, users, before)
    with engine.connect() as connection:
        events = events_of(connection, operation)
    for target, ruling in product(OperationStatus, (None, *Ruling)):
        with engine.connect() as connection:  # never committed, so that the next move begins at the same place
            if is_legal(before, target, ruling):
                raw_move(connection, operation, ruling, target)
                assert events_of(connection, operation) == events + ([] if target is before else [target])
            else:
                with pytest.raises(IntegrityError):
                    raw_move(connection, operation, ruling, target)


@pytest.mark.parametrize(
    "change",
    [
        "id = gen_random_uuid()",
        "dataset_id = gen_random_uuid()",
        "seq = seq + 1",
        "writer = 'x'",
        "mode = 'x'",
        "table_uuid = 'x'",
        "base_snapshot_id = 1",
        "actor_user = 'x'",
        "source_lsn = '0/1'",
        "source_time = now()",
        "relation = '{}'",
        "opened_at = now()",
    ],
)
def test_what_was_recorded_at_open_stays(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation, change: str
) -> None:
    """The intent is on record before a byte is written, and is not rewritten after."""
    operation = operation_at(ledger, dataset, users, OperationStatus.OPEN)
    assert "does not change" in refused(engine, f"UPDATE {TRANSACTIONS} SET {change} WHERE id = :id", id=operation.id)


@pytest.mark.parametrize("change", ["reason = 'another'", "rows = 1", "snapshot_id = 1", "heartbeat_at = now()"])
def test_a_final_operation_is_final(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation, change: str
) -> None:
    """Nothing of a settled operation changes any more."""
    operation = operation_at(ledger, dataset, users, OperationStatus.COMMITTED)
    assert "which is final" in refused(engine, f"UPDATE {TRANSACTIONS} SET {change} WHERE id = :id", id=operation.id)


def test_the_ledger_is_kept_for_good(engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """Neither operations nor the sync log nor schema versions can be deleted, and no dataset under them."""
    publish(ledger, dataset, users)
    for table in ("dataset_transactions", "iceberg_sync_log", "dataset_schema_versions"):
        assert "kept for good" in refused(engine, f"DELETE FROM carbon.{table} WHERE dataset_id = :id", id=dataset.id)
        assert "kept for good" in refused(engine, f"TRUNCATE carbon.{table} CASCADE")
    refused(engine, "DELETE FROM carbon.datasets WHERE id = :id", id=dataset.id)


def test_the_sync_log_agrees_with_its_operation(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """Neither side can say something else than the other at the end of a transaction."""
    operation = operation_at(ledger, dataset, users, OperationStatus.COMMITTING)
    assert "the sync log of operation" in refused(
        engine,
        "UPDATE carbon.iceberg_sync_log SET status = 'succeeded', finished_at = now() WHERE operation_id = :id",
        id=operation.id,
    )
    assert "the sync log of operation" in refused(
        engine,
        f"UPDATE {TRANSACTIONS} SET status = 'aborted', ruling = 'fenced', reason = 'x', settled_at = now()"
        " WHERE id = :id",
        id=operation.id,
    )


def test_an_operation_has_a_sync_log(engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """An operation that the freshness oracle does not know of cannot be opened, nor one that begins settled."""
    publish(ledger, dataset, users)
    copy = (
        f"INSERT INTO {TRANSACTIONS} SELECT (jsonb_populate_record(t, CAST(:changes AS jsonb))).*"
        f" FROM {TRANSACTIONS} t WHERE dataset_id = :id"
    )
    settled = '{"id": "00000000-0000-0000-0000-000000000001", "seq": 2}'
    assert "begins open" in refused(engine, copy, id=dataset.id, changes=settled)
    opened = (
        '{"id": "00000000-0000-0000-0000-000000000001", "seq": 2, "status": "open", "ruling": null, "reason": null,'
        ' "settled_at": null, "snapshot_id": null, "parent_snapshot_id": null, "rows": null, "size_bytes": null,'
        ' "data_files": null, "has_identity": null, "planned_snapshot_id": null}'
    )
    assert "says nothing" in refused(engine, copy, id=dataset.id, changes=opened)
    assert "is not after" in refused(engine, copy, id=dataset.id, changes=opened.replace('"seq": 2', '"seq": 1'))


def test_minted_names_do_not_change(engine: Engine, dataset: Dataset) -> None:
    """A coordinate, an identifier and a location are minted once."""
    for name in ("name", "namespace", "table_name", "location", "partition_key", "schema_name"):
        assert "minted once" in refused(
            engine, f"UPDATE carbon.datasets SET {name} = {name} || 'x' WHERE id = :id", id=dataset.id
        )


def test_facts_only_move_forward(engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """A dataset never goes back to an earlier operation."""
    for _ in range(2):
        publish(ledger, dataset, users)
    for seq in ("1", "NULL"):
        assert "forward" in refused(
            engine, f"UPDATE carbon.datasets SET committed_seq = {seq} WHERE id = :id", id=dataset.id
        )


def test_tenants_stay_apart(
    engine: Engine, directory: Directory, ledger: SqlLedger, dataset: Dataset, credential: Credential
) -> None:
    """A dataset cannot have another tenant's credential or schema, nor facts of another dataset's operation."""
    stranger = directory.create_workspace(f"stranger of {credential.workspace.name}", owner="eve")
    copy = (
        "INSERT INTO carbon.datasets SELECT (jsonb_populate_record(d, jsonb_build_object('id', gen_random_uuid(),"
        " 'source_oid', 1, 'partition_key', 'k', 'name', 'n', 'table_name', 't', 'location', gen_random_uuid())"
        " || jsonb_build_object(CAST(:part AS text), CAST(:other AS uuid)))).* FROM carbon.datasets d WHERE id = :id"
    )
    assert "foreign key" in refused(engine, copy, part="workspace_id", other=stranger.id, id=dataset.id)
    theirs = directory.add_credential(
        workspace=stranger,
        name="theirs",
        destination=DEFAULTED,
        system_identifier=1,
        created_by="eve",
        seal=lambda _: b"",
    )
    assert "foreign key" in refused(engine, copy, part="credential_id", other=theirs.id, id=dataset.id)
    made = relation("other", 2)
    other = mint(ledger, credential, made)
    publish(ledger, other, made)
    assert "foreign key" in refused(
        engine,
        "UPDATE carbon.datasets d SET committed_operation_id = o.committed_operation_id, committed_seq = 1,"
        " source_system_identifier = 1, source_lsn = '0/1', source_time = now()"
        " FROM carbon.datasets o WHERE o.id = :other AND d.id = :id",
        other=other.id,
        id=dataset.id,
    )


@pytest.mark.parametrize(
    "destination",
    [
        "{}",
        '{"warehouse_destination": {}}',
        '{"warehouse_destination": {"catalog": "main", "schema": "s", "origin": "guessed"}}',
        '{"warehouse_destination": {"catalog": "main", "schema": "", "origin": "chosen"}}',
        '{"warehouse_destination": {"catalog": "main", "origin": "chosen"}}',
        '{"warehouse_destination": {"catalog": "nowhere", "schema": "s", "origin": "chosen"}}',
        '{"warehouse_destination": {"schema": "s", "origin": "chosen"}}',
    ],
)
def test_a_credential_has_a_destination(engine: Engine, workspace: Workspace, destination: str) -> None:
    """Metadata without a whole destination in a registered catalog, chosen or defaulted, cannot be saved."""
    refused(
        engine,
        "INSERT INTO carbon.user_credentials (workspace_id, name, slug, kind, sealed_connection, system_identifier,"
        " created_by, metadata) VALUES (:workspace, 'x', 'x', 'postgres', '', 1, 'ada', CAST(:metadata AS jsonb))",
        workspace=workspace.id,
        metadata=destination,
    )


def test_the_database_defaults_the_destination(engine: Engine, directory: Directory, workspace: Workspace) -> None:
    """A credential that says nothing of its destination gets the default one, marked as such."""
    run(
        engine,
        "INSERT INTO carbon.user_credentials (workspace_id, name, slug, kind, sealed_connection, system_identifier,"
        " created_by) VALUES (:workspace, 'x', 'x', 'postgres', '', 1, 'ada')",
        workspace=workspace.id,
    )
    assert directory.credential("x", workspace).destination == DEFAULTED
    assert DEFAULTED.origin is DestinationOrigin.DEFAULTED
