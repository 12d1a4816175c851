"""One arena for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline_tests.torture.figures import Figures
from carbon_pipeline_tests.torture.ground import Arena


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder takes long: before the markers are looked at, it gets the one that says so."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def arena(home: Path, server: EmbeddedServer) -> Iterator[Arena]:
    """A control plane, a catalog and a source of this folder's own, on the test run's server."""
    made = Arena(home, server)
    yield made
    made.close()


@pytest.fixture
def figures() -> Figures:
    """What a test counts."""
    return Figures()
