"""Settle one dataset's unsettled operation, before a new write or in a sweep."""

from __future__ import annotations

from carbon_pipeline.errors import OutcomeUnknown
from carbon_pipeline.lake.port import Lake
from carbon_pipeline.ledger.operation import Entry, Operation, Settlement
from carbon_pipeline.ledger.port import Claim
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.ratify.decide import Fence, Leave, Settle, decide

_FENCE_ATTEMPTS_MAX = 3
"""A fence loses only to another commit on the table; each loss is a reason to look again."""


def settle_unsettled(claim: Claim, lake: Lake) -> Entry | None:
    """Settle the claimed dataset's unsettled operation; none when there is none.

    Holding the claim means that the operation's writer is gone, whatever its lease says. `OutcomeUnknown` when the
    catalog gives no proof either way; the operation then stays as it is.
    """
    operation = claim.unsettled()
    if operation is None:
        return None
    for _ in range(_FENCE_ATTEMPTS_MAX):
        evidence = None if operation.status is OperationStatus.OPEN else lake.observe(operation)
        match decide(operation.status, evidence):
            case Settle(settlement=settlement):
                return claim.settle(operation, settlement)
            case Fence(head_snapshot_id=head):
                if lake.fence(operation, head):
                    return claim.settle(operation, _fenced(head))
            case Leave(reason=reason):
                raise _still_unknown(operation, reason)
    raise _still_unknown(operation, "the table keeps changing while it is being fenced")


def _fenced(head: int | None) -> Settlement:
    seen = "an empty table" if head is None else f"snapshot {head}"
    return Settlement(
        ruling=Ruling.FENCED, reason=f"absent from main's unbroken ancestry as of {seen}, and fenced on top of it"
    )


def _still_unknown(operation: Operation, reason: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"an earlier write of {operation.dataset.coordinate} (operation {operation.id}) is not settled yet: {reason}",
        remedy="Nothing was deleted. Run the sync again once the catalog answers; it settles that write first.",
    )
