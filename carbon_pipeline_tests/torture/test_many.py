"""Two hundred datasets with an unsettled operation each; `make torture` has ten thousand."""

from __future__ import annotations

from carbon_pipeline_tests.torture import many
from carbon_pipeline_tests.torture.ground import Arena
from carbon_pipeline_tests.torture.invariants import said


def test_all_settle_in_one_cycle(arena: Arena) -> None:
    """Landed and never-landed mixed, under the cap: each is ruled as it should, with one load of each table."""
    found, _ = many.under_the_cap(arena, 150)
    assert not found, said(found)


def test_over_the_cap(arena: Arena) -> None:
    """One abort more than a cycle may make: none is made, and an alarm is raised."""
    found = many.over_the_cap(arena, 50)
    assert not found, said(found)
