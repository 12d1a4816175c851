"""Syncs and sweeps in processes of their own, with a moment at which they die or stop."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import get_ident

from carbon_pipeline.control_plane.records import SweepTrigger
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.lake.iceberg import files
from carbon_pipeline_tests.torture import planted_bugs
from carbon_pipeline_tests.torture.ground import AT_ONCE, Arena, Ground
from carbon_pipeline_tests.torture.points import Point, named, planted

STARTS_SECONDS = 60
"""Within this every process is at its point, or at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process is to do, and what becomes of it."""

    ground: Ground
    output: str
    """What it prints goes there; a file beside it marks that it reached its point."""
    table: str | None
    """What to sync; none for a sweep."""
    credential: str
    point: str | None = None
    signal: int = signal.SIGKILL
    bug: str | None = None

    @property
    def marker(self) -> Path:
        """Is there once the point was reached."""
        return Path(f"{self.output}.reached")


def _reached(job: Job) -> None:
    """To this very thread: what is sent to a process may be taken by another thread while this one goes on a step."""
    job.marker.touch()
    signal.pthread_kill(get_ident(), job.signal)


@contextmanager
def printing_to(path: str) -> Iterator[None]:
    """Everything that this process prints goes to that file."""
    with Path(path).open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        yield
        sys.stdout.flush()
        sys.stderr.flush()


def _sync(job: Job) -> int:
    deployment = job.ground.deployment()
    failed = 0
    for result in deployment.sync(deployment.directory.credential(job.credential), (job.table or "",)):
        failed += result.error is not None
        print(f"{result.relation.qualified_name}: {result.error or 'published'}", flush=True)
        if result.error is not None:
            print(f"kind {result.error.kind}", flush=True)
    return failed


def _sweep(job: Job) -> int:
    report = job.ground.deployment().ratify(SweepTrigger.LIBRARY, AT_ONCE)
    for case in report.cases:
        print(f"{case.operation.id}: {case.verdict} {case.ruling} {case.reason}", flush=True)
    return int(report.is_alarming)


def small_files() -> None:
    """Several data files of a few rows each, in this process."""
    files.ROW_GROUP_ROWS_MAX = 200
    files.FILE_ROWS_MAX = 200


def run(job: Job) -> None:
    """Do the job; exit 1 when it fails."""
    small_files()
    with printing_to(job.output), ExitStack() as stack:
        if job.bug is not None:
            stack.enter_context(planted_bugs.planted(job.bug))
        if job.point is not None:
            stack.enter_context(planted(named(job.point), lambda: _reached(job)))
        try:
            failed = _sync(job) if job.table is not None else _sweep(job)
        except CarbonError as error:
            print(f"stopped: {error}\nkind {error.kind}", flush=True)
            failed = 1
    raise SystemExit(1 if failed else 0)


def forked(target: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """A process that was forked with its imports done, and has begun."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def start(job: Job) -> Process:
    """The job, begun in a process of its own."""
    return Process(job=job, process=forked(run, job))


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A job under way."""

    job: Job
    process: ForkServerProcess

    @property
    def pid(self) -> int:
        """Its process."""
        assert self.process.pid is not None
        return self.process.pid

    def end(self, seconds: float = STARTS_SECONDS) -> int:
        """Its exit code, once it has ended. It is killed when it does not."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.kill()
            raise AssertionError(f"{self.job} did not end within {seconds} s: {self.printed}")
        return self.process.exitcode

    def kill(self) -> None:
        """Kill it now, whatever it does."""
        self.process.kill()
        self.process.join()

    def go_on(self) -> None:
        """Wake it after it stopped itself."""
        os.kill(self.pid, signal.SIGCONT)

    def await_point(self, seconds: float = STARTS_SECONDS) -> None:
        """Wait until it is stopped at its point; fail when it ends without."""
        until = time.monotonic() + seconds
        while not (self.job.marker.exists() and _is_stopped(self.pid)):
            if self.process.exitcode is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"never stopped at {self.job.point}: {self.printed}")
            time.sleep(0.005)

    @property
    def printed(self) -> str:
        """What it said."""
        output = Path(self.job.output)
        return output.read_text(errors="replace") if output.exists() else ""


def _is_stopped(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    if not status.exists():  # no /proc on this system: the marker has to do
        time.sleep(0.05)
        return True
    return status.read_text().rpartition(")")[2].split()[0] in {"T", "t"}


def job_of(
    arena: Arena,
    table: str | None,
    point: Point | None = None,
    *,
    send: int = signal.SIGKILL,
    ground: Ground | None = None,
    bug: str | None = None,
) -> Job:
    """A job on this arena."""
    return Job(
        ground=ground or arena.ground,
        output=str(arena.new_output()),
        table=table,
        credential=arena.credential.name,
        point=None if point is None else point.name,
        signal=send,
        bug=bug,
    )
