"""Every way in which a source fails, for real: the right kind of error, a remedy, and no secret in it."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest

from carbon_pipeline.control_plane.records import Connection, TlsMode
from carbon_pipeline.errors import (
    SourceBroke,
    SourceError,
    SourceForbids,
    SourceRefusedLogin,
    SourceUnreachable,
    UsageError,
    ValueNotRepresentable,
)
from carbon_pipeline.source.postgres.failures import RULES, Subject, explained, failure
from carbon_pipeline.source.postgres.session import Options, connected
from carbon_pipeline.source.postgres.source import PostgresSource, probe
from carbon_pipeline_tests.source.postgres.conftest import CANARY, Database
from carbon_pipeline_tests.source.postgres.proxy import cutting_proxy
from carbon_pipeline_tests.source.postgres.test_read import LARGE, SESSIONS

ROW = "row-canary-7c1e"
"""A value that stands in a table and must stand in no error."""


@contextmanager
def failing(kind: type[SourceError], said: str) -> Iterator[None]:
    """Expects an error of exactly this kind whose text, traceback included, gives nothing away."""
    with pytest.raises(SourceError) as caught:
        yield
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error)
    assert type(error) is kind, shown
    assert said in str(error), shown
    assert "\n" not in error.message
    for secret in (CANARY, ROW, "c%40n", "ry pass"):
        assert secret not in shown


def introspect(connection: Connection) -> None:
    """Connects and looks; the shortest way to fail."""
    PostgresSource(connection, options=Options(connect_seconds=2)).introspect()


def test_a_wrong_password_is_refused(database: Database) -> None:
    """And shown nowhere, however strange."""
    database.execute(f"ALTER ROLE \"{database.reader.user}\" PASSWORD 'another'")
    with failing(SourceRefusedLogin, "refused user and password"):
        introspect(database.reader)


def test_the_strange_password_works(database: Database) -> None:
    """Signs that mean something in a URL or in SQL are signs of a password like any other."""
    introspect(database.reader)


def test_an_unknown_role_is_refused(database: Database) -> None:
    """PostgreSQL does not tell it from a wrong password, and neither do we."""
    with failing(SourceRefusedLogin, "refused user and password"):
        introspect(replace(database.reader, user="nobody at all"))


def test_a_missing_database_is_refused(database: Database) -> None:
    """A name that looks like a URL is a name."""
    with failing(SourceRefusedLogin, "no such database"):
        introspect(replace(database.connection, database="postgres://elsewhere/x?host=y"))


def test_a_database_without_connect_right_is_refused(database: Database) -> None:
    """The login is fine, the door is shut."""
    database.execute(f'REVOKE CONNECT ON DATABASE "{database.connection.database}" FROM PUBLIC')
    with failing(SourceRefusedLogin, "may not connect to this database"):
        introspect(database.reader)


def test_a_role_that_may_not_log_in_is_refused(database: Database) -> None:
    """NOLOGIN is said before it is tried again and again."""
    database.execute(f'ALTER ROLE "{database.reader.user}" NOLOGIN')
    with failing(SourceRefusedLogin, "refused the login"):
        introspect(database.reader)


def test_no_free_connection_is_a_thing_that_passes(database: Database) -> None:
    """Too many connections are retried, not held for a person."""
    database.execute(f'ALTER ROLE "{database.reader.user}" CONNECTION LIMIT 0')
    with failing(SourceUnreachable, "no free connection"):
        introspect(database.reader)


def test_a_port_where_nothing_listens(database: Database) -> None:
    """Unreachable, and quickly so."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with failing(SourceUnreachable, "nothing listens"):
        introspect(replace(database.reader, port=port))


def test_a_server_that_never_answers(database: Database) -> None:
    """The wait ends by itself."""
    with socket.create_server(("127.0.0.1", 0)) as silent, failing(SourceUnreachable, "did not answer in time"):
        introspect(replace(database.reader, port=silent.getsockname()[1]))


