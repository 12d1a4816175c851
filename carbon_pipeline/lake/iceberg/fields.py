"""Mapping → Iceberg schema: the second table of the type map, and field ids that follow a column for life.

Which source column a field id belongs to is kept in the table property `carbon.columns`, so a renamed column keeps its
id and a retyped one gets a new one. In a relation that was dropped and made again, attnums say nothing about the old
one's; there the name decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping as Properties
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from carbon_pipeline.schema.mapping import ColumnMapping, Mapping
from carbon_pipeline.schema.row_identity import CREATED_AT, ROW_ID, ROW_INDEX
from carbon_pipeline.schema.type_map import BaseKind, BaseType

COLUMNS_PROPERTY = "carbon.columns"

ICEBERG: dict[BaseKind, IcebergType] = {
    BaseKind.BOOLEAN: BooleanType(),
    BaseKind.INTEGER: IntegerType(),
    BaseKind.BIGINT: LongType(),
    BaseKind.REAL: FloatType(),
    BaseKind.DOUBLE: DoubleType(),
    BaseKind.TEXT: StringType(),
    BaseKind.DATE: DateType(),
    BaseKind.TIME: TimeType(),
    BaseKind.TIMESTAMP: TimestampType(),
    BaseKind.TIMESTAMPTZ: TimestamptzType(),
    BaseKind.UUID: UUIDType(),
    BaseKind.BINARY: BinaryType(),
}
"""The Iceberg type of every base type but decimal (Iceberg specification, "Primitive Types")."""

IDENTITY_FIELDS: dict[str, IcebergType] = {ROW_INDEX: LongType(), ROW_ID: UUIDType(), CREATED_AT: TimestamptzType()}


def iceberg_type(base: BaseType) -> IcebergType:
    """The Iceberg type of a base type."""
    if base.kind is BaseKind.DECIMAL and base.precision is not None and base.scale is not None:
        return DecimalType(base.precision, base.scale)
    return ICEBERG[base.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """An Iceberg schema, and the property that says which source column each field holds."""

    schema: Schema
    columns_property: str


def _known_ids(mapping: Mapping, previous: Schema, properties: Properties[str, str]) -> dict[int, int]:
    """Field id by attnum, as far as the table knows the relation's columns."""
    recorded = json.loads(properties.get(COLUMNS_PROPERTY, '{"oid": 0, "ids": {}}'))
    if recorded["oid"] == mapping.relation.oid:
        return {int(attnum): field_id for attnum, field_id in recorded["ids"].items()}
    by_name = {field.name: field.field_id for field in previous.fields}
    return {column.attnum: by_name[column.name] for column in mapping.columns if column.name in by_name}


def _keeps_its_id(column: ColumnMapping, known: dict[int, int], previous: Schema) -> bool:
    held = {field.field_id: field.field_type for field in previous.fields}
    return held.get(known.get(column.attnum, -1)) == iceberg_type(column.base)


def table_shape(
    mapping: Mapping, previous: Schema | None = None, properties: Properties[str, str] | None = None, last_id: int = 0
) -> TableShape:
    """The shape a table must have to hold the mapping's rows.

    *previous*, *properties* and *last_id* are the table's as it is; none for a table that is to be created. Columns of
    the source are optional whatever it declares, so that a constraint it drops later breaks no reader.
    """
    before = previous or Schema()
    known = _known_ids(mapping, before, properties or {})
    identity_ids = {field.name: field.field_id for field in before.fields if field.name in IDENTITY_FIELDS}
    ids: dict[int, int] = {}
    fields: list[NestedField] = []
    for column in mapping.columns:
        if _keeps_its_id(column, known, before):
            field_id = known[column.attnum]
        else:
            last_id += 1
            field_id = last_id
        ids[column.attnum] = field_id
        fields.append(NestedField(field_id, column.name, iceberg_type(column.base), required=False, doc=column.comment))
    for name, field_type in IDENTITY_FIELDS.items():
        if name not in identity_ids:
            last_id += 1
        fields.append(NestedField(identity_ids.get(name, last_id), name, field_type, required=True))
    recorded = {"oid": mapping.relation.oid, "ids": {str(attnum): field_id for attnum, field_id in ids.items()}}
    return TableShape(schema=Schema(*fields), columns_property=json.dumps(recorded, separators=(",", ":")))


def file_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a data file: PyIceberg's own conversion, field ids in its metadata, with plain 32-bit string
    and binary offsets, since no batch of ours comes near 2 GiB in one column."""
    large = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema(
        [f.with_type(large.get(f.type, f.type)) for f in schema_to_pyarrow(schema, include_field_ids=True)]
    )
