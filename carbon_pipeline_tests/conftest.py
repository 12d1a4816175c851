"""What all tests share: one embedded server, databases on it, a deployment, and golden files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from carbon_pipeline.control_plane.records import Connection, Credential, TlsMode
from carbon_pipeline.deployment import Deployment, open_deployment
from carbon_pipeline.destination.coordinate import DEFAULTED
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_database, ensure_running, stop
from carbon_pipeline.settings import read_settings

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--write-golden` accepts what the program says now; the diff is then for a person to read."""
    parser.addoption("--write-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A `CARBON_HOME` of the test run's own, where an unprivileged server can reach it."""
    folder = Path(tempfile.mkdtemp(prefix="carbon-tests-"))
    folder.chmod(0o711)
    yield folder
    stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(home: Path) -> EmbeddedServer:
    """The one embedded server of the test run."""
    for name in [name for name in os.environ if name.startswith(("PG", "CARBON_", "DAGSTER_", "PYICEBERG_"))]:
        del os.environ[name]
    running = ensure_running(home)
    with admin_connection(running) as connection:
        # Processes are killed here, machines are not: what the system has taken is as good as on disk.
        for setting in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
        connection.execute(b"SELECT pg_reload_conf()")
    return running


def admin_connection(server: EmbeddedServer, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
    """A connection of the server's superuser, autocommitting."""
    return psycopg.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        dbname=database,
        autocommit=True,
    )


_numbers = count(1)


@pytest.fixture
def make_database(server: EmbeddedServer) -> Iterator[Callable[[str], str]]:
    """A factory of fresh databases, dropped after the test: takes a prefix, gives the name."""
    made: list[str] = []

    def make(prefix: str = "source") -> str:
        name = f"{prefix}_{os.getpid()}_{next(_numbers)}"
        ensure_database(server, name)
        made.append(name)
        return name

    yield make
    with admin_connection(server) as connection:
        for name in made:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of that name, or write it with `--write-golden`."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--write-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"{path} is missing; `make golden` writes it"
        assert text == path.read_text(), f"{name} changed; if that is meant, `make golden` and read the diff"

    return check


@pytest.fixture(scope="session")
def deployment(home: Path, server: EmbeddedServer) -> Deployment:
    """A deployment on the test run's own home, with its one workspace."""
    assert server.port
    return open_deployment(read_settings({"CARBON_HOME": str(home), "CARBON_USER": "tester"}))


Connect = Callable[[str], tuple[Credential, str]]


@pytest.fixture
def connect(deployment: Deployment, server: EmbeddedServer, make_database: Callable[[str], str]) -> Connect:
    """Make a database with this SQL in it and connect it: gives the credential and the database's name."""

    def make(statements: str) -> tuple[Credential, str]:
        database = make_database("source")
        with admin_connection(server, database) as connection:
            connection.execute(statements.encode())
        credential, _ = deployment.connect(
            database,
            Connection(
                host=server.host,
                port=server.port,
                database=database,
                user=server.user,
                password=server.password,
                tls=TlsMode.DISABLE,
            ),
            destination=DEFAULTED,
            workspace=deployment.workspace(None),
        )
        return credential, database

    return make
