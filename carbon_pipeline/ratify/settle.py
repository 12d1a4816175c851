"""Settle one dataset's unsettled operation under a claim: before a new write, and in a sweep."""

from __future__ import annotations

from carbon_pipeline.errors import OutcomeUnknown
from carbon_pipeline.lake.port import Lake
from carbon_pipeline.ledger.operation import Entry, Operation
from carbon_pipeline.ledger.port import Claim
from carbon_pipeline.ledger.states import Ruling
from carbon_pipeline.ratify.decide import Fence, Leave, Settle, decide, fenced, needs_evidence
from carbon_pipeline.ratify.evidence import Evidence

_ROUNDS_MAX = 4
"""A fence loses only to another commit on the table; each loss is a reason to look again."""

UNPROVED = frozenset({Ruling.NO_EVIDENCE, Ruling.TARGET_REPLACED})
"""Rulings that rest on one look alone. A fence fails on a stale read and thereby unmasks it; nothing does so here, so
these take a second look that says the same."""


def settle_unsettled(claim: Claim, lake: Lake) -> Entry | None:
    """Settle the claimed dataset's unsettled operation; none when there is none.

    Holding the claim means that the operation's writer is gone, whatever its lease says. `OutcomeUnknown` when the
    catalog gives no proof either way; the operation then stays as it is.
    """
    operation = claim.unsettled()
    return None if operation is None else settle_operation(claim, lake, operation)


def settle_operation(claim: Claim, lake: Lake, operation: Operation, seen: Evidence | None = None) -> Entry:
    """Settle this operation. *seen* is evidence that was gathered already; the catalog is asked only without it."""
    evidence, looked_twice = seen, False
    for _ in range(_ROUNDS_MAX):
        if evidence is None and needs_evidence(operation.status):
            evidence = lake.observe(operation)
        match decide(operation.status, evidence):
            case Settle(settlement=settlement) if settlement.ruling in UNPROVED and not looked_twice:
                evidence, looked_twice = None, True
            case Settle(settlement=settlement):
                return claim.settle(operation, settlement)
            case Fence(absence=absence):
                if lake.fence(operation, absence):
                    return claim.settle(operation, fenced(absence.head_snapshot_id))
                evidence = None
            case Leave(reason=reason):
                raise still_unknown(operation, reason)
    raise still_unknown(operation, "the table keeps changing while it is being fenced")


def still_unknown(operation: Operation, reason: str) -> OutcomeUnknown:
    """The error for an operation that nothing can be proved of yet."""
    return OutcomeUnknown(
        f"an earlier write of {operation.dataset.coordinate} (operation {operation.id}) is not settled yet: {reason}",
        remedy="Nothing was deleted. Run the sync again once the catalog answers; it settles that write first.",
    )
