"""The harness sees: two plausible mistakes, made on purpose; `make torture` makes them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline_tests.torture.ground import Arena
from carbon_pipeline_tests.torture.hunts import HUNTS, hunt
from carbon_pipeline_tests.torture.planted_bugs import BUGS


@pytest.fixture(scope="module")
def spoiled(home: Path, server: EmbeddedServer) -> Iterator[Arena]:
    """An arena for this alone: what the mistakes leave behind would be found by every later sweep."""
    made = Arena(home, server)
    yield made
    made.close()


@pytest.mark.parametrize("bug", ["aborted without a fence", "a landed snapshot is overlooked"])
def test_planted(spoiled: Arena, bug: str) -> None:
    """A product with this mistake in it fails its round, as what it is."""
    assert hunt(spoiled, bug)


def test_every_bug_is_hunted() -> None:
    """No mistake is planted without a round that looks for it."""
    assert set(HUNTS) == set(BUGS)
