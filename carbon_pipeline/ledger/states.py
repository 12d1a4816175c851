"""The states of an operation, its legal transitions, and the rulings that end it.

Two rules hold for this file: whatever decides about transitions is here, and the SQL constraints, the diagram in the
README and the error messages are checked against it by test.

An operation opens before a byte is written. Immediately before the request to the catalog its writer moves it from
`open` to `committing` by compare-and-set; aborting an `open` operation is the same compare-and-set with another
target, so of the writer and a reconciler only one can win. From `committing` on, only evidence from the catalog ends
the operation: an interruption can arrive between any two instructions, so not even the writer may say that it never
sent its request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OperationStatus(StrEnum):
    """Where an operation stands. The last three are final."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNVERIFIABLE = "unverifiable"


class SyncStatus(StrEnum):
    """The state of an operation's row in the sync log."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Ruling(StrEnum):
    """Why an operation ended as it did."""

    LANDED = "landed"
    """The catalog shows its snapshot on main."""
    NOOP = "noop"
    """There was nothing to change, so no snapshot was made."""
    ROLLED_BACK = "rolled_back"
    """It landed, and main was moved back behind it since."""
    EVIDENCE_EXPIRED = "evidence_expired"
    """It landed, its snapshot is gone, and a second witness names it."""
    NEVER_LANDED = "never_landed"
    """It was still open when a reconciler aborted it: no request was ever sent."""
    FENCED = "fenced"
    """Absent from an unbroken ancestry, and a fence makes a late landing impossible."""
    FAILED = "failed"
    """Its writer failed before it sent the request."""
    REFUSED = "refused"
    """The catalog provably refused its request."""
    TARGET_REPLACED = "target_replaced"
    """The table it wrote to is gone or another one."""
    NO_EVIDENCE = "no_evidence"
    """Neither its presence nor its absence can be proved."""


UNSETTLED = (OperationStatus.OPEN, OperationStatus.COMMITTING)
FINAL = (OperationStatus.COMMITTED, OperationStatus.ABORTED, OperationStatus.UNVERIFIABLE)

TRANSITIONS: dict[OperationStatus, frozenset[OperationStatus]] = {
    OperationStatus.OPEN: frozenset(
        {
            OperationStatus.COMMITTING,
            OperationStatus.COMMITTED,
            OperationStatus.ABORTED,
            OperationStatus.UNVERIFIABLE,
        }
    ),
    OperationStatus.COMMITTING: frozenset(FINAL),
    OperationStatus.COMMITTED: frozenset(),
    OperationStatus.ABORTED: frozenset(),
    OperationStatus.UNVERIFIABLE: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RulingRow:
    """What a ruling makes of an operation, from which states it may do so, and what it makes of the sync log."""

    status: OperationStatus
    sync: SyncStatus
    comes_from: frozenset[OperationStatus]


_OPEN = frozenset({OperationStatus.OPEN})
_COMMITTING = frozenset({OperationStatus.COMMITTING})
_EITHER = _OPEN | _COMMITTING


def _row(status: OperationStatus, sync: SyncStatus, comes_from: frozenset[OperationStatus]) -> RulingRow:
    return RulingRow(status=status, sync=sync, comes_from=comes_from)


RULINGS: dict[Ruling, RulingRow] = {
    Ruling.LANDED: _row(OperationStatus.COMMITTED, SyncStatus.SUCCEEDED, _COMMITTING),
    Ruling.NOOP: _row(OperationStatus.COMMITTED, SyncStatus.SUCCEEDED, _OPEN),
    Ruling.ROLLED_BACK: _row(OperationStatus.COMMITTED, SyncStatus.SUCCEEDED, _COMMITTING),
    Ruling.EVIDENCE_EXPIRED: _row(OperationStatus.COMMITTED, SyncStatus.SUCCEEDED, _COMMITTING),
    Ruling.NEVER_LANDED: _row(OperationStatus.ABORTED, SyncStatus.FAILED, _OPEN),
    Ruling.FENCED: _row(OperationStatus.ABORTED, SyncStatus.FAILED, _COMMITTING),
    Ruling.FAILED: _row(OperationStatus.ABORTED, SyncStatus.FAILED, _OPEN),
    Ruling.REFUSED: _row(OperationStatus.ABORTED, SyncStatus.FAILED, _COMMITTING),
    Ruling.TARGET_REPLACED: _row(OperationStatus.UNVERIFIABLE, SyncStatus.FAILED, _COMMITTING),
    Ruling.NO_EVIDENCE: _row(OperationStatus.UNVERIFIABLE, SyncStatus.FAILED, _EITHER),
}
