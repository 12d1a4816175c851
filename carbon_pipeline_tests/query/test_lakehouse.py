"""Queries over a real lake: what they see, and what they cannot do."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from carbon_pipeline.errors import StorageFailed, UsageError
from carbon_pipeline.query.catalogue import NamedTable
from carbon_pipeline.query.duckdb.lakehouse import Lakehouse
from carbon_pipeline.query.result import to_json_rows
from carbon_pipeline.schema.row_identity import IDENTITY_COLUMNS
from carbon_pipeline_tests.lake.workshop import ID, NOTE, Workshop, batch_of, column, goods, mapping_of


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A lake whose folders need quoting and would match other ones if taken for patterns."""
    return Workshop(tmp_path / "it's [a] 50% ware*house")


def published(workshop: Workshop, schema: str = "default", name: str = "goods") -> NamedTable:
    """The workshop's dataset under a name."""
    files = workshop.reader.files(workshop.dataset)
    assert files is not None
    return NamedTable(schema=schema, name=name, files=files)


@contextmanager
def opened(workshop: Workshop, *, identity: bool = False) -> Iterator[Lakehouse]:
    """A lakehouse of the workshop's dataset alone."""
    with Lakehouse([published(workshop)], identity=identity) as lakehouse:
        yield lakehouse


def rows(lakehouse: Lakehouse, sql: str) -> list[tuple[object, ...]]:
    """All rows of a query."""
    return list(lakehouse.query(sql).rows)


def test_a_dataset_is_a_view_of_its_snapshot(workshop: Workshop) -> None:
    """The rows of main's snapshot, source columns only, under bare and full name; rows replaced since are gone."""
    workshop.publish(goods(50))
    workshop.publish(goods(3))
    with opened(workshop) as lakehouse:
        result = lakehouse.query("SELECT * FROM goods ORDER BY id")
        assert result.columns == ("id", "note", "mark", "price")
        assert result.types == ("INTEGER", "VARCHAR", "UUID", "DECIMAL(10,2)")
        found = list(to_json_rows(result))
        assert found[1] == [1, "note 1", "00000000-0000-0000-0000-000000000001", "0.01"]
        assert rows(lakehouse, 'SELECT count(*) FROM "default".goods') == [(3,)]


def test_identity_columns_on_request(workshop: Workshop) -> None:
    """With `identity=True` the three columns stand behind the source's."""
    workshop.publish(goods(3))
    with opened(workshop, identity=True) as lakehouse:
        result = lakehouse.query("SELECT * FROM goods ORDER BY __row_index")
        assert result.columns[-3:] == IDENTITY_COLUMNS
        assert [row[-3] for row in result.rows] == [0, 1, 2]


def test_a_view_joins_with_itself_and_others(workshop: Workshop) -> None:
    """Several schemas, one name in two of them, joins across."""
    workshop.publish(goods(10))
    first = published(workshop)
    workshop.dataset = workshop.new_dataset("u", "sales")
    workshop.publish(goods(5))
    with Lakehouse([published(workshop, "sales"), first, published(workshop, "sales", "more")]) as lakehouse:
        assert lakehouse.datasets == ("goods", "sales.goods", "more")
        assert rows(lakehouse, "SELECT count(*) FROM goods a JOIN goods b USING (id)") == [(10,)]
        assert rows(lakehouse, "SELECT count(*) FROM goods a JOIN sales.goods b USING (id)") == [(5,)]
        assert rows(lakehouse, "SELECT count(*) FROM more") == [(5,)]


def test_an_empty_dataset_has_its_columns(workshop: Workshop) -> None:
    """No files: the same columns and types, no rows."""
    workshop.publish([])
    with opened(workshop) as lakehouse:
        result = lakehouse.query("SELECT * FROM goods")
        assert result.types == ("INTEGER", "VARCHAR", "UUID", "DECIMAL(10,2)")
        assert list(result.rows) == []


