"""The long torture: `python -m carbon_pipeline_tests.simulation --minutes 5 --seed 1`.

Every cell of the boundary sweep, seeds until the time is up, every planted bug. One line of figures for people, one of
JSON at the end; exit 1 when anything was wrong, with what repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from carbon_pipeline_tests.simulation.boundaries import cells
from carbon_pipeline_tests.simulation.boundaries import run as run_cell
from carbon_pipeline_tests.simulation.planted import BUGS, Hunt
from carbon_pipeline_tests.simulation.report import Figures
from carbon_pipeline_tests.simulation.walk import run_seed

SEEDS_LEAST = 5_000


def torture(seed: int, minutes: float, steps: int, figures: Figures, *, quick: bool) -> Iterator[str]:
    """Everything, in order: what is wrong, one line each, with what repeats it."""
    until = time.monotonic() + 60 * minutes
    for cell in cells(thorough=not quick):
        if found := run_cell(cell, figures):
            yield f"{cell}: {found[0]}"
    number = seed
    while number < seed + (0 if quick else SEEDS_LEAST) or time.monotonic() < until:
        found, taken = run_seed(number, steps, figures)
        if found:
            yield f"--replay {number} --steps {steps}: after {len(taken)} steps: {found[0]}"
        number += 1
    hunt = Hunt(cells_max=2_000, seeds_max=500, steps=30, seed=seed)
    for bug in BUGS:
        catch = hunt.find(bug)
        figures.planted += 1
        figures.planted_found += catch.is_found
        if not catch.is_found:
            yield f"planted and not found: {bug.name}"


def replay(seed: int, steps: int) -> int:
    """Take one seed's steps again, and show them."""
    found, taken = run_seed(seed, steps, Figures())
    print("\n".join([*taken, *found]))
    return 1 if found else 0


def main(arguments: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m carbon_pipeline_tests.simulation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="go on with seeds until so much time has passed")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=30, help="how long each walk is")
    parser.add_argument("--quick", action="store_true", help="the cells of `make test`, and no least number of seeds")
    parser.add_argument("--replay", type=int, metavar="SEED", help="show one seed's steps and what is wrong")
    chosen = parser.parse_args(arguments)
    if chosen.replay is not None:
        return replay(chosen.replay, chosen.steps)
    begun = time.monotonic()
    figures = Figures()
    wrong = 0
    for line in torture(chosen.seed, chosen.minutes, chosen.steps, figures, quick=chosen.quick):
        wrong += 1
        print(line, file=sys.stderr)
    print(f"{figures} | {time.monotonic() - begun:.0f} s, first seed {chosen.seed}")
    print(figures.as_json())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