def test_a_host_that_does_not_exist(database: Database) -> None:
    """Names under .invalid never resolve (RFC 2606)."""
    with failing(SourceUnreachable, "(SQLSTATE 08001)"):
        introspect(replace(database.reader, host="carbon-pipeline.invalid"))


@pytest.mark.parametrize("tls", [TlsMode.REQUIRE, TlsMode.VERIFY_CA, TlsMode.VERIFY_FULL])
def test_tls_that_was_asked_for_is_not_done_without(database: Database, tls: TlsMode) -> None:
    """The embedded server has none, so nothing is sent to it."""
    with failing(SourceUnreachable, "TLS could not be agreed on"):
        introspect(replace(database.reader, tls=tls))


@pytest.mark.parametrize("host", ["", "/var/run/postgresql", "@socket", "one,two"])
def test_a_host_is_one_host(database: Database, host: str) -> None:
    """libpq would take a list or a socket; each would be a way around whatever checks addresses."""
    with pytest.raises(UsageError):
        introspect(replace(database.reader, host=host))


def test_a_table_without_grant(database: Database) -> None:
    """The remedy is the statement that an owner can run; after it, the table is read."""
    database.execute(f'CREATE SCHEMA s; CREATE TABLE s."my t" (v text); INSERT INTO s."my t" VALUES (\'{ROW}\')')
    mapping = database.mapping("s.my t")
    with failing(SourceForbids, "s.my t: the source's user may not read this"):
        database.read("s.my t", reader=True)
    with failing(SourceForbids, 'GRANT SELECT ON "s"."my t"'):
        database.source(reader=True).digest(mapping)
    with pytest.raises(SourceForbids) as caught, database.source(reader=True).read(mapping):
        pass
    database.execute(caught.value.remedy.removeprefix("An owner can run: "))
    assert database.read("s.my t", reader=True).num_rows == 1


@pytest.mark.parametrize("forced", [False, True])
def test_row_level_security_is_refused_not_obeyed(database: Database, forced: bool) -> None:
    """A part of the rows is never taken for all of them."""
    database.execute(f"""
        CREATE TABLE t (v text); INSERT INTO t VALUES ('{ROW}'), ('seen');
        ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY seen ON t USING (v = 'seen');
        GRANT SELECT ON t TO "{database.reader.user}";
    """)
    if forced:
        database.execute(f'ALTER TABLE t FORCE ROW LEVEL SECURITY; ALTER TABLE t OWNER TO "{database.reader.user}"')
    mapping = database.mapping("t")
    with failing(SourceForbids, "BYPASSRLS"), database.source(reader=True).read(mapping):
        pass  # said on opening, before anything is asked for
    with failing(SourceForbids, "BYPASSRLS"):
        database.source(reader=True).digest(mapping)
    database.execute(f'ALTER ROLE "{database.reader.user}" BYPASSRLS')
    assert database.read("t", reader=True).num_rows == 2


def test_row_level_security_under_a_plain_query(database: Database) -> None:
    """PostgreSQL's own refusal is told apart from a missing grant, by no word of its message."""
    database.execute(f"""
        CREATE TABLE t (v text); ALTER TABLE t ENABLE ROW LEVEL SECURITY; GRANT SELECT ON t TO "{database.reader.user}"
    """)
    subject = Subject(words="public.t")
    with connected(database.reader, "tested") as session, failing(SourceForbids, "BYPASSRLS"), explained(subject):
        session.execute("SELECT * FROM public.t")


def test_a_lock_is_not_waited_for_for_long(database: Database) -> None:
    """Behind our waiting lock their own traffic would queue."""
    database.execute("CREATE TABLE t (id int)")
    mapping = database.mapping("t")
    source = database.source(options=Options(lock_seconds=1))
    with database.second_session() as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        started = time.monotonic()
        with failing(SourceBroke, "holds a lock on it"), source.read(mapping):
            pass
        with failing(SourceBroke, "holds a lock on it"):
            source.digest(mapping)
    assert time.monotonic() - started < 8


