"""The port to the lake."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.lake.outcome import Outcome
from carbon_pipeline.ledger.operation import Intent, Operation, Permit, TableHead
from carbon_pipeline.ratify.evidence import Evidence
from carbon_pipeline.schema.mapping import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Everything a commit needs, written but not yet published."""

    rows: int
    size_bytes: int
    files: tuple[str, ...]
    plan: object
    """The lake's own: updates and requirements, ready to be sent."""


class Lake(ABC):
    """One lakehouse. Methods raise a `LakeError`; only `commit` answers with an outcome whatever happens."""

    @abstractmethod
    def ensure_table(self, dataset: Dataset, mapping: Mapping) -> TableHead:
        """The dataset's table, created empty where there is none, and main's snapshot."""

    @abstractmethod
    def stage(self, intent: Intent, mapping: Mapping, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Write data files and manifests for a replacement of the table's rows.

        When this fails it deletes what it wrote: no request can have named a file yet.
        """

    @abstractmethod
    def commit(self, permit: Permit, staged: Staged) -> Outcome:
        """Send the one request, then look. Never raises, not even on cancellation."""

    @abstractmethod
    def observe(self, operation: Operation) -> Evidence:
        """What the catalog shows of an operation. Only reads; never raises for a catalog that does not answer."""

    @abstractmethod
    def fence(self, operation: Operation, head_snapshot_id: int | None) -> bool:
        """Commit an empty snapshot stamped `carbon.fence` on top of *head_snapshot_id*.

        True when it is there. After that, a late request of the operation fails on main's reference.
        """
