"""The port to the lake."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.lake.outcome import Outcome
from carbon_pipeline.ledger.operation import Intent, Operation, Permit, TableHead
from carbon_pipeline.ratify.evidence import Absent, Evidence
from carbon_pipeline.schema.mapping import Mapping

Announce = Callable[[Sequence[str]], None]
"""Called with the paths of files that are about to be written. What it raises stops the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Everything a commit needs, written but not yet published."""

    rows: int
    size_bytes: int
    snapshot_id: int
    files: tuple[str, ...]
    plan: object
    """The lake's own: updates and requirements, ready to be sent."""


class Lake(ABC):
    """One lakehouse. Methods raise a `LakeError`; only `commit` answers with an outcome whatever happens."""

    @abstractmethod
    def ensure_table(self, dataset: Dataset, mapping: Mapping) -> TableHead:
        """The dataset's table, created empty where there is none, and main's snapshot."""

    @abstractmethod
    def stage(self, intent: Intent, mapping: Mapping, batches: Iterable[pa.RecordBatch], announce: Announce) -> Staged:
        """Write data files and manifests for a replacement of the table's rows.

        Every file is announced before it is written, so that what a dead writer left can be found. When this fails it
        deletes what it wrote: no request can have named a file yet.
        """

    @abstractmethod
    def commit(self, permit: Permit, staged: Staged) -> Outcome:
        """Send the one request, then look. Never raises, not even on cancellation."""

    @abstractmethod
    def observe(self, operation: Operation) -> Evidence:
        """What the catalog shows of an operation. Only reads; never raises for a catalog that does not answer."""

    @abstractmethod
    def fence(self, operation: Operation, absence: Absent) -> bool:
        """Commit an empty snapshot stamped `carbon.fence` on top of the head that *absence* saw.

        True when it is there. After that, a late request of the operation fails on main's reference. False when main
        has moved on, so that what was seen proves nothing any more.
        """


class Janitor(ABC):
    """Removes files that no snapshot refers to. Methods raise a `LakeError`."""

    @abstractmethod
    def unreferenced(self, dataset: Dataset, paths: Sequence[str]) -> Sequence[str]:
        """Those of *paths* that no snapshot of the table, current or old, refers to."""

    @abstractmethod
    def remove(self, dataset: Dataset, paths: Sequence[str]) -> None:
        """Delete these files; one that is gone already is no error."""
