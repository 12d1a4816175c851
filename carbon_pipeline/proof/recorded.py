"""A relation as the ledger recorded it when an operation opened: enough to ask the source for it again."""

from __future__ import annotations

from dataclasses import dataclass

from carbon_pipeline.schema.type_map import BaseType
from carbon_pipeline.source.relation import RelationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedColumn:
    """One of its columns."""

    attnum: int
    source_name: str
    source_type: str
    base: BaseType


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRelation:
    """The relation, by the name that it had then."""

    oid: int
    schema: str
    name: str
    kind: RelationKind
    columns: tuple[RecordedColumn, ...]
    """In the source's order."""
