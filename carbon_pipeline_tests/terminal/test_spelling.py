"""How figures are spelt."""

from __future__ import annotations

import pytest

from carbon_pipeline.terminal import spelling


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (None, "—"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (12_345_678, "12.3 MB"),
        (5 * 10**18, "5,000 PB"),
    ],
)
def test_sizes(size_bytes: int | None, text: str) -> None:
    """Three digits or so, and never 1000 of a unit that has a bigger one."""
    assert spelling.size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "—"),
        (0.0, "0.00 s"),
        (9.994, "9.99 s"),
        (9.996, "10.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125.0, "2 min 05 s"),
        (3725.0, "1 h 02 min"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    """Hundredths where they matter, and never sixty of anything."""
    assert spelling.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "—"), (0.4, "just now"), (59.0, "59 s ago"), (61.0, "1 min ago"), (7200.0, "2 h ago"), (2e5, "2 d ago")],
)
def test_ages(seconds: float | None, text: str) -> None:
    """One unit, rounded down: data are never said to be older than they are."""
    assert spelling.age(seconds) == text


@pytest.mark.parametrize(
    ("rows_per_second", "text"), [(12.0, "12 rows/s"), (64_400.0, "64k rows/s"), (3_400_000.0, "3.4M rows/s")]
)
def test_rates(rows_per_second: float, text: str) -> None:
    """Rows per second."""
    assert spelling.rate(rows_per_second) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (42.4, "42 s"), (600.0, "10 min"), (10_800.0, "3 h")])
def test_what_is_left_is_no_finer_than_it_is_known(seconds: float, text: str) -> None:
    """An estimate has no hundredths."""
    assert spelling.remaining(seconds) == text


def test_one_is_singular() -> None:
    """`1 table`, `0 tables`."""
    assert [spelling.counted(n, "table") for n in (0, 1, 2000)] == ["0 tables", "1 table", "2,000 tables"]
