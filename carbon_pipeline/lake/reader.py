"""The way out of the lake: what a snapshot consists of, and a digest of what its files hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.verify.digest import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeField:
    """One field of a table's schema; `type` is Iceberg's own spelling, `decimal(10, 2)` for one."""

    field_id: int
    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFiles:
    """One snapshot of a table, as any engine needs it to read the rows."""

    snapshot_id: int
    location: str
    fields: tuple[LakeField, ...]
    paths: tuple[str, ...]
    """Data files, as full URIs."""


class LakeReader(ABC):
    """Reads what is published. Methods raise a `LakeError`."""

    @abstractmethod
    def files(self, dataset: Dataset) -> SnapshotFiles | None:
        """Main's snapshot; none when nothing was ever published."""

    @abstractmethod
    def digest(self, dataset: Dataset, mapping: Mapping) -> Digest:
        """The digest (see `verify.digest`) of the rows that main's snapshot holds, read back from the files.

        `LakeError` when the table has no snapshot, or not the mapping's columns.
        """
