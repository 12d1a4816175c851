"""The random walks: many seeds, and Hypothesis, which shrinks what it finds."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from carbon_pipeline_tests.simulation.boundaries import LATEST_PLACE
from carbon_pipeline_tests.simulation.faults import Crossing, Fault
from carbon_pipeline_tests.simulation.report import Figures
from carbon_pipeline_tests.simulation.walk import ARGUMENTS, HITS, WEIGHTS, Driver, Walk, run_seed
from carbon_pipeline_tests.simulation.world import NAMES

EXAMPLES = int(os.environ.get("CARBON_TEST_EXAMPLES", "40"))
STEPS = 30
SEEDS = int(os.environ.get("CARBON_TEST_WALKS", "150"))
SEED = int(os.environ.get("CARBON_TEST_SEED", "1"))

TENANTS = st.sampled_from(NAMES)
PLACES = st.integers(0, LATEST_PLACE - 1)
INDICES = st.integers(0, 2)


class Machine(RuleBasedStateMachine):
    """Every action of a walk as a rule. After every step nothing is wrong, and at the end the world recovers."""

    def __init__(self) -> None:
        super().__init__()
        self.walk = Walk()

    @rule(tenant=TENANTS, hit=st.sampled_from(HITS))
    def sync_with(self, tenant: str, hit: tuple[Crossing, Fault]) -> None:
        """See `Walk`, as for all of them."""
        self.walk.sync_with(tenant, hit)

    @rule(tenant=TENANTS)
    def sync(self, tenant: str) -> None:
        """Nothing in its way."""
        self.walk.sync(tenant)

    @rule(tenant=TENANTS, place=PLACES)
    def hold_a_sync(self, tenant: str, place: int) -> None:
        """Stopped half-way."""
        self.walk.hold_a_sync(tenant, place)

    @rule(aborts_max=st.sampled_from((0, 1, 20)), dry_run=st.booleans())
    def sweep(self, aborts_max: int, dry_run: bool) -> None:
        """Nothing in its way."""
        self.walk.sweep(aborts_max, dry_run=dry_run)

    @rule(hit=st.sampled_from(HITS))
    def sweep_with(self, hit: tuple[Crossing, Fault]) -> None:
        """Something in its way."""
        self.walk.sweep_with(hit)

    @rule(place=PLACES)
    def hold_a_sweep(self, place: int) -> None:
        """Stopped half-way."""
        self.walk.hold_a_sweep(place)

    @rule()
    def clean_up(self) -> None:
        """Old files go."""
        self.walk.clean_up()

    @rule(what=st.sampled_from(("resume", "kill", "cut", "deliver")), index=INDICES)
    def meddle(self, what: str, index: int) -> None:
        """With something that is held or on its way."""
        getattr(self.walk, what)(index)

    @rule(tenant=TENANTS)
    def change(self, tenant: str) -> None:
        """The source moves on."""
        self.walk.change(tenant)

    @rule(seconds=st.sampled_from((10.0, 200.0, 3600.0, 90_000.0)))
    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.walk.advance(seconds)

    @rule(what=st.sampled_from(("prune_log", "compact", "bury", "lose_watermark", "forge_watermark")), tenant=TENANTS)
    def tamper(self, what: str, tenant: str) -> None:
        """With a table's metadata."""
        getattr(self.walk, what)(tenant)

    @rule(tenant=TENANTS, keep=st.integers(1, 2), forgets_parents=st.booleans())
    def expire(self, tenant: str, keep: int, forgets_parents: bool) -> None:
        """Snapshots are forgotten."""
        self.walk.expire(tenant, keep, forgets_parents=forgets_parents)

    @rule(tenant=TENANTS, steps=st.integers(1, 2))
    def roll_back(self, tenant: str, steps: int) -> None:
        """Main is moved back."""
        self.walk.roll_back(tenant, steps)

    @rule(tenant=TENANTS, recreate=st.booleans())
    def drop(self, tenant: str, recreate: bool) -> None:
        """The table is gone."""
        self.walk.drop(tenant, recreate=recreate)

    @invariant()
    def nothing_is_wrong(self) -> None:
        """At every moment."""
        assert self.walk.wrong() == []

    def teardown(self) -> None:
        """The world recovers, runs again, and is right."""
        assert self.walk.end() == []


def test_machine() -> None:
    """Whatever happens in whatever order, what must never happen does not. CARBON_TEST_EXAMPLES makes it longer,
    CARBON_TEST_SEED another one."""
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(SEED)(Machine), settings=chosen)


def test_walks() -> None:
    """Seed after seed of the same walk, driven by chance alone: a thousand in the time of Hypothesis' hundred."""
    figures = Figures()
    wrong = {}
    for number in range(SEED, SEED + SEEDS):
        found, steps = run_seed(number, STEPS, figures)
        if found:
            wrong[number] = (found, steps)
    assert wrong == {}
    assert figures.seeds == SEEDS
    assert min(figures.kills, figures.aborted, figures.committed, figures.late_requests, figures.unverifiable) > 0


def test_a_seed_is_the_same_walk_every_time() -> None:
    """What a seed did once it does again, step by step and to the last row."""
    one, other = Driver(5), Driver(5)
    assert [one.step() for _ in range(STEPS)] == [other.step() for _ in range(STEPS)]
    assert one.walk.world.fingerprint() == other.walk.world.fingerprint()
    assert one.walk.end() == other.walk.end() == []


@pytest.mark.parametrize("action", WEIGHTS)
def test_every_action_can_be_taken_at_any_time(action: str) -> None:
    """An action on a world with nothing in it, or on one without a table, does no harm."""
    driver = Driver(3)
    arguments = {name: driver.pick(name) for name in ARGUMENTS.get(action, ())}
    getattr(driver.walk, action)(**arguments)
    assert driver.walk.wrong() == []
    assert driver.walk.end() == []
