"""Why a chunk of rows did not parse: which column, which kind of value, and how to find it. Never the value itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from carbon_pipeline.errors import SourceBroke, SourceError, ValueNotRepresentable
from carbon_pipeline.schema.mapping import ColumnMapping
from carbon_pipeline.schema.type_map import BaseKind
from carbon_pipeline.source.postgres.failures import quoted, readable
from carbon_pipeline.source.postgres.snapshot import Pinned
from carbon_pipeline.source.postgres.wire import csv_type

ReadColumn = Callable[[tuple[str, pa.DataType]], pa.Table]
"""Reads one column of the chunk, called by its number, as the type given."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value that no lake type holds: the words it arrives as, what we call it, and how SQL finds it."""

    spellings: tuple[str, ...]
    words: str
    condition: str


KINDS = (
    Kind(
        ("infinity", "-infinity", "Infinity", "-Infinity"), "an infinite value", "{column} IN ('infinity', '-infinity')"
    ),
    Kind(("NaN",), "NaN", "{column} = 'NaN'"),
    Kind(("24:00:00",), "the time 24:00:00", "{column} = '24:00:00'"),
)
_UNREADABLE = Kind((), "bytes that are not UTF-8 text", "true")
_TOO_FAR = Kind((), "a moment beyond the year 294246", "{column} > '294247-01-01'")
_OUT_OF_RANGE = Kind((), "a value that the lake's type cannot hold", "true")


def refusal(read: ReadColumn, pinned: Pinned) -> SourceError:
    """The error for a chunk that did not parse: the first column that does not parse alone is the culprit."""
    for i, column in enumerate(pinned.mapping.columns):
        try:
            read((str(i), csv_type(column.base)))
        except pa.ArrowInvalid:
            return _refused(column, _kind(column, read((str(i), pa.binary())).column(0)), pinned)
    return SourceBroke(f"{pinned.subject.words}: rows arrived in a form that is not CSV")


def _kind(column: ColumnMapping, values: pa.ChunkedArray) -> Kind:
    if column.base.kind is BaseKind.TEXT:
        return _UNREADABLE
    for kind in KINDS:
        spellings = pa.array([spelling.encode() for spelling in kind.spellings], pa.binary())
        if pc.any(pc.is_in(values, value_set=spellings)).as_py():
            return kind
    return _TOO_FAR if column.base.kind in {BaseKind.TIMESTAMP, BaseKind.TIMESTAMPTZ} else _OUT_OF_RANGE


def _refused(column: ColumnMapping, kind: Kind, pinned: Pinned) -> ValueNotRepresentable:
    name, relation = quoted(column.source_name), pinned.relation
    table = f"{quoted(relation.schema)}.{quoted(relation.name)}"
    query = f"SELECT * FROM {table} WHERE {kind.condition.format(column=name)};"  # noqa: S608 - for a person to run
    return ValueNotRepresentable(
        f"{pinned.subject.words}: column {readable(column.source_name)} holds {kind.words}, "
        f"which {column.base} in the lake cannot represent",
        remedy=f"Correct it at the source, or exclude the table. {query} finds it.",
    )
