"""Random walks on the real catalog: writes that fail at a random point in a random way, sweeps that do, and what other
engines do to the table in between. One seed, one walk."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field

import requests
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError
from sqlalchemy import Connection

from carbon_pipeline.control_plane.records import SweepTrigger
from carbon_pipeline.errors import ControlPlaneError
from carbon_pipeline.ratify.sweep import Terms
from carbon_pipeline_tests.torture.figures import Deadline, Figures
from carbon_pipeline_tests.torture.ground import AT_ONCE, Arena, Field
from carbon_pipeline_tests.torture.invariants import Disturbance, Kind, Violation, ancestry, table_of, violations
from carbon_pipeline_tests.torture.nemesis import commit_nothing, roll_back
from carbon_pipeline_tests.torture.points import RATIFY_POINTS, SYNC_POINTS, Moment, Point, planted
from carbon_pipeline_tests.torture.soak import missing_marks

STEPS = 8

FAILURES: tuple[Callable[[], BaseException], ...] = (
    lambda: ControlPlaneError("the control plane does not answer"),
    lambda: CommitFailedException("409"),
    lambda: CommitStateUnknownException("502"),
    lambda: ServiceUnavailableError("503"),
    lambda: requests.ReadTimeout("no answer in time"),
    lambda: ConnectionResetError("cut"),
    KeyboardInterrupt,
)


@dataclass(slots=True)
class _Walk:
    """One walk under way."""

    target: Field
    chance: random.Random
    figures: Figures
    disturbed: Disturbance = field(default_factory=Disturbance)
    acknowledged: set[str] = field(default_factory=set)
    taken: list[str] = field(default_factory=list)

    def write(self) -> None:
        """A write that fails somewhere, more often than not."""
        mark = self.target.mark()
        # Where no edge would raise such a thing it goes all the way up; what counts is what it leaves behind.
        with self._fault(SYNC_POINTS), suppress(Exception, KeyboardInterrupt):
            if self.target.sync().error is None:
                self.acknowledged.add(mark)

    def sweep(self) -> None:
        """A sweep that fails somewhere, more often than not."""
        with self._fault(RATIFY_POINTS), suppress(Exception, KeyboardInterrupt):
            self.target.arena.deployment.ratify(SweepTrigger.LIBRARY, AT_ONCE)

    def look_only(self) -> None:
        """A dry run, which changes nothing."""
        before = self.target.newest()
        self.target.arena.deployment.ratify(SweepTrigger.LIBRARY, Terms(min_age_seconds=0, dry_run=True))
        assert self.target.newest() == before, "a dry run changed the ledger"

    def expire(self) -> None:
        """Another engine commits something, or not, and has everything but main's head expire."""
        table = table_of(self.target) if self.target.dataset else None
        if table is None:
            return
        if self.chance.random() < 0.5:
            commit_nothing(table)
        head = table.metadata.current_snapshot_id
        old = {snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != head}
        if old:
            table.maintenance.expire_snapshots().by_ids(sorted(old)).commit()
            self.disturbed.expired |= old

    def move_back(self) -> None:
        """Another engine moves main one snapshot back."""
        table = table_of(self.target) if self.target.dataset else None
        chain = [] if table is None else ancestry(table)
        if table is not None and len(chain) > 1:
            self.disturbed.rolled_back = True
            roll_back(table, chain[1].snapshot_id)

    def meddle(self) -> None:
        """Another engine sets the watermark to something."""
        table = table_of(self.target) if self.target.dataset else None
        if table is not None:
            with table.transaction() as transaction:
                transaction.set_properties({"carbon.watermark": "99:forged"})

    def _fault(self, points: tuple[Point, ...]) -> AbstractContextManager[None]:
        if self.chance.random() < 0.25:
            return nullcontext()
        point, failure = self.chance.choice(points), self.chance.choice(FAILURES)
        self.taken.append(f"{point}: {'cut' if point.moment is Moment.AT_COMMIT else repr(failure())}")

        def fail() -> None:
            self.figures.faults += 1
            raise failure()

        def cut(connection: Connection) -> None:
            self.figures.faults += 1
            driver = connection.connection.dbapi_connection
            assert driver is not None
            driver.close()

        return planted(point, fail, cut)


def walk(arena: Arena, seed: int, figures: Figures) -> tuple[list[Violation], list[str]]:
    """One seed's walk, recovery and check; and the steps it took."""
    chance = random.Random(seed)
    steps = _Walk(arena.field(rows=20), chance, figures)
    deeds = (steps.write, steps.sweep, steps.look_only, steps.expire, steps.move_back, steps.meddle)
    for _ in range(STEPS):
        deed = chance.choices(deeds, weights=(8, 3, 1, 2, 1, 1))[0]
        steps.taken.append(deed.__name__)
        deed()
    figures.seeds += 1
    return _checked(steps), steps.taken


def _checked(steps: _Walk) -> list[Violation]:
    target, found = steps.target, []
    target.sweep()
    if target.dataset is not None:
        found += violations(target, disturbed=steps.disturbed, rerun=False)
        if not steps.disturbed.rolled_back:
            found += missing_marks(target, steps.acknowledged)
    error = target.sync().error
    if error is not None:
        return [*found, Violation(kind=Kind.OTHER, text=f"the sync after the walk failed: {error}")]
    return [*found, *violations(target, disturbed=steps.disturbed), *missing_marks(target, steps.acknowledged)]


def run(arena: Arena, seed: int, figures: Figures, *, walks: int, deadline: Deadline) -> Counter[str]:
    """Seeds from *seed* on, until there were enough or the time is over; says which steps were taken."""
    taken: Counter[str] = Counter()
    for number in range(seed, seed + walks):
        if deadline.is_over:
            break
        found, steps = walk(arena, number, figures)
        figures.note(f"walk with seed {number} ({'; '.join(steps) if found else ''})", found)
        taken.update(steps)
    return taken
