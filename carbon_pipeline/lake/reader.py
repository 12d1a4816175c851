"""The way out of the lake: what a snapshot consists of, a digest of what its files hold, and what proves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping as Lookup
from dataclasses import dataclass
from datetime import datetime

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.schema.type_map import BaseType
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProof:
    """One file of a snapshot, read back byte for byte."""

    path: str
    """As a full URI."""
    size_bytes: int
    recorded_bytes: int | None
    """Its size by whoever refers to it; none where nobody says it, as of a manifest list."""
    sha256: str
    rows: int | None
    """What it holds, or a manifest's live files do, by the manifests; none for a manifest list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenColumn:
    """A column of the source in a snapshot; the identity columns are none."""

    attnum: int
    field: LakeField
    base: BaseType


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProof:
    """What main shows a reader, read back whole."""

    table_uuid: str
    location: str
    metadata_location: str
    watermark: str | None
    """The table's property that names the newest write."""
    head_snapshot_id: int
    """Main's head: the snapshot itself, or the newest of the fences on top of it, which hold the same files."""
    fences: tuple[int, ...]
    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int | None
    committed_at: datetime
    schema_id: int | None
    summary: Lookup[str, str]
    """As it stands in the metadata."""
    stamps: Lookup[str, str]
    """Of the summary what is ours, without the prefix."""
    columns: tuple[ProvenColumn, ...]
    """In the order in which a row's canonical text has them."""
    manifest_list: FileProof
    manifests: tuple[FileProof, ...]
    data_files: tuple[FileProof, ...]
    digest: Digest


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

    @abstractmethod
    def prove(self, dataset: Dataset) -> SnapshotProof:
        """Everything about what main shows, every file of it read back. `LakeError` when nothing was published."""
