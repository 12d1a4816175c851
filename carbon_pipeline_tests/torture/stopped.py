"""A writer, or a reconciler, that stops for longer than its lease, is ruled upon meanwhile, and then goes on.

A process that is stopped still holds its advisory lock: nobody may rule while its session lives, whatever the lease
says. Only with the session gone, as in a partition between it and the control plane, is it taken for dead.
"""

from __future__ import annotations

import random
import signal
import time
from contextlib import nullcontext
from dataclasses import replace

from carbon_pipeline.control_plane.records import SweepTrigger
from carbon_pipeline.errors import DatasetHeld
from carbon_pipeline.ledger.states import Ruling
from carbon_pipeline_tests.torture import planted_bugs
from carbon_pipeline_tests.torture.figures import Deadline, Figures
from carbon_pipeline_tests.torture.ground import AT_ONCE, Arena, Field, Patience
from carbon_pipeline_tests.torture.invariants import Kind, Violation, table_of, violations
from carbon_pipeline_tests.torture.kill_matrix import Recovery
from carbon_pipeline_tests.torture.nemesis import roll_back
from carbon_pipeline_tests.torture.points import RATIFY_POINTS, SYNC_POINTS, Point, named
from carbon_pipeline_tests.torture.worker import Process, job_of, start

LEASE = Patience(lease_seconds=0.2, wait_seconds=0.2)
ROUNDS_PER_FIELD = 15

IN_A_DATABASE = ("C5 in the request, before its commit", "C10 in the fence's request, before its commit")
"""A client stopped there holds a row lock in the catalog's own database, which only its session's end frees."""

STOPS = tuple(point for point in SYNC_POINTS if point.name not in IN_A_DATABASE)
REFUSED = tuple(point for point in STOPS if point.rulings & {Ruling.FENCED, Ruling.NEVER_LANDED})
"""Points after which an aborted writer still has its commit before it."""
RATIFY_STOPS = tuple(point for point in RATIFY_POINTS if point.name not in IN_A_DATABASE)


def run(arena: Arena, chance: random.Random, figures: Figures, *, rounds: int, deadline: Deadline) -> tuple[int, int]:
    """Rounds of each kind in turn; says how many resumed writers had their commit refused, of how many."""
    refused = ruled = 0
    target = arena.field()
    for number in range(rounds):
        if deadline.is_over:
            break
        if number % ROUNDS_PER_FIELD == ROUNDS_PER_FIELD - 1:
            target = arena.field()
        point, way = chance.choice(REFUSED), chance.choice(list(Recovery))
        found = ruled_meanwhile(target, point, way, figures)
        figures.note(f"stopped at {point}, ruled by {way}", found)
        ruled += 1
        refused += not found
        point = chance.choice(STOPS)
        figures.note(f"stopped at {point}, held", held_meanwhile(target, point, figures))
        point = chance.choice(RATIFY_STOPS)
        figures.note(f"ratify stopped at {point}", ratify_stopped(target, point, figures))
    return refused, ruled


def _stopped(target: Field, point: Point, bug: str | None = None) -> Process:
    ground = replace(target.arena.ground, patience=LEASE)
    process = start(job_of(target.arena, target.table, point, send=signal.SIGSTOP, ground=ground, bug=bug))
    process.await_point()
    time.sleep(1.5 * LEASE.lease_seconds)
    return process


def held_meanwhile(target: Field, point: Point, figures: Figures) -> list[Violation]:
    """Stopped past its lease with its session alive: left alone by a sweep and by a new write, then it commits."""
    target.mark()
    writer = _stopped(target, point)
    figures.faults += 1
    try:
        before = target.newest()
        found = _left_alone(target, before)
    finally:
        writer.go_on()
    if writer.end() != 0:
        found.append(Violation(kind=Kind.OTHER, text=f"it did not finish after it went on: {writer.printed}"))
    return found + violations(target)


def _left_alone(target: Field, before: object) -> list[Violation]:
    impatient = replace(target.arena.ground, patience=LEASE).deployment()
    try:
        report = impatient.ratify(SweepTrigger.LIBRARY, AT_ONCE)
        [result] = impatient.sync(target.credential, (target.table,))
    finally:
        impatient.engine.dispose()
    found = []
    if any(case.entry is not None and case.operation.dataset.id == _dataset_id(target) for case in report.cases):
        found.append(Violation(kind=Kind.OTHER, text="a sweep ruled although the writer's session holds the lock"))
    if not isinstance(result.error, DatasetHeld):
        found.append(Violation(kind=Kind.OTHER, text=f"a new write was not refused as held: {result.error}"))
    if target.newest() != before:
        found.append(Violation(kind=Kind.OTHER, text="the operation changed while its writer was stopped"))
    return found


def _dataset_id(target: Field) -> object:
    return target.dataset.id if target.dataset else None


