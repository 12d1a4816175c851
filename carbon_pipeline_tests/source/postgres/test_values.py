"""Values at the edges of every type: read, and compared with what PostgreSQL says of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline.errors import ValueNotRepresentable
from carbon_pipeline.schema.type_map import BaseKind
from carbon_pipeline.source.postgres.digest import CANONICAL
from carbon_pipeline.source.postgres.session import Options
from carbon_pipeline.source.postgres.wire import WIRE
from carbon_pipeline_tests.source.postgres.conftest import Database
from carbon_pipeline_tests.source.postgres.oracle import days, digest_of, microseconds

EDGES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "0", "32767"],
    "integer": ["-2147483648", "-1", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "0"],
    "oid": ["0", "4294967295"],
    "numeric(10,2)": ["-99999999.99", "99999999.99", "0", "-0.01", "1.5"],
    "numeric(38,0)": ["9" * 38, "-" + "9" * 38],
    "numeric(38,38)": ["0." + "9" * 38, "-0." + "0" * 37 + "1"],
    "numeric": ["1e-30", "-12345678901234567890123456789012345678901234567890.5", "NaN", "0.10"],
    "real": ["3.4028235e38", "-3.4028235e38", "1e-45", "1.17549435e-38", "NaN", "Infinity", "-Infinity", "-0", "0.1"],
    "double precision": ["1.7976931348623157e308", "5e-324", "2.2250738585072014e-308", "NaN", "Infinity",
                         "-Infinity", "-0", "0.1", "0.30000000000000004"],
    "text": ["", " ", "a,b", 'say "x"', "line\nfeed", "\r\n", "tab\t\\ back", "NULL", "NaN", "\\.", "\\N", "é🦆\u2028",
             "\x01\x7f", "'quoted'"],
    "varchar(5)": ["", "12345"],
    "char(5)": ["", "ab", "12345"],
    "name": ["", "x" * 63],
    '"char"': ["", "x"],
    "date": ["4713-01-01 BC", "0001-01-01", "0001-12-31 BC", "1582-10-10", "1969-12-31", "1970-01-01", "10000-01-01",
             "5874897-12-31"],
    "time": ["00:00", "23:59:59.999999", "12:00:00.1", "00:00:00.000001"],
    "timestamp": ["4713-01-01 BC", "0001-12-31 23:59:59.999999 BC", "1969-12-31 23:59:59.999999", "1970-01-01",
                  "1969-12-31 23:59:58.5", "9999-12-31 23:59:59.999999", "10000-01-01", "294246-12-31 23:59:59.999999"],
    "timestamp(0)": ["2024-02-29 12:34:56"],
    "timestamptz": ["4713-01-01 00:00+00 BC", "1969-12-31 23:59:59.999999+00", "2024-02-29 12:34:56.789012+05:30",
                    "294246-12-31 23:59:59.999999+00"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
             "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "bytea": ["", "\\x00", "\\x00ff10", "\\x5c22", "\\x" + "ab" * 5000],
    "json": ['{"a":  1, "a": 2}', "null", '"x\\ny"'],
    "jsonb": ['{"b": [1, 2.50, null]}', "null"],
    "interval": ["1 year 2 mons 3 days 04:05:06.789", "-178000000 years", "0"],
    "money": ["12.34", "-92233720368547758.08"],
    "timetz": ["12:34:56+02", "24:00:00-15:59"],
    "inet": ["192.168.0.1/24", "::1"],
    "bit(3)": ["101"],
    "point": ["(1,2)", "(-0,1e300)"],
    "tsvector": ["a:1 fat:2A"],
    "integer[]": ["{}", "{1,NULL}", "{{1,2},{3,4}}", "[-1:1]={7,8,9}"],
    "text[]": ['{"a,b","c\\"d",NULL,""}'],
    "int4range": ["[1,5)", "empty"],
    "regclass": ["pg_class"],
}  # fmt: skip
"""Type → the values at its edges, as PostgreSQL reads them. Null goes with all of them."""


def table_of(database: Database, declared: str, values: list[str]) -> None:
    """A table `t` with one column of that type, a row per value and one null between them."""
    database.execute(f"CREATE TABLE t (id int, v {declared})")
    for i, value in enumerate([*values[:1], None, *values[1:], None]):
        database.admin.execute(f"INSERT INTO t VALUES (%s, %s::text::{declared})".encode(), (i, value))


def assert_read_and_digest_agree(database: Database, name: str, options: Options | None = None) -> None:
    """What was read has the digest that PostgreSQL computes."""
    mapping = database.mapping(name)
    source = database.source(options=options)
    with source.read(mapping) as reading:
        read = digest_of(mapping, reading.batches)
    assert read == source.digest(mapping)
    assert read.rows == database.value(f"SELECT count(*) FROM {name}")


@pytest.mark.parametrize("declared", EDGES)
def test_every_value_arrives_exactly(database: Database, declared: str) -> None:
    """The digest of the values read equals the one that PostgreSQL computes from the values stored.

    So it does behind a domain, and alone in its row, one row to a batch, where a null is an empty line.
    """
    table_of(database, declared, EDGES[declared])
    assert_read_and_digest_agree(database, "t")
    database.execute(f"CREATE DOMAIN d AS {declared}; CREATE TABLE alone AS SELECT v::d FROM t ORDER BY id")
    assert_read_and_digest_agree(database, "alone", Options(chunk_rows=1))


@pytest.mark.parametrize(
    "declared", [d for d in EDGES if d in {"char(5)", "interval", "money", "integer[]", "point", "numeric", "regclass"}]
)
def test_what_becomes_text_is_postgresqls_own_output(database: Database, declared: str) -> None:
    """The type's output function, padding of char(n) included, where a cast to text would strip it."""
    table_of(database, declared, EDGES[declared])
    database.execute("SET search_path = ''; SET intervalstyle = 'postgres'; SET datestyle = 'ISO'")
    expected = database.admin.execute("SELECT concat(v) FROM public.t WHERE v IS NOT NULL ORDER BY id").fetchall()
    assert [row["v"] for row in database.rows("t") if row["v"] is not None] == [text for (text,) in expected]


