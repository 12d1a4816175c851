"""From evidence to a ruling: one pure, total function.

The order of proof: presence wins over everything; absence counts only over an unbroken ancestry *and* with the writer
fenced; what proves neither ends as unverifiable, and an answer that never came leaves the operation as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

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
    WitnessOnly,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """End the operation so."""

    settlement: Settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Commit a fence on this head first; then the operation may be aborted."""

    head_snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Nothing is proved: leave the operation as it is."""

    reason: str


Action = Settle | Fence | Leave


def abort_open() -> Settlement:
    """An operation that is still `open` has sent nothing: the compare-and-set that aborts it is the proof."""
    return Settlement(ruling=Ruling.NEVER_LANDED, reason="its writer is gone and had sent no request")


def decide(status: OperationStatus, evidence: Evidence | None) -> Action:
    """The next step for an unsettled operation whose writer is gone.

    *evidence* is what the catalog shows; it is not asked for while the operation is `open`.
    """
    if status is OperationStatus.OPEN:
        return Settle(settlement=abort_open())
    if status is not OperationStatus.COMMITTING or evidence is None:
        raise ValueError(f"a {status} operation with evidence {evidence} has nothing to decide")
    return _from_evidence(evidence)


def _from_evidence(evidence: Evidence) -> Action:
    match evidence:
        case Unreachable(reason=reason):
            action: Action = Leave(reason=reason)
        case TargetReplaced(reason=reason):
            action = _settle(Ruling.TARGET_REPLACED, reason)
        case OnMain(facts=facts):
            action = _settle(Ruling.LANDED, "its snapshot is in main's ancestry", facts)
        case OffMain():
            action = _settle(Ruling.ROLLED_BACK, "its snapshot exists, but main was moved back behind it")
        case WitnessOnly(witness=witness):
            action = _settle(Ruling.EVIDENCE_EXPIRED, witness)
        case Absent(head_snapshot_id=head):
            action = Fence(head_snapshot_id=head)
        case Broken(reason=reason):
            action = _settle(Ruling.NO_EVIDENCE, reason)
        case _:
            assert_never(evidence)
    return action


def _settle(ruling: Ruling, reason: str, facts: SnapshotFacts | None = None) -> Settle:
    return Settle(settlement=Settlement(ruling=ruling, reason=reason, facts=facts))
