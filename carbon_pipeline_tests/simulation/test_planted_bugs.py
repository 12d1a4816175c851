"""The torture is held to its own purpose: every mistake that is planted has to turn it red."""

from __future__ import annotations

from typing import Any

import pytest

from carbon_pipeline_tests.simulation.planted import BUGS, Bug, Hunt, planted
from carbon_pipeline_tests.simulation.report import Figures
from carbon_pipeline_tests.simulation.walk import run_seed


@pytest.fixture(scope="module")
def hunt() -> Hunt:
    """One order of cells and seeds for all of them."""
    return Hunt(cells_max=800, seeds_max=200, steps=30)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(hunt: Hunt, bug: Bug) -> None:
    """Somewhere among the cells and the seeds it is seen."""
    catch = hunt.find(bug)
    assert catch.is_found, f"{bug.name}: nothing of it was seen in {hunt.runs} runs"
    print(f"{bug.name} | {catch.where} | {catch.said}")


def test_there_are_enough_of_them() -> None:
    """At least a dozen, each with a name of its own."""
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12


def test_a_planted_bug_is_taken_out_again() -> None:
    """After a hunt the code is what it was, whatever happened in it."""
    before = [(owner, name, _value(owner, name)) for bug in BUGS for owner, name, _ in bug.patches]
    for bug in BUGS:
        with pytest.raises(RuntimeError), planted(bug):
            raise RuntimeError(bug.name)
    assert [(owner, name, _value(owner, name)) for bug in BUGS for owner, name, _ in bug.patches] == before
    assert run_seed(1, 30, Figures())[0] == []


def _value(owner: object, name: Any) -> object:
    return owner[name] if isinstance(owner, dict) else vars(owner)[name]
