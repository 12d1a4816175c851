"""Settling an operation: its row, its sync log and its dataset's facts, in the caller's one transaction.

Everything comes from the settlement and from the operation's own row, nothing from a process's memory, so a reconciler
completes a dead writer's work as its writer would have.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from carbon_pipeline.control_plane.sql.models import DatasetRow, OperationRow, SchemaVersionRow, SyncLogRow
from carbon_pipeline.control_plane.sql.rows import Found, facts_of
from carbon_pipeline.identity import DatasetId, OperationId
from carbon_pipeline.ledger.operation import Entry, Settlement
from carbon_pipeline.ledger.states import RULINGS, OperationStatus, Ruling

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
        _move_dataset(connection, row, _moment(row) | _content(connection, row))
    elif row.ruling is Ruling.NOOP:
        _move_dataset(connection, row, _moment(row))
    elif row.ruling is Ruling.ROLLED_BACK:
        _lower_dataset(connection, row, settlement.shown_operation_id)
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


def _moment(row: Found) -> dict[str, Any]:
    """What the dataset records of the operation that it shows."""
    return {
        "committed_operation_id": row.id,
        "committed_seq": row.seq,
        "source_system_identifier": row.source_system_identifier,
        "source_lsn": row.source_lsn,
        "source_time": row.source_time,
    }


def _content(connection: Connection, row: Found) -> dict[str, Any]:
    """What the dataset records of the snapshot that it shows, and of the relation behind it."""
    relation = row.relation
    return {
        "row_count": row.rows,
        "size_bytes": row.size_bytes,
        "data_files": row.data_files,
        "snapshot_id": _snapshot_of(row),
        "columns": relation["columns"],
        "primary_key": relation["primary_key"],
        "foreign_keys": relation["foreign_keys"],
        "keys_failed": relation["keys_failed"],
        "schema_version": _schema_version(connection, row),
    }


_NEVER_SHOWN: dict[str, Any] = dict.fromkeys(
    (
        *("committed_operation_id", "committed_seq", "source_system_identifier", "source_lsn", "source_time"),
        *("row_count", "size_bytes", "data_files", "snapshot_id"),
        *("columns", "primary_key", "foreign_keys", "keys_failed", "schema_version"),
    )
)
"""A dataset that shows nothing of ours, as before its first operation."""


def _snapshot_of(row: Found) -> int | None:
    """The operation's snapshot: the one that was seen, or, where main came back to it later, the one it planned."""
    seen: int | None = row.planned_snapshot_id if row.snapshot_id is None else row.snapshot_id
    return seen


def _move_dataset(connection: Connection, row: Found, facts: dict[str, Any], *more: ColumnElement[bool]) -> None:
    """Give the dataset other facts after the operation of this row; one that shows a later operation keeps its own."""
    earlier = or_(DatasetRow.committed_seq.is_(None), DatasetRow.committed_seq < row.seq)
    connection.execute(
        update(DatasetRow)
        .where(DatasetRow.id == row.dataset_id, earlier, *more)
        .values(updated_at=func.clock_timestamp(), **facts)
    )


def _lower_dataset(connection: Connection, row: Found, shown_id: OperationId | None) -> None:
    """Main was moved back behind this operation: the dataset falls back to what main still shows, or to nothing.

    Nothing newer can be overwritten: no operation opens while this one is unsettled, so whatever else the dataset shows
    is older than it, and what main showed was seen while this one was unsettled. `_move_dataset` holds to that even if
    the index that says so were gone. Facts are only lowered: where main was moved back no further than to the snapshot
    that the dataset shows anyway, a later operation that found nothing to change still holds.
    """
    shown = None if shown_id is None else _earlier_committed(connection, row, shown_id)
    if shown is None:
        _move_dataset(connection, row, _NEVER_SHOWN, DatasetRow.committed_seq.is_not(None))
        return
    lower = (
        DatasetRow.committed_seq > shown.seq,
        DatasetRow.snapshot_id.is_distinct_from(_snapshot_of(shown)),
    )
    if connection.scalar(select(DatasetRow.id).where(DatasetRow.id == row.dataset_id, *lower)) is not None:
        _move_dataset(connection, row, _moment(shown) | _content(connection, shown), *lower)


def _earlier_committed(connection: Connection, row: Found, operation_id: OperationId) -> Found | None:
    """The operation of that id, if it is an earlier one of the same dataset and committed."""
    return connection.execute(
        select(OperationRow.__table__).where(
            OperationRow.id == operation_id,
            OperationRow.dataset_id == row.dataset_id,
            OperationRow.seq < row.seq,
            OperationRow.status == OperationStatus.COMMITTED,
        )
    ).one_or_none()


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
