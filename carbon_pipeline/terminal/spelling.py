"""How numbers, sizes, times and foreign text are spelt for a person."""

from __future__ import annotations

import re
from datetime import datetime

UNKNOWN = "—"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SIZE_UNITS = ("kB", "MB", "GB", "TB", "PB")


def printable(text: str) -> str:
    """*text* with every control character spelt out: a table's name or a value must not steer the terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def count(number: int | None) -> str:
    """`1234567` → `1,234,567`."""
    return UNKNOWN if number is None else f"{number:,}"


def counted(number: int, thing: str) -> str:
    """`1 table`, `2 tables`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size(size_bytes: int | None) -> str:
    """Bytes in decimal units, three digits or so: `12.3 MB`."""
    if size_bytes is None:
        return UNKNOWN
    if size_bytes < 1000:
        return f"{size_bytes} B"
    value = float(size_bytes)
    for unit in _SIZE_UNITS:
        value /= 1000
        if value < 999.5 or unit == _SIZE_UNITS[-1]:
            break
    return f"{value:,.0f} {unit}" if value >= 99.95 else f"{value:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """`0.42 s`, `12.3 s`, `2 min 05 s`, `1 h 02 min`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def remaining(seconds: float) -> str:
    """What is left, no finer than it is known: `3 s`, `12 min`."""
    if seconds < 99.5:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"


def age(seconds: float | None) -> str:
    """How long ago: `just now`, `5 min`, `3 h`, `2 d`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return "just now"
    for limit, unit, length in ((60, "s", 1), (3600, "min", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{int(seconds / length)} {unit} ago"
    return f"{int(seconds / 86400)} d ago"


def rate(rows_per_second: float) -> str:
    """`850 rows/s`, `12k rows/s`, `3.4M rows/s`."""
    if rows_per_second < 1000:
        return f"{rows_per_second:.0f} rows/s"
    if rows_per_second < 999_500:
        return f"{rows_per_second / 1000:.0f}k rows/s"
    return f"{rows_per_second / 1_000_000:.1f}M rows/s"


def instant(moment: datetime | None) -> str:
    """A moment to the second, with its offset from UTC."""
    return UNKNOWN if moment is None else moment.isoformat(sep=" ", timespec="seconds")
