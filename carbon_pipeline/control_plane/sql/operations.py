"""Operations as people ask for them: a list of lines, or the whole story of one."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, and_, func, select

from carbon_pipeline.control_plane.records import (
    AnnouncedFile,
    OperationEvent,
    OperationFilter,
    OperationLine,
    OperationStory,
    SyncLogEntry,
    Workspace,
)
from carbon_pipeline.control_plane.sql.models import (
    CredentialRow,
    DatasetRow,
    EventRow,
    FileRow,
    OperationRow,
    SyncLogRow,
)
from carbon_pipeline.control_plane.sql.rows import (
    Found,
    Query,
    dataset_of,
    moment_of,
    operation_of,
    operation_part,
    select_operations,
)
from carbon_pipeline.errors import UsageError
from carbon_pipeline.identity import DatasetId, OperationId
from carbon_pipeline.ledger.states import UNSETTLED, OperationStatus

_IDS_NAMED_MAX = 5
"""How many operations an ambiguous prefix names."""

_STATUSES: dict[OperationFilter, tuple[OperationStatus, ...]] = {
    OperationFilter.OPEN: UNSETTLED,
    OperationFilter.FAILED: (OperationStatus.ABORTED, OperationStatus.UNVERIFIABLE),
    OperationFilter.ALL: tuple(OperationStatus),
}

_DIGITS = re.compile(r"[0-9a-f]{8,32}")


def select_lines(
    which: OperationFilter, *, dataset_id: DatasetId | None, workspace: Workspace | None, limit: int
) -> Query:
    """The newest operations, for `line_of`."""
    query = _select_lines().order_by(OperationRow.opened_at.desc(), OperationRow.id).limit(limit)
    if which is not OperationFilter.ALL:
        query = query.where(OperationRow.status.in_(_STATUSES[which]))
    if dataset_id is not None:
        query = query.where(OperationRow.dataset_id == dataset_id)
    if workspace is not None:
        query = query.where(DatasetRow.workspace_id == workspace.id)
    return query


def _select_lines() -> Query:
    now = func.clock_timestamp()
    return (
        select_operations()
        .add_columns(
            CredentialRow.name.label("credential"),
            func.extract("epoch", now - OperationRow.opened_at).label("age_seconds"),
            and_(OperationRow.status.in_(UNSETTLED), OperationRow.lease_until > now).label("lease_is_live"),
        )
        .join(CredentialRow, CredentialRow.id == DatasetRow.credential_id)
    )


def line_of(row: Found) -> OperationLine:
    """The line of a row of `select_lines`."""
    part, dataset = operation_part(row), dataset_of(row)
    operation = operation_of(part, dataset)
    return OperationLine(
        id=operation.id,
        dataset=dataset,
        credential=row.credential,
        seq=operation.seq,
        writer=operation.writer,
        mode=operation.mode,
        status=operation.status,
        ruling=part.ruling,
        reason=part.reason,
        user=part.actor_user,
        run_id=part.run_id,
        opened_at=operation.opened_at,
        age_seconds=float(row.age_seconds),
        seconds=None if part.settled_at is None else (part.settled_at - part.opened_at).total_seconds(),
        lease_is_live=bool(row.lease_is_live),
        rows_written=part.rows_written,
        rows=part.rows,
        snapshot_id=part.snapshot_id,
    )


def tell_story(connection: Connection, text: str) -> OperationStory:
    """The story of the operation whose id *text* is, or begins."""
    row = _find(connection, text)
    part, line = operation_part(row), line_of(row)
    return OperationStory(
        line=line,
        engine=part.actor_engine,
        policy=part.policy,
        holder=part.holder,
        code_version=part.code_version,
        relation=f"{row.relation_schema}.{row.relation_name}",
        moment=moment_of(part),
        catalog_uri=part.catalog_uri,
        warehouse=part.warehouse,
        identifier=(part.namespace, part.table_name),
        table_uuid=part.table_uuid,
        base_snapshot_id=part.base_snapshot_id,
        planned_snapshot_id=part.planned_snapshot_id,
        parent_snapshot_id=part.parent_snapshot_id,
        size_bytes=part.size_bytes,
        data_files=part.data_files,
        has_identity=part.has_identity,
        bytes_written=part.bytes_written,
        heartbeat_at=part.heartbeat_at,
        lease_until=part.lease_until,
        committing_at=part.committing_at,
        settled_at=part.settled_at,
        sync_log=_sync_log(connection, line.id),
        events=_events(connection, line.id),
        files=_files(connection, line.id),
    )


def _find(connection: Connection, text: str) -> Found:
    digits = text.strip().lower().replace("-", "")
    if not _DIGITS.fullmatch(digits):
        raise UsageError(
            f"{text!r} is not an operation's id",
            remedy="Give its first eight hexadecimal digits or more; `carbon ledger` lists them.",
        )
    # Ids that begin alike lie side by side in the index.
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    query = _select_lines().add_columns(
        OperationRow.relation["schema"].as_string().label("relation_schema"),
        OperationRow.relation["name"].as_string().label("relation_name"),
    )
    query = query.where(OperationRow.id.between(first, last)).order_by(OperationRow.id).limit(_IDS_NAMED_MAX + 1)
    rows = connection.execute(query).all()
    if not rows:
        raise UsageError(f"there is no operation {text}", remedy="`carbon ledger` lists them.")
    if len(rows) > 1:
        raise UsageError(f"{text} begins the ids of several operations: {_named(rows)}", remedy="Give more digits.")
    return rows[0]


def _named(rows: Any) -> str:
    named = [f"{operation_part(row).id} ({dataset_of(row).coordinate})" for row in rows[:_IDS_NAMED_MAX]]
    return ", ".join(named) + (", …" if len(rows) > _IDS_NAMED_MAX else "")


def _sync_log(connection: Connection, operation_id: OperationId) -> SyncLogEntry:
    row = connection.execute(
        select(SyncLogRow.__table__).where(SyncLogRow.operation_id == operation_id)
    ).one()  # every operation has one: a deferred trigger sees to it
    return SyncLogEntry(
        status=row.status,
        source_time=row.source_time,
        rows=row.rows,
        has_identity=row.has_identity,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _events(connection: Connection, operation_id: OperationId) -> tuple[OperationEvent, ...]:
    rows = connection.execute(
        select(EventRow.__table__).where(EventRow.operation_id == operation_id).order_by(EventRow.id)
    )
    return tuple(
        OperationEvent(
            at=row.at,
            kind=row.kind,
            from_status=row.from_status,
            to_status=row.to_status,
            ruling=row.ruling,
            reason=row.reason,
            snapshot_id=row.snapshot_id,
            session=row.session,
            database_user=row.database_user,
        )
        for row in rows
    )


def _files(connection: Connection, operation_id: OperationId) -> tuple[AnnouncedFile, ...]:
    rows = connection.execute(
        select(FileRow.path, FileRow.announced_at, FileRow.removed_at)
        .where(FileRow.operation_id == operation_id)
        .order_by(FileRow.announced_at, FileRow.path)
    )
    return tuple(AnnouncedFile(path=row.path, announced_at=row.announced_at, removed_at=row.removed_at) for row in rows)