def test_a_session_killed_at_the_server(database: Database) -> None:
    """Half a table never looks like one; the iterator does not recover either."""
    database.execute(LARGE)
    with database.source().read(database.mapping("t")) as reading:
        next(reading.batches)
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tested'")
        with failing(SourceBroke, "public.t"):
            list(reading.batches)
        with pytest.raises(SourceBroke):
            next(reading.batches)


def test_a_cancelled_query(database: Database) -> None:
    """By a person at the source: retried, like every end that says nothing about the table."""
    database.execute(LARGE)
    with database.source().read(database.mapping("t")) as reading:
        next(reading.batches)
        database.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'tested'")
        with failing(SourceBroke, "was cancelled at the source"):
            list(reading.batches)


def test_a_reading_over_its_time(database: Database) -> None:
    """Set by our own limit."""
    database.execute(LARGE)
    with database.source(options=Options(read_seconds=1)).read(database.mapping("t")) as reading:
        next(reading.batches)
        time.sleep(1.5)
        with failing(SourceBroke, "SQLSTATE 57014"):
            list(reading.batches)


def test_a_reader_that_never_begins(database: Database) -> None:
    """The source does not keep a snapshot for ever for somebody who does not read."""
    database.execute(LARGE)
    with database.source(options=Options(idle_seconds=1)).read(database.mapping("t")) as reading:
        time.sleep(1.5)
        with failing(SourceBroke, "nothing was read for too long"):
            list(reading.batches)


@pytest.mark.parametrize("after", [20_000, 300_000, 20_000_000])
def test_a_connection_cut_on_the_way(database: Database, after: int) -> None:
    """Wherever it is cut, even between two rows: without the server's last word nothing is complete."""
    database.execute(LARGE)
    mapping = database.mapping("t")
    with cutting_proxy(database.connection.host, database.connection.port) as proxy:
        source = PostgresSource(replace(database.connection, port=proxy.port), options=Options(chunk_rows=1000))
        with source.read(mapping) as reading:
            next(reading.batches)
            proxy.cut_after = after
            with failing(SourceBroke, "connection to the source was lost"):
                list(reading.batches)


@pytest.mark.parametrize(
    ("told", "instead", "said"),
    [
        (b"COPY 5\0", b"COPY 6\0", "the source sent 6 rows, 5 arrived"),
        (b'"row 3"\n', b'"row 3" ', "5 rows arrived, 4 could be told apart"),
    ],
)
def test_a_count_that_does_not_agree(database: Database, told: bytes, instead: bytes, said: str) -> None:
    """The rows that arrive, those that can be told apart, and those that the source says it sent are one number."""
    database.execute("CREATE TABLE t AS SELECT 'row ' || g AS v FROM generate_series(1, 5) g")
    mapping = database.mapping("t")
    with cutting_proxy(database.connection.host, database.connection.port) as proxy:
        source = PostgresSource(replace(database.connection, port=proxy.port))
        with source.read(mapping) as reading:
            proxy.rewrite = (told, instead)
            with pytest.raises(SourceBroke, match=said):
                list(reading.batches)


def test_a_value_that_is_refused_is_not_shown(database: Database) -> None:
    """The error names column and kind; other columns of the row stay where they are."""
    database.execute(f"CREATE TABLE t (secret text, day date); INSERT INTO t VALUES ('{ROW}', 'infinity')")
    with failing(ValueNotRepresentable, "column day holds an infinite value"):
        database.read("t")


def test_what_the_server_cannot_compute_is_not_shown(database: Database) -> None:
    """PostgreSQL's own message would quote the row: what a function raises may say anything."""
    database.execute(f"""
        CREATE TABLE t (v text); INSERT INTO t VALUES ('{ROW}');
        CREATE FUNCTION broken(text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
          $$ BEGIN RAISE EXCEPTION 'value % is wrong', $1 USING ERRCODE = '22000'; END $$;
    """)
    subject, refused = Subject(words="table t"), failing(ValueNotRepresentable, "table t")
    with connected(database.connection, "tested") as session, refused, explained(subject):
        session.execute("SELECT public.broken(v) FROM public.t")


