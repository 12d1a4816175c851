"""Dates, times and intervals from their integers, spelt as PostgreSQL does (DateStyle ISO, TimeZone UTC).

Python's `datetime` ends at the year 9999 and knows no year before 1; the lake's values do not.
"""

from __future__ import annotations

from functools import lru_cache

_DAY_MICROSECONDS = 86_400_000_000
_DAYS_TO_1970 = 719_468
"""From 0000-03-01, where the 400-year cycle of the calendar begins, to 1970-01-01."""
_DAYS_IN_CYCLE = 146_097

_DATE_INFINITY = 2**31 - 1
_TIMESTAMP_INFINITY = 2**63 - 1
"""DuckDB's own marks for infinity; the negative ones are these with a minus."""


def date_text(days: int) -> str:
    """A date from its days since 1970-01-01: `2013-01-01`, `0044-03-15 BC`."""
    if abs(days) == _DATE_INFINITY:
        return "infinity" if days > 0 else "-infinity"
    date, era = _date(days)
    return date + era


def time_text(microseconds: int) -> str:
    """A time of day from its microseconds since midnight: `05:00:00.25`."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(fraction)}"


def timestamp_text(microseconds: int, zone: str = "") -> str:
    """A timestamp from its microseconds since 1970-01-01 00:00 UTC; *zone* is what is printed behind the time."""
    if abs(microseconds) == _TIMESTAMP_INFINITY:
        return "infinity" if microseconds > 0 else "-infinity"
    days, rest = divmod(microseconds, _DAY_MICROSECONDS)
    date, era = _date(days)
    return f"{date} {time_text(rest)}{zone}{era}"


def interval_text(months: int, days: int, microseconds: int) -> str:
    """An interval: `1 year 2 mons -3 days +04:05:06`."""
    years, rest = int(months / 12), months - 12 * int(months / 12)
    parts: list[str] = []
    for count, unit in ((years, "year"), (rest, "mon"), (days, "day")):
        if count:
            parts.append(f"{_sign(count, parts)}{count} {unit}{'' if count == 1 else 's'}")
    if microseconds or not parts:
        sign = "-" if microseconds < 0 else _sign(microseconds, parts)
        parts.append(f"{sign}{time_text(abs(microseconds))}")
    return " ".join(parts)


def _sign(count: int, parts: list[str]) -> str:
    """PostgreSQL prints a plus behind a part that is negative, since a minus would seem to hold for what follows."""
    return "+" if count > 0 and parts and parts[-1].startswith("-") else ""


def _fraction(microseconds: int) -> str:
    return f".{microseconds:06}".rstrip("0") if microseconds else ""


@lru_cache(maxsize=4096)
def _date(days: int) -> tuple[str, str]:
    """Year, month and day by counting from March, so that the leap day comes last; with ` BC` apart from it."""
    cycle, day_of_cycle = divmod(days + _DAYS_TO_1970, _DAYS_IN_CYCLE)
    year_of_cycle = (day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36524 - day_of_cycle // 146096) // 365
    day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = 400 * cycle + year_of_cycle + (month <= 2)
    era = "" if year > 0 else " BC"
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}", era
