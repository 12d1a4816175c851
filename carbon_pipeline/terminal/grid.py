"""Tables as aligned text: whole through a pipe, fitted to the width of a terminal.

Where a terminal is too narrow, columns that can be spared are left out, the most expendable first, and named below
the table; if that is not enough, the widest texts are cut. A line is never wrapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from carbon_pipeline.terminal.spelling import printable

_GAP = "  "
_TEXT_WIDTH_MIN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column's head."""

    title: str
    right: bool = False
    spare: int = 0
    """0 is always shown; of the others the greatest goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table before it meets a width. Every row has one cell per column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Text, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Lines no wider than asked for, and the titles of the columns that had no room."""

    lines: tuple[Text, ...]
    left_out: tuple[str, ...]


def cell(text: str, style: str = "") -> Text:
    """A cell: one line, and nothing in it that a terminal would obey."""
    return Text(printable(text), style=style, end="", no_wrap=True)


def fit(grid: Grid, width: int | None) -> Fitted:
    """The grid's lines, heading first; *width* is none where lines may be as long as they like."""
    widths = _natural_widths(grid)
    shown = list(range(len(grid.columns)))
    if width is not None:
        shown = _affordable(grid.columns, widths, width)
        widths = _shrunk(grid.columns, widths, shown, width)
    left_out = tuple(column.title for place, column in enumerate(grid.columns) if place not in shown)
    return Fitted(lines=tuple(_lines(grid, shown, widths)), left_out=left_out)


def _natural_widths(grid: Grid) -> list[int]:
    heads = [cell(column.title).cell_len for column in grid.columns]
    return [max([head, *(row[place].cell_len for row in grid.rows)]) for place, head in enumerate(heads)]


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[place] for place in shown) + len(_GAP) * (len(shown) - 1)


def _affordable(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    shown = list(range(len(columns)))
    for place in sorted(shown, key=lambda place: -columns[place].spare):
        if columns[place].spare == 0 or _total(widths, shown) <= width:
            break
        shown.remove(place)
    return shown


def _shrunk(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], width: int) -> list[int]:
    """Take from the widest text until it fits; figures are never cut."""
    widths = list(natural)
    texts = [place for place in shown if not columns[place].right]
    while texts and _total(widths, shown) > width:
        widest = max(texts, key=lambda place: widths[place])
        if widths[widest] <= _TEXT_WIDTH_MIN:
            break
        widths[widest] -= 1
    return widths


def _lines(grid: Grid, shown: Sequence[int], widths: Sequence[int]) -> Iterator[Text]:
    heads = tuple(cell(column.title, "dim") for column in grid.columns)
    for row in (heads, *grid.rows):
        line = Text(end="", no_wrap=True)
        for place in shown:
            line.append_text(_padded(row[place], widths[place], right=grid.columns[place].right)).append(_GAP)
        line.rstrip()
        yield line


def _padded(text: Text, width: int, *, right: bool) -> Text:
    padded = text.copy()
    padded.truncate(width, overflow="ellipsis")
    if right:
        padded.pad_left(width - padded.cell_len)
    else:
        padded.pad_right(width - padded.cell_len)
    return padded
