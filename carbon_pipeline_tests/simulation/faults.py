"""What can go wrong at a boundary between a process and the world, and a plan that says where it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Crossing = tuple[str, int]
"""The nth call of that name that a process makes, counted from one."""


class Killed(BaseException):
    """The process is dead. Nothing that its code still does while this travels up reaches the world."""


class Fault(StrEnum):
    """One thing that goes wrong at one crossing."""

    ERROR_BEFORE = "error before"
    """The call fails and has done nothing."""
    ERROR_AFTER = "error after"
    """It was done, and the answer is lost; on a claim the connection is lost with it, and so is the lock."""
    CUT_BEFORE = "cut before"
    """The connection is lost, and the lock with it, before anything was done. The process lives on."""
    INTERRUPT_BEFORE = "interrupt before"
    """Ctrl-C: not an `Exception`, but the process goes on unwinding and may still reach the world."""
    INTERRUPT_AFTER = "interrupt after"
    KILL_BEFORE = "kill before"
    KILL_AFTER = "kill after"
    DELAY = "delay"
    """The request times out on its way and is applied later, or never."""
    DELAY_AND_KILL = "delay and kill"
    CONFLICT_AFTER = "conflict after"
    """The request was applied, and what comes back is a conflict, as from a proxy that sent it twice."""
    CONFLICT_AND_DELAY = "conflict and delay"
    """A conflict comes back although the request is still on its way."""
    TWICE = "twice"
    """The request is applied and answered, and comes a second time later."""
    STALE = "stale"
    """A read shows the table as it was one commit ago."""
    HOLD = "hold"
    """The process stops here, as on SIGSTOP, and keeps what it holds, until it is told to go on."""


EVERYWHERE = (
    Fault.ERROR_BEFORE,
    Fault.ERROR_AFTER,
    Fault.INTERRUPT_BEFORE,
    Fault.INTERRUPT_AFTER,
    Fault.KILL_BEFORE,
    Fault.KILL_AFTER,
)
ON_A_REQUEST = (
    Fault.DELAY,
    Fault.DELAY_AND_KILL,
    Fault.CONFLICT_AFTER,
    Fault.CONFLICT_AND_DELAY,
    Fault.TWICE,
)
LANDS_LATER = frozenset({Fault.DELAY, Fault.DELAY_AND_KILL, Fault.CONFLICT_AND_DELAY, Fault.TWICE})


def faults_at(call: str) -> tuple[Fault, ...]:
    """The faults that can happen at calls of that name."""
    if call == "catalog.request":
        return EVERYWHERE + ON_A_REQUEST
    if call == "catalog.load":
        return (*EVERYWHERE, Fault.STALE)
    if call.startswith("claim."):
        return (*EVERYWHERE, Fault.CUT_BEFORE)
    return EVERYWHERE


@dataclass(slots=True)
class Plan:
    """Which fault happens at which crossing, and which of them have happened."""

    faults: Mapping[Crossing, Fault] = field(default_factory=dict)
    fired: list[tuple[Crossing, Fault]] = field(default_factory=list)

    def at(self, crossing: Crossing) -> Fault | None:
        """The fault at this crossing, which counts as having happened."""
        fault = self.faults.get(crossing)
        if fault is not None:
            self.fired.append((crossing, fault))
        return fault

    @property
    def holds(self) -> bool:
        """Whether a process with this plan may have to stop half-way."""
        return Fault.HOLD in self.faults.values()


def once(crossing: Crossing, fault: Fault) -> Plan:
    """A plan of one fault."""
    return Plan(faults={crossing: fault})
