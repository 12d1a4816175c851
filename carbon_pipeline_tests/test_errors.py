"""The error tree, its policy table and its drawing."""

from __future__ import annotations

import re

from carbon_pipeline import errors
from carbon_pipeline.errors import POLICY, CarbonError


def tree(root: type[CarbonError]) -> set[type[CarbonError]]:
    """A class and everything below it."""
    return {root}.union(*(tree(child) for child in root.__subclasses__()))


def test_every_kind_has_a_reaction() -> None:
    """An unattended caller knows what to do with every error but the root, which nobody raises."""
    assert set(POLICY) == tree(CarbonError) - {CarbonError}


def test_the_drawing_shows_the_tree() -> None:
    """The module's docstring names exactly the classes that exist."""
    drawn = set(re.findall(r"(?:├──|└──) (\w+)", errors.__doc__ or ""))
    assert drawn == {kind.__name__ for kind in tree(CarbonError)} - {"CarbonError"}


def test_every_kind_has_a_remedy() -> None:
    """An error without a remedy of its own has that of its kind."""
    assert all(kind("something").remedy for kind in tree(CarbonError))
    assert CarbonError("something", remedy="do this").remedy == "do this"