def test_columns_are_found_by_field_id(workshop: Workshop) -> None:
    """A file whose columns have other names, another order or one too few is read rightly all the same."""
    mapping = mapping_of(column(1, "a b", "int4"), NOTE, column(3, "gone", "uuid"))
    workshop.publish([batch_of(mapping_of(ID, NOTE), [1], ["x"])], mapping_of(ID, NOTE))
    workshop.dataset = workshop.new_dataset("again")
    batches = [batch_of(mapping_of(ID, NOTE), [7], ["y"])]
    workshop.publish(batches, mapping_of(ID, NOTE))
    [path] = [p for p in workshop.data_files() if str(workshop.dataset.id) in str(p)]
    table = pq.read_table(path)
    pq.write_table(table.select(["note", "id"]).rename_columns(["id", "other"]), path)
    with opened(workshop) as lakehouse:
        assert rows(lakehouse, "SELECT id, note FROM goods") == [(7, "y")]
    with opened(workshop, identity=True) as lakehouse:
        assert rows(lakehouse, "SELECT __row_index FROM goods") == [(None,)]
    assert mapping.columns[0].name != "a b"


def test_odd_names_are_quoted(workshop: Workshop) -> None:
    """Key words, quotes and capitals in names of schemas and datasets."""
    workshop.publish(goods(2))
    with Lakehouse([published(workshop, 'Odd "x", y', "order"), published(workshop, "temp", "select")]) as lakehouse:
        assert rows(lakehouse, 'SELECT count(*) FROM "order"') == [(2,)]
        assert rows(lakehouse, 'SELECT count(*) FROM "Odd ""x"", y"."order" JOIN "temp_"."select" USING (id)') == [(2,)]


def test_a_result_streams(workshop: Workshop) -> None:
    """The first rows of a huge result come at once and cost no memory for the rest."""
    workshop.publish(goods(10))
    with opened(workshop) as lakehouse:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = lakehouse.query("SELECT i, repeat('x', 100) FROM range(50000000) AS r(i)").rows
        assert [next(found)[0] for _ in range(5)] == [0, 1, 2, 3, 4]
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_one_result_at_a_time(workshop: Workshop) -> None:
    """A newer query ends the result before, which says so; also a result that was never looked at."""
    workshop.publish(goods(10))
    with opened(workshop) as lakehouse:
        first = lakehouse.query("SELECT * FROM range(1000000)").rows
        next(first)
        lakehouse.query("SELECT 1")
        assert rows(lakehouse, "SELECT 2") == [(2,)]
        with pytest.raises(UsageError, match="newer query"):
            list(first)


