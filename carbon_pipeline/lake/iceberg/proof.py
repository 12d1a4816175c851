"""Everything that a snapshot consists of, read back: each file byte for byte with its SHA-256, and the rows' digest.

A fence is an empty snapshot on top of main; what a reader sees below it is the snapshot that is proved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.types import DecimalType, IcebergType

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import LakeError
from carbon_pipeline.lake.iceberg.fields import COLUMNS_PROPERTY, ICEBERG
from carbon_pipeline.lake.iceberg.published import SYNC_AGAIN, Published, data_files, digest_of
from carbon_pipeline.lake.iceberg.stamps import FENCE, WATERMARK
from carbon_pipeline.lake.reader import FileProof, LakeField, ProvenColumn, SnapshotProof
from carbon_pipeline.schema.type_map import BaseKind, BaseType

_CHUNK_BYTES = 1024 * 1024
_PREFIX = "carbon."

_KINDS: dict[IcebergType, BaseKind] = {iceberg: kind for kind, iceberg in ICEBERG.items()}


def prove(found: Published, dataset: Dataset) -> SnapshotProof:
    """The proof of what main shows. The digest is over the rows as they are read back now."""
    table, io = found.table, found.table.io
    shown, fences = _below_fences(found)
    files, columns = data_files(found, dataset), _columns(found, dataset)
    summary = _summary(shown)
    return SnapshotProof(
        table_uuid=str(table.metadata.table_uuid),
        location=table.location(),
        metadata_location=table.metadata_location,
        watermark=table.properties.get(WATERMARK),
        head_snapshot_id=found.snapshot.snapshot_id,
        fences=tuple(fence.snapshot_id for fence in fences),
        snapshot_id=shown.snapshot_id,
        parent_snapshot_id=shown.parent_snapshot_id,
        sequence_number=shown.sequence_number,
        committed_at=datetime.fromtimestamp(shown.timestamp_ms / 1000, UTC),
        schema_id=shown.schema_id,
        summary=summary,
        stamps={key.removeprefix(_PREFIX): value for key, value in summary.items() if key.startswith(_PREFIX)},
        columns=columns,
        manifest_list=_read_back(io, shown.manifest_list, None, None),
        manifests=tuple(_manifest(io, manifest) for manifest in shown.manifests(io)),
        data_files=tuple(_read_back(io, file.file_path, file.file_size_in_bytes, file.record_count) for file in files),
        digest=digest_of(
            table, [file.file_path for file in files], [(column.field.field_id, column.base) for column in columns]
        ),
    )


def _below_fences(found: Published) -> tuple[Snapshot, list[Snapshot]]:
    """The snapshot whose rows main shows, and the fences on top of it."""
    fences: list[Snapshot] = []
    for snapshot in ancestors_of(found.snapshot, found.table.metadata):
        if FENCE not in _summary(snapshot):
            return snapshot, fences
        fences.append(snapshot)
    return found.snapshot, []


def _summary(snapshot: Snapshot) -> dict[str, str]:
    summary = snapshot.summary
    return {} if summary is None else {"operation": summary.operation.value, **summary.additional_properties}


def _columns(found: Published, dataset: Dataset) -> tuple[ProvenColumn, ...]:
    """The source's columns in the snapshot's schema: those that the table's own property gives an attnum."""
    recorded = json.loads(found.table.properties.get(COLUMNS_PROPERTY, '{"ids": {}}'))
    attnums = {field_id: int(attnum) for attnum, field_id in recorded["ids"].items()}
    return tuple(
        ProvenColumn(
            attnum=attnums[field.field_id],
            field=LakeField(field_id=field.field_id, name=field.name, type=str(field.field_type)),
            base=_base(field.field_type, dataset),
        )
        for field in found.schema.fields
        if field.field_id in attnums
    )


def _base(held: IcebergType, dataset: Dataset) -> BaseType:
    if isinstance(held, DecimalType):
        return BaseType(kind=BaseKind.DECIMAL, precision=held.precision, scale=held.scale)
    if held not in _KINDS:
        raise LakeError(f"{dataset.coordinate} holds a column as {held}, which is nothing of ours", remedy=SYNC_AGAIN)
    return BaseType(kind=_KINDS[held])


def _manifest(io: FileIO, manifest: ManifestFile) -> FileProof:
    counts: Iterable[int | None] = (manifest.added_rows_count, manifest.existing_rows_count)
    return _read_back(io, manifest.manifest_path, manifest.manifest_length, sum(count or 0 for count in counts))


def _read_back(io: FileIO, path: str, recorded_bytes: int | None, rows: int | None) -> FileProof:
    digest, size_bytes = hashlib.sha256(), 0
    with io.new_input(path).open() as source:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
    return FileProof(
        path=path, size_bytes=size_bytes, recorded_bytes=recorded_bytes, sha256=digest.hexdigest(), rows=rows
    )
