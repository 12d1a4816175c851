"""A few deaths and stops at named points, each way; `make torture` has all of them, many times."""

from __future__ import annotations

import pytest

from carbon_pipeline_tests.torture import stopped
from carbon_pipeline_tests.torture.figures import Figures
from carbon_pipeline_tests.torture.ground import Arena
from carbon_pipeline_tests.torture.invariants import said, secrets_in
from carbon_pipeline_tests.torture.kill_matrix import AFTER_REQUEST, BEFORE_REQUEST, Recovery, Round, one_round
from carbon_pipeline_tests.torture.points import Point, named

DEATHS = [
    Round(sync=named("C2 second file on record, not written"), ratify=None, recovery=Recovery.SWEEP),
    Round(sync=named("C5 in the request, before its commit"), ratify=None, recovery=Recovery.SWEEP),
    Round(sync=AFTER_REQUEST, ratify=None, recovery=Recovery.SWEEP),
    Round(sync=named("C8 before settle commits"), ratify=None, recovery=Recovery.NEXT_SYNC),
    Round(sync=BEFORE_REQUEST, ratify=named("C10 after the fence's request"), recovery=Recovery.SWEEP),
    Round(sync=AFTER_REQUEST, ratify=named("C10 before ratify's settle commits"), recovery=Recovery.NEXT_SYNC),
]


@pytest.mark.parametrize("which", DEATHS, ids=str)
def test_killed(arena: Arena, figures: Figures, which: Round) -> None:
    """Killed there and recovered so, twice, on a new table first and on a published one then: every invariant holds."""
    target = arena.field()
    found = one_round(target, which, figures) + one_round(target, which, figures)
    assert not found, said(found)


STOPPED = [
    (named("C5 before the request"), Recovery.SWEEP),
    (named("C4 after the advance"), Recovery.NEXT_SYNC),
    (named("C4 after the manifests"), Recovery.SWEEP),
]


@pytest.mark.parametrize(("point", "way"), STOPPED, ids=str)
def test_stopped_and_ruled_aborted(arena: Arena, figures: Figures, point: Point, way: Recovery) -> None:
    """A writer stopped past its lease, cut off from the control plane and ruled aborted, goes on: its commit is
    refused."""
    target = arena.field()
    assert target.sync().error is None
    found = stopped.ruled_meanwhile(target, point, way, figures)
    assert not found, said(found)


def test_stopped_with_its_session_alive(arena: Arena, figures: Figures) -> None:
    """A writer stopped past its lease still holds its dataset: nobody rules on it, and when it goes on it commits."""
    found = stopped.held_meanwhile(arena.field(), named("C5 before the request"), figures)
    assert not found, said(found)


def test_reconciler_stopped(arena: Arena, figures: Figures) -> None:
    """A reconciler stopped before its fence, overtaken by another one and by a new write, changes nothing any more."""
    found = stopped.ratify_stopped(arena.field(), named("C10 before the fence"), figures)
    assert not found, said(found)


def test_no_secret(arena: Arena) -> None:
    """After all of this no password is in what was printed, in the lake or in the control plane."""
    assert list(arena.outputs.iterdir())
    found = secrets_in(arena)
    assert not found, said(found)


def test_moved_back_behind_the_fence(arena: Arena, figures: Figures) -> None:
    """A request that was fenced off stays so when another engine moves main back to its base."""
    found = stopped.moved_back_behind_the_fence(arena.field(), figures)
    assert not found, said(found)
