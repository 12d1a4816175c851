"""The digest of `verify.digest`, computed by PostgreSQL itself over the pinned relation.

The expressions are not those of `wire.py`, on purpose: what one gets wrong, the other must not hide.
"""

from __future__ import annotations

from psycopg import sql

from carbon_pipeline.schema.mapping import ColumnMapping
from carbon_pipeline.schema.type_map import BaseKind
from carbon_pipeline.source.postgres.failures import explained
from carbon_pipeline.source.postgres.session import Session
from carbon_pipeline.source.postgres.snapshot import Pinned
from carbon_pipeline.verify.digest import Digest

_DIGITS = sql.SQL("{column}::text")
_EPOCH = sql.SQL("replace(extract(epoch FROM {column})::text, '.', '')::numeric::text")
"""The epoch is printed with six decimals; without its point, it counts microseconds."""

CANONICAL: dict[BaseKind, sql.SQL] = {
    BaseKind.BOOLEAN: sql.SQL("CASE {column} WHEN true THEN 't' WHEN false THEN 'f' END"),
    BaseKind.INTEGER: _DIGITS,
    BaseKind.BIGINT: _DIGITS,
    BaseKind.DECIMAL: sql.SQL("trunc({column} * {unit})::text"),
    BaseKind.REAL: sql.SQL("encode(float4send(CASE {column} WHEN 'NaN' THEN 'NaN' ELSE {column} END), 'hex')"),
    BaseKind.DOUBLE: sql.SQL("encode(float8send(CASE {column} WHEN 'NaN' THEN 'NaN' ELSE {column} END), 'hex')"),
    # concat calls the type's own output function, as COPY does. A composite of nulls IS NULL, yet is not the null.
    BaseKind.TEXT: sql.SQL("CASE WHEN {column} IS DISTINCT FROM NULL THEN concat({column}) END"),
    BaseKind.DATE: sql.SQL(
        "CASE WHEN isfinite({column}) THEN (extract(epoch FROM {column}::date) / 86400)::bigint::text"
        " ELSE {column}::text END"
    ),
    BaseKind.TIME: _EPOCH,
    BaseKind.TIMESTAMP: _EPOCH,
    BaseKind.TIMESTAMPTZ: _EPOCH,
    BaseKind.UUID: sql.SQL("replace({column}::text, '-', '')"),
    BaseKind.BINARY: sql.SQL("substr({column}::text, 3)"),  # bytea_output is hex, which starts with \x
}
"""The canonical text of one value by base type; null for null."""


def digest(session: Session, pinned: Pinned) -> Digest:
    """Row count and checksum of the pinned relation, in its snapshot."""
    with explained(pinned.subject):
        row = session.execute(statement(pinned, _speaks_utf8(session))).fetchone()
    rows, checksum = row or (0, 0)
    return Digest(rows=rows, checksum=int(checksum) % 2**64)


def _speaks_utf8(session: Session) -> bool:
    return session.info.parameter_status("server_encoding") == "UTF8"


def statement(pinned: Pinned, speaks_utf8: bool) -> sql.Composed:
    """One query over two levels: inside, the canonical texts, each worked out once; outside, pieces and their sum.

    OFFSET 0 keeps the planner from merging the levels. The pieces go through an array, because a function takes a
    hundred arguments at most and a table has sixteen hundred columns.
    """
    texts = [_canonical(column) for column in pinned.mapping.columns]
    inner = sql.SQL("SELECT {} FROM {} OFFSET 0").format(
        sql.SQL(", ").join(sql.SQL("{} AS {}").format(text, _alias(i)) for i, text in enumerate(texts)), pinned.rows
    )
    # An encoding other than UTF-8 is left behind only here: the checksum is over UTF-8 bytes.
    in_utf8 = sql.SQL("{}" if speaks_utf8 else "convert_to({}, 'UTF8')")
    pieces = sql.SQL(", ").join(
        sql.SQL("coalesce(octet_length({})::text || ':' || {} || ';', 'n;')").format(
            in_utf8.format(_alias(i)), _alias(i)
        )
        for i in range(len(texts))
    )
    row = in_utf8.format(sql.SQL("array_to_string(ARRAY[{}]::text[], '')").format(pieces))
    return sql.SQL(
        "SELECT count(*), coalesce(sum(('x' || left(md5({}), 16))::bit(64)::bigint), 0) FROM ({}) AS texts"
    ).format(row, inner)


def _alias(i: int) -> sql.Identifier:
    return sql.Identifier(f"c{i}")


def _canonical(column: ColumnMapping) -> sql.Composed:
    unit = sql.Literal(f"1{'0' * (column.base.scale or 0)}") + sql.SQL("::numeric")
    return CANONICAL[column.base.kind].format(column=sql.Identifier(column.source_name), unit=unit)
