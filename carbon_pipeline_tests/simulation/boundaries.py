"""A fault at every boundary: each scenario runs once to count its crossings, then once more per crossing, fault and
way of recovering, as SQLite's tests do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from carbon_pipeline_tests.simulation.faults import LANDS_LATER, Crossing, Fault, Plan, faults_at, once
from carbon_pipeline_tests.simulation.invariants import heal, violations
from carbon_pipeline_tests.simulation.memory_catalog import WATERMARK, Identifier
from carbon_pipeline_tests.simulation.process import Process
from carbon_pipeline_tests.simulation.report import Figures
from carbon_pipeline_tests.simulation.world import World, impatient

Act = Callable[[World, Plan], Process]
"""Starts the process that meets the fault."""


class NotReached(Exception):
    """The fault did not happen, so the cell shows nothing."""


class Recovery(StrEnum):
    """How the world goes on after the fault."""

    NEXT_SYNC = "next sync"
    SWEEP = "sweep"
    TWO_SWEEPS = "two sweeps at once"
    TIMID_SWEEPS = "a sweep at once, a dry run and one that may abort nothing, then a sweep"
    LATE_BEFORE_SYNC = "what was on its way lands, then the next sync"
    LATE_DURING_SYNC = "what was on its way lands during the next sync"
    LATE_DURING_SWEEP = "what was on its way lands during a sweep"
    OTHERS_TRY = "the writer is held, and others try"
    REPLACED = "the writer is held and cut off, and another sync takes over"
    SWEPT = "the writer is held and cut off, and a sweep rules"
    SWEPT_TOO_SOON = "the writer is held and cut off, and a sweep comes too soon"


AFTER_A_FAULT = (Recovery.NEXT_SYNC, Recovery.SWEEP, Recovery.TWO_SWEEPS, Recovery.TIMID_SWEEPS)
INTERLEAVED = (Recovery.TWO_SWEEPS, Recovery.LATE_DURING_SYNC, Recovery.LATE_DURING_SWEEP)
AFTER_A_DELAY = (Recovery.LATE_BEFORE_SYNC, Recovery.LATE_DURING_SYNC, Recovery.LATE_DURING_SWEEP)
AFTER_A_HOLD = (Recovery.OTHERS_TRY, Recovery.REPLACED, Recovery.SWEPT, Recovery.SWEPT_TOO_SOON)


def _synced() -> World:
    """Both tenants have their tables, and ada's source has moved on."""
    world = World()
    world.sync("ada")
    world.sync("bob")
    world.tenants["ada"].database.change()
    return world


def _left(crossing: Crossing, fault: Fault, before: Callable[[], World] = _synced) -> Callable[[], World]:
    """Somebody else's write was ended by a fault, and the source has moved on since."""

    def prepare() -> World:
        world = before()
        dead = world.sync("ada", once(crossing, fault))
        if not dead.plan.fired:
            raise NotReached(f"{crossing}")
        world.clock.advance(600)
        world.tenants["ada"].database.change()
        return world

    return prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world made ready, and who meets the fault in it."""

    name: str
    prepare: Callable[[], World]
    act: Act


def _sync(world: World, plan: Plan) -> Process:
    return world.sync("ada", plan)


def _sweep(world: World, plan: Plan) -> Process:
    return world.sweep(plan)


def _clean_up(world: World, plan: Plan) -> Process:
    return world.clean_up(0, plan)


LATEST_PLACE = 32
"""No process of one table crosses more boundaries than that when nothing is in its way."""

REQUEST: Crossing = ("catalog.request", 1)


def _landed(
    then: Callable[[World, Identifier], None], before: Callable[[], World] | None = None
) -> Callable[[], World]:
    """Somebody else's write landed, its writer died before it heard so, and then something else happened."""

    def prepare() -> World:
        world = _left(REQUEST, Fault.KILL_AFTER, before or _synced)()
        table = world.table_of("ada")
        assert table is not None
        then(world, table)
        return world

    return prepare


def bury(world: World, table: Identifier, *, forgets_parents: bool = True) -> None:
    """Another engine commits on top, old snapshots are expired, and the watermark is overwritten."""
    world.catalog.compact(table)
    world.catalog.expire(table, forgets_parents=forgets_parents)
    world.catalog.set_property(table, WATERMARK, "0:nobody")


