"""Rows of pg_catalog → relations. A handful of queries for the whole database; none per table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from importlib import resources
from typing import Any

import psycopg
from psycopg.rows import dict_row

from carbon_pipeline.source.postgres.failures import Subject, explain
from carbon_pipeline.source.postgres.session import Options, Session, begin
from carbon_pipeline.source.relation import Column, ForeignKey, Introspection, Keys, Relation, RelationKind, TypeKind

Row = dict[str, Any]

RELKINDS: dict[str, RelationKind] = {
    "r": RelationKind.TABLE,
    "p": RelationKind.PARTITIONED,
    "m": RelationKind.MATERIALISED_VIEW,
}
"""`pg_class.relkind` → what we call it."""


def _named_queries() -> dict[str, bytes]:
    text = resources.files(__package__).joinpath("introspect.sql").read_text("utf-8")
    _, *parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return {name: body.encode() for name, body in zip(parts[::2], parts[1::2], strict=True)}


QUERIES = _named_queries()


def ask(session: Session, name: str, **arguments: object) -> list[Row]:
    """The rows of one named query."""
    with session.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(QUERIES[name], arguments or None).fetchall()


def introspect(session: Session, options: Options, subject: Subject) -> Introspection:
    """Everything that can be synced, as of one snapshot of the catalogue."""
    begin(session, options, statement_seconds=options.look_seconds)
    [database] = ask(session, "database")
    found = ask(session, "relations", oid=None)
    columns = _columns(session, [row["oid"] for row in found])
    keys = _keys(session, [row["oid"] for row in found], subject)
    sizes = _sizes(session, found)
    relations = (
        _relation(row, columns[row["oid"]], keys=keys.get(row["oid"], Keys()), size_bytes=sizes[row["oid"]])
        for row in found
    )
    return Introspection(**database, relations=tuple(relations))


def look_again(session: Session, oid: int) -> Relation | None:
    """One relation as it is now, without keys and with an estimate for a size: enough to compare its shape."""
    for row in ask(session, "relations", oid=oid):
        return _relation(row, _columns(session, [oid])[oid], keys=Keys(), size_bytes=row["estimated_bytes"])
    return None


def difference(before: Relation, now: Relation) -> str | None:
    """What is not as it was, in words; none where the shape is the same."""
    if before.kind is not now.kind:
        return f"it was a {before.kind}, it is a {now.kind}"
    old, new = ({column.attnum: column for column in relation.columns} for relation in (before, now))
    both = sorted(old.keys() & new)
    said = [
        *(f"column {old[n].name} was dropped" for n in sorted(old.keys() - new)),
        *(f"column {new[n].name} was added" for n in sorted(new.keys() - old)),
        *(f"column {old[n].name} is called {new[n].name} now" for n in both if old[n].name != new[n].name),
        *(f"column {new[n].name} was {old[n].declared_type}, is {new[n].declared_type}"
          for n in both if _type(old[n]) != _type(new[n])),
    ]  # fmt: skip
    return ", ".join(said) or (None if before.shape == now.shape else "its columns changed")


def _type(column: Column) -> tuple[object, ...]:
    return column.declared_type, column.type_name, column.type_kind, column.precision, column.scale


def _relation(row: Row, columns: Iterable[Column], *, keys: Keys, size_bytes: int) -> Relation:
    return Relation(
        oid=row["oid"],
        schema=row["schema"],
        name=row["name"],
        kind=RELKINDS[row["relkind"]],
        columns=tuple(columns),
        keys=keys,
        estimated_rows=row["estimated_rows"],
        size_bytes=size_bytes,
        comment=row["comment"],
    )


def _columns(session: Session, oids: list[int]) -> dict[int, list[Column]]:
    columns: dict[int, list[Column]] = defaultdict(list)
    for row in ask(session, "columns", oids=oids):
        relation, kind = row.pop("relation"), TypeKind(row.pop("type_kind"))
        columns[relation].append(Column(**row, type_kind=kind))
    return columns


def _keys(session: Session, oids: list[int], subject: Subject) -> dict[int, Keys]:
    """Keys are worth having, not worth failing for: columns stay, and the keys say why they are not known."""
    try:
        with session.transaction():
            primary = {row["relation"]: tuple(row["columns"]) for row in ask(session, "primary_keys", oids=oids)}
            foreign: dict[int, list[ForeignKey]] = defaultdict(list)
            for row in ask(session, "foreign_keys", oids=oids):
                foreign[row.pop("relation")].append(_foreign_key(row))
    except psycopg.Error as error:
        if session.closed:
            raise
        unknown = Keys(failed=explain(error, subject).message)
        return dict.fromkeys(oids, unknown)
    return {oid: Keys(primary=primary.get(oid, ()), foreign=tuple(foreign[oid])) for oid in oids}


def _foreign_key(row: Row) -> ForeignKey:
    columns, referenced = row.pop("columns"), row.pop("referenced_columns")
    return ForeignKey(**row, columns=tuple(columns), referenced_columns=tuple(referenced))


def _sizes(session: Session, found: list[Row]) -> dict[int, int]:
    """Bytes by oid. Where one relation is locked by somebody, the planner's estimate has to do for all."""
    try:
        with session.transaction():
            session.execute("SET LOCAL lock_timeout = '1s'")
            leaves = [leaf for row in found for leaf in row["leaves"]]
            by_leaf = {row["oid"]: row["bytes"] for row in ask(session, "sizes", oids=leaves)}
    except psycopg.Error:
        if session.closed:
            raise
        return {row["oid"]: row["estimated_bytes"] for row in found}
    return {row["oid"]: sum(by_leaf[leaf] for leaf in row["leaves"]) for row in found}
