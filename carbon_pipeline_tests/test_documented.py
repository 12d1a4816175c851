"""The README keeps to the program."""

from __future__ import annotations

import re
from pathlib import Path

from carbon_pipeline.ledger.states import TRANSITIONS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_diagram_is_the_transition_table() -> None:
    """The state diagram shows every legal transition and no other."""
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)", README, flags=re.MULTILINE))
    assert drawn == {(source.value, target.value) for source, targets in TRANSITIONS.items() for target in targets}


def test_every_setting_is_explained() -> None:
    """Each variable that the program reads for its settings is in the README's table."""
    read = set(re.findall(r"\"(CARBON_[A-Z_]+)\"", (ROOT / "carbon_pipeline" / "settings.py").read_text()))
    assert read - {"CARBON_DEBUG"} <= set(re.findall(r"`(CARBON_[A-Z_]+)`", README))


def test_every_command_is_in_make() -> None:
    """The make targets that the README names exist."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)`", README)) <= targets