LEFT: dict[str, Callable[[], World]] = {
    "an open one": _left(("store.put", 2), Fault.KILL_AFTER),
    "one that sent nothing": _left(REQUEST, Fault.KILL_BEFORE),
    "one that landed": _left(REQUEST, Fault.KILL_AFTER),
    "one on its way": _left(REQUEST, Fault.DELAY_AND_KILL),
    "one answered with a conflict": _left(REQUEST, Fault.CONFLICT_AND_DELAY),
    "one that landed and was compacted": _landed(lambda world, table: world.catalog.compact(table)),
    "one that landed and was rolled back": _landed(lambda world, table: world.catalog.roll_back(table)),
    "one that landed and was buried": _landed(bury),
    "the first one, that landed and was buried": _landed(bury, World),
    "one that landed and was buried by Java": _landed(lambda *table: bury(*table, forgets_parents=False)),
    "one whose table was replaced": _landed(lambda world, table: world.catalog.drop(table, recreate=True)),
}


def _landed_late() -> World:
    """A write was fenced and aborted, a person took the fence away, and then the request landed after all."""
    world = LEFT["one on its way"]()
    world.sweep()
    table = world.table_of("ada")
    assert table is not None
    world.catalog.roll_back(table)
    _deliver(world)
    return world


def _swept_after_abort() -> World:
    world = LEFT["one that sent nothing"]()
    world.sweep()
    return world


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="first sync", prepare=World, act=_sync),
        Scenario(name="replacing sync", prepare=_synced, act=_sync),
        *(Scenario(name=f"sync after {name}", prepare=prepare, act=_sync) for name, prepare in LEFT.items()),
        *(Scenario(name=f"sweep of {name}", prepare=prepare, act=_sweep) for name, prepare in LEFT.items()),
        Scenario(name="sync after one that landed late", prepare=_landed_late, act=_sync),
        Scenario(name="sweep of one that landed late", prepare=_landed_late, act=_sweep),
        Scenario(name="clean-up", prepare=_swept_after_abort, act=_clean_up),
    )
}


