"""The writers, their modes and their sinks: one row each.

The sink is the writer's ceiling: no flag raises it. A mode outside the row is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from carbon_pipeline.errors import UsageError


class Writer(StrEnum):
    """A named port that may write."""

    SYNC_FULL = "sync.full"


class Mode(StrEnum):
    """How rows meet what is already there."""

    REPLACE = "replace"


class Sink(StrEnum):
    """Where a writer's rows may go."""

    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterRule:
    """One writer's row."""

    sink: Sink
    modes: frozenset[Mode]


WRITERS: dict[Writer, WriterRule] = {
    Writer.SYNC_FULL: WriterRule(sink=Sink.ICEBERG, modes=frozenset({Mode.REPLACE})),
}


def check_mode(writer: Writer, mode: Mode) -> None:
    """Raise `UsageError` when *writer* has no such mode."""
    if mode not in WRITERS[writer].modes:
        allowed = ", ".join(sorted(WRITERS[writer].modes))
        raise UsageError(f"writer {writer} has no mode {mode}", remedy=f"Use one of: {allowed}.")