def test_a_session_cannot_write(database: Database) -> None:
    """Not in the transaction of a reading and not outside of one; and what shapes values is fixed."""
    database.execute("CREATE TABLE t (id int)")
    with connected(database.connection, "tested") as session:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            session.execute("INSERT INTO public.t VALUES (1)")
        shown = {name: session.execute(f"SHOW {name}".encode()).fetchone() for name in ("row_security", "search_path")}
        assert shown == {"row_security": ("off",), "search_path": ('""',)}
    assert database.value("SELECT count(*) FROM t") == 0


def test_settings_of_the_role_and_the_environment_do_not_matter(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a role or a PG* variable says about dates, paths or hosts is overruled."""
    database.execute(f"""
        CREATE TABLE t (at timestamptz, i interval, f real, b bytea);
        INSERT INTO t VALUES ('2024-02-29 12:00+00', '1 year 2 hours', 0.1, '\\x00'); GRANT SELECT ON t TO PUBLIC;
        ALTER ROLE "{database.reader.user}" SET datestyle = 'SQL, DMY';
        ALTER ROLE "{database.reader.user}" SET intervalstyle = 'sql_standard';
        ALTER ROLE "{database.reader.user}" SET timezone = 'Asia/Tokyo';
        ALTER ROLE "{database.reader.user}" SET extra_float_digits = -5;
        ALTER ROLE "{database.reader.user}" SET bytea_output = 'escape';
        ALTER ROLE "{database.reader.user}" SET client_encoding = 'LATIN1';
        ALTER ROLE "{database.reader.user}" SET search_path = 'pg_temp, public';
    """)
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGOPTIONS", "-c datestyle=German")
    assert database.read("t", reader=True).equals(database.read("t"))
    mapping = database.mapping("t")
    assert database.source(reader=True).digest(mapping) == database.source().digest(mapping)


def test_no_session_is_left_behind(database: Database) -> None:
    """Whether it went well or not."""
    database.execute("CREATE TABLE t (d date); INSERT INTO t VALUES ('infinity')")
    with failing(ValueNotRepresentable, "infinite"):
        database.read("t")
    database.source().introspect()
    deadline = time.monotonic() + 5
    while database.value(SESSIONS) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert database.value(SESSIONS) == 0


def test_a_probe_tells_what_a_role_may_do(database: Database) -> None:
    """A plain reader draws only the warning about TLS; a superuser, a writer and a blind one are told."""
    database.execute("CREATE TABLE t (id int); CREATE TABLE u (id int)")
    role = database.reader.user
    assert "is a superuser" in probe(database.connection).warnings[0]
    blind = probe(database.reader)
    assert (blind.user, blind.database) == (role, database.connection.database)
    assert blind.warnings == (f"{role} may not read 2 of 2 tables", "the connection is not encrypted")
    database.execute(f'GRANT SELECT ON t, u TO "{role}"')
    assert probe(database.reader).warnings == ("the connection is not encrypted",)
    database.execute(f'GRANT INSERT ON t TO "{role}"; ALTER TABLE u ENABLE ROW LEVEL SECURITY')
    told = probe(database.reader).warnings
    assert f"{role} may write to 1 of 2 tables" in told
    assert f"row-level security hides rows of 1 tables from {role}; they will not be read" in told


def test_a_probe_fails_like_everything_else(database: Database) -> None:
    """It goes through the same connect function."""
    with failing(SourceRefusedLogin, "no such database"):
        probe(replace(database.connection, database="nowhere"))


@pytest.mark.parametrize("code", [*RULES, "XX000", "99999"])
def test_every_code_has_words_and_a_remedy(code: str) -> None:
    """On one line, whatever the names are; a code that the table does not know is told as such."""
    error = failure(code, Subject.of_database("u{0}\n", 'd"b{grant}'))
    assert error.message
    assert error.remedy
    assert "{grant}" not in error.remedy.replace('d"b{grant}', "").replace('d""b{grant}', "")
    assert "\n" not in str(error)
