"""The control plane goes away at each step of a sync, and comes back."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from carbon_pipeline.embedded_postgres import cluster
from carbon_pipeline.embedded_postgres.server import ensure_running
from carbon_pipeline_tests.torture.figures import Deadline, Figures
from carbon_pipeline_tests.torture.ground import Arena, Field, through
from carbon_pipeline_tests.torture.invariants import Kind, Violation, violations
from carbon_pipeline_tests.torture.points import Point, named
from carbon_pipeline_tests.torture.statement_proxy import Cut, StatementProxy, statement_proxy
from carbon_pipeline_tests.torture.worker import Process, job_of, start

SAYS_WHAT_IS_NEXT = re.compile(
    r"next sync|run the (?:sync|command) again|Check CARBON_CONTROL_PLANE_URL|nothing of this attempt", re.IGNORECASE
)
"""What a person reads who wonders whether to do anything."""

RESTARTS = tuple(
    map(
        named,
        (
            "C1 after open",
            "C2 in the third batch",
            "C4 after the manifests",
            "C4 after the advance",
            "C5 before the request",
            "C6 after the request",
            "C7 before settle",
        ),
    )
)


def count_statements(target: Field, proxy: StatementProxy) -> int:
    """How many statements one whole sync says to the control plane."""
    proxy.back()
    target.mark()
    process = _begun(target, proxy)
    assert process.end() == 0, process.printed
    return proxy.statements


def _begun(target: Field, proxy: StatementProxy) -> Process:
    return start(job_of(target.arena, target.table, ground=through(target.arena.ground, proxy.port)))


def cut_round(target: Field, proxy: StatementProxy, nth: int, cut: Cut, *, stays_away: bool) -> list[Violation]:
    """One sync with the connection broken at its nth statement; then recovery, and a re-run."""
    target.mark()
    proxy.back()
    proxy.cut_at, proxy.cut, proxy.stays_away = nth, cut, stays_away
    process = _begun(target, proxy)
    code = process.end()
    proxy.back()
    found = []
    if code not in {0, 1}:
        found.append(Violation(kind=Kind.OTHER, text=f"it ended with {code}: {process.printed[-500:]}"))
    if code == 1 and not SAYS_WHAT_IS_NEXT.search(process.printed):
        found.append(Violation(kind=Kind.OTHER, text=f"it does not say what comes next: {process.printed[-500:]}"))
    return found + recovered(target, published=code == 0)


def recovered(target: Field, *, published: bool) -> list[Violation]:
    """A sweep settles what was left, and a re-run is right. What says that it published, did."""
    found = violations(target) if published and not target.is_unsettled() else []
    if published and target.newest().status == "aborted":
        found.append(Violation(kind=Kind.LOST, text="it says that it published, and its operation is aborted"))
    target.sweep()
    if target.dataset is not None:
        found += violations(target, rerun=False)
    error = target.sync().error
    if error is not None:
        found.append(Violation(kind=Kind.OTHER, text=f"the re-run failed: {error}"))
    return found + violations(target)


def run(arena: Arena, chance: random.Random, figures: Figures, *, cuts: int, deadline: Deadline) -> None:
    """Every statement, before and after, gone for a moment and gone for good, in a random order."""
    with statement_proxy(arena.ground.host, arena.ground.port) as proxy:
        target = arena.field()
        assert target.sync().error is None
        statements = count_statements(target, proxy)
        cases = [(n, cut, away) for n in range(1, statements + 1) for cut in Cut for away in (False, True)]
        chance.shuffle(cases)
        for number, (nth, cut, away) in enumerate((cases * (cuts // len(cases) + 1))[:cuts]):
            if deadline.is_over:
                return
            if number % 20 == 19:
                target = arena.field()
            figures.faults += 1
            where = f"statement {nth} cut {cut}{', gone for good' if away else ''}"
            figures.note(where, cut_round(target, proxy, nth, cut, stays_away=away))


def restart_round(target: Field, point: Point, home: Path, figures: Figures, *, back_first: bool) -> list[Violation]:
    """The control plane's server dies while a sync is at *point*; it is back before the sync goes on, or after."""
    target.mark()
    process = start(job_of(target.arena, target.table, point, send=signal.SIGSTOP))
    process.await_point()
    figures.faults += 1
    try:
        stop_at_once(target.arena)
        if back_first:
            ensure_running(home)
    finally:
        process.go_on()
    code = process.end()
    ensure_running(home)
    target.arena.deployment.engine.dispose()
    found = []
    if code == 1 and not SAYS_WHAT_IS_NEXT.search(process.printed):
        found.append(Violation(kind=Kind.OTHER, text=f"it does not say what comes next: {process.printed[-500:]}"))
    return found + recovered(target, published=code == 0)


def stop_at_once(arena: Arena) -> None:
    """What `pg_ctl stop -m immediate` does, and waiting for the end of it."""
    told = cluster.postmaster(arena.control_server.data_directory)
    assert told is not None, "the control plane's server has no pid file"
    os.kill(told[0], signal.SIGQUIT)
    gone = Deadline(30)
    while _lives(told[0]):
        assert not gone.is_over, "the control plane's server would not stop"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run_restarts(
    arena: Arena, home: Path, figures: Figures, *, points: Sequence[Point] = RESTARTS, deadline: Deadline
) -> None:
    """Restarts at each of these points, both ways. The arena's control plane is on the server of *home*."""
    target = arena.field()
    for point in points:
        for back_first in (True, False):
            if deadline.is_over:
                return
            where = f"control plane restarted at {point}, {'back' if back_first else 'away'} when the sync goes on"
            figures.note(where, restart_round(target, point, home, figures, back_first=back_first))
