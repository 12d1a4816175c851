"""The demo's source database, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import pytest

from carbon_pipeline.demo import nycflights13
from carbon_pipeline.demo.nycflights13 import ROWS, Loaded, load_nycflights13
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_database, ensure_role
from carbon_pipeline.errors import SourceUnreachable
from carbon_pipeline_tests.conftest import admin_connection

READER = "flights_reader"
PASSWORD = "it reads"


@dataclass(frozen=True)
class Demo:
    """A database and the way into it."""

    server: EmbeddedServer
    database: str

    def load(self) -> Loaded:
        """Load as the server's superuser."""
        ensure_role(self.server, READER, PASSWORD)
        return load_nycflights13(
            host=self.server.host,
            port=self.server.port,
            user=self.server.user,
            password=self.server.password,
            database=self.database,
            reader=READER,
        )

    def ask(self, query: str) -> list[tuple[object, ...]]:
        """Run SQL as the superuser."""
        with admin_connection(self.server, self.database) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def full(server: EmbeddedServer) -> Demo:
    """A database that is loaded once, for tests that only read."""
    ensure_database(server, "demo_full")
    demo = Demo(server, "demo_full")
    demo.load()
    return demo


@pytest.fixture
def demo(server: EmbeddedServer, make_database: Callable[[str], str]) -> Demo:
    """An empty database."""
    return Demo(server, make_database("demo"))


def test_every_row_of_every_file_is_loaded(demo: Demo) -> None:
    """Five tables hold 367,687 rows; `NA` became null, and the planner knows the sizes at once."""
    loaded = demo.load()
    assert loaded == Loaded(rows=ROWS, was_there=False)
    assert sum(loaded.rows.values()) == 367_687
    assert demo.ask("SELECT count(*) FROM flights WHERE dep_time IS NULL AND dep_delay IS NULL") == [(8255,)]
    assert demo.ask("SELECT count(*) FROM flights WHERE tailnum IS NULL") == [(2512,)]
    assert demo.ask("SELECT reltuples::int FROM pg_class WHERE oid = 'flights'::regclass") == [(336_776,)]
    assert demo.ask("SELECT min(time_hour AT TIME ZONE 'UTC')::text FROM flights") == [("2013-01-01 10:00:00",)]


def test_text_is_as_the_files_have_it(full: Demo) -> None:
    """The files are pure ASCII, so no letter can have been misread, and no name has a blank at either end."""
    for table, column in [("airports", "name"), ("airlines", "name"), ("planes", "manufacturer"), ("planes", "model")]:
        odd = f"SELECT count(*) FROM {table} WHERE {column} ~ '[^[:ascii:]]' OR {column} <> btrim({column})"
        assert full.ask(odd) == [(0,)], f"{table}.{column}"


def test_declared_keys_are_those_that_hold(full: Demo) -> None:
    """Three foreign keys hold; the three that a reader may expect beside them are broken by the data, as documented."""
    keys = full.ask("SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint WHERE contype = 'f'")
    assert sorted(keys) == [("flights", "airlines"), ("flights", "airports"), ("weather", "airports")]
    orphans = "SELECT count({0}) FROM flights f WHERE NOT EXISTS (SELECT FROM {1})"
    assert full.ask(orphans.format("DISTINCT dest", "airports a WHERE a.faa = f.dest")) == [(4,)]
    assert full.ask(orphans.format("*", "planes p WHERE p.tailnum = f.tailnum")) == [(52_606,)]
    hours = "weather w WHERE (w.origin, w.time_hour) = (f.origin, f.time_hour)"
    assert full.ask(orphans.format("*", hours)) == [(1556,)]


def test_loading_again_does_nothing(demo: Demo) -> None:
    """A full database stays as it is, tables' oids and rows changed since included."""
    demo.load()
    oids = "SELECT array_agg(oid ORDER BY oid) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    before = demo.ask(oids)
    demo.ask("DELETE FROM flights WHERE flight = 1545")
    again = demo.load()
    assert again.was_there
    assert again.rows["flights"] < ROWS["flights"]
    assert demo.ask(oids) == before


@pytest.mark.parametrize(
    "damage",
    [
        "TRUNCATE flights",
        pytest.param("DROP TABLE weather", marks=pytest.mark.slow),
        pytest.param("COMMENT ON SCHEMA public IS NULL", marks=pytest.mark.slow),
    ],
)
def test_an_incomplete_load_is_made_anew(demo: Demo, damage: str) -> None:
    """A table that is gone or empty, or a load that nobody finished, leads to a whole new one."""
    demo.load()
    demo.ask(damage)
    assert demo.load() == Loaded(rows=ROWS, was_there=False)


def test_a_load_that_fails_leaves_nothing(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables come in one transaction."""

    def fail(*_: object) -> None:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(nycflights13, "_grant", fail)
    with pytest.raises(RuntimeError):
        demo.load()
    assert demo.ask("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_the_reader_reads_and_no_more(full: Demo) -> None:
    """The role that is named may connect and select, and may not write."""
    with psycopg.connect(
        host=full.server.host,
        port=full.server.port,
        user=READER,
        password=PASSWORD,
        dbname=full.database,
        autocommit=True,
    ) as connection:
        assert connection.execute("SELECT count(*) FROM airlines").fetchone() == (16,)
        for forbidden in ("DELETE FROM airlines", "CREATE TABLE public.mine (a int)", "TRUNCATE flights"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden.encode())


def test_the_query_has_a_small_and_fixed_answer(full: Demo) -> None:
    """At most ten rows, in an order that leaves no tie to chance."""
    rows = full.ask(nycflights13.QUERY)
    assert 3 <= len(rows) <= 10
    assert rows == full.ask(nycflights13.QUERY)
    assert len({row[3] for row in rows}) == len(rows)


def test_an_unreachable_server_is_named(server: EmbeddedServer) -> None:
    """A wrong database is an error of ours, without the password."""
    with pytest.raises(SourceUnreachable) as caught:
        Demo(server, "nowhere").load()
    assert "nowhere" in caught.value.message
    assert server.password not in str(caught.value)
