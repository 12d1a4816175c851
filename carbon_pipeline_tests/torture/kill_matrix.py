"""Killed at every named point, recovered both ways, checked after each."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from carbon_pipeline_tests.torture import planted_bugs
from carbon_pipeline_tests.torture.figures import Deadline, Figures
from carbon_pipeline_tests.torture.ground import Arena, Field
from carbon_pipeline_tests.torture.invariants import Kind, Violation, violations
from carbon_pipeline_tests.torture.points import RATIFY_POINTS, SYNC_POINTS, Point, named
from carbon_pipeline_tests.torture.worker import job_of, start

ROUNDS_PER_FIELD = 15
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV)
"""How a process ends: killed by somebody, by the system for its memory, or by its own broken memory."""


class Recovery(StrEnum):
    """What comes after a death."""

    NEXT_SYNC = "the next sync"
    SWEEP = "a sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One death: where the sync died and, where ratify dies too, where that did."""

    sync: Point
    ratify: Point | None
    recovery: Recovery

    def __str__(self) -> str:
        then = "" if self.ratify is None else f", then {self.ratify}"
        return f"{self.sync}{then}, then {self.recovery}"


BEFORE_REQUEST, AFTER_REQUEST = named("C5 before the request"), named("C6 after the request")


def all_rounds() -> list[Round]:
    """Every point, both ways."""
    deaths: list[tuple[Point, Point | None]] = [(point, None) for point in SYNC_POINTS]
    deaths += [(BEFORE_REQUEST, point) for point in RATIFY_POINTS]
    deaths += [(AFTER_REQUEST, point) for point in RATIFY_POINTS if "fence" not in point.name]
    return [Round(sync=sync, ratify=ratify, recovery=way) for sync, ratify in deaths for way in Recovery]


def run(arena: Arena, chance: random.Random, figures: Figures, *, kills: int, deadline: Deadline) -> None:
    """All rounds in a random order, again and again, until there were enough kills or the time is over."""
    enough = figures.kills + kills
    target = arena.field()
    for number, which in enumerate(_for_ever(chance)):
        if figures.kills >= enough or deadline.is_over:
            return
        if number % ROUNDS_PER_FIELD == ROUNDS_PER_FIELD - 1:
            target = arena.field()
        figures.note(f"kill round {which}", one_round(target, which, figures, send=chance.choice(SIGNALS)))


def _for_ever(chance: random.Random) -> Iterator[Round]:
    while True:
        rounds = all_rounds()
        chance.shuffle(rounds)
        yield from rounds


def one_round(
    target: Field, which: Round, figures: Figures, *, send: int = signal.SIGKILL, bug: str | None = None
) -> list[Violation]:
    """Die, recover, check; run again, check. With a *bug*, every process has it, this one included."""
    target.mark()
    dead = start(job_of(target.arena, target.table, which.sync, send=send, bug=bug))
    if dead.end() != -send or not dead.job.marker.exists():
        return [Violation(kind=Kind.OTHER, text=f"never died at {which.sync}: {dead.printed}")]
    figures.kill()
    left = target.newest()
    with planted_bugs.planted(bug) if bug else nullcontext():
        if which.ratify is not None and (found := _kill_ratify(target, which.ratify, figures, send=send)):
            return found
        found = _recover(target, which.recovery)
        found += _wrongly_ruled(target, which, left)
        return found + _run_again(target)


def _kill_ratify(target: Field, point: Point, figures: Figures, *, send: int) -> list[Violation]:
    """Sweeps until one meets the dead writer's lock no more, and dies at its point."""
    printed = ""
    for _ in range(50):
        dead = start(job_of(target.arena, None, point, send=send))
        if dead.end() == -send:
            figures.kill()
            return []
        printed = dead.printed
        if not target.is_unsettled():
            break
    return [Violation(kind=Kind.OTHER, text=f"ratify never came to {point}: {printed}")]


def _recover(target: Field, way: Recovery) -> list[Violation]:
    if way is Recovery.SWEEP:
        target.sweep()
        return violations(target, rerun=False)
    error = target.sync().error
    return [Violation(kind=Kind.OTHER, text=f"the next sync failed: {error}")] if error else []


def _wrongly_ruled(target: Field, which: Round, left: Any) -> list[Violation]:
    """The operation that the dead writer left has the one ruling that its place allows."""
    [wanted] = which.sync.rulings
    if wanted is None:
        return []
    operation = next(each for each in target.operations() if each.id == left.id)
    if operation.ruling == wanted:
        return []
    return [Violation(kind=Kind.OTHER, text=f"it was ruled {operation.ruling}, not {wanted}")]


def _run_again(target: Field) -> list[Violation]:
    error = target.sync().error
    if error is not None:
        return [Violation(kind=Kind.OTHER, text=f"the re-run failed: {error}")]
    return violations(target)
