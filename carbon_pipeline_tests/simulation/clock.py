"""A clock that moves when it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class ManualClock:
    """The control plane's clock, and a counter that puts everything that happens in one order."""

    def __init__(self) -> None:
        self.now = START
        self._tick = 0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def tick(self) -> int:
        """The next number; nothing has the same one."""
        self._tick += 1
        return self._tick

    @property
    def ticked(self) -> int:
        """The last number that was given out."""
        return self._tick
