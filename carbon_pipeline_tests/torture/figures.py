"""What torture counts, what it found, and how long it may go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from carbon_pipeline_tests.torture.invariants import Kind, Violation


@dataclass(slots=True)
class Figures:
    """Counts of one run. Every kill is a fault as well."""

    kills: int = 0
    faults: int = 0
    seeds: int = 0
    operations: int = 0
    planted_found: int = 0
    planted: int = 0
    found: list[str] = field(default_factory=list)
    counted: Counter[Kind] = field(default_factory=Counter)

    def kill(self) -> None:
        """A process was killed."""
        self.kills += 1
        self.faults += 1

    def note(self, where: str, violations: Iterable[Violation]) -> None:
        """Put on record what a round found, and say it at once."""
        for violation in violations:
            self.counted[violation.kind] += 1
            self.found.append(f"{where}: {violation}")
            print(f"VIOLATION {where}: {violation}", flush=True)

    @property
    def is_clean(self) -> bool:
        """Nothing is wrong, and every planted bug was seen."""
        return not self.found and self.planted_found == self.planted

    def __str__(self) -> str:
        wrong = " ".join(
            f"{kind}={self.counted[kind]}" for kind in Kind if kind is not Kind.OTHER or self.counted[kind]
        )
        return (
            f"kills={self.kills} faults={self.faults} seeds={self.seeds} operations={self.operations}"
            f" | {wrong} | planted bugs found {self.planted_found} of {self.planted}"
        )


class Deadline:
    """A moment after which nothing new begins."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then."""
        return max(0.0, self._until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return self.left == 0

    def share(self, part: float) -> Deadline:
        """One that takes this part of what is left."""
        return Deadline(self.left * part)