def test_what_does_not_fit_into_memory_is_spilt_and_removed(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting more than the limit works, by way of a folder that is gone afterwards."""
    monkeypatch.setattr("carbon_pipeline.query.duckdb.lakehouse.MEMORY_LIMIT", "100MB")
    workshop.publish(goods(1))
    with opened(workshop) as lakehouse:
        [(spill,)] = rows(lakehouse, "SELECT current_setting('temp_directory')")
        big = "SELECT count(*) FROM (SELECT DISTINCT i, md5(i::text) FROM range(3000000) AS r(i))"
        assert rows(lakehouse, big) == [(3_000_000,)]
        assert Path(str(spill)).is_dir()
    assert not Path(str(spill)).exists()


FORBIDDEN = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM read_parquet('http://127.0.0.1:1/a.parquet')",
    "SELECT * FROM 'http://127.0.0.1:1/a.parquet'",
    "SELECT * FROM read_parquet('s3://bucket/a.parquet')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM query('SELECT 1')",
    "ATTACH '{folder}/new.db'",
    "ATTACH ':memory:' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/x.duckdb_extension'",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)",
    "WITH x AS (COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)) SELECT * FROM x",
    "SELECT * FROM json_execute_serialized_sql('{serialized}')",
    "SELECT * FROM JSON_EXECUTE_SERIALIZED_SQL('{serialized}')",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}/out'",
    "SET memory_limit = '100GB'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA database_list",
    "CALL enable_logging(storage = 'file', storage_path = '{folder}/log')",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = '{folder}/log')",
    "CREATE TABLE t (a int)",
    "CREATE OR REPLACE VIEW goods AS SELECT 1",
    "DROP VIEW goods",
    "CREATE SECRET s (TYPE s3)",
    "SELECT 1; SELECT 2",
    "",
    "-- nothing",
    "SELECT * FROM goods WHERE id = $1",
    "SELECT * FROM secret_variable",
]


def serialized(file: str) -> str:
    """A writing statement as DuckDB's syntax tree, to be smuggled in as a text."""
    with duckdb.connect() as connection:
        sql = f"WITH x AS (COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)) SELECT * FROM x"
        [(tree,)] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    return str(tree)


def everything(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_nothing_but_queries_over_datasets(workshop: Workshop, sql: str) -> None:
    """No other file, no network, no extension, no writing, no setting: refused in words, and not a byte changed."""
    secret_variable = [{"a": "of this program"}]
    workshop.publish(goods(3))
    file = str(workshop.data_files()[0])
    before = everything(workshop.folder)
    places = {"folder": str(workshop.folder), "file": file, "serialized": serialized(file)}
    for key, place in places.items():
        sql = sql.replace(f"{{{key}}}", place.replace("'", "''"))
    with opened(workshop) as lakehouse:
        with pytest.raises(UsageError):
            list(lakehouse.query(sql).rows)
        assert rows(lakehouse, "SELECT count(*) FROM goods") == [(3,)]
    assert everything(workshop.folder) == before
    assert secret_variable


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM read_text('/etc/passwd')", "COPY (SELECT 1) TO '/tmp/never.csv'", "LOAD httpfs"]
)
def test_the_second_lock_holds_alone(workshop: Workshop, sql: str) -> None:
    """Without the look at the syntax tree, DuckDB's own settings still keep out what is not listed."""
    workshop.publish(goods(3))
    with opened(workshop) as lakehouse, pytest.raises(duckdb.Error, match="Permission"):
        lakehouse._connection.execute(sql)


def test_the_first_lock_is_needed() -> None:
    """DuckDB lets a SELECT write to a file that may be read. Should it stop doing so, `guard` could be simpler."""
    with duckdb.connect() as connection:
        statements = connection.extract_statements("WITH x AS (COPY (SELECT 1) TO 'file') SELECT * FROM x")
        assert [statement.type for statement in statements] == [duckdb.StatementType.SELECT]


@pytest.mark.parametrize(
    "sql",
    [
        "FROM goods",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT * FROM t",
        "SELECT * FROM (VALUES (1)) AS v(a) UNION SELECT id FROM goods",
        "SHOW TABLES",
        "DESCRIBE goods",
        "SUMMARIZE goods",
        "SELECT unnest([1, 2]), range FROM range(2)",
        "SELECT row_number() OVER (ORDER BY id), 'COPY_QUERY_NODE' FROM goods;",
        "UNPIVOT goods ON id INTO NAME n VALUE v",
        "SELECT {'type': 'COPY_QUERY_NODE'} FROM goods -- a comment",
    ],
)
def test_every_way_to_ask_works(workshop: Workshop, sql: str) -> None:
    """The guard lets through what only reads."""
    workshop.publish(goods(3))
    with opened(workshop) as lakehouse:
        assert rows(lakehouse, sql)


def test_an_unknown_dataset_gets_the_list(workshop: Workshop) -> None:
    """The error names what there is, in one line."""
    workshop.publish(goods(3))
    with opened(workshop) as lakehouse, pytest.raises(UsageError) as caught:
        lakehouse.query("SELECT * FROM godos")
    assert caught.value.message == "there is no dataset called godos"
    assert caught.value.remedy == "Datasets: goods."


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT nope FROM goods", 'Referenced column "nope" not found'),
        ("SELEC 1", "syntax error"),
        ("SELECT CAST(note AS integer) FROM goods", "Could not convert string 'note 0' to INT32"),
        ("SELECT if(i < 900000, i, error('late')) FROM range(1000000) AS r(i)", "late"),
    ],
)
def test_errors_are_short_and_say_why(workshop: Workshop, sql: str, part: str) -> None:
    """One line of DuckDB's own words, also when the error comes in the middle of the rows; the next query works."""
    workshop.publish(goods(3))
    with opened(workshop) as lakehouse:
        with pytest.raises(UsageError) as caught:
            list(lakehouse.query(sql).rows)
        assert part in caught.value.message
        assert "\n" not in caught.value.message
        assert "LINE" not in caught.value.message
        assert rows(lakehouse, "SELECT 1") == [(1,)]


