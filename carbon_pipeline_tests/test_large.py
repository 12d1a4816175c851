"""Real sizes through the real command: the demo's tables value for value, and a million rows in bounded memory."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from carbon_pipeline.control_plane.records import Connection, Credential, TlsMode
from carbon_pipeline.demo.nycflights13 import load_nycflights13
from carbon_pipeline.deployment import Deployment
from carbon_pipeline.destination.coordinate import parse_destination
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_role
from carbon_pipeline_tests.conftest import Connect

CARBON = Path(sys.executable).with_name("carbon")
TABLES = ("airlines", "airports", "flights", "planes", "weather")
MEMORY_MB_MAX = 512

WIDE = """
CREATE TABLE wide AS
SELECT i::bigint AS id, i % 1000 AS a, (i % 7)::smallint AS b, i * 1.5::float8 AS c, (i / 3.0)::real AS d,
       (i * 0.01)::numeric(12, 2) AS e, (i * 0.0001)::numeric(15, 4) AS f, md5(i::text) AS g,
       'status ' || i % 5 AS h, i % 2 = 0 AS k, DATE '2020-01-01' + i % 1000 AS l,
       TIMESTAMP '2020-01-01' + i * INTERVAL '1 second' AS m,
       TIMESTAMPTZ '2020-01-01 UTC' + i * INTERVAL '1 second' AS n,
       md5((i * 7)::text) AS o, gen_random_uuid() AS p, i * 3 AS q, i * 5 AS r, NULL::text AS s, 'x' AS t,
       repeat('y', 20) AS u
FROM generate_series(1, 1000000) i
"""


def carbon(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, on the test run's home."""
    environment = {**os.environ, "CARBON_HOME": str(home), "CARBON_USER": "tester", "TZ": "Asia/Tokyo"}
    return subprocess.run([CARBON, *arguments], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def flights(
    deployment: Deployment, server: EmbeddedServer, make_database: Callable[[str], str]
) -> tuple[Credential, str]:
    """The demo's database, connected and published under a destination of its own."""
    database = make_database("flights")
    password = "flights reader"
    ensure_role(server, "flights_reader", password)
    load_nycflights13(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database=database,
        reader="flights_reader",
    )
    as_reader = Connection(
        host=server.host,
        port=server.port,
        database=database,
        user="flights_reader",
        password=password,
        tls=TlsMode.DISABLE,
    )
    credential, _ = deployment.connect(
        database,
        as_reader,
        destination=parse_destination(f"main.{database}"),
        workspace=deployment.workspace(None),
    )
    assert [result.error for result in deployment.sync(credential)] == [None] * len(TABLES)
    return credential, database


def same(ours: Any, text: str | None) -> bool:
    """Whether a value of the JSON output is what PostgreSQL's own text says."""
    if ours is None or text is None:
        return ours is None and text is None
    if isinstance(ours, bool):
        return text == ("t" if ours else "f")
    if isinstance(ours, float):
        return float(text) == ours or (math.isnan(ours) and text == "NaN")
    return str(ours) == text


def test_query_equals_the_source(flights: tuple[Credential, str], server: EmbeddedServer, home: Path) -> None:
    """`carbon query --json` gives every value of every table of the demo as the source's own text has it, whatever the
    time zone of the machine."""
    _, database = flights
    with psycopg.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        dbname=database,
        options="-c TimeZone=UTC",
    ) as connection:
        for table in TABLES:
            asked = carbon(home, "query", f"SELECT * FROM {database}.{table} ORDER BY ALL", "--json")
            assert asked.returncode == 0, asked.stderr
            ours = json.loads(asked.stdout)
            columns = list(ours[0])
            wanted = ", ".join(f'"{column}"::text' for column in columns)
            # "C", since the lake sorts text by its bytes.
            order = ", ".join(f"{n + 1}" for n in range(len(columns)))
            typed = connection.execute(f"SELECT * FROM {table} ORDER BY {order}").description
            assert [column.name for column in typed or ()] == columns
            rows = connection.execute(f"SELECT {wanted} FROM (SELECT * FROM {table} ORDER BY {order}) ordered")
            compared = 0
            for row, theirs in zip(ours, rows, strict=True):
                assert all(map(same, row.values(), theirs)), (table, row, theirs)
                compared += 1
            assert compared > 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel's memory mark is Linux's")
def test_a_million_rows_in_bounded_memory(deployment: Deployment, connect: Connect, home: Path) -> None:
    """A million rows of twenty columns sync through the command in less than 512 MB, Dagster's report included."""
    assert deployment.settings.home == home
    credential, _ = connect(WIDE)
    environment = {**os.environ, "CARBON_HOME": str(home), "CARBON_USER": "tester"}
    with subprocess.Popen(
        [CARBON, "sync", credential.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        peak_mb = high_water_mb(process)
        said = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, said
    assert "1,000,000 rows" in said
    assert 0 < peak_mb < MEMORY_MB_MAX


def high_water_mb(process: subprocess.Popen[str]) -> float:
    """The most memory that a process held until its end, from the kernel's own mark.

    The mark of `getrusage` will not do: a child's starts with what its parent held when it was forked.
    """
    status, peak_kb = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None:
        marks = [line.split() for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        peak_kb = max([peak_kb, *(int(mark[1]) for mark in marks)])
        time.sleep(0.02)
    return peak_kb / 1024
