"""A commit as a value: the updates and the requirements of one request, with the manifests they name already written.

PyIceberg's own snapshot producers belong to its commit loop, which is not used here (see `commit.py`); what they would
write is written with the same building blocks. Iceberg specification, "Snapshots" and "Manifest Lists".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from carbon_pipeline.lake.iceberg.fields import COLUMNS_PROPERTY, TableShape
from carbon_pipeline.lake.iceberg.files import FileBook

_COMPRESSION: Literal["deflate"] = "deflate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """One request to the catalog, ready to be sent."""

    snapshot_id: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


def schema_updates(table: Table, shape: TableShape) -> tuple[TableUpdate, ...]:
    """What brings the table's current schema to *shape*; nothing when it is there already."""
    updates = list(_to_schema(table.metadata, shape.schema))
    if table.properties.get(COLUMNS_PROPERTY) != shape.columns_property:
        updates.append(SetPropertiesUpdate(updates={COLUMNS_PROPERTY: shape.columns_property}))
    return tuple(updates)


def _to_schema(metadata: TableMetadata, wanted: Schema) -> tuple[TableUpdate, ...]:
    """A schema that the table once had is made current again under its old id; any other one gets the next id."""
    if metadata.schema().as_struct() == wanted.as_struct():
        return ()
    for schema in metadata.schemas:
        if schema.as_struct() == wanted.as_struct():
            return (SetCurrentSchemaUpdate(schema_id=schema.schema_id),)
    next_id = max(schema.schema_id for schema in metadata.schemas) + 1
    added = Schema(*wanted.fields, schema_id=next_id)
    return (AddSchemaUpdate(schema_=added), SetCurrentSchemaUpdate(schema_id=next_id))


def live_entries(table: Table) -> list[ManifestEntry]:
    """The live data files of main's snapshot; none for a table without one.

    Delete files, which another engine may have added, are nobody's rows: replaced with the files that they thin out.
    """
    snapshot = table.metadata.current_snapshot()
    if snapshot is None:
        return []
    return [
        entry
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content is DataFileContent.DATA
    ]


class PlanWriter:
    """Writes the manifests of one commit on top of the table as it was loaded."""

    def __init__(self, table: Table, book: FileBook, before: tuple[TableUpdate, ...] = ()) -> None:
        self._table = table
        self._book = book
        self._before = before
        self._metadata: TableMetadata = update_table_metadata(table.metadata, before)
        self._parent = table.metadata.current_snapshot()
        self._commit_uuid = uuid4()
        self.snapshot_id = self._metadata.new_snapshot_id()
        self._manifests_written = 0

    def replace(self, files: Iterable[DataFile], stamp: dict[str, str], properties: dict[str, str]) -> CommitPlan:
        """A snapshot that holds *files* and nothing of what main held before."""
        added, removed = list(files), live_entries(self._table)
        manifests = [
            *self._manifest([self._entry(ManifestEntryStatus.ADDED, data_file=file) for file in added]),
            *self._manifest([self._entry(ManifestEntryStatus.DELETED, entry) for entry in removed]),
        ]
        summary = _totals(added, [entry.data_file for entry in removed]) | stamp
        return self._plan(manifests, Summary(Operation.OVERWRITE, **summary), properties)

    def empty(self, stamp: dict[str, str]) -> CommitPlan:
        """A snapshot that changes nothing: main's own manifests under a new head."""
        kept = [] if self._parent is None else self._parent.manifests(self._table.io)
        totals = _kept_totals(self._parent)
        return self._plan(kept, Summary(Operation.APPEND, **(totals | stamp)), {})

    def _entry(
        self, status: ManifestEntryStatus, before: ManifestEntry | None = None, data_file: DataFile | None = None
    ) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=self.snapshot_id,
            sequence_number=before.sequence_number if before else None,
            file_sequence_number=before.file_sequence_number if before else None,
            data_file=before.data_file if before else data_file,
        )

    def _new_path(self, name: str) -> str:
        return self._book.enter(self._table.location_provider().new_metadata_location(name))

    def _manifest(self, entries: list[ManifestEntry]) -> list[ManifestFile]:
        if not entries:
            return []
        name = f"{self._commit_uuid}-m{self._manifests_written}.avro"
        self._manifests_written += 1
        with write_manifest(
            format_version=self._metadata.format_version,
            spec=self._metadata.spec(),
            schema=self._metadata.schema(),
            output_file=self._table.io.new_output(self._new_path(name)),
            snapshot_id=self.snapshot_id,
            avro_compression=_COMPRESSION,
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return [writer.to_manifest_file()]

    def _plan(self, manifests: list[ManifestFile], summary: Summary, properties: dict[str, str]) -> CommitPlan:
        parent_id = self._parent.snapshot_id if self._parent else None
        snapshot = Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            manifest_list=self._manifest_list(manifests, parent_id),
            sequence_number=self._metadata.next_sequence_number(),
            summary=summary,
            schema_id=self._metadata.current_schema_id,
        )
        updates: tuple[TableUpdate, ...] = (
            *self._before,
            *((SetPropertiesUpdate(updates=properties),) if properties else ()),
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                snapshot_id=self.snapshot_id,
                parent_snapshot_id=parent_id,
                ref_name=MAIN_BRANCH,
                type=SnapshotRefType.BRANCH,
                max_ref_age_ms=None,
                max_snapshot_age_ms=None,
                min_snapshots_to_keep=None,
            ),
        )
        requirements = (
            AssertTableUUID(uuid=self._metadata.table_uuid),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=parent_id),
        )
        return CommitPlan(snapshot_id=self.snapshot_id, updates=updates, requirements=requirements)

    def _manifest_list(self, manifests: list[ManifestFile], parent_id: int | None) -> str:
        path = self._new_path(f"snap-{self.snapshot_id}-0-{self._commit_uuid}.avro")
        with write_manifest_list(
            format_version=self._metadata.format_version,
            output_file=self._table.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=self._metadata.next_sequence_number(),
            avro_compression=_COMPRESSION,
        ) as writer:
            writer.add_manifests(manifests)
        return path


_TOTAL_KEYS = (
    "total-data-files",
    "total-delete-files",
    "total-records",
    "total-files-size",
    "total-position-deletes",
    "total-equality-deletes",
)


def _totals(added: list[DataFile], removed: list[DataFile]) -> dict[str, str]:
    """The summary's counts for a snapshot that holds *added* and nothing else."""
    rows, size_bytes = sum(f.record_count for f in added), sum(f.file_size_in_bytes for f in added)
    counts = {
        "added-data-files": len(added),
        "added-records": rows,
        "added-files-size": size_bytes,
        "deleted-data-files": len(removed),
        "deleted-records": sum(f.record_count for f in removed),
        "removed-files-size": sum(f.file_size_in_bytes for f in removed),
    }
    totals = dict.fromkeys(_TOTAL_KEYS, 0) | {
        "total-data-files": len(added),
        "total-records": rows,
        "total-files-size": size_bytes,
    }
    return {key: str(count) for key, count in ({k: n for k, n in counts.items() if n} | totals).items()}


def _kept_totals(parent: Snapshot | None) -> dict[str, str]:
    """The totals of a snapshot that adds and removes nothing."""
    if parent is None or parent.summary is None:
        return dict.fromkeys(_TOTAL_KEYS, "0")
    return {key: parent.summary[key] or "0" for key in _TOTAL_KEYS}
