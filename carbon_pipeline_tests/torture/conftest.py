"""One arena for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline_tests.torture.figures import Figures
from carbon_pipeline_tests.torture.ground import Arena


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
