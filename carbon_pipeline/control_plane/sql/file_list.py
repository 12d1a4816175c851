"""The files that operations announced, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import Engine, Interval, Text, func, literal, select, update
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from carbon_pipeline.control_plane.sql.engine import control_plane_errors
from carbon_pipeline.control_plane.sql.models import FileRow, OperationRow
from carbon_pipeline.control_plane.sql.rows import Query, dataset_of, operation_of, operation_part, select_operations
from carbon_pipeline.ledger.operation import LeftBehind
from carbon_pipeline.ledger.port import FileList
from carbon_pipeline.ledger.states import OperationStatus


class SqlFileList(FileList):
    """The file list of a control plane in PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def left_behind(self, min_age_hours: float, limit: int) -> Sequence[LeftBehind]:
        """Files of operations that were aborted at least so long ago, and that are not marked as removed.

        Those of an unverifiable operation are not among them: a snapshot may refer to them.
        """
        with control_plane_errors(), self._engine.connect() as connection:
            rows = connection.execute(_select_left_behind(min_age_hours, limit)).all()
        return tuple(
            LeftBehind(operation=operation_of(operation_part(row), dataset_of(row)), paths=tuple(row.paths))
            for row in rows
        )

    def mark_removed(self, left: LeftBehind) -> None:
        """These files are gone."""
        paths = literal(list(left.paths), ARRAY(Text()))
        with control_plane_errors(), self._engine.begin() as connection:
            connection.execute(
                update(FileRow)
                .where(
                    FileRow.operation_id == left.operation.id,
                    FileRow.path == func.any(paths),
                    FileRow.removed_at.is_(None),
                )
                .values(removed_at=func.clock_timestamp())
            )


def _select_left_behind(min_age_hours: float, limit: int) -> Query:
    until = func.clock_timestamp() - literal(timedelta(hours=min_age_hours), Interval)
    paths = (
        select(func.array_agg(aggregate_order_by(FileRow.path, FileRow.path)).label("paths"))
        .where(FileRow.operation_id == OperationRow.id, FileRow.removed_at.is_(None))
        .lateral("left_behind")
    )
    return (
        select_operations()
        .add_columns(paths.c.paths)
        .join(paths, paths.c.paths.is_not(None))
        .where(OperationRow.status == OperationStatus.ABORTED, OperationRow.settled_at <= until)
        .order_by(OperationRow.settled_at, OperationRow.id)
        .limit(limit)
    )
