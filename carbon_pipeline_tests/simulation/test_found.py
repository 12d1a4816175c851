"""What the torture has found, pinned as the shortest story that shows it."""

from __future__ import annotations

from carbon_pipeline.ledger.states import Ruling
from carbon_pipeline.sync import Receipt
from carbon_pipeline_tests.simulation.boundaries import REQUEST, bury
from carbon_pipeline_tests.simulation.faults import Fault, Plan, once
from carbon_pipeline_tests.simulation.invariants import heal, violations
from carbon_pipeline_tests.simulation.memory_catalog import WATERMARK
from carbon_pipeline_tests.simulation.process import Process
from carbon_pipeline_tests.simulation.world import World


def settled_before(process: Process) -> Ruling:
    """How a sync ruled on the write that it found unsettled."""
    assert isinstance(process.result, Receipt)
    assert process.result.settled_before is not None
    return process.result.settled_before.ruling


def twice_synced(world: World) -> None:
    """A table with a history."""
    for _ in range(2):
        world.tenants["ada"].database.change()
        world.sync("ada")


def test_a_stale_read_is_not_the_last_word() -> None:
    """A catalog that shows an older state once does not end a write as unverifiable: its base is missing there because
    the state is old, not because anything expired. The second look finds that it landed."""
    world = World()
    twice_synced(world)
    world.tenants["ada"].database.change()
    world.sync("ada", once(REQUEST, Fault.DELAY_AND_KILL))
    process = world.sync("ada", once(("catalog.load", 1), Fault.STALE))
    assert process.plan.fired
    assert settled_before(process) is Ruling.FENCED
    assert heal(world) == []


def test_a_chain_without_a_parent_may_be_broken() -> None:
    """The table's first write landed and its writer never heard; then its snapshot expired behind another engine's, and
    the watermark was overwritten. PyIceberg leaves the other engine's snapshot without a parent, as if it were the
    first: whoever believes that fences and aborts a write whose rows everybody sees."""
    world = World()
    world.sync("ada", once(REQUEST, Fault.KILL_AFTER))
    table = world.table_of("ada")
    assert table is not None
    bury(world, table)
    assert settled_before(world.sync("ada", Plan())) is Ruling.EVIDENCE_EXPIRED
    assert violations(world) == []


def test_a_write_that_was_erased_is_called_absent() -> None:
    """A limit, not a promise: moved back behind, expired and its watermark overwritten, a write leaves nothing in what
    is looked at, and is ruled fenced although it once was there. None of its rows is visible."""
    world = World()
    twice_synced(world)
    world.sync("ada", once(REQUEST, Fault.KILL_AFTER))
    table = world.table_of("ada")
    assert table is not None
    world.catalog.roll_back(table)
    world.catalog.expire(table)
    world.catalog.set_property(table, WATERMARK, "0:nobody")
    assert settled_before(world.sync("ada")) is Ruling.FENCED
    assert violations(world) == []
    assert heal(world) == []
