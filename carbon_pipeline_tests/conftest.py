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

from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_database, ensure_running, stop

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
    return ensure_running(home)


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