def test_values_that_python_knows(database: Database) -> None:
    """Not only the digests agree: these are the values that a reader gets."""
    database.execute("""
        CREATE TABLE t (b boolean, n numeric(10, 2), f real, d double precision, u uuid, x bytea, day date,
                        at timestamp, z timestamptz, h time, c char(3), e text);
        INSERT INTO t VALUES (true, -0.05, 0.1, '-0', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\\x00ff', '2024-02-29',
                              '1969-12-31 23:59:58.5', '2024-02-29 12:00:00.000001+02', '12:34:56.789', 'a', '');
    """)
    table = database.read("t")
    [row] = table.to_pylist()
    assert (row["b"], row["n"], row["c"], row["e"]) == (True, Decimal("-0.05"), "a  ", "")
    assert row["f"] == struct.unpack("f", struct.pack("f", 0.1))[0]
    assert math.copysign(1, row["d"]) == -1
    assert (row["u"], row["x"]) == (UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), b"\x00\xff")
    assert table["day"].cast(pa.int32()).to_pylist() == [days("2024-02-29")]
    assert table["at"].cast(pa.int64()).to_pylist() == [microseconds("1969-12-31T23:59:58.500000")]
    assert table["z"].cast(pa.int64()).to_pylist() == [microseconds("2024-02-29T10:00:00.000001")]
    assert row["h"].isoformat() == "12:34:56.789000"


def test_many_values_of_every_kind(database: Database) -> None:
    """Two thousand rows of pseudo-random values in small batches, nulls among them."""
    database.execute("""
        SELECT setseed(0.42);
        CREATE TABLE t AS SELECT
          ((random() - 0.5) * power(10, random() * 300))::float8 AS d, ((random() - 0.5) * power(10, random() * 30))::real AS f,
          timestamp '0001-01-01' + random() * interval '9000 years' AS at,
          timestamptz '4000-01-01 BC' + random() * interval '15000 years' AS z,
          date '4713-01-01 BC' + (random() * 5000000)::int AS day, (random() * 86399.999999) * interval '1 second' + time '0:00' AS h,
          ((random() - 0.5) * 1e15)::numeric(20, 4) AS n, ((random() - 0.5) * 1e18)::bigint AS i,
          CASE WHEN g % 7 = 0 THEN NULL ELSE gen_random_uuid() END AS u,
          CASE WHEN g % 5 = 0 THEN NULL ELSE decode(repeat(md5(g::text), g % 4), 'hex') END AS x,
          CASE WHEN g % 3 = 0 THEN NULL ELSE repeat(chr(1 + (g % 2000)), g % 9) END AS s
        FROM generate_series(1, 2000) g;
    """)  # noqa: E501 - a table to be read across
    assert_read_and_digest_agree(database, "t", Options(chunk_rows=300))


def test_a_composite_of_nulls_is_not_null(database: Database) -> None:
    """`IS NULL` says that it is, its output says otherwise; the digest goes by the latter."""
    database.execute("CREATE TYPE pair AS (a int, b int); CREATE TABLE t (v pair); "
                     "INSERT INTO t VALUES (ROW(NULL, NULL)), (NULL), (ROW(1, NULL))")  # fmt: skip
    assert [row["v"] for row in database.rows("t")] == ["(,)", None, "(1,)"]
    assert_read_and_digest_agree(database, "t")


def test_empty_text_and_null_are_two_things(database: Database) -> None:
    """In the only column of a table, where CSV spells the one as quotes and the other as nothing at all."""
    database.execute("CREATE TABLE t (v text); INSERT INTO t VALUES (''), (NULL), (''), (NULL), ('NULL')")
    assert [row["v"] for row in database.rows("t")] == ["", None, "", None, "NULL"]


