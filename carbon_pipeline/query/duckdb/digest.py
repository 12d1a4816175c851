"""The digest of `verify.digest` as one statement of DuckDB's, over a snapshot's own files: for whoever has no carbon.

The third way to compute it, after the source's and the lake's, and like them none of the others' code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from carbon_pipeline.lake.reader import ProvenColumn
from carbon_pipeline.query.catalogue import quoted
from carbon_pipeline.query.duckdb.views import sql_type, text_literal
from carbon_pipeline.schema.type_map import BaseKind

_EPOCH = "epoch_us({})::VARCHAR"
_DIGITS = "{}::VARCHAR"

CANONICAL: dict[BaseKind, str] = {
    BaseKind.BOOLEAN: "CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END",
    BaseKind.INTEGER: _DIGITS,
    BaseKind.BIGINT: _DIGITS,
    BaseKind.DECIMAL: "replace({}::VARCHAR, '.', '')::HUGEINT::VARCHAR",
    BaseKind.REAL: "CASE WHEN isnan({0}) THEN '7fc00000' ELSE lower(hex({0}::BIT::BLOB)) END",
    BaseKind.DOUBLE: "CASE WHEN isnan({0}) THEN '7ff8000000000000' ELSE lower(hex({0}::BIT::BLOB)) END",
    BaseKind.TEXT: "{}",
    BaseKind.DATE: "date_diff('day', DATE '1970-01-01', {})::VARCHAR",
    BaseKind.TIME: _EPOCH,
    BaseKind.TIMESTAMP: _EPOCH,
    BaseKind.TIMESTAMPTZ: _EPOCH,
    BaseKind.UUID: "replace({}::VARCHAR, '-', '')",
    BaseKind.BINARY: "lower(hex({}))",
}
"""The canonical text of one value by base type; null for null."""

_LOCAL = re.compile(r"file:(?://(?:localhost)?)?(/.*)", re.DOTALL)


def file_path(uri: str) -> str:
    """A `file:` URI as a path; every other one as it is, for DuckDB reads object stores by URI."""
    found = _LOCAL.fullmatch(uri)
    return uri if found is None else found[1]


def statement(columns: Sequence[ProvenColumn], paths: Sequence[str]) -> str:
    """One query that gives `rows` and `checksum`, the latter as sixteen hexadecimal digits."""
    if not paths:
        return "SELECT 0 AS rows, '0000000000000000' AS checksum"
    texts = "".join(f",\n    {_canonical(column)} AS c{i}" for i, column in enumerate(columns))
    pieces = ", ".join(f"coalesce(strlen(c{i})::VARCHAR || ':' || c{i} || ';', 'n;')" for i in range(len(columns)))
    text = f"concat({pieces})" if columns else "''"
    # A sum of unsigned 64-bit numbers is a 128-bit one to DuckDB, so nothing overflows before the modulus.
    total = f"sum(('0x' || left(md5({text}), 16))::UBIGINT)"
    return f"""SELECT
  count(*) AS rows,
  lower(lpad(to_hex((coalesce({total}, 0) % 18446744073709551616)::UBIGINT), 16, '0')) AS checksum
FROM (
  SELECT 1 AS here{texts}
  FROM {_files(columns, paths)}
)"""  # noqa: S608 - every part is quoted


def _canonical(column: ProvenColumn) -> str:
    return CANONICAL[column.base.kind].format(quoted(column.field.name))


def _files(columns: Sequence[ProvenColumn], paths: Sequence[str]) -> str:
    listed = ",\n    ".join(text_literal(file_path(path)) for path in paths)
    if not columns:
        return f"read_parquet([\n    {listed}\n  ])"
    schema = ",\n    ".join(
        f"{column.field.field_id}: {{name: {text_literal(column.field.name)}, "
        f"type: {text_literal(sql_type(column.field.type))}, default_value: NULL}}"
        for column in columns
    )
    return f"read_parquet([\n    {listed}\n  ], schema = MAP {{\n    {schema}\n  }})"
