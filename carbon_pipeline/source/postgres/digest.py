"""The digest of `verify.digest`, computed by PostgreSQL itself: over the pinned relation, or by whoever runs its text.

The expressions are not those of `wire.py`, on purpose: what one gets wrong, the other must not hide.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from carbon_pipeline.proof.recorded import RecordedRelation
from carbon_pipeline.schema.type_map import BaseKind, BaseType
from carbon_pipeline.source.postgres.failures import explained
from carbon_pipeline.source.postgres.session import VALUE_SETTINGS, Session
from carbon_pipeline.source.postgres.snapshot import Pinned
from carbon_pipeline.source.relation import RelationKind
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
    """The query for the pinned relation."""
    columns = [(column.source_name, column.base) for column in pinned.mapping.columns]
    texts, row = _texts(columns, pinned.rows), _row(len(columns), speaks_utf8)
    return sql.SQL("SELECT count(*), {} FROM ({}) AS texts").format(_sum(row), texts)


def script(relation: RecordedRelation) -> str:
    """A script for psql that gives `rows` and `checksum` as the source has them when it is run.

    It says by itself what a session of ours would: no setting of whoever runs it shapes a value.
    """
    columns = [(column.source_name, column.base) for column in relation.columns]
    only = sql.SQL("ONLY " if relation.kind is RelationKind.TABLE else "")
    rows = sql.SQL("{}{}").format(only, sql.Identifier(relation.schema, relation.name))
    query = sql.SQL(_SCRIPT).format(
        settings=sql.SQL("").join(
            sql.SQL("SET LOCAL {} = {};\n").format(sql.Identifier(name), sql.Literal(value))
            for name, value in VALUE_SETTINGS.items()
        ),
        sum=_sum(_row(len(columns), speaks_utf8=False)),
        texts=_texts(columns, rows),
    )
    return query.as_string(None)


_SCRIPT = """\
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL client_encoding = 'UTF8';
{settings}\
SELECT rows, lpad(to_hex((u - CASE WHEN u < 9223372036854775808 THEN 0 ELSE 18446744073709551616 END)::bigint), 16, '0')
  AS checksum
FROM (SELECT rows, mod(mod(s, 18446744073709551616) + 18446744073709551616, 18446744073709551616) AS u FROM (
  SELECT count(*) AS rows, {sum} AS s FROM ({texts}) AS texts
) AS signed) AS unsigned;
COMMIT;
"""
"""The sum is one of signed numbers; PostgreSQL has no unsigned ones, and prints the sign of none in hexadecimal."""


def _texts(columns: Sequence[tuple[str, BaseType]], rows: sql.Composed) -> sql.Composed:
    """The inner of two levels: the canonical texts, each worked out once.

    OFFSET 0 keeps the planner from merging the levels.
    """
    texts = [_canonical(name, base) for name, base in columns]
    return sql.SQL("SELECT {} FROM {} OFFSET 0").format(
        sql.SQL(", ").join(sql.SQL("{} AS {}").format(text, _alias(i)) for i, text in enumerate(texts)), rows
    )


def _row(columns: int, speaks_utf8: bool) -> sql.Composed:
    """A row's text from those of its columns.

    The pieces go through an array, because a function takes a hundred arguments at most and a table has sixteen hundred
    columns. An encoding other than UTF-8 is left behind only here: the checksum is over UTF-8 bytes.
    """
    in_utf8 = sql.SQL("{}" if speaks_utf8 else "convert_to({}, 'UTF8')")
    pieces = sql.SQL(", ").join(
        sql.SQL("coalesce(octet_length({})::text || ':' || {} || ';', 'n;')").format(
            in_utf8.format(_alias(i)), _alias(i)
        )
        for i in range(columns)
    )
    return in_utf8.format(sql.SQL("array_to_string(ARRAY[{}]::text[], '')").format(pieces))


def _sum(row: sql.Composed) -> sql.Composed:
    return sql.SQL("coalesce(sum(('x' || left(md5({}), 16))::bit(64)::bigint), 0)").format(row)


def _alias(i: int) -> sql.Identifier:
    return sql.Identifier(f"c{i}")


def _canonical(name: str, base: BaseType) -> sql.Composed:
    unit = sql.Literal(f"1{'0' * (base.scale or 0)}") + sql.SQL("::numeric")
    return CANONICAL[base.kind].format(column=sql.Identifier(name), unit=unit)
