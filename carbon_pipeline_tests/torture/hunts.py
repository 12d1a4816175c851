"""For every planted bug the round that has to go red on it."""

from __future__ import annotations

from collections.abc import Callable

from carbon_pipeline_tests.torture import stopped
from carbon_pipeline_tests.torture.figures import Figures
from carbon_pipeline_tests.torture.ground import Arena, Field
from carbon_pipeline_tests.torture.invariants import Kind, Violation
from carbon_pipeline_tests.torture.kill_matrix import AFTER_REQUEST, Recovery, Round, one_round
from carbon_pipeline_tests.torture.planted_bugs import BUGS
from carbon_pipeline_tests.torture.points import named

Hunt = Callable[[Field, str], list[Violation]]


def _stopped_at(point: str) -> Hunt:
    return lambda target, bug: stopped.ruled_meanwhile(target, named(point), Recovery.SWEEP, Figures(), bug)


def _killed_at(point: str) -> Hunt:
    which = Round(sync=named(point), ratify=None, recovery=Recovery.SWEEP)
    return lambda target, bug: one_round(target, which, Figures(), bug=bug)


HUNTS: dict[str, tuple[Hunt, Kind]] = {
    "aborted without a fence": (_stopped_at("C5 before the request"), Kind.ABORTED_VISIBLE),
    "a commit rebased on whatever came": (_stopped_at("C4 after the advance"), Kind.ABORTED_VISIBLE),
    "files are not announced": (_killed_at("C3 after the data files"), Kind.OTHER),
    "landed without asking the catalog": (_killed_at("C9 after settle"), Kind.LOST),
    "a landed snapshot is overlooked": (_killed_at(AFTER_REQUEST.name), Kind.ABORTED_VISIBLE),
    "every data file counted twice": (_killed_at("C9 after settle"), Kind.DUPLICATED),
}
"""Each with the kind of violation that it has to show as."""


def hunt(arena: Arena, bug: str) -> bool:
    """Whether the bug is seen for what it is. A table that it spoiled is used no more."""
    target = arena.field()
    assert target.sync().error is None
    search, kind = HUNTS[bug]
    return any(violation.kind is kind for violation in search(target, bug))


def run(arena: Arena, figures: Figures) -> list[str]:
    """Every bug once; gives those that nobody saw."""
    figures.planted += len(BUGS)
    missed = [bug for bug in BUGS if not hunt(arena, bug)]
    figures.planted_found += len(BUGS) - len(missed)
    return missed
