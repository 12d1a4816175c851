"""A terminal like most people's, whatever the tests are run from."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a terminal can do is read from TERM, and colour from NO_COLOR."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
