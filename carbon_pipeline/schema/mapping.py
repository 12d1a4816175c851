"""A mapping: one relation, and what each of its columns becomes in the lake."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from carbon_pipeline.identity import with_hash
from carbon_pipeline.schema.row_identity import IDENTITY_COLUMNS
from carbon_pipeline.schema.type_map import BaseKind, BaseType, Receipt, base_type_of
from carbon_pipeline.source.relation import Column, Relation, TypeKind

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

ARROW: dict[BaseKind, pa.DataType] = {
    BaseKind.BOOLEAN: pa.bool_(),
    BaseKind.INTEGER: pa.int32(),
    BaseKind.BIGINT: pa.int64(),
    BaseKind.REAL: pa.float32(),
    BaseKind.DOUBLE: pa.float64(),
    BaseKind.TEXT: pa.string(),
    BaseKind.DATE: pa.date32(),
    BaseKind.TIME: pa.time64("us"),
    BaseKind.TIMESTAMP: pa.timestamp("us"),
    BaseKind.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    BaseKind.UUID: pa.uuid(),
    BaseKind.BINARY: pa.binary(),
}
"""The Arrow type of every base type but decimal, whose precision and scale belong to the column."""


def arrow_type(base: BaseType) -> pa.DataType:
    """The Arrow type in which a base type travels from source to file."""
    if base.kind is BaseKind.DECIMAL:
        return pa.decimal128(base.precision, base.scale)
    return ARROW[base.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """One column's way into the lake."""

    attnum: int
    source_name: str
    name: str
    """Its name in the lake: the source's own, unless that would collide or could not be a name there."""
    source_type: str
    base: BaseType
    not_null: bool
    receipt: Receipt
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One relation's way into the lake, columns in the source's order."""

    relation: Relation
    columns: tuple[ColumnMapping, ...]

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches that a reading yields."""
        return pa.schema([pa.field(c.name, arrow_type(c.base)) for c in self.columns])


def _lake_names(columns: tuple[Column, ...]) -> dict[int, str]:
    """Names by attnum. Case does not tell two columns apart in many engines, so it does not here either."""
    spoken_for = Counter([column.name.lower() for column in columns] + list(IDENTITY_COLUMNS))
    return {
        column.attnum: (
            column.name
            if _PLAIN.fullmatch(column.name) and spoken_for[column.name.lower()] == 1
            else with_hash(column.name, column.name)
        )
        for column in columns
    }


def _map_column(column: Column, name: str) -> ColumnMapping:
    base, receipt = base_type_of(
        column.type_name,
        is_enum=column.type_kind is TypeKind.ENUM,
        precision=column.precision,
        scale=column.scale,
    )
    return ColumnMapping(
        attnum=column.attnum,
        source_name=column.name,
        name=name,
        source_type=column.declared_type,
        base=base,
        not_null=column.not_null,
        receipt=receipt,
        comment=column.comment,
    )


def map_relation(relation: Relation) -> Mapping:
    """The mapping of a relation. Every type has one: what the map does not know becomes text, with a receipt."""
    names = _lake_names(relation.columns)
    return Mapping(
        relation=relation, columns=tuple(_map_column(column, names[column.attnum]) for column in relation.columns)
    )