def test_a_missing_file_stops_only_who_asks_for_it(workshop: Workshop) -> None:
    """A warehouse that lost a file is a storage failure, not a user's error, and other datasets can be queried."""
    workshop.publish(goods(3))
    table = published(workshop)
    workshop.data_files()[0].unlink()
    with Lakehouse([table], unreadable={"default.gone": "its metadata is lost"}) as lakehouse:
        with pytest.raises(StorageFailed, match=r"default\.goods"):
            lakehouse.query("SELECT * FROM goods")
        with pytest.raises(StorageFailed, match="its metadata is lost"):
            lakehouse.query("SELECT * FROM gone")
        assert list(lakehouse.query("SELECT 1").rows) == [(1,)]


def test_an_object_store_is_refused_with_a_remedy(workshop: Workshop) -> None:
    """Only local warehouses can be queried so far."""
    workshop.publish(goods(3))
    table = published(workshop)
    files = type(table.files)(
        snapshot_id=1, location="s3://b", fields=table.files.fields, paths=("s3://b/data/a.parquet",)
    )
    with pytest.raises(UsageError, match="s3"):
        Lakehouse([NamedTable(schema="default", name="goods", files=files)])


def test_nothing_published_is_an_empty_lakehouse() -> None:
    """It opens, has no datasets, and says so."""
    with Lakehouse([]) as lakehouse:
        assert lakehouse.datasets == ()
        assert rows(lakehouse, "SELECT 1 + 1") == [(2,)]
        with pytest.raises(UsageError) as caught:
            lakehouse.query("SELECT * FROM t")
    assert "nothing was published yet" in caught.value.remedy


def test_json_rows_are_json(workshop: Workshop) -> None:
    """Whatever a query can make is taken by `json.dumps`, strictly."""
    workshop.publish(goods(2))
    everything_sql = (
        "SELECT [1, NULL], {'a': 1.50, 'b': [DATE '2020-01-01']}, MAP {'k': 'v'}, 'x'::ENUM('x'), '101'::BIT, "
        "TIMETZ '12:00:00+02', sum(id), NULL, TIMESTAMP_NS '2020-01-01', 1::UTINYINT, '{\"a\": 1}'::JSON FROM goods"
    )
    with opened(workshop) as lakehouse:
        [row] = to_json_rows(lakehouse.query(everything_sql))
    assert json.loads(json.dumps(row, allow_nan=False)) == [
        [1, None],
        {"a": "1.50", "b": ["2020-01-01"]},
        {"k": "v"},
        "x",
        "101",
        "12:00:00+02",
        1,
        None,
        "2020-01-01 00:00:00",
        1,
        '{"a": 1}',
    ]


def test_names_may_hide_nothing(workshop: Workshop) -> None:
    """Two columns of one name both arrive."""
    workshop.publish(goods(1))
    with opened(workshop) as lakehouse:
        result = lakehouse.query("SELECT 1 AS a, 2 AS a, '1'::BIT AS a")
        assert result.columns == ("a", "a", "a")
        assert list(result.rows) == [(1, 2, "1")]
