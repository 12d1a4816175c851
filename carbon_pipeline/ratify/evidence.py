"""What a look into the catalog can show of one operation."""

from __future__ import annotations

from dataclasses import dataclass

from carbon_pipeline.lake.outcome import SnapshotFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """The catalog gave no answer that proves anything: down, timed out, 401, 403, an unreadable answer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReplaced:
    """The table is gone, or another one stands in its place."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OnMain:
    """The operation's snapshot is an ancestor of main's head, or the head itself."""

    facts: SnapshotFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class OffMain:
    """The operation's snapshot exists, but main was moved back behind it."""

    facts: SnapshotFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessOnly:
    """No snapshot names the operation any more, but the table's watermark, or an older metadata file, does."""

    witness: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Main's ancestry is unbroken from its head back to the operation's base, and the operation is not in it."""

    head_snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The ancestry ends before it reaches the operation's base, so absence cannot be proved."""

    reason: str


Evidence = Unreachable | TargetReplaced | OnMain | OffMain | WitnessOnly | Absent | Broken
