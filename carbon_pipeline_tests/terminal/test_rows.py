"""A query's answer as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from carbon_pipeline.errors import UsageError
from carbon_pipeline.query.result import QueryResult
from carbon_pipeline.terminal.rows import check_form, distinct, show_result, show_table, write_csv, write_json
from carbon_pipeline_tests.terminal.samples import screen


def result(*rows: tuple[object, ...], columns: tuple[str, ...] = ("id", "note")) -> QueryResult:
    """An answer of an integer and a text."""
    return QueryResult(columns=columns, types=("INTEGER", "VARCHAR"), rows=iter(rows))


def endless() -> Iterator[tuple[object, ...]]:
    """More rows than fit anywhere."""
    number = 0
    while True:
        number += 1
        yield number, "x"


def test_json_is_one_array_of_objects() -> None:
    """Nulls, special letters and nothing at all survive; the array is valid with no row too."""
    out = io.StringIO()
    write_json(result((1, None), (2, 'é"\n')), None, out)
    assert json.loads(out.getvalue()) == [{"id": 1, "note": None}, {"id": 2, "note": 'é"\n'}]
    empty = io.StringIO()
    write_json(result(), None, empty)
    assert json.loads(empty.getvalue()) == []


def test_csv_tells_null_from_an_empty_text() -> None:
    """Null is nothing, an empty text is two quotes; the rest reads back as any CSV."""
    out = io.StringIO()
    write_csv(result((1, None), (2, ""), (3, 'a,"b"\nc')), None, out)
    assert out.getvalue() == 'id,note\r\n1,\r\n2,""\r\n3,"a,""b""\nc"\r\n'
    assert list(csv.reader(io.StringIO(out.getvalue(), newline="")))[3] == ["3", 'a,"b"\nc']


def test_a_limit_stops_reading() -> None:
    """Rows beyond the limit are never asked for."""
    out = io.StringIO()
    write_csv(QueryResult(columns=("id", "note"), types=("INTEGER", "VARCHAR"), rows=endless()), 2, out)
    assert out.getvalue() == "id,note\r\n1,x\r\n2,x\r\n"


def test_a_table_says_that_there_is_more() -> None:
    """Without a limit a table ends after a hundred rows, and that is said on stderr."""
    made, out, err = screen()
    show_table(made, QueryResult(columns=("id", "note"), types=("INTEGER", "VARCHAR"), rows=endless()), None)
    assert len(out.getvalue().splitlines()) == 101
    assert err.getvalue() == "The first 100 rows of more; --limit N shows N, --json and --csv give all.\n"


def test_a_whole_table_says_how_many() -> None:
    """The count is on stderr, so that stdout is the table alone."""
    made, out, err = screen()
    show_result(made, result((1, "a"), (22, None)), None, as_json=False, as_csv=False)
    assert out.getvalue() == "id  note\n 1  a\n22\n"
    assert err.getvalue() == "2 rows\n"


def test_a_value_cannot_steer_the_terminal() -> None:
    """Line ends and escape sequences in values are spelt out in a table."""
    made, out, _ = screen()
    show_table(made, result((1, "a\nb\x1b[2J")), None)
    assert out.getvalue().splitlines()[1] == " 1  a\\nb\\x1b[2J"


def test_columns_of_one_name_stay_apart() -> None:
    """No column is lost in a JSON object."""
    assert distinct(("id", "id", "id_2", "id")) == ("id", "id_2_", "id_2", "id_3")
    out = io.StringIO()
    write_json(result((1, "a"), columns=("x", "x")), None, out)
    assert json.loads(out.getvalue()) == [{"x": 1, "x_2": "a"}]


def test_two_forms_at_once_are_refused() -> None:
    """`--json --csv` means nothing."""
    with pytest.raises(UsageError):
        check_form(as_json=True, as_csv=True)
