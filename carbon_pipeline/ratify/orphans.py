"""Removing what writes that never landed left behind: by the ledger's own file list, after ruling and a safe age."""

from __future__ import annotations

from dataclasses import dataclass

from carbon_pipeline.errors import LakeError
from carbon_pipeline.lake.port import Janitor
from carbon_pipeline.ledger.operation import LeftBehind
from carbon_pipeline.ledger.port import FileList

SAFE_AGE_HOURS = 24.0
"""Older than any write can be that might still refer to a file."""
OPERATIONS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanReport:
    """What a clean-up removed and what it could not."""

    removed: int
    kept: tuple[str, ...]
    """Files that a snapshot refers to although their operation was aborted: a finding, never removed."""
    failed: tuple[str, ...]
    """One line for each dataset whose files could not be looked at or removed."""


def remove_orphans(files: FileList, janitor: Janitor, min_age_hours: float = SAFE_AGE_HOURS) -> OrphanReport:
    """Delete the files of aborted operations that no snapshot refers to."""
    removed, kept, failed = 0, [], []
    for left in files.left_behind(min_age_hours, OPERATIONS_MAX):
        try:
            unreferenced = _remove(files, janitor, left)
        except LakeError as error:
            failed.append(f"{left.operation.dataset.coordinate}: {error.message}")
            continue
        removed += len(unreferenced)
        kept += sorted(set(left.paths) - unreferenced)
    return OrphanReport(removed=removed, kept=tuple(kept), failed=tuple(failed))


def _remove(files: FileList, janitor: Janitor, left: LeftBehind) -> set[str]:
    dataset = left.operation.dataset
    unreferenced = set(janitor.unreferenced(dataset, left.paths))
    janitor.remove(dataset, sorted(unreferenced))
    if unreferenced == set(left.paths):
        files.mark_removed(left)
    return unreferenced
