"""The whole torture: `python -m carbon_pipeline_tests.torture --minutes 45 --seed 1`.

Two halves at once: the fast one on in-memory twins in a process of its own, this one on real parts. It ends with one
line of figures; exit 1 when anything was wrong or, at the default duration, when less was done than was promised.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_running, stop
from carbon_pipeline_tests.torture import away, fast_half, hunts, kill_matrix, many, soak, stopped, walks
from carbon_pipeline_tests.torture.figures import Deadline, Figures
from carbon_pipeline_tests.torture.ground import Arena
from carbon_pipeline_tests.torture.invariants import secrets_in

MINUTES = 45
PROMISED = {"kills": 300, "faults": 1_500, "seeds": 5_000}
REAL_FAULTS, REAL_SEEDS, DATASETS, ROUNDS, KILLS, CUTS = 300, 200, 10_000, 25, 260, 160
SOAK_SECONDS = 10


@dataclass(slots=True, kw_only=True)
class Torture:
    """One run of this half."""

    home: Path
    control_home: Path
    server: EmbeddedServer
    seed: int
    minutes: float
    figures: Figures
    deadline: Deadline
    arenas: list[Arena] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    @property
    def scale(self) -> float:
        """How much of the default's work fits."""
        return min(1.0, self.minutes / MINUTES)

    def arena(self, control_server: EmbeddedServer | None = None) -> Arena:
        """A new arena, looked through for secrets at the end."""
        self.arenas.append(Arena(self.home, self.server, control_server=control_server))
        return self.arenas[-1]

    def chance(self, part: str) -> random.Random:
        """The part's own dice: it can be repeated without the others."""
        return random.Random(f"{self.seed} {part}")

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"[{time.monotonic() - self.begun:5.0f} s] {text} · {self.figures}", flush=True)

    def run(self) -> None:
        """Every part, each with its share of the time; the soak takes the rest."""
        for part in (self._hunts, self._many, self._stops, self._kills, self._cuts, self._restarts, self._walks):
            self.say(f"{part.__name__.removeprefix('_')}: {part()}")
        self.say(f"soak: {self._soak()}")
        for arena in self.arenas:
            self.figures.note("secrets", secrets_in(arena))
            self.figures.operations += arena.count_operations()
            arena.close()

    def _hunts(self) -> str:
        missed = hunts.run(self.arena(), self.figures)
        self.arenas.pop().close()  # spoiled on purpose: neither its operations nor its files count
        return f"planted bugs that nobody saw: {', '.join(missed) or 'none'}"

    def _many(self) -> str:
        count = max(many.CAP * 5, round(DATASETS * self.scale))
        seconds = many.run(self.arena(), self.figures, count=count)
        return f"{count} unsettled operations in one cycle of {seconds:.0f} s, one load of each table"

    def _stops(self) -> str:
        arena, deadline = self.arena(), self.deadline.share(0.3)
        refused, rounds = stopped.run(arena, self.chance("stops"), self.figures, rounds=ROUNDS, deadline=deadline)
        target = arena.field()
        self.figures.note("moved back behind the fence", stopped.moved_back_behind_the_fence(target, self.figures))
        self.figures.note("stopped inside the catalog", stopped.inside_the_catalog(arena.field(), self.figures))
        return f"writers ruled aborted while stopped, and refused: {refused} of {rounds}"

    def _kills(self) -> str:
        before = self.figures.kills
        kills = max(4, round(KILLS * self.scale))
        dice, deadline = self.chance("kills"), self.deadline.share(0.4)
        kill_matrix.run(self.arena(), dice, self.figures, kills=kills, deadline=deadline)
        return f"kills at named points: {self.figures.kills - before}"

    def _cuts(self) -> str:
        before = self.figures.faults
        cuts = max(8, round(CUTS * self.scale))
        dice, deadline = self.chance("cuts"), self.deadline.share(0.4)
        away.run(self.arena(), dice, self.figures, cuts=cuts, deadline=deadline)
        return f"connections cut at a statement: {self.figures.faults - before}"

    def _restarts(self) -> str:
        before = self.figures.faults
        points = away.RESTARTS if self.scale > 0.3 else away.RESTARTS[::3]
        arena = self.arena(ensure_running(self.control_home))
        away.run_restarts(arena, self.control_home, self.figures, points=points, deadline=self.deadline.share(0.3))
        return f"restarts of the control plane: {self.figures.faults - before}"

    def _walks(self) -> str:
        count = max(4, round(REAL_SEEDS * self.scale))
        seeds = self.figures.seeds
        walks.run(self.arena(), self.seed * 10_000, self.figures, walks=count, deadline=self.deadline.share(0.7))
        return f"seeds on the real catalog: {self.figures.seeds - seeds}"

    def _soak(self) -> str:
        done = soak.run(self.arena(), self.seed, self.figures, seconds=max(SOAK_SECONDS, self.deadline.left - 30))
        return ", ".join(f"{times} x {deed}" for deed, times in done.most_common())


@contextmanager
def _home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="carbon-torture-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


def torture(seed: int, minutes: float, figures: Figures) -> None:
    """Both halves."""
    deadline = Deadline(60 * minutes)
    with _home() as home, _home() as control_home:
        fast = fast_half.begin(home, minutes=minutes / 2, seed=seed, quick=minutes < 10)
        try:
            run = Torture(
                home=home, control_home=control_home, server=ensure_running(home), seed=seed, minutes=minutes,
                figures=figures, deadline=deadline,
            )  # fmt: skip
            run.run()
            if fast is None:
                run.say("there is no fast half")
            else:
                faults, seeds = figures.faults, figures.seeds
                said = fast.add_to(figures, deadline.left + 60 * minutes)
                run.say(f"on real parts: {faults} faults, {seeds} seeds; the fast half: {said}")
                if minutes >= MINUTES:
                    _promised(figures, faults, seeds)
        finally:
            if fast is not None:
                fast.stop()


def _promised(figures: Figures, real_faults: int, real_seeds: int) -> None:
    """At the default duration less than was promised counts as found wrong."""
    reached = {"kills": figures.kills, "faults": figures.faults, "seeds": figures.seeds}
    short = [f"{name} {reached[name]} of {least}" for name, least in PROMISED.items() if reached[name] < least]
    short += [f"real faults {real_faults} of {REAL_FAULTS}"] if real_faults < REAL_FAULTS else []
    short += [f"real seeds {real_seeds} of {REAL_SEEDS}"] if real_seeds < REAL_SEEDS else []
    figures.found += [f"less than promised: {text}" for text in short]


def main(arguments: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m carbon_pipeline_tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("TORTURE_MINUTES", MINUTES)))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(100_000))
    chosen = parser.parse_args(arguments)
    for name in [name for name in os.environ if name.startswith(("PG", "CARBON_", "DAGSTER_", "PYICEBERG_"))]:
        del os.environ[name]
    print(f"seed {chosen.seed}, {chosen.minutes:g} minutes", flush=True)
    figures = Figures()
    torture(chosen.seed, chosen.minutes, figures)
    for line in figures.found:
        print(f"WRONG {line}")
    if not figures.is_clean:
        print(f"again: python -m carbon_pipeline_tests.torture --minutes {chosen.minutes:g} --seed {chosen.seed}")
    print(figures)
    return 0 if figures.is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
