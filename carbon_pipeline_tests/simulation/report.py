"""What a torture has done and found, as figures that can be added up and printed on one line."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field

from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline_tests.simulation.faults import LANDS_LATER, Fault
from carbon_pipeline_tests.simulation.invariants import orphans, violations
from carbon_pipeline_tests.simulation.world import World

_KILLS = frozenset({Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.DELAY_AND_KILL})


@dataclass(slots=True)
class Figures:
    """Counts over any number of runs."""

    runs: int = 0
    seeds: int = 0
    processes: int = 0
    operations: int = 0
    committed: int = 0
    aborted: int = 0
    unverifiable: int = 0
    faults: int = 0
    kills: int = 0
    late_requests: int = 0
    orphans_most: int = 0
    lost: int = 0
    duplicated: int = 0
    aborted_visible: int = 0
    open_for_ever: int = 0
    other_violations: int = 0
    planted: int = 0
    planted_found: int = 0
    by_fault: dict[str, int] = field(default_factory=dict)

    def add(self, world: World, found: list[str]) -> None:
        """One run is over."""
        self.runs += 1
        self.processes += len(world.processes)
        fired = [fault for process in world.processes for _, fault in process.plan.fired]
        self.faults += len(fired)
        self.kills += sum(fault in _KILLS for fault in fired)
        self.late_requests += sum(fault in LANDS_LATER for fault in fired)
        for fault in fired:
            self.by_fault[fault] = self.by_fault.get(fault, 0) + 1
        statuses = Counter(row.status for row in world.plane.operations.values())
        self.operations += statuses.total()
        self.committed += statuses[OperationStatus.COMMITTED]
        self.aborted += statuses[OperationStatus.ABORTED]
        self.unverifiable += statuses[OperationStatus.UNVERIFIABLE]
        self.orphans_most = max(self.orphans_most, len(orphans(world)))
        for line in found:
            self._count(line)

    def _count(self, line: str) -> None:
        if "nothing landed" in line or line.startswith("1:"):
            self.lost += 1
        elif "times" in line or line.startswith("2:"):
            self.duplicated += 1
        elif "was aborted" in line:
            self.aborted_visible += 1
        elif line.startswith("7:"):
            self.open_for_ever += 1
        else:
            self.other_violations += 1

    @property
    def violations(self) -> int:
        """Everything that should be nought."""
        return self.lost + self.duplicated + self.aborted_visible + self.open_for_ever + self.other_violations

    def as_json(self) -> str:
        """All of it on one line."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return (
            f"runs={self.runs} seeds={self.seeds} kills={self.kills} faults={self.faults} ops={self.operations} | "
            f"lost={self.lost} duplicated={self.duplicated} aborted-visible={self.aborted_visible} "
            f"open-for-ever={self.open_for_ever} other={self.other_violations} | "
            f"planted bugs found {self.planted_found} of {self.planted}"
        )


def first_violation(world: World) -> str | None:
    """The first thing that is wrong now."""
    return next(iter(violations(world)), None)
