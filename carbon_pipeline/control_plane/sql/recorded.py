"""The relation that an operation read, from the document that the operation keeps of it."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Engine, select

from carbon_pipeline.control_plane.sql.engine import control_plane_errors
from carbon_pipeline.control_plane.sql.models import OperationRow
from carbon_pipeline.identity import OperationId
from carbon_pipeline.proof.recorded import RecordedColumn, RecordedRelation
from carbon_pipeline.schema.type_map import BaseKind, BaseType
from carbon_pipeline.source.relation import RelationKind

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def recorded_relation(engine: Engine, operation_id: OperationId) -> RecordedRelation:
    """The relation of an operation that is known to exist."""
    query = select(OperationRow.relation).where(OperationRow.id == operation_id)
    with control_plane_errors(), engine.connect() as connection:
        document: dict[str, Any] = connection.execute(query).scalar_one()
    return RecordedRelation(
        oid=int(document["oid"]),
        schema=document["schema"],
        name=document["name"],
        kind=RelationKind(document["kind"]),
        columns=tuple(_column(column) for column in document["columns"]),
    )


def _column(document: dict[str, Any]) -> RecordedColumn:
    return RecordedColumn(
        attnum=int(document["attnum"]),
        source_name=document["source_name"],
        source_type=document["source_type"],
        base=_base(document["base"]),
    )


def _base(text: str) -> BaseType:
    """A base type from its own spelling."""
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return BaseType(kind=BaseKind(text))
    return BaseType(kind=BaseKind.DECIMAL, precision=int(found[1]), scale=int(found[2]))
