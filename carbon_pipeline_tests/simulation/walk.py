"""A random walk: everything that can happen to two tenants' tables, one action after another, from one seed.

The actions are methods of `Walk`; a seed drives them here, Hypothesis drives them in `test_machine.py`, where a failure
is shrunk to the fewest steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from carbon_pipeline.ratify.orphans import SAFE_AGE_HOURS
from carbon_pipeline_tests.simulation.boundaries import LATEST_PLACE, bury, hold_at, sync_in_peace
from carbon_pipeline_tests.simulation.faults import Crossing, Fault, Plan, faults_at, once
from carbon_pipeline_tests.simulation.invariants import heal, violations
from carbon_pipeline_tests.simulation.memory_catalog import WATERMARK, Identifier
from carbon_pipeline_tests.simulation.report import Figures
from carbon_pipeline_tests.simulation.world import NAMES, World, impatient

CALLS: tuple[tuple[str, int], ...] = (
    ("catalog.request", 1),
    ("catalog.request", 1),
    ("catalog.request", 2),
    ("catalog.load", 6),
    ("catalog.create", 1),
    ("claim.unsettled", 1),
    ("claim.open", 1),
    ("claim.beat", 5),
    ("claim.advance", 1),
    ("claim.settle", 2),
    ("ledger.claim", 1),
    ("ledger.coordinate", 2),
    ("source.batch", 3),
    ("store.put", 3),
    ("store.delete", 2),
    ("files.mark_removed", 1),
)
"""What a fault may hit, and up to which call of that name. The request, where it matters most, comes up more often."""

HITS: tuple[tuple[Crossing, Fault], ...] = tuple(
    ((call, nth), fault) for call, most in CALLS for nth in range(1, most + 1) for fault in faults_at(call)
)
"""Every fault at every crossing that a walk may choose."""


class Walk:
    """A world, and what can be done in it. Every action can be taken at any time."""

    def __init__(self) -> None:
        self.world = World()

    def sync(self, tenant: str) -> None:
        """A sync meets nothing in its way, unless another process is held."""
        if self.world.held():
            self.world.sync(tenant)
        else:
            sync_in_peace(self.world, tenant)

    def sync_with(self, tenant: str, hit: tuple[Crossing, Fault]) -> None:
        """A sync meets a fault, if it gets that far."""
        self.world.sync(tenant, once(*hit))

    def hold_a_sync(self, tenant: str, place: int) -> None:
        """A sync is stopped at one of its crossings."""
        self.world.sync(tenant, hold_at(place))

    def sweep(self, aborts_max: int, *, dry_run: bool) -> None:
        """A sweep meets nothing in its way."""
        self.world.sweep(terms=impatient(aborts_max=aborts_max, dry_run=dry_run))

    def sweep_with(self, hit: tuple[Crossing, Fault]) -> None:
        """A sweep meets a fault, if it gets that far."""
        self.world.sweep(once(*hit))

    def hold_a_sweep(self, place: int) -> None:
        """A sweep is stopped at one of its crossings."""
        self.world.sweep(hold_at(place))

    def clean_up(self, plan: Plan | None = None) -> None:
        """The files of aborted writes are removed, at an age at which nothing of them can be on its way."""
        self.world.clean_up(SAFE_AGE_HOURS, plan)

    def resume(self, index: int) -> None:
        """One of the held processes goes on."""
        if held := self.world.held():
            held[index % len(held)].resume()

    def kill(self, index: int) -> None:
        """One of the held processes dies where it is."""
        if held := self.world.held():
            held[index % len(held)].kill()

    def cut(self, index: int) -> None:
        """One of the held processes loses its connection to the control plane, and does not know it yet."""
        if held := self.world.held():
            self.world.plane.cut(held[index % len(held)])

    def deliver(self, index: int) -> None:
        """A request that was on its way arrives."""
        if count := len(self.world.catalog.in_flight):
            self.world.catalog.deliver(index % count)

    def change(self, tenant: str) -> None:
        """The source moves on."""
        self.world.tenants[tenant].database.change()

    def advance(self, seconds: float) -> None:
        """Time passes. Over the clean-up's safe age no process stays stopped and no request on its way."""
        if seconds >= SAFE_AGE_HOURS * 3600:
            self.world.end()
            self.world.catalog.in_flight.clear()
        self.world.clock.advance(seconds)

    def expire(self, tenant: str, keep: int, *, forgets_parents: bool) -> None:
        """Old snapshots are expired, by one library or another."""
        self._on_table(tenant, lambda table: self.world.catalog.expire(table, keep, forgets_parents=forgets_parents))

    def prune_log(self, tenant: str) -> None:
        """Earlier metadata files are deleted."""
        self._on_table(tenant, self.world.catalog.prune_log)

    def compact(self, tenant: str) -> None:
        """Another engine rewrites main's files."""
        self._on_table(tenant, self.world.catalog.compact)

    def bury(self, tenant: str) -> None:
        """All of it at once: a foreign commit on top, old snapshots expired, the watermark overwritten."""
        self._on_table(tenant, lambda table: bury(self.world, table))

    def roll_back(self, tenant: str, steps: int) -> None:
        """A person moves main back."""
        self._on_table(tenant, lambda table: self.world.catalog.roll_back(table, steps))

    def drop(self, tenant: str, *, recreate: bool) -> None:
        """A person drops the table, and may put an empty one in its place."""
        self._on_table(tenant, lambda table: self.world.catalog.drop(table, recreate=recreate))

    def lose_watermark(self, tenant: str) -> None:
        """Somebody overwrites the watermark with nonsense."""
        self._on_table(tenant, lambda table: self.world.catalog.set_property(table, WATERMARK, "0:nobody"))

    def forge_watermark(self, tenant: str) -> None:
        """Somebody overwrites the watermark with the name of a write that is not settled."""
        dataset = self.world.dataset_of(tenant)
        rows = [row for row in self.world.plane.unsettled() if dataset and row.operation.dataset.id == dataset.id]
        if rows:
            forged = f"{rows[0].operation.seq}:{rows[0].id}"
            self._on_table(tenant, lambda table: self.world.catalog.set_property(table, WATERMARK, forged))

    def end(self) -> list[str]:
        """Whatever is wrong once the world has recovered."""
        found = heal(self.world)
        self.world.end()
        return found

    def wrong(self) -> list[str]:
        """Whatever is wrong now."""
        return violations(self.world)

    def _on_table(self, tenant: str, act: Callable[[Identifier], None]) -> None:
        table = self.world.table_of(tenant)
        if table is not None:
            act(table)


