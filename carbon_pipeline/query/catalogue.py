"""Which name in SQL stands for which snapshot.

A dataset is a view called by its own name in a schema called by its own name. Schemas are searched in an order that
begins with `default`, so a dataset's bare name is enough unless an earlier schema has one of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from carbon_pipeline.destination.coordinate import DEFAULT_SCHEMA
from carbon_pipeline.lake.reader import LakeField, SnapshotFiles
from carbon_pipeline.schema.row_identity import IDENTITY_COLUMNS

_TAKEN = frozenset({"information_schema", "memory", "pg_catalog", "system", "temp"})
"""Names of schemas and databases that SQL engines keep for themselves."""

_BARE = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """A published dataset: its schema and name in the lakehouse, and main's snapshot."""

    schema: str
    name: str
    files: SnapshotFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One name in SQL, and what it shows."""

    schema: str
    name: str
    fields: tuple[LakeField, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All names of one lakehouse."""

    views: tuple[View, ...]
    search_path: tuple[str, ...]

    @property
    def shortest_names(self) -> tuple[str, ...]:
        """Every view as a query has to spell it at least, in the order of the search path."""
        found: dict[str, str] = {}
        names = []
        for view in self.views:
            owner = found.setdefault(view.name.lower(), view.schema)
            name = quoted_where_needed(view.name)
            names.append(name if owner == view.schema else f"{quoted_where_needed(view.schema)}.{name}")
        return tuple(names)


def catalogue(tables: Iterable[NamedTable], *, identity: bool = False) -> Catalogue:
    """The names under which *tables* can be queried. The identity columns are shown only when asked for.

    A table without columns, which PostgreSQL allows, has no view: SQL has none without columns.
    """
    ordered = sorted(tables, key=lambda table: (table.schema != DEFAULT_SCHEMA, table.schema, table.name))
    views = tuple(
        View(
            schema=sql_schema(table.schema),
            name=table.name,
            fields=tuple(field for field in table.files.fields if identity or field.name not in IDENTITY_COLUMNS),
            paths=table.files.paths,
        )
        for table in ordered
    )
    views = tuple(view for view in views if view.fields)
    return Catalogue(views=views, search_path=tuple(dict.fromkeys(view.schema for view in views)))


def sql_schema(schema: str) -> str:
    """A lakehouse schema's name in SQL: its own. One that engines keep for themselves gets an underscore, with which no
    name of ours ends."""
    return f"{schema}_" if schema.lower() in _TAKEN else schema


def quoted(name: str) -> str:
    """*name* as an SQL identifier, whatever is in it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quoted_where_needed(name: str) -> str:
    """*name* as a person would type it."""
    return name if _BARE.fullmatch(name) else quoted(name)