PLAIN = ("first sync", "replacing sync")
WITH_A_REQUEST_ON_ITS_WAY = frozenset(
    f"{act} {name}" for act in ("sync after", "sweep of") for name in ("one on its way", "one answered with a conflict")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One fault at one crossing, and one way to recover; during it, something happens at *between*."""

    scenario: str
    crossing: Crossing
    fault: Fault
    recovery: Recovery
    between: int | None = None
    """The crossing of the recovery at which the other thing happens, counted from nought."""

    def __str__(self) -> str:
        call, nth = self.crossing
        at = "" if self.between is None else f", at its crossing {self.between}"
        return f"{self.scenario}: {self.fault} at {call} no. {nth}, then {self.recovery}{at}"


def crossings_of(scenario: Scenario) -> list[Crossing]:
    """What the scenario's process crosses when nothing goes wrong."""
    world = scenario.prepare()
    return list(scenario.act(world, Plan()).crossings)


def recoveries_from(scenario: Scenario, fault: Fault) -> tuple[Recovery, ...]:
    """The ways to go on that make sense after this fault."""
    if fault is Fault.HOLD:
        return AFTER_A_HOLD
    lands_later = fault in LANDS_LATER or scenario.name in WITH_A_REQUEST_ON_ITS_WAY
    return AFTER_A_FAULT + (AFTER_A_DELAY if lands_later else ())


def faulted(scenario: Scenario, crossing: Crossing, fault: Fault) -> tuple[World, Process]:
    """The scenario with the fault in it."""
    world = scenario.prepare()
    process = scenario.act(world, once(crossing, fault))
    if not process.plan.fired:
        raise NotReached(f"{scenario.name}: {crossing}")
    return world, process


def cells(*, thorough: bool) -> Iterator[Cell]:
    """Every scenario, crossing and fault, with every recovery and every place in it.

    When it has to be quick the two plain syncs still meet every recovery; the other scenarios take turns at faults and
    recoveries, and only what lands late, the heart of the matter, is tried at every place.
    """
    turn = 0
    for scenario in SCENARIOS.values():
        for crossing in crossings_of(scenario):
            for fault in (*faults_at(crossing[0]), Fault.HOLD):
                turn += 1
                recoveries = recoveries_from(scenario, fault)
                if not thorough and scenario.name not in PLAIN:
                    turns = len(recoveries) if fault is Fault.STALE else QUICK_TURNS
                    recoveries = recoveries[turn % turns : turn % turns + 1]
                for recovery in recoveries:
                    cell = Cell(scenario=scenario.name, crossing=crossing, fault=fault, recovery=recovery)
                    yield from _in_places(cell, turn, thorough=thorough)


QUICK_TURNS = 17
"""No fault has that many recoveries, so that some turns are passed over."""


def _in_places(cell: Cell, turn: int, *, thorough: bool) -> Iterator[Cell]:
    if cell.recovery not in INTERLEAVED:
        yield cell
    elif thorough or (cell.recovery in AFTER_A_DELAY and cell.fault in LANDS_LATER):
        yield from (replace(cell, between=place) for place in range(_places(cell)))
    else:
        yield replace(cell, between=turn % LATEST_PLACE // 2)


def _places(cell: Cell) -> int:
    """How many crossings the recovery has at which something else can happen."""
    world, _ = faulted(SCENARIOS[cell.scenario], cell.crossing, cell.fault)
    world.clock.advance(3600)
    first = world.sync("ada") if cell.recovery is Recovery.LATE_DURING_SYNC else world.sweep()
    return len(first.crossings)


def run(cell: Cell, figures: Figures) -> list[str]:
    """Whatever is wrong in one cell."""
    world, process = faulted(SCENARIOS[cell.scenario], cell.crossing, cell.fault)
    found = violations(world)
    _recover(world, process, cell)
    found += violations(world)
    found += heal(world)
    world.end()
    figures.add(world, found)
    return list(dict.fromkeys(found))


def _recover(world: World, process: Process, cell: Cell) -> None:
    match cell.recovery:
        case Recovery.NEXT_SYNC:
            sync_in_peace(world, "ada")
        case Recovery.LATE_BEFORE_SYNC:
            _deliver(world)
            sync_in_peace(world, "ada")
        case Recovery.SWEEP:
            world.clock.advance(3600)
            world.sweep()
        case Recovery.TIMID_SWEEPS:
            _sweep_timidly(world)
        case Recovery.OTHERS_TRY:
            _others_try(world, process)
        case Recovery.REPLACED | Recovery.SWEPT | Recovery.SWEPT_TOO_SOON:
            _cut_off(world, process, cell.recovery)
        case _:
            world.clock.advance(3600)
            _interleave(world, cell)


def sync_in_peace(world: World, tenant: str) -> None:
    """A sync that nothing stands in the way of has to succeed, whatever the last one left."""
    process = world.sync(tenant)
    if process.error is not None:
        world.findings.append(f"7: a sync with nothing in its way failed: {process.error!r}")


def _sweep_timidly(world: World) -> None:
    """None of these may do much."""
    world.sweep()
    world.clock.advance(3600)
    world.sweep(terms=impatient(dry_run=True))
    world.sweep(terms=impatient(aborts_max=0))
    world.sweep()


def _others_try(world: World, process: Process) -> None:
    """While a live writer is held, others are turned away or wait; then it goes on."""
    world.tenants["ada"].database.change()
    world.sync("ada")
    world.sweep()
    world.clock.advance(3600)
    world.sweep()
    world.sync("ada")
    process.resume()


def _cut_off(world: World, process: Process, recovery: Recovery) -> None:
    """The writer is held for an hour, its connection is lost and others go on without it; then it goes on too."""
    world.plane.cut(process)
    world.clock.advance(60 if recovery is Recovery.SWEPT_TOO_SOON else 3600)
    if recovery is not Recovery.REPLACED:
        world.sweep(terms=impatient(minutes=0.5))
    else:
        world.tenants["ada"].database.change()
        world.sync("ada")
    process.resume()


def _interleave(world: World, cell: Cell) -> None:
    """Hold the recovery at one of its crossings, do the other thing, and let it go on."""
    place = cell.between or 0
    sync = cell.recovery is Recovery.LATE_DURING_SYNC
    held = world.sync("ada", hold_at(place)) if sync else world.sweep(hold_at(place))
    if cell.recovery is Recovery.TWO_SWEEPS:
        world.sweep()
    else:
        _deliver(world)
    if held.is_held:
        held.resume()


class _HoldAt(Plan):
    """A plan that holds its process at its nth crossing, whatever that is."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self._left = place

    def at(self, crossing: Crossing) -> Fault | None:
        """A hold, once."""
        self._left -= 1
        if self._left != -1:
            return None
        self.fired.append((crossing, Fault.HOLD))
        return Fault.HOLD

    @property
    def holds(self) -> bool:
        """It does."""
        return True


def hold_at(place: int) -> Plan:
    """A plan that holds its process at its nth crossing, counted from nought."""
    return _HoldAt(place)


def _deliver(world: World) -> None:
    while world.catalog.in_flight:
        world.catalog.deliver()