class Driver:
    """Chooses a walk's actions by chance alone."""

    def __init__(self, seed: int) -> None:
        self.walk = Walk()
        self._chance = random.Random(seed)

    def step(self) -> str:
        """Take one action; what it was, in words that make it again."""
        chance, walk = self._chance, self.walk
        name = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        arguments: dict[str, object] = {}
        for argument in ARGUMENTS.get(name, ()):
            arguments[argument] = self.pick(argument)
        getattr(walk, name)(**arguments)
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

    def pick(self, argument: str) -> object:
        """A value for one argument."""
        return PICKS[argument](self._chance)


PICKS: dict[str, Callable[[random.Random], object]] = {
    "tenant": lambda chance: chance.choices(NAMES, (4, 1))[0],
    "hit": lambda chance: chance.choice(HITS),
    "place": lambda chance: chance.randrange(LATEST_PLACE),
    "index": lambda chance: chance.randrange(3),
    "aborts_max": lambda chance: chance.choice((0, 1, 20)),
    "dry_run": lambda chance: chance.random() < 0.4,
    "forgets_parents": lambda chance: chance.random() < 0.5,
    "recreate": lambda chance: chance.random() < 0.4,
    "seconds": lambda chance: chance.choice((10.0, 200.0, 3600.0, 90_000.0)),
    "keep": lambda chance: chance.randint(1, 2),
    "steps": lambda chance: chance.randint(1, 2),
}
"""What each argument may be, by chance."""

WEIGHTS: dict[str, int] = {
    "sync": 10,
    "sync_with": 24,
    "hold_a_sync": 10,
    "sweep": 8,
    "sweep_with": 6,
    "hold_a_sweep": 4,
    "clean_up": 2,
    "resume": 10,
    "kill": 2,
    "cut": 5,
    "deliver": 7,
    "change": 8,
    "advance": 8,
    "expire": 3,
    "prune_log": 2,
    "compact": 3,
    "bury": 2,
    "roll_back": 2,
    "drop": 1,
    "lose_watermark": 2,
    "forge_watermark": 1,
}
"""How often each action is taken, by chance."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "sync": ("tenant",),
    "sync_with": ("tenant", "hit"),
    "hold_a_sync": ("tenant", "place"),
    "sweep": ("aborts_max", "dry_run"),
    "sweep_with": ("hit",),
    "hold_a_sweep": ("place",),
    "resume": ("index",),
    "kill": ("index",),
    "cut": ("index",),
    "deliver": ("index",),
    "change": ("tenant",),
    "advance": ("seconds",),
    "expire": ("tenant", "keep", "forgets_parents"),
    "prune_log": ("tenant",),
    "compact": ("tenant",),
    "bury": ("tenant",),
    "roll_back": ("tenant", "steps"),
    "drop": ("tenant", "recreate"),
    "lose_watermark": ("tenant",),
    "forge_watermark": ("tenant",),
}


def run_seed(seed: int, steps: int, figures: Figures) -> tuple[list[str], list[str]]:
    """One walk: what is wrong, and the steps that led there."""
    driver = Driver(seed)
    taken: list[str] = []
    found: list[str] = []
    for _ in range(steps):
        taken.append(driver.step())
        found = driver.walk.wrong()
        if found:
            driver.walk.world.end()
            break
    else:
        found = driver.walk.end()
    figures.seeds += 1
    figures.add(driver.walk.world, found)
    return found, taken
