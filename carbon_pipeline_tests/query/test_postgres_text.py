"""PostgreSQL is the oracle: the same values, asked of a server and of the lakehouse."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline.query.catalogue import NamedTable
from carbon_pipeline.query.duckdb.lakehouse import Lakehouse
from carbon_pipeline.query.duckdb.postgres_text import date_text, timestamp_text
from carbon_pipeline.query.result import JsonValue, to_json_rows
from carbon_pipeline_tests.conftest import admin_connection
from carbon_pipeline_tests.lake.workshop import Workshop, column, mapping_of

EPOCH = "timestamp '1970-01-01'"
DAY = 86_400_000_000

VALUES: dict[str, list[object]] = {
    "int4": [0, -5, 2**31 - 1],
    "int8": [2**63 - 1, -(2**63)],
    "bool": [True, False],
    "float8": [0.1, -0.0, 1e300, 5e-324, 1.0, 123456789.125, float("nan"), float("inf"), float("-inf")],
    "float4": [0.1, 16777216.0, 1e-45, 3.4028234663852886e38, float("nan"), float("-inf")],
    "text": ["", "ä 🙂", "a\tb\n'\"\\"],
    "bytea": [b"", b"\x00\xff\\"],
    "uuid": [bytes(range(16))],
    "date": [0, -1, -719162, -719163, -800000, 2932897, 100_000_000],
    "time": [0, 1, 250_000, DAY - 1, 18_000_000_000],
    "timestamp": [0, 1, -1, 500_000, -62_135_596_800_000_000, -62_135_596_800_000_001, 9_000_000_000_000_000_000],
    "timestamptz": [0, 1_357_016_400_000_000, -70_000_000_000_000_000, 253_402_300_800_000_000, 123_456],
}
"""Values by type; temporal ones as their integers."""


def array_of(type_name: str, values: list[object]) -> tuple[pa.Array, pa.DataType]:
    """A column in the lake's own types."""
    wanted = mapping_of(column(1, "v", type_name)).arrow_schema.field(0).type
    if wanted == pa.uuid():
        return pa.ExtensionArray.from_storage(wanted, pa.array(values, pa.binary(16))), wanted
    if pa.types.is_temporal(wanted):
        integers = pa.int32() if type_name == "date" else pa.int64()
        return pa.array(values, integers).view(wanted), wanted
    return pa.array(values, wanted), wanted


def literal(type_name: str, value: object) -> str:
    """The value as an SQL expression of PostgreSQL's, made without any text that is under test."""
    if type_name == "date":
        return f"(date '1970-01-01' + ({value}))"
    if type_name == "time":
        return f"(time '00:00' + interval '{value} microseconds')"
    if type_name in {"timestamp", "timestamptz"}:
        days, rest = divmod(int(str(value)), DAY)
        moment = f"({EPOCH} + interval '{days} days' + interval '{rest} microseconds')"
        return f"({moment} AT TIME ZONE 'UTC')" if type_name == "timestamptz" else moment
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea" if type_name == "bytea" else f"'{value.hex()}'::uuid"
    text = str(value).replace("'", "''")
    return f"'{text}'::{type_name}"


def in_lake(folder: Path, type_name: str, values: list[object]) -> list[JsonValue]:
    """The values, written to a lake and asked back by a query."""
    workshop = Workshop(folder)
    mapping = mapping_of(column(1, "v", type_name))
    array, _ = array_of(type_name, [*values, None])
    workshop.publish([pa.RecordBatch.from_arrays([array], schema=mapping.arrow_schema)], mapping)
    files = workshop.reader.files(workshop.dataset)
    assert files is not None
    with Lakehouse([NamedTable(schema="default", name="t", files=files)], identity=True) as lakehouse:
        return [row[0] for row in to_json_rows(lakehouse.query("SELECT v FROM t ORDER BY __row_index"))]


def in_postgres(server: EmbeddedServer, type_name: str, values: list[object]) -> list[JsonValue]:
    """What psql prints; numbers and booleans read as JSON."""
    expressions = ", ".join(f"({literal(type_name, value)})::text" for value in values)
    with admin_connection(server) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET bytea_output = 'hex'")
        row = connection.execute(f"SELECT {expressions}".encode()).fetchone()
    assert row is not None
    texts: list[JsonValue] = [str(text) for text in row]
    if type_name.startswith("float"):
        return [t if t in {"NaN", "Infinity", "-Infinity"} else float(str(t)) for t in texts]
    return [json.loads(str(t)) for t in texts] if type_name in {"int4", "int8", "bool"} else texts


@pytest.mark.parametrize("type_name", VALUES)
def test_values_are_as_psql_prints_them(server: EmbeddedServer, tmp_path: Path, type_name: str) -> None:
    """Extremes of each type, BC and years after 9999 included; a null stays one."""
    values = VALUES[type_name]
    expected = in_postgres(server, type_name, values)
    found = in_lake(tmp_path, type_name, values)
    assert found[-1] is None
    assert [repr(v) for v in found[:-1]] == [repr(v) for v in expected]


def test_intervals_are_as_psql_prints_them(server: EmbeddedServer) -> None:
    """Signs, plurals and fractions."""
    texts = [
        "0",
        "1 year 1 mon 1 day 00:00:01",
        "-1 year -2 mons -3 days -04:05:06.5",
        "-1 mon 5 days",
        "1 mon -5 days 10:00:00",
        "-3 days 04:05:06",
        "100 hours",
        "-0.000001 seconds",
        "14 mons",
        "-14 mons 1 day",
    ]
    with admin_connection(server) as connection:
        expected = [
            str(row[0]) for row in connection.execute("SELECT x::interval::text FROM unnest(%s::text[]) x", [texts])
        ]
    # DuckDB does not read the plus that PostgreSQL writes; it means nothing to either.
    values = ", ".join(f"INTERVAL '{text.replace('+', '')}'" for text in expected)
    with Lakehouse([]) as lakehouse:
        assert list(next(lakehouse.query(f"SELECT {values}").rows)) == expected


def test_infinities_are_spelt_out() -> None:
    """DuckDB's marks for infinite dates and times."""
    with Lakehouse([]) as lakehouse:
        query = "SELECT 'infinity'::DATE, '-infinity'::DATE, 'infinity'::TIMESTAMP, '-infinity'::TIMESTAMPTZ"
        assert list(lakehouse.query(query).rows) == [("infinity", "-infinity", "infinity", "-infinity")]


@settings(max_examples=50, deadline=None)
@given(days=st.lists(st.integers(-784_350 - 719_528, 106_751_990), min_size=200, max_size=200))
def test_any_date_is_as_postgresql_has_it(server: EmbeddedServer, days: list[int]) -> None:
    """The calendar, by chance, as far as timestamps reach."""
    with admin_connection(server) as connection:
        found = connection.execute("SELECT (date '1970-01-01' + d)::text FROM unnest(%s::int[]) d", [days]).fetchall()
    assert [date_text(day) for day in days] == [row[0] for row in found]


def test_the_end_of_time_is_printable() -> None:
    """The last microseconds that 64 bits hold, on either side."""
    assert timestamp_text(2**63 - 2) == "294247-01-10 04:00:54.775806"
    assert timestamp_text(-(2**63) + 2) == "290309-12-21 19:59:05.224194 BC"
