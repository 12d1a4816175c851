"""What a reading shows, what it holds, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

from carbon_pipeline.errors import RelationChanged, RelationNotFound, SourceBroke, SourceError
from carbon_pipeline.source.postgres.session import Options
from carbon_pipeline.source.postgres.source import PostgresSource
from carbon_pipeline.source.reading import parse_lsn
from carbon_pipeline.source.relation import RelationKind
from carbon_pipeline.verify.digest import Digest
from carbon_pipeline_tests.source.postgres.conftest import Database
from carbon_pipeline_tests.source.postgres.oracle import digest_of
from carbon_pipeline_tests.source.postgres.proxy import cutting_proxy

LARGE = "CREATE TABLE t AS SELECT g AS id, repeat('x', 200) AS v FROM generate_series(1, 200000) g"
"""Far more than the buffers between server and client hold, so that the server waits for the reader."""

SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tested' AND datname = current_database()"


def wait_until(holds: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether something comes true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def ids(table: pa.Table) -> list[object]:
    """The column `id`, sorted."""
    return sorted(table["id"].to_pylist())


def test_inherited_rows_are_read_once(database: Database) -> None:
    """A parent without its children, each child by itself."""
    database.execute("""
        CREATE TABLE parent (id int); CREATE TABLE child (extra int) INHERITS (parent);
        INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2, 9);
    """)
    assert ids(database.read("parent")) == [1]
    assert ids(database.read("child")) == [2]
    assert database.source().digest(database.mapping("parent")).rows == 1


def test_a_partitioned_table_is_read_through_its_parent(database: Database) -> None:
    """Nested partitions and those with columns in another order included, every row once."""
    database.execute("""
        CREATE TABLE p (id int, k text) PARTITION BY RANGE (id);
        CREATE TABLE p_low PARTITION OF p FOR VALUES FROM (0) TO (10) PARTITION BY LIST (k);
        CREATE TABLE p_low_a PARTITION OF p_low FOR VALUES IN ('a'); CREATE TABLE p_low_b PARTITION OF p_low DEFAULT;
        CREATE TABLE p_high (k text, gone int, id int); ALTER TABLE p_high DROP COLUMN gone;
        ALTER TABLE p ATTACH PARTITION p_high FOR VALUES FROM (10) TO (20);
        INSERT INTO p SELECT g, CASE WHEN g % 2 = 0 THEN 'a' ELSE 'b' END FROM generate_series(0, 19) g;
    """)
    mapping = database.mapping("p")
    with database.source().read(mapping) as reading:
        batches = list(reading.batches)
    assert ids(pa.Table.from_batches(batches)) == list(range(20))
    assert digest_of(mapping, batches) == database.source().digest(mapping)


def test_a_materialised_view_is_read_like_a_table(database: Database) -> None:
    """With its rows as they were refreshed; without any, the error says what to do."""
    database.execute(
        "CREATE MATERIALIZED VIEW m AS SELECT 1 AS id; CREATE MATERIALIZED VIEW e AS SELECT 1 WITH NO DATA"
    )
    assert database.relation("m").kind is RelationKind.MATERIALISED_VIEW
    assert ids(database.read("m")) == [1]
    with pytest.raises(SourceError, match="REFRESH"):
        database.read("e")


def test_generated_columns_and_gaps_are_read(database: Database) -> None:
    """Columns that were dropped leave no trace; generated ones have values; added ones their default."""
    database.execute("""
        CREATE TABLE t (gone text, id int, doubled int GENERATED ALWAYS AS (id * 2) STORED);
        INSERT INTO t (gone, id) VALUES ('x', 21); ALTER TABLE t DROP COLUMN gone, ADD COLUMN late int DEFAULT 7;
    """)
    assert database.rows("t") == [{"id": 21, "doubled": 42, "late": 7}]


def test_a_table_without_columns_has_rows(database: Database) -> None:
    """Batches without columns carry their count."""
    database.execute("CREATE TABLE t (); INSERT INTO t DEFAULT VALUES; INSERT INTO t DEFAULT VALUES")
    mapping = database.mapping("t")
    with database.source(options=Options(chunk_rows=1)).read(mapping) as reading:
        batches = list(reading.batches)
    assert [batch.num_rows for batch in batches] == [1, 1]
    assert [batch.num_columns for batch in batches] == [0, 0]
    assert digest_of(mapping, batches) == database.source().digest(mapping)


def test_an_empty_table_yields_nothing(database: Database) -> None:
    """No batches, no rows, and a checksum of zero."""
    database.execute("CREATE TABLE t (id int)")
    assert database.read("t").num_rows == 0
    assert database.source().digest(database.mapping("t")) == Digest(rows=0, checksum=0)


def test_hostile_names_are_read(database: Database) -> None:
    """Nothing in a name is taken for SQL, for a placeholder or for CSV."""
    database.execute("""
        CREATE SCHEMA "s""; DROP"; CREATE TABLE "s""; DROP"."a.b '%s {} $1
        🦆" ("x""y" int, "%(oid)s" text, "{column}" date, "l
        f" uuid, "0" bytea, "c0" int);
        INSERT INTO "s""; DROP"."a.b '%s {} $1
        🦆" VALUES (1, 'v', '2024-01-01', gen_random_uuid(), 'x', 2), (NULL, NULL, NULL, NULL, NULL, NULL);
    """)
    [relation] = database.source().introspect().relations
    mapping = database.mapping(relation.qualified_name)
    with database.source().read(mapping) as reading:
        assert digest_of(mapping, reading.batches) == database.source().digest(mapping)


def test_batches_are_bounded(database: Database) -> None:
    """By rows and by bytes, whichever comes first; none is empty; no row is lost at a border."""
    database.execute(LARGE)
    mapping = database.mapping("t")
    for options, at_least in ((Options(chunk_rows=1000), 200), (Options(chunk_bytes=100_000), 400)):
        with database.source(options=options).read(mapping) as reading:
            sizes = [batch.num_rows for batch in reading.batches]
        assert sum(sizes) == 200_000
        assert len(sizes) >= at_least
        assert max(sizes) <= options.chunk_rows
        assert min(sizes) > 0


def test_all_rows_are_of_one_snapshot(database: Database) -> None:
    """What is committed while rows are read is not in them, even when it moves rows about."""
    database.execute("CREATE TABLE t AS SELECT g AS id, 1 AS v FROM generate_series(1, 50000) g")
    mapping = database.mapping("t")
    with database.source(options=Options(chunk_rows=1000)).read(mapping) as reading:
        total = next(reading.batches)["v"].to_numpy().sum()
        database.execute("UPDATE t SET v = 2; DELETE FROM t WHERE id % 2 = 0")
        total += sum(batch["v"].to_numpy().sum() for batch in reading.batches)
    assert total == 50_000


def test_the_moment_promises_no_more_than_the_rows_show(database: Database) -> None:
    """What was committed before the moment is there; a write after it makes the next moment a later one."""
    database.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    mapping = database.mapping("t")
    before = database.value("SELECT pg_current_wal_flush_lsn()::text")
    with database.source().read(mapping) as first:
        moment = first.moment
        assert len(list(first.batches)) == 1
    assert moment.system_identifier == database.value("SELECT system_identifier FROM pg_control_system()")
    after = database.value("SELECT pg_current_wal_insert_lsn()::text")
    assert parse_lsn(str(before)) <= moment.lsn <= parse_lsn(str(after))
    assert moment.time.utcoffset() == timedelta(0)
    database.execute("INSERT INTO t VALUES (2)")
    with database.source().read(mapping) as second:
        assert moment.is_before(second.moment)


def test_a_truncate_under_way_is_waited_for(database: Database) -> None:
    """The lock comes before the snapshot: otherwise a table that was emptied and filled again would look empty."""
    database.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    mapping = database.mapping("t")
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with ThreadPoolExecutor(1) as pool, database.second_session() as other:
        other.execute("TRUNCATE t; INSERT INTO t VALUES (2), (3)")

        def read() -> list[object]:
            with database.source().read(mapping) as reading:
                return ids(pa.Table.from_batches(list(reading.batches)))

        found = pool.submit(read)
        assert wait_until(lambda: database.value(waits) == 1)
        other.commit()
        assert found.result(timeout=10) == [2, 3]


def test_a_renamed_table_is_followed(database: Database) -> None:
    """Its oid names it; a new name or schema is no change."""
    database.execute("CREATE SCHEMA s; CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    mapping = database.mapping("t")
    database.execute("ALTER TABLE t RENAME TO u; ALTER TABLE u SET SCHEMA s; CREATE TABLE t (id int)")
    with database.source().read(mapping) as reading:
        assert ids(pa.Table.from_batches(list(reading.batches))) == [1]
    assert database.source().digest(mapping).rows == 1


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE t ADD COLUMN late int", "column late was added"),
        ("ALTER TABLE t DROP COLUMN v", "column v was dropped"),
        ("ALTER TABLE t RENAME COLUMN v TO w", "column v is called w now"),
        ("ALTER TABLE t ALTER COLUMN v TYPE bigint", "column v was integer, is bigint"),
        ("ALTER TABLE t ALTER COLUMN n TYPE numeric(12, 2)", r"column n was numeric\(10,2\), is numeric\(12,2\)"),
        ("ALTER TABLE t DROP COLUMN v, ADD COLUMN v int", "column v was dropped, column v was added"),
    ],
)
def test_a_table_altered_since_it_was_mapped_is_refused(database: Database, statement: str, said: str) -> None:
    """With what is different, before a row is read; by the digest as well."""
    database.execute("CREATE TABLE t (id int, v int, n numeric(10, 2))")
    mapping = database.mapping("t")
    database.execute(statement)
    with pytest.raises(RelationChanged, match=said), database.source().read(mapping):
        pass
    with pytest.raises(RelationChanged, match=said):
        database.source().digest(mapping)


def test_a_change_that_does_not_touch_the_shape_is_none(database: Database) -> None:
    """Keys, comments, defaults and nullability may change between mapping and reading."""
    database.execute("CREATE TABLE t (id int)")
    mapping = database.mapping("t")
    database.execute("ALTER TABLE t ALTER id SET DEFAULT 1, ADD PRIMARY KEY (id); COMMENT ON TABLE t IS 'new'")
    with database.source().read(mapping) as reading:
        assert list(reading.batches) == []


def test_a_dropped_table_is_not_found(database: Database) -> None:
    """Even when another one has taken its name."""
    database.execute("CREATE TABLE t (id int)")
    mapping = database.mapping("t")
    database.execute("DROP TABLE t; CREATE TABLE t (id int)")
    with pytest.raises(RelationNotFound, match=r"public\.t"), database.source().read(mapping):
        pass
    with pytest.raises(RelationNotFound, match=r"public\.t"):
        database.source().digest(mapping)


def test_leaving_early_ends_at_once(database: Database) -> None:
    """A consumer that stops, or raises, does not wait for the rest; the server's session goes away by itself."""
    database.execute(LARGE)
    mapping = database.mapping("t")
    started = time.monotonic()
    with database.source().read(mapping) as reading:
        next(reading.batches)

    def fail_after_a_batch() -> None:
        with database.source().read(mapping) as reading:
            next(reading.batches)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_batch()
    assert time.monotonic() - started < 3
    assert wait_until(lambda: database.value(SESSIONS) == 0)


