"""Homes for real servers: made where an unprivileged server can reach them, stopped and removed afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_running, stop

_LONGER_THAN_A_SOCKET_PATH = "a home with a long name, 'quotes', $dollars and (brackets) " + "x" * 100


@contextmanager
def temporary_home(name: str = "home", *, mode: int = 0o755) -> Iterator[Path]:
    """A home that does not exist yet, in a folder with this mode. pytest's own are 0700, which is a case apart."""
    parent = Path(tempfile.mkdtemp(prefix="carbon-embedded-"))
    parent.chmod(mode)
    home = parent / name
    try:
        yield home
    finally:
        stop(home)
        elsewhere = home / "postgres" / "place"
        if elsewhere.exists():
            shutil.rmtree(elsewhere.read_text().strip())
        shutil.rmtree(parent)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of the test's own."""
    with temporary_home() as path:
        yield path


@pytest.fixture(scope="session")
def worn_home() -> Iterator[Path]:
    """One home for all tests that stop, kill or break its server, and leave it whole for the next."""
    with temporary_home() as path:
        yield path


@pytest.fixture(scope="session")
def shared_home() -> Iterator[Path]:
    """A home with a running server, for tests that leave it running; its path is long and awkward."""
    with temporary_home(_LONGER_THAN_A_SOCKET_PATH) as path:
        ensure_running(path)
        yield path


@pytest.fixture
def server(shared_home: Path) -> EmbeddedServer:
    """The server of the shared home."""
    return ensure_running(shared_home)