def ruled_meanwhile(
    target: Field, point: Point, way: Recovery, figures: Figures, bug: str | None = None
) -> list[Violation]:
    """Stopped past its lease, its session ended, ruled aborted: when it goes on, its commit is refused."""
    target.mark()
    writer = _stopped(target, point, bug)
    figures.faults += 2
    try:
        stopped = target.newest()
        end_sessions_of(target.arena, writer.pid)
        with planted_bugs.planted(bug) if bug else nullcontext():
            found = _ruled_aborted(target, way)
    finally:
        writer.go_on()
    code = writer.end()
    if code == 0:
        found.append(Violation(kind=Kind.ABORTED_VISIBLE, text="it was ruled aborted and says that it published"))
    found += violations(target, rerun=way is Recovery.NEXT_SYNC)
    operation = next(each for each in target.operations() if each.id == stopped.id)
    if operation.status != "aborted":
        found.append(Violation(kind=Kind.OTHER, text=f"the aborted operation is {operation.status} now"))
    error = target.sync().error
    return [*found, *violations(target), *([Violation(kind=Kind.OTHER, text=f"the re-run: {error}")] if error else [])]


def _ruled_aborted(target: Field, way: Recovery) -> list[Violation]:
    stopped = target.newest()
    error = None
    if way is Recovery.SWEEP:
        target.sweep()
    else:
        error = target.sync().error
    operation = next(each for each in target.operations() if each.id == stopped.id)
    if operation.status == "aborted" and error is None:
        return []
    return [Violation(kind=Kind.OTHER, text=f"{way} did not abort it: {operation.status} {error or ''}")]


def ratify_stopped(target: Field, point: Point, figures: Figures) -> list[Violation]:
    """A reconciler stopped half-way whose session ended: another one rules, a new write lands, and when the first goes
    on it changes nothing."""
    target.mark()
    dead = start(job_of(target.arena, target.table, named("C5 before the request")))
    dead.end()
    figures.kill()
    reconciler = _stopped_reconciler(target, point)
    if reconciler is None:
        return [Violation(kind=Kind.OTHER, text=f"ratify never came to {point}")]
    figures.faults += 2
    try:
        end_sessions_of(target.arena, reconciler.pid)
        target.sweep()
        error = target.sync().error
        after = target.newest()
    finally:
        reconciler.go_on()
    reconciler.end()
    found = violations(target)
    if error is not None:
        found.append(Violation(kind=Kind.OTHER, text=f"the write after the second reconciler failed: {error}"))
    if target.newest() != after:
        found.append(Violation(kind=Kind.OTHER, text="a reconciler that was gone changed the ledger"))
    return found


def _stopped_reconciler(target: Field, point: Point) -> Process | None:
    """Sweeps until one meets the dead writer's lock no more, and stops at its point."""
    for _ in range(20):
        reconciler = start(job_of(target.arena, None, point, send=signal.SIGSTOP))
        try:
            reconciler.await_point()
        except AssertionError:
            continue
        return reconciler
    return None


def end_sessions_of(arena: Arena, pid: int) -> None:
    """End a process's claims in the control plane, as a partition would, and wait until they are gone."""
    name = f"carbon pid {pid} on %"
    until = time.monotonic() + 10
    with arena.control() as connection:
        while True:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE %s",
                (name,),
            ).fetchall()
            if not ended:
                return
            assert time.monotonic() < until, "a session would not end"
            time.sleep(0.01)


def moved_back_behind_the_fence(target: Field, figures: Figures) -> list[Violation]:
    """Another engine moves main back from the fence to the stopped writer's very base, which is all that its request
    asserts. Iceberg's sequence numbers refuse it all the same: the fence has used the one that its snapshot has."""
    target.mark()
    assert target.sync().error is None
    target.mark()
    writer = _stopped(target, named("C5 before the request"))
    figures.faults += 3
    try:
        stopped = target.newest()
        end_sessions_of(target.arena, writer.pid)
        target.sweep()
        table = table_of(target)
        assert table is not None
        roll_back(table, stopped.base_snapshot_id)
    finally:
        writer.go_on()
    found = []
    if writer.end() == 0:
        found.append(Violation(kind=Kind.ABORTED_VISIBLE, text="it was ruled aborted and says that it published"))
    report = target.arena.deployment.ratify(SweepTrigger.LIBRARY, AT_ONCE)
    if any(operation.id == stopped.id for operation in report.late):
        found.append(Violation(kind=Kind.ABORTED_VISIBLE, text=f"operation {stopped.id} landed late"))
    found += violations(target, rerun=False)
    error = target.sync().error
    return [*found, *violations(target), *([Violation(kind=Kind.OTHER, text=f"the re-run: {error}")] if error else [])]


def inside_the_catalog(target: Field, figures: Figures, seconds: float = 75) -> list[Violation]:
    """A writer stopped inside the catalog's own transaction, its claim ended: it holds a row that a fence has to wait
    for. A sweep waits for no longer than a request may take, and leaves the operation to the next one."""
    target.mark()
    assert target.sync().error is None
    target.mark()
    writer = _stopped(target, named(IN_A_DATABASE[0]))
    figures.faults += 2
    sweep = start(job_of(target.arena, None))
    try:
        end_sessions_of(target.arena, writer.pid)
        sweep.process.join(seconds)
        hangs = sweep.process.exitcode is None
    finally:
        writer.go_on()
    writer.end()
    sweep.end()
    target.sweep()
    found = violations(target, rerun=False)
    if hangs:
        found.append(Violation(kind=Kind.OTHER, text=f"a sweep hung for {seconds:.0f} s on a row lock in the catalog"))
    return found
