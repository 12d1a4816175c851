"""A fault at every boundary of every scenario, a recovery, another run: and nothing of what must never happen has."""

from __future__ import annotations

from collections import Counter

import pytest

from carbon_pipeline_tests.simulation.boundaries import LATEST_PLACE, SCENARIOS, Cell, cells, crossings_of, run
from carbon_pipeline_tests.simulation.faults import Fault, Killed, Plan, once
from carbon_pipeline_tests.simulation.invariants import heal, violations
from carbon_pipeline_tests.simulation.report import Figures
from carbon_pipeline_tests.simulation.world import World

CELLS = list(cells(thorough=False))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_without_a_fault(scenario: str) -> None:
    """Each scenario ends well when nothing goes wrong, so whatever a cell finds comes of its fault."""
    world = SCENARIOS[scenario].prepare()
    process = SCENARIOS[scenario].act(world, Plan())
    assert process.error is None
    assert violations(world) == []
    assert heal(world) == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_fault_at_every_boundary(scenario: str) -> None:
    """Whatever goes wrong wherever, what must never happen does not, and every fault did happen."""
    figures = Figures()
    mine = [cell for cell in CELLS if cell.scenario == scenario]
    wrong = {str(cell): found for cell in mine if (found := run(cell, figures))}
    assert wrong == {}
    assert mine
    assert figures.runs == len(mine)
    assert figures.faults >= len(mine)


def test_the_cells_cover_everything() -> None:
    """Every fault and every recovery has its cells, and no process crosses more boundaries than the walks know of."""
    assert {cell.fault for cell in CELLS} == set(Fault)
    assert len(Counter(cell.recovery for cell in CELLS)) == len(type(CELLS[0].recovery))
    assert max(len(crossings_of(scenario)) for scenario in SCENARIOS.values()) <= LATEST_PLACE


def test_a_cell_says_how_to_repeat_it() -> None:
    """A red cell is named by what went wrong where, in words."""
    cell = Cell(
        scenario="first sync",
        crossing=("claim.settle", 1),
        fault=Fault.ERROR_AFTER,
        recovery=CELLS[0].recovery,
    )
    assert str(cell) == "first sync: error after at claim.settle no. 1, then next sync"


def test_a_dead_process_reaches_nothing() -> None:
    """After a kill no handler on the way up changes anything: the operation stays as it was, and the lock is free."""
    world = World()
    process = world.sync("ada", once(("store.put", 1), Fault.KILL_AFTER))
    assert isinstance(process.error, Killed)
    [row] = world.plane.operations.values()
    assert row.status == "open"
    assert row.reason is None
    assert world.plane.locks == {}
    assert len(world.catalog.store) == 1


def test_a_held_writer_keeps_its_claim() -> None:
    """Stopped and not dead: others are turned away, a sweep leaves it alone, and it ends as if nothing had been."""
    world = World()
    process = world.sync("ada", once(("claim.advance", 1), Fault.HOLD))
    assert process.is_held
    assert type(world.sync("ada").error).__name__ == "DatasetHeld"
    world.clock.advance(3600)
    world.sweep()
    process.resume()
    assert process.error is None
    assert violations(world) == []