def test_a_value_larger_than_any_chunk(database: Database) -> None:
    """Twenty million bytes in one value are a batch of their own, between small ones."""
    database.execute("""
        CREATE TABLE t (id int, v text, b bytea);
        INSERT INTO t VALUES (1, 'small', 'x'), (2, repeat('é"' || chr(10), 5000000), decode(repeat('00ff', 5000000), 'hex')),
                             (3, 'small', NULL);
    """)  # noqa: E501 - as above
    table = database.read("t")
    assert [len(row["v"].encode()) for row in table.to_pylist()] == [5, 20_000_000, 5]
    assert_read_and_digest_agree(database, "t")


def test_a_table_as_wide_as_can_be(database: Database) -> None:
    """Sixteen hundred columns, in reading and in the digest, where no function takes so many arguments."""
    columns = ", ".join(f"c{i} {('int', 'text', 'boolean', 'date')[i % 4]}" for i in range(1600))
    database.execute(
        f"CREATE TABLE t ({columns}); INSERT INTO t (c0, c1, c1598) VALUES (1, 'x', true), (2, NULL, NULL)"
    )
    assert_read_and_digest_agree(database, "t")


@pytest.mark.parametrize(
    ("declared", "value", "kind"),
    [
        ("date", "infinity", "an infinite value"),
        ("timestamp", "-infinity", "an infinite value"),
        ("timestamptz", "infinity", "an infinite value"),
        ("timestamp", "294276-12-31", "a moment beyond the year 294246"),
        ("timestamptz", "294250-01-01", "a moment beyond the year 294246"),
        ("numeric(10,2)", "NaN", "NaN"),
        ("time", "24:00:00", "the time 24:00:00"),
    ],
)
def test_a_value_without_a_place_is_refused_by_name(database: Database, declared: str, value: str, kind: str) -> None:
    """Table, column and kind of value; how to find it; nothing is nulled, rounded or clamped on the way."""
    table_of(database, declared, ["1"] if declared.startswith("numeric") else [])
    database.execute(f'INSERT INTO t VALUES (7, \'{value}\'); ALTER TABLE t RENAME COLUMN v TO "the ""value"')
    with pytest.raises(ValueNotRepresentable) as caught:
        database.read("t")
    assert f'public.t: column the "value holds {kind}' in caught.value.message
    query = caught.value.remedy.split(". ", 1)[1].removesuffix(" finds it.").replace("*", "id")
    assert database.value(query) == 7


def encoded(server: EmbeddedServer, name: str, encoding: str) -> None:
    """A database in another encoding than UTF-8."""
    with psycopg.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        dbname="postgres",
        autocommit=True,
    ) as admin:
        admin.execute(f"DROP DATABASE {name}".encode())
        admin.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0".encode()
        )


@pytest.fixture
def in_encoding(
    server: EmbeddedServer, make_database: Callable[[str], str], open_database: Callable[[str], Database]
) -> Callable[[str], Database]:
    """Makes a database in an encoding."""

    def make(encoding: str) -> Database:
        name = make_database("encoded")
        encoded(server, name, encoding)
        return open_database(name)

    return make


def test_another_encoding_arrives_as_utf8(in_encoding: Callable[[str], Database]) -> None:
    """Names and values; the checksum is over UTF-8 bytes on both sides."""
    database = in_encoding("LATIN1")
    database.execute('CREATE TABLE "tä" ("ü" text); INSERT INTO "tä" VALUES (\'é\'), (NULL)')
    mapping = database.mapping("tä")
    with database.source().read(mapping) as reading:
        batches = list(reading.batches)
    assert batches[0].column(0).to_pylist() == ["é", None]
    assert digest_of(mapping, batches) == database.source().digest(mapping)


def test_bytes_that_are_no_text_are_refused(in_encoding: Callable[[str], Database]) -> None:
    """SQL_ASCII stores any bytes as text; what is not UTF-8 is named, not passed on or replaced."""
    database = in_encoding("SQL_ASCII")
    database.execute(r"CREATE TABLE t (fine text, v text); INSERT INTO t VALUES ('x', E'\xff\xfe')")
    with pytest.raises(ValueNotRepresentable, match=r"public\.t: the source holds bytes that are not text"):
        database.read("t")
    with pytest.raises(ValueNotRepresentable, match=r"public\.t: the source holds bytes that are not text"):
        database.source().digest(database.mapping("t"))
    # A database that says UTF-8 sends such bytes unchecked; older servers let them in.
    database.execute("UPDATE pg_database SET encoding = pg_char_to_encoding('UTF8') WHERE datname = current_database()")
    with pytest.raises(ValueNotRepresentable, match="column v holds bytes that are not UTF-8 text"):
        database.read("t")


def test_every_base_type_has_its_way() -> None:
    """None is missing in the table of wire forms or in the digest's."""
    assert set(WIRE) == set(CANONICAL) == set(BaseKind)
