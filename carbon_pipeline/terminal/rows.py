"""What a query answers, as a table for a person, one JSON array, or CSV."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO

from carbon_pipeline.errors import UsageError
from carbon_pipeline.query.result import JsonValue, QueryResult, to_json_rows
from carbon_pipeline.terminal.grid import Column, Grid, cell
from carbon_pipeline.terminal.screen import Screen
from carbon_pipeline.terminal.spelling import counted
from carbon_pipeline.terminal.views import QUIET

TABLE_ROWS = 100
"""A table is held in memory to be aligned; beyond this it is said that there is more."""

_CELL_WIDTH_MAX = 40
_FIGURES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL")


def check_form(*, as_json: bool, as_csv: bool) -> None:
    """Refuse two forms at once."""
    if as_json and as_csv:
        raise UsageError("--json and --csv are both given", remedy="Give one of them.")


def show_result(screen: Screen, result: QueryResult, limit: int | None, *, as_json: bool, as_csv: bool) -> None:
    """The answer in the form that was asked for."""
    if as_json:
        write_json(result, limit, screen.out.file)
    elif as_csv:
        write_csv(result, limit, screen.out.file)
    else:
        show_table(screen, result, limit)


def show_table(screen: Screen, result: QueryResult, limit: int | None) -> None:
    """An aligned table of *limit* rows at most; whether there are more is said."""
    shown_max = TABLE_ROWS if limit is None else limit
    rows = to_json_rows(result)
    shown = list(islice(rows, shown_max))
    more = next(rows, None) is not None
    screen.table(_grid(result, shown))
    if more and limit is None:
        screen.note(f"The first {counted(len(shown), 'row')} of more; --limit N shows N, --json and --csv give all.")
    else:
        screen.note(f"{counted(len(shown), 'row')}{' of more' if more else ''}", QUIET)


def _grid(result: QueryResult, rows: Sequence[list[JsonValue]]) -> Grid:
    # The first column is always shown; the others go from the right where a terminal is too narrow.
    columns = tuple(
        Column(title=name, right=type_.upper().removeprefix("U").startswith(_FIGURES), spare=place)
        for place, (name, type_) in enumerate(zip(result.columns, result.types, strict=True))
    )
    return Grid(columns=columns, rows=tuple(tuple(cell(_short(_text(value))) for value in row) for row in rows))


def _short(text: str) -> str:
    return text if len(text) <= _CELL_WIDTH_MAX else f"{text[: _CELL_WIDTH_MAX - 1]}…"


def _text(value: JsonValue) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)


def write_json(result: QueryResult, limit: int | None, out: IO[str]) -> None:
    """One JSON array with an object per row, a row a line, written as the rows come."""
    names = distinct(result.columns)
    out.write("[")
    for place, row in enumerate(islice(to_json_rows(result), limit)):
        line = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False)
        out.write(f"{',' if place else ''}\n{line}")
    out.write("\n]\n")


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Column names as keys of one object: a name that comes again gets a number, so that no column is lost."""
    taken = set(names)
    seen: Counter[str] = Counter()

    def one(name: str) -> str:
        seen[name] += 1
        if seen[name] == 1:
            return name
        key = f"{name}_{seen[name]}"
        while key in taken:
            key += "_"
        taken.add(key)
        return key

    return tuple(one(name) for name in names)


def write_csv(result: QueryResult, limit: int | None, out: IO[str]) -> None:
    """CSV as PostgreSQL's COPY writes it: null is nothing at all, an empty text is two quotes (RFC 4180 otherwise)."""
    out.write(_csv_line(result.columns))
    for row in islice(to_json_rows(result), limit):
        out.write(_csv_line(row))


def _csv_line(values: Sequence[JsonValue]) -> str:
    return ",".join(_csv_fields(values)) + "\r\n"


def _csv_fields(values: Sequence[JsonValue]) -> Iterator[str]:
    for value in values:
        text = _text(value)
        if value is not None and (text == "" or any(letter in text for letter in ',"\r\n')):
            escaped = text.replace('"', '""')
            text = f'"{escaped}"'
        yield text