def test_leaving_a_source_that_has_gone_silent(database: Database) -> None:
    """Nobody is asked for leave: a cancel request to a server that does not answer would be waited for."""
    database.execute(LARGE)
    with cutting_proxy(database.connection.host, database.connection.port) as proxy:
        source = PostgresSource(replace(database.connection, port=proxy.port), options=Options(chunk_rows=1000))
        with source.read(database.mapping("t")) as reading:
            next(reading.batches)
            proxy.stalled = True
            started = time.monotonic()
        assert time.monotonic() - started < 1
        proxy.stalled = False


def test_a_closed_reading_does_not_look_complete(database: Database) -> None:
    """After its context, an iterator that was not drained raises; one that was stays drained."""
    database.execute(LARGE)
    mapping = database.mapping("t")
    with database.source().read(mapping) as reading:
        next(reading.batches)
    with pytest.raises(SourceBroke, match="closed before its end"):
        next(reading.batches)
    with database.source().read(mapping) as drained:
        assert sum(batch.num_rows for batch in drained.batches) == 200_000
    assert next(drained.batches, None) is None


def test_readings_do_not_disturb_each_other(database: Database) -> None:
    """One source object, several threads, several tables at once."""
    for i in range(4):
        database.execute(f"CREATE TABLE t{i} AS SELECT g AS id FROM generate_series(1, {1000 * (i + 1)}) g")
    source = database.source()
    barrier = threading.Barrier(4)

    def read(name: str) -> int:
        mapping = database.mapping(name)
        with source.read(mapping) as reading:
            barrier.wait(timeout=10)
            return sum(batch.num_rows for batch in reading.batches)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, ["t0", "t1", "t2", "t3"])) == [1000, 2000, 3000, 4000]
