"""A process of the simulation: it crosses boundaries, meets its faults there, and can be held or killed.

A process that may be held runs in a thread of its own, but only one thread ever runs: whoever starts or resumes a
process waits until it ends or is held again. So every run is deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Semaphore, Thread
from typing import TypeVar

from carbon_pipeline_tests.simulation.faults import Crossing, Fault, Killed, Plan

T = TypeVar("T")


def _nothing() -> None:
    """Nothing is lost with this connection."""


class Process:
    """One process, its plan of faults, and what became of its job."""

    def __init__(self, name: str, tenant: str | None, plan: Plan | None = None) -> None:
        """*tenant* is whose data it may touch; none for a sweep, which serves all."""
        self.name = name
        self.tenant = tenant
        self.plan = plan or Plan()
        self.is_alive = True
        self.is_held = False
        self.is_done = False
        self.result: object = None
        self.error: BaseException | None = None
        self.crossings: list[Crossing] = []
        self.at_death: Callable[[], None] = _nothing
        self.started_at = 0
        self._counts: Counter[str] = Counter()
        self._go, self._back = Semaphore(0), Semaphore(0)

    def cross(
        self,
        call: str,
        act: Callable[[], T],
        failure: Callable[[], BaseException],
        lose: Callable[[], None] = _nothing,
    ) -> T:
        """Do *act* on the world, unless the plan says otherwise. *lose* is what goes with the connection."""
        fault = self.arrive(call, failure, lose)
        result = act()
        self.leave(fault, failure, lose)
        return result

    def arrive(
        self, call: str, failure: Callable[[], BaseException], lose: Callable[[], None] = _nothing
    ) -> Fault | None:
        """The first half of a crossing: what happens before anything is done."""
        self._refuse_when_dead()
        self._counts[call] += 1
        crossing = (call, self._counts[call])
        self.crossings.append(crossing)
        fault = self.plan.at(crossing)
        match fault:
            case Fault.HOLD:
                self._hold()
            case Fault.ERROR_BEFORE:
                raise failure()
            case Fault.CUT_BEFORE:
                lose()
                raise failure()
            case Fault.INTERRUPT_BEFORE:
                raise KeyboardInterrupt
            case Fault.KILL_BEFORE:
                self.die()
        return fault

    def leave(
        self, fault: Fault | None, failure: Callable[[], BaseException], lose: Callable[[], None] = _nothing
    ) -> None:
        """The second half: what happens after it is done."""
        match fault:
            case Fault.ERROR_AFTER:
                lose()
                raise failure()
            case Fault.INTERRUPT_AFTER:
                raise KeyboardInterrupt
            case Fault.KILL_AFTER:
                self.die()

    def die(self) -> None:
        """Die here and now."""
        self.is_alive = False
        self.at_death()
        raise Killed

    def run(self, job: Callable[[], object]) -> Process:
        """Do *job* until it ends or is held."""
        if self.plan.holds:
            Thread(target=self._in_a_thread, args=(job,), daemon=True).start()
            self._back.acquire()
        else:
            self._work(job)
        self._raise_mistake()
        return self

    def resume(self) -> None:
        """Go on after a hold, until the job ends or is held again."""
        assert self.is_held
        self._go.release()
        self._back.acquire()
        self._raise_mistake()

    def kill(self) -> None:
        """End it from outside, held or not; what it has on its stack unwinds without effect."""
        if self.is_done:
            return
        self.is_alive = False
        self.at_death()
        if self.is_held:
            self.resume()

    def _in_a_thread(self, job: Callable[[], object]) -> None:
        self._work(job)
        self._back.release()

    def _work(self, job: Callable[[], object]) -> None:
        try:
            self.result = job()
        except BaseException as error:
            self.error = error
        self.is_done = True

    def _raise_mistake(self) -> None:
        """What is no simulated fault is a mistake, of the harness or of what it tests."""
        if isinstance(self.error, AssertionError | TypeError | AttributeError | NameError):
            raise self.error

    def _hold(self) -> None:
        self.is_held = True
        self._back.release()
        self._go.acquire()
        self.is_held = False
        self._refuse_when_dead()

    def _refuse_when_dead(self) -> None:
        if not self.is_alive:
            raise Killed
