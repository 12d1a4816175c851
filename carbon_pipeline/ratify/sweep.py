"""The sweep: every unsettled operation of a control plane, observed, decided and settled; bounded and safe to repeat.

First all of it is looked at, then anything is done: whoever misreads where the tables are sees them all without a trace
of their operations, and a count of aborts over the limit is how that shows. Over the limit none is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from carbon_pipeline.errors import CarbonError, DatasetHeld, LedgerConflict
from carbon_pipeline.gate.verdict import Actor
from carbon_pipeline.lake.port import Lake
from carbon_pipeline.ledger.operation import Entry, Operation, Unsettled
from carbon_pipeline.ledger.port import Ledger
from carbon_pipeline.ledger.states import RULINGS, OperationStatus, Ruling
from carbon_pipeline.ratify.decide import Fence, Leave, Settle, Standing, decide, may_be_swept, needs_evidence
from carbon_pipeline.ratify.evidence import Evidence, OffMain, OnMain
from carbon_pipeline.ratify.settle import settle_operation

MIN_AGE_SECONDS = 300.0
ABORTS_MAX = 20
CASES_MAX = 20_000
WATCH_HOURS = 24.0
RATIFY_DEADLINE_SECONDS = 900.0
"""Somebody must have swept, or looked and found nothing to do, within these last seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a sweep may do."""

    min_age_seconds: float = MIN_AGE_SECONDS
    aborts_max: int = ABORTS_MAX
    cases_max: int = CASES_MAX
    watch_hours: float = WATCH_HOURS
    dry_run: bool = False


class Verdict(StrEnum):
    """What a sweep did about one operation."""

    SETTLED = "settled"
    WOULD_SETTLE = "would settle"
    LEFT = "left"
    HELD_BACK = "held back"
    """It would be aborted, but too many would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operation in a sweep."""

    operation: Operation
    verdict: Verdict
    ruling: Ruling | None
    reason: str
    entry: Entry | None = None
    waits: bool = False
    """It is not due: too young, or its lease lives."""
    stuck: bool = False
    """It is due, and could not be settled, because whoever has to be asked gave no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a sweep saw and did."""

    cases: tuple[Case, ...]
    late: tuple[Operation, ...]
    """Operations that were aborted and are in the lake all the same: never re-ruled, to be rolled back by a person."""
    alarm: str | None
    dry_run: bool

    @property
    def is_alarming(self) -> bool:
        """Whether a person has to look."""
        return self.alarm is not None or bool(self.late)

    @property
    def stuck(self) -> tuple[Case, ...]:
        """What is due and could not be settled."""
        return tuple(case for case in self.cases if case.stuck)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    operation: Operation
    evidence: Evidence | None
    action: Settle | Fence | Leave
    waits: bool = False

    @property
    def ruling(self) -> Ruling | None:
        match self.action:
            case Settle(settlement=settlement):
                return settlement.ruling
            case Fence():
                return Ruling.FENCED
            case Leave():
                return None

    @property
    def aborts(self) -> bool:
        return self.ruling is not None and RULINGS[self.ruling].status is OperationStatus.ABORTED


def sweep(ledger: Ledger, lake: Lake, actor: Actor, terms: Terms) -> SweepReport:
    """Settle what can be settled. Running it twice, or two at once, changes nothing more.

    A dry run shares everything up to the last write.
    """
    plans = [_plan(lake, found, terms) for found in ledger.unsettled(terms.cases_max)]
    aborts = sum(plan.aborts for plan in plans)
    alarm = None
    if aborts > terms.aborts_max:
        alarm = f"aborting {aborts} of them is over the limit of {terms.aborts_max}: none was aborted"
    cases = tuple(_act(ledger, lake, actor, plan, terms, hold_aborts=alarm is not None) for plan in plans)
    late = tuple(late_landings(lake, ledger.watched(terms.watch_hours)))
    return SweepReport(cases=cases, late=late, alarm=alarm, dry_run=terms.dry_run)


def late_landings(lake: Lake, aborted: Iterable[Operation]) -> Iterable[Operation]:
    """The aborted operations that the lake shows all the same, which a fence should make impossible."""
    return (operation for operation in aborted if isinstance(lake.observe(operation), OnMain | OffMain))


def _plan(lake: Lake, found: Unsettled, terms: Terms) -> _Plan:
    operation = found.operation
    standing = Standing(status=operation.status, age_seconds=found.age_seconds, lease_is_live=found.lease_is_live)
    waiting = may_be_swept(standing, terms.min_age_seconds)
    if waiting is not None:
        return _Plan(operation=operation, evidence=None, action=waiting, waits=True)
    evidence = lake.observe(operation) if needs_evidence(operation.status) else None
    return _Plan(operation=operation, evidence=evidence, action=decide(operation.status, evidence))


def _act(ledger: Ledger, lake: Lake, actor: Actor, plan: _Plan, terms: Terms, *, hold_aborts: bool) -> Case:
    case = Case(operation=plan.operation, verdict=Verdict.LEFT, ruling=plan.ruling, reason=_reason(plan))
    if isinstance(plan.action, Leave):
        return replace(case, waits=plan.waits, stuck=not plan.waits)
    if plan.aborts and hold_aborts:
        return replace(case, verdict=Verdict.HELD_BACK)
    if terms.dry_run:
        return replace(case, verdict=Verdict.WOULD_SETTLE)
    try:
        entry = _settle(ledger, lake, actor, plan)
    except CarbonError as error:
        others = isinstance(error, DatasetHeld | LedgerConflict)  # somebody else is at it
        return replace(case, ruling=None, reason=error.message, stuck=not others)
    if entry is None:
        return replace(case, ruling=None, reason="somebody else settled it meanwhile")
    return replace(case, verdict=Verdict.SETTLED, ruling=entry.ruling, entry=entry)


def _settle(ledger: Ledger, lake: Lake, actor: Actor, plan: _Plan) -> Entry | None:
    """Under the claim the row is read again: what was seen holds for the very same state of it only."""
    with ledger.claim(plan.operation.dataset, actor, wait_seconds=0) as claim:
        now = claim.unsettled()
        if now is None or now.id != plan.operation.id:
            return None
        seen = plan.evidence if now.status is plan.operation.status else None
        return settle_operation(claim, lake, now, seen)


def _reason(plan: _Plan) -> str:
    match plan.action:
        case Settle(settlement=settlement):
            return settlement.reason
        case Fence():
            return "absent from main's unbroken ancestry; to be fenced"
        case Leave(reason=reason):
            return reason
