"""What a commit came to. There are three answers, and the third one is not an error to be guessed away."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """What a dataset holds after a commit, read from the snapshot itself."""

    snapshot_id: int
    parent_snapshot_id: int | None
    rows: int
    size_bytes: int
    data_files: int
    has_identity: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The catalog shows our snapshot."""

    facts: SnapshotFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Proven: the request was refused, and a refresh shows neither our marker nor our snapshot."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Everything else. `cause` is what was raised, a cancellation included."""

    reason: str
    cause: BaseException | None


Outcome = Landed | Refused | Unknown
