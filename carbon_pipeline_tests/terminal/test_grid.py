"""Tables: whole through a pipe, fitted to a terminal, and nothing in them that a terminal would obey."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from carbon_pipeline.terminal.grid import Column, Grid, cell, fit
from carbon_pipeline_tests.terminal.samples import screen

GRID = Grid(
    columns=(Column(title="dataset"), Column(title="rows", right=True), Column(title="created", spare=1)),
    rows=((cell("default.orders"), cell("12"), cell("yesterday")), (cell("default.x"), cell("1,234"), cell(""))),
)


def lines(grid: Grid, width: int | None) -> list[str]:
    """The fitted lines as text."""
    return [line.plain for line in fit(grid, width).lines]


def test_through_a_pipe_lines_are_whole() -> None:
    """Columns are aligned, figures to the right, and no line ends in spaces."""
    assert lines(GRID, None) == [
        "dataset          rows  created",
        "default.orders     12  yesterday",
        "default.x       1,234",
    ]


def test_a_column_that_can_be_spared_goes_first_and_is_named() -> None:
    """On a narrow terminal the table loses columns rather than wrapping, and says which."""
    made, out, _ = screen(terminal=True, width=25)
    made.table(GRID)
    assert out.getvalue().splitlines()[0] == "dataset          rows"
    assert "No room here for: created. --json has all." in out.getvalue()


def test_then_the_widest_text_is_cut_and_never_a_figure() -> None:
    """Text is cut with an ellipsis; a figure that lost its last digits would be another figure."""
    assert lines(GRID, 18) == ["dataset       rows", "default.or…     12", "default.x    1,234"]


texts = st.text(max_size=30)


@given(st.lists(st.tuples(texts, texts, texts), max_size=5), st.integers(min_value=34, max_value=120))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    """Whatever the cells hold, wide letters and control characters too, lines keep to the width and to their number."""
    columns = (Column(title="a"), Column(title="b"), Column(title="c", spare=1))
    grid = Grid(columns=columns, rows=tuple(tuple(cell(text) for text in row) for row in rows))
    fitted = lines(grid, width)
    assert len(fitted) == len(rows) + 1
    assert all(cell_len(line) <= width for line in fitted)
    assert all(line.isprintable() or "\x1b" not in line for line in fitted)


def test_a_name_cannot_steer_the_terminal() -> None:
    """Escape sequences, line ends and direction marks in a source's names are spelt out."""
    made, out, _ = screen()
    made.say("orders\x1b[31m\r\n\u202egnp.exe\x9b2J")
    assert out.getvalue() == "orders\\x1b[31m\\r\\n\\u202egnp.exe\\x9b2J\n"


def test_a_name_is_never_taken_for_markup() -> None:
    """Square brackets are what they are."""
    made, out, _ = screen(terminal=True)
    made.say("[red]orders[/red] :smile:")
    assert out.getvalue().strip() == "[red]orders[/red] :smile:"
