"""The `LakeReader` port on Iceberg: a snapshot's files from its manifests, the digest of what they hold, the proof.

The table is loaded once per call, and everything else follows from that one metadata, so two snapshots never mix.
"""

from __future__ import annotations

import json

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import LakeError
from carbon_pipeline.lake.iceberg.catalog import Catalogs
from carbon_pipeline.lake.iceberg.fields import COLUMNS_PROPERTY, iceberg_type
from carbon_pipeline.lake.iceberg.proof import prove
from carbon_pipeline.lake.iceberg.published import SYNC_AGAIN, Published, data_files, digest_of, published, reading
from carbon_pipeline.lake.reader import LakeField, LakeReader, SnapshotFiles, SnapshotProof
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.verify.digest import Digest


class IcebergReader(LakeReader):
    """Every registered catalog's published rows."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def files(self, dataset: Dataset) -> SnapshotFiles | None:
        """See `LakeReader.files`."""
        found = published(self._catalogs, dataset)
        if found is None:
            return None
        with reading(f"listing the files of {dataset.coordinate}"):
            files = data_files(found, dataset)
        return SnapshotFiles(
            snapshot_id=found.snapshot.snapshot_id,
            location=found.table.location(),
            fields=tuple(
                LakeField(field_id=field.field_id, name=field.name, type=str(field.field_type))
                for field in found.schema.fields
            ),
            paths=tuple(file.file_path for file in files),
        )

    def digest(self, dataset: Dataset, mapping: Mapping) -> Digest:
        """See `LakeReader.digest`."""
        found = self._published(dataset)
        ids = _field_ids(found, mapping, dataset)
        columns = [(field_id, column.base) for field_id, column in zip(ids, mapping.columns, strict=True)]
        with reading(f"reading {dataset.coordinate}"):
            return digest_of(found.table, [file.file_path for file in data_files(found, dataset)], columns)

    def prove(self, dataset: Dataset) -> SnapshotProof:
        """See `LakeReader.prove`."""
        found = self._published(dataset)
        with reading(f"reading {dataset.coordinate}"):
            return prove(found, dataset)

    def _published(self, dataset: Dataset) -> Published:
        found = published(self._catalogs, dataset)
        if found is None:
            raise LakeError(f"nothing was ever published to {dataset.coordinate}", remedy="Sync the table first.")
        return found


def _field_ids(found: Published, mapping: Mapping, dataset: Dataset) -> list[int]:
    """The field ids of the mapping's columns; `LakeError` when the lake holds other columns or other types."""
    recorded = json.loads(found.table.properties.get(COLUMNS_PROPERTY, '{"oid": 0, "ids": {}}'))
    ids = {int(attnum): field_id for attnum, field_id in recorded["ids"].items()}
    if recorded["oid"] != mapping.relation.oid or ids.keys() != {column.attnum for column in mapping.columns}:
        raise LakeError(
            f"{dataset.coordinate} does not hold the columns that {mapping.relation.qualified_name} has now",
            remedy=SYNC_AGAIN,
        )
    held = {field.field_id: field.field_type for field in found.schema.fields}
    for column in mapping.columns:
        if held.get(ids[column.attnum]) != iceberg_type(column.base):
            raise LakeError(
                f"{dataset.coordinate} holds column {column.source_name} as {held.get(ids[column.attnum])}, "
                f"its type is {column.base} now",
                remedy=SYNC_AGAIN,
            )
    return [ids[column.attnum] for column in mapping.columns]
