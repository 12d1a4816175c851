"""What a look into the catalog can show of one operation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.outcome import SnapshotFacts


class Witness(StrEnum):
    """What still speaks for a commit whose snapshot has expired."""

    WATERMARK = "the table's watermark names it"
    """Anybody who may set a property can forge it, so it counts only beside another one."""
    METADATA_LOG = "an earlier metadata file has its snapshot"
    MANIFEST = "a manifest of main names its snapshot"


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
    shown_operation_id: OperationId | None
    """The newest operation that main still shows; none when it shows nothing of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessOnly:
    """No snapshot names the operation any more, but something else does."""

    witnesses: frozenset[Witness]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Main's ancestry is unbroken from its head back to the operation's base, and the operation is not in it."""

    head_snapshot_id: int | None
    seen: object
    """The lake's own: the table as it was seen, so that a fence need not load it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The ancestry ends before it reaches the operation's base, so absence cannot be proved."""

    reason: str


Evidence = Unreachable | TargetReplaced | OnMain | OffMain | WitnessOnly | Absent | Broken
