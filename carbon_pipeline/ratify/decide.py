"""From observations to a ruling: one pure, total function.

The order of proof: presence wins over everything; absence counts only over an unbroken ancestry *and* with the writer
fenced; what proves neither ends as unverifiable; an answer that never came leaves the operation as it is. A sweep
leaves alone what is young or whose lease lives. Whoever holds the dataset's claim need not: its writer is gone,
whatever the lease says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.ledger.operation import Settlement
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.ratify.evidence import (
    Absent,
    Broken,
    Evidence,
    OffMain,
    OnMain,
    TargetReplaced,
    Unreachable,
    Witness,
    WitnessOnly,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An unsettled operation as the ledger shows it, by the control plane's clock."""

    status: OperationStatus
    age_seconds: float
    lease_is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """End the operation so."""

    settlement: Settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Commit a fence on this evidence first; then the operation may be aborted."""

    absence: Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Nothing is proved, or it is not time yet: leave the operation as it is."""

    reason: str


Action = Settle | Fence | Leave


def may_be_swept(standing: Standing, min_age_seconds: float) -> Leave | None:
    """Why a sweep must leave an operation alone; none when it need not."""
    if standing.lease_is_live:
        return Leave(reason="its writer's lease is live")
    if standing.age_seconds < min_age_seconds:
        return Leave(reason=f"it is {standing.age_seconds:.0f} s old, younger than {min_age_seconds:.0f} s")
    return None


def needs_evidence(status: OperationStatus) -> bool:
    """Whether the catalog has to be asked. An `open` operation has sent nothing: aborting it is the proof."""
    return status is OperationStatus.COMMITTING


def decide(status: OperationStatus, evidence: Evidence | None) -> Action:
    """The next step for an unsettled operation whose writer is taken for gone.

    *evidence* is what the catalog showed; none where it was not asked.
    """
    if status is OperationStatus.OPEN:
        return _settle(Ruling.NEVER_LANDED, "its writer is gone and had sent no request")
    if status is not OperationStatus.COMMITTING:
        return Leave(reason=f"it is {status} already")
    if evidence is None:
        return Leave(reason="the catalog was not asked")
    return _from_evidence(evidence)


def _from_evidence(evidence: Evidence) -> Action:
    match evidence:
        case Unreachable(reason=reason):
            action: Action = Leave(reason=reason)
        case TargetReplaced(reason=reason):
            action = _settle(Ruling.TARGET_REPLACED, reason)
        case OnMain(facts=facts):
            action = _settle(Ruling.LANDED, "its snapshot is in main's ancestry", facts)
        case OffMain(shown_operation_id=shown):
            reason = "its snapshot exists, but main was moved back behind it"
            action = _settle(Ruling.ROLLED_BACK, reason, shown=shown)
        case WitnessOnly(witnesses=witnesses):
            action = _from_witnesses(witnesses)
        case Absent():
            action = Fence(absence=evidence)
        case Broken(reason=reason):
            action = _settle(Ruling.NO_EVIDENCE, reason)
        case _:
            assert_never(evidence)
    return action


def _from_witnesses(witnesses: frozenset[Witness]) -> Settle:
    said = "; ".join(sorted(witnesses))
    if witnesses <= {Witness.WATERMARK}:
        return _settle(Ruling.NO_EVIDENCE, f"its snapshot is gone, and nothing but this speaks for it: {said or '-'}")
    return _settle(Ruling.EVIDENCE_EXPIRED, f"its snapshot has expired; {said}")


def fenced(head_snapshot_id: int | None) -> Settlement:
    """The settlement after a fence on this head."""
    seen = "an empty table" if head_snapshot_id is None else f"snapshot {head_snapshot_id}"
    return Settlement(
        ruling=Ruling.FENCED, reason=f"absent from main's unbroken ancestry as of {seen}, and fenced on top of it"
    )


def _settle(
    ruling: Ruling, reason: str, facts: SnapshotFacts | None = None, shown: OperationId | None = None
) -> Settle:
    return Settle(settlement=Settlement(ruling=ruling, reason=reason, facts=facts, shown_operation_id=shown))
