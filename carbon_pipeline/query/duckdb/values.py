"""Arrow columns of a DuckDB result → Python values that lose nothing (see `query.result`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from carbon_pipeline.query.duckdb.postgres_text import date_text, interval_text, time_text, timestamp_text

_CARRIED = re.compile(
    r'BOOLEAN|U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*|VARCHAR|BLOB|UUID|JSON|"NULL"'
    r"|DATE|TIME|TIMESTAMP( WITH TIME ZONE)?|INTERVAL|ENUM\(.*|STRUCT\(.*|MAP\(.*|.*\[\d*\]"
)
_SCALARS = {"HUGEINT": int, "UHUGEINT": int, "UUID": UUID}
"""Types whose Arrow form is another one's: a decimal for the first two, text for the last."""


def is_carried(type_name: str) -> bool:
    """Whether Arrow carries a DuckDB type's values whole. BIT, times with a zone and the like it does not."""
    return _CARRIED.fullmatch(type_name) is not None


def rows_of(batch: pa.RecordBatch, types: tuple[str, ...]) -> Iterator[tuple[object, ...]]:
    """The batch's rows."""
    return zip(*(_column(column, name) for column, name in zip(batch.columns, types, strict=True)), strict=True)


def _column(column: pa.Array, type_name: str) -> list[object]:
    make = _SCALARS.get(type_name)
    values = python_values(column)
    return values if make is None else [None if value is None else make(value) for value in values]


def python_values(column: pa.Array) -> list[object]:
    """A column's values; see `QueryResult` for their types."""
    kind = column.type
    if pa.types.is_float32(kind):
        # By way of the shortest text: 0.1 stays 0.1 instead of 0.10000000149011612.
        column = pc.cast(pc.cast(column, pa.string()), pa.float64())
    elif pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    for applies, convert in _CONVERSIONS:
        if applies(kind):
            return convert(column)
    values: list[object] = column.to_pylist()
    return values


def _texts(integers: pa.Array, spell: Callable[[int], str]) -> list[object]:
    return [None if value is None else spell(value) for value in integers.to_pylist()]


def _timestamps(column: pa.Array) -> list[object]:
    zone = "+00" if column.type.tz else ""
    return _texts(column.view(pa.int64()), lambda value: timestamp_text(value, zone))


def _intervals(column: pa.Array) -> list[object]:
    return [None if v is None else interval_text(v.months, v.days, v.nanoseconds // 1000) for v in column.to_pylist()]


def _lists(column: pa.Array) -> list[object]:
    return [python_values(item.values) if item.is_valid else None for item in column]


def _structs(column: pa.Array) -> list[object]:
    names = [field.name for field in column.type]
    rows = zip(*(python_values(column.field(place)) for place in range(len(names))), strict=True)
    return [
        dict(zip(names, row, strict=True)) if valid else None
        for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)
    ]


def _maps(column: pa.Array) -> list[object]:
    return [_map(item.values) if item.is_valid else None for item in column]


def _map(entries: pa.Array) -> dict[Any, object]:
    return dict(zip(python_values(entries.field(0)), python_values(entries.field(1)), strict=True))


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[object]]], ...] = (
    (pa.types.is_date32, lambda column: _texts(column.view(pa.int32()), date_text)),
    (pa.types.is_time64, lambda column: _texts(column.view(pa.int64()), time_text)),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_interval, _intervals),
    (pa.types.is_list, _lists),
    (pa.types.is_fixed_size_list, _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
)
