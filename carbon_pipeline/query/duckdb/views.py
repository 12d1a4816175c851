"""A view in DuckDB's SQL: the snapshot's own files, their columns found by field id."""

from __future__ import annotations

import re

from carbon_pipeline.errors import UsageError
from carbon_pipeline.lake.reader import LakeField
from carbon_pipeline.query.catalogue import View, quoted

_TYPES = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "uuid": "UUID",
    "binary": "BLOB",
}
"""Iceberg's spelling of a type → DuckDB's; decimals and fixed-length binaries are below."""

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_FIXED = re.compile(r"fixed\[\d+\]")
_LOCAL = re.compile(r"(?:file:(?://(?:localhost)?)?)?(/.*)", re.DOTALL)


def sql_type(iceberg_type: str) -> str:
    """DuckDB's type for an Iceberg one; `UsageError` for one that holds others."""
    if found := _DECIMAL.fullmatch(iceberg_type):
        return f"DECIMAL({found[1]},{found[2]})"
    if _FIXED.fullmatch(iceberg_type):
        return "BLOB"
    if iceberg_type not in _TYPES:
        raise UsageError(f"columns of type {iceberg_type} cannot be queried yet", remedy="Read them with PyIceberg.")
    return _TYPES[iceberg_type]


def local_path(uri: str) -> str:
    """The path of a `file:` URI, or of a plain path. Such URIs of Iceberg's are not percent-encoded."""
    found = _LOCAL.fullmatch(uri)
    if found is None:
        scheme = uri.partition(":")[0]
        raise UsageError(
            f"queries read local warehouses, and this one is on {scheme}",
            remedy=f"Query it with an engine that reads {scheme} through the catalog, such as Spark, Trino or DuckDB.",
        )
    return found[1]


def create_view(view: View) -> str:
    """The statement that makes *view*. A snapshot without files has the columns all the same."""
    name = f"{quoted(view.schema)}.{quoted(view.name)}"
    columns = ", ".join(quoted(field.name) for field in view.fields)
    if not view.paths:
        empty = ", ".join(f"CAST(NULL AS {sql_type(field.type)}) AS {quoted(field.name)}" for field in view.fields)
        return f"CREATE VIEW {name} AS SELECT {empty} WHERE false"
    files = ", ".join(text_literal(local_path(path)) for path in view.paths)
    schema = ", ".join(_entry(field) for field in view.fields)
    return f"CREATE VIEW {name} AS SELECT {columns} FROM read_parquet([{files}], schema = MAP {{{schema}}})"  # noqa: S608  # every part is quoted


def _entry(field: LakeField) -> str:
    type_ = sql_type(field.type)
    return f"{field.field_id}: {{name: {text_literal(field.name)}, type: {text_literal(type_)}, default_value: NULL}}"


def text_literal(value: str) -> str:
    """*value* as an SQL text."""
    escaped = value.replace("'", "''")
    return f"'{escaped}'"
