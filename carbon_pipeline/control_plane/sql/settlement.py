"""Settling an operation: its row, its sync log and its dataset's facts, in the caller's one transaction.

Everything comes from the settlement and from the operation's own row, nothing from a process's memory, so a reconciler
completes a dead writer's work as its writer would have.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from carbon_pipeline.control_plane.sql.models import DatasetRow, OperationRow, SchemaVersionRow, SyncLogRow
from carbon_pipeline.control_plane.sql.rows import Found, facts_of
from carbon_pipeline.identity import DatasetId, OperationId
from carbon_pipeline.ledger.operation import Entry, Settlement
from carbon_pipeline.ledger.states import RULINGS, Ruling

_SHOWS_THE_SOURCE = frozenset({Ruling.LANDED, Ruling.NOOP})
"""The rulings after which the dataset looks as the source did at the operation's moment."""


def settle_operation(
    connection: Connection, dataset_id: DatasetId, operation_id: UUID, settlement: Settlement
) -> Found | None:
    """The operation's row as it is now closed; none when it is in no state that the ruling may come from."""
    row = connection.execute(_close(dataset_id, operation_id, settlement)).one_or_none()
    if row is None:
        return None
    _close_sync_log(connection, row)
    if row.ruling is Ruling.LANDED:
        _complete_dataset(connection, row)
    elif row.ruling is Ruling.NOOP:
        _update_dataset(connection, row, {})
    return row


def entry_of(row: Found) -> Entry:
    """The ledger's entry of a closed operation."""
    return Entry(
        operation_id=OperationId(row.id),
        dataset_id=DatasetId(row.dataset_id),
        seq=row.seq,
        ruling=row.ruling,
        status=row.status,
        facts=facts_of(row),
        seconds=(row.settled_at - row.opened_at).total_seconds(),
    )


def _close(dataset_id: DatasetId, operation_id: UUID, settlement: Settlement) -> Any:
    rule, facts = RULINGS[settlement.ruling], settlement.facts
    shown = (
        {}
        if facts is None
        else {
            "snapshot_id": facts.snapshot_id,
            "parent_snapshot_id": facts.parent_snapshot_id,
            "rows": facts.rows,
            "size_bytes": facts.size_bytes,
            "data_files": facts.data_files,
            "has_identity": facts.has_identity,
        }
    )
    return (
        update(OperationRow)
        .where(
            OperationRow.id == operation_id,
            OperationRow.dataset_id == dataset_id,
            OperationRow.status.in_(sorted(rule.comes_from)),
        )
        .values(
            status=rule.status,
            ruling=settlement.ruling,
            reason=settlement.reason,
            settled_at=func.clock_timestamp(),
            **shown,
        )
        .returning(OperationRow.__table__)
    )


def _close_sync_log(connection: Connection, row: Found) -> None:
    fresh = row.ruling in _SHOWS_THE_SOURCE
    connection.execute(
        update(SyncLogRow)
        .where(SyncLogRow.operation_id == row.id)
        .values(
            status=RULINGS[row.ruling].sync,
            has_identity=row.has_identity,
            source_lsn=row.source_lsn if fresh else None,
            source_time=row.source_time if fresh else None,
            rows=row.rows,
            finished_at=row.settled_at,
        )
    )


def _complete_dataset(connection: Connection, row: Found) -> None:
    relation = row.relation
    _update_dataset(
        connection,
        row,
        {
            "row_count": row.rows,
            "size_bytes": row.size_bytes,
            "data_files": row.data_files,
            "snapshot_id": row.snapshot_id,
            "columns": relation["columns"],
            "primary_key": relation["primary_key"],
            "foreign_keys": relation["foreign_keys"],
            "keys_failed": relation["keys_failed"],
            "schema_version": _schema_version(connection, row),
        },
    )


def _update_dataset(connection: Connection, row: Found, facts: dict[str, Any]) -> None:
    """Move the dataset's facts forward; one that already shows a later operation stays as it is."""
    connection.execute(
        update(DatasetRow)
        .where(
            DatasetRow.id == row.dataset_id,
            or_(DatasetRow.committed_seq.is_(None), DatasetRow.committed_seq < row.seq),
        )
        .values(
            committed_operation_id=row.id,
            committed_seq=row.seq,
            source_system_identifier=row.source_system_identifier,
            source_lsn=row.source_lsn,
            source_time=row.source_time,
            updated_at=func.clock_timestamp(),
            **facts,
        )
    )


def _schema_version(connection: Connection, row: Found) -> int:
    """The version of the operation's columns: the last one, or a new one when they differ from it."""
    columns = row.relation["columns"]
    last = connection.execute(
        select(SchemaVersionRow.version, SchemaVersionRow.columns)
        .where(SchemaVersionRow.dataset_id == row.dataset_id)
        .order_by(SchemaVersionRow.version.desc())
        .limit(1)
    ).one_or_none()
    if last is not None and last.columns == columns:
        return int(last.version)
    version = 1 if last is None else int(last.version) + 1
    connection.execute(
        insert(SchemaVersionRow).values(
            dataset_id=row.dataset_id, version=version, columns=columns, operation_id=row.id
        )
    )
    return version
