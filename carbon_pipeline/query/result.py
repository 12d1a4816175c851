"""What a query answers, and the same as values for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Columns, their types as the engine calls them, and rows that can be drained once.

    Values are `None`, `bool`, `int`, `float`, `Decimal`, `str`, `bytes`, `UUID`, lists and dicts of such. Dates, times
    and intervals are text, spelt as PostgreSQL spells them with TimeZone UTC: Python's own types end at the year 9999.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[tuple[object, ...]]


def to_json_rows(result: QueryResult) -> Iterator[list[JsonValue]]:
    """The rows, streaming, as what `json.dumps` takes: each value as psql prints it, integers and floats as numbers."""
    for row in result.rows:
        yield [json_value(value) for value in row]


def json_value(value: object) -> JsonValue:
    """One value for JSON."""
    match value:
        case float():
            return value if math.isfinite(value) else _NOT_FINITE[str(value)]
        case None | bool() | int() | str():
            return value
        case Decimal() | bytes() | UUID():
            return _text(value)
        case list():
            return [json_value(item) for item in value]
        case dict():
            return {str(json_value(key)): json_value(item) for key, item in value.items()}
        case _:
            raise TypeError(f"a query's value of type {type(value).__name__} has no place in JSON")


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""JSON has no numbers for these; they keep PostgreSQL's names."""


def _text(value: Decimal | bytes | UUID) -> str:
    match value:
        case Decimal():
            return f"{value:f}"
        case bytes():
            return f"\\x{value.hex()}"
        case UUID():
            return str(value)
