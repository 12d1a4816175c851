"""The `LakeReader` port on Iceberg: a snapshot's files from its manifests, and the digest of what they hold.

The table is loaded once per call, and everything else follows from that one metadata, so two snapshots never mix.
Columns are told by the field ids in the Parquet schema, never by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import LakeError, StorageFailed
from carbon_pipeline.lake.iceberg.canonical import canonical_texts, checksum
from carbon_pipeline.lake.iceberg.catalog import Catalogs, lake_errors
from carbon_pipeline.lake.iceberg.commit import load
from carbon_pipeline.lake.iceberg.fields import COLUMNS_PROPERTY, iceberg_type
from carbon_pipeline.lake.iceberg.stamps import DATASET
from carbon_pipeline.lake.reader import LakeField, LakeReader, SnapshotFiles
from carbon_pipeline.schema.mapping import Mapping, arrow_type
from carbon_pipeline.verify.digest import Digest

BATCH_ROWS_MAX = 65_536

_SYNC_AGAIN = "Sync the table again; it will be written as the source has it now."


@dataclass(frozen=True, slots=True)
class _Published:
    """A table and main's snapshot, of one and the same metadata."""

    table: Table
    snapshot: Snapshot

    @property
    def schema(self) -> Schema:
        """The schema that the snapshot was written with."""
        metadata, schema_id = self.table.metadata, self.snapshot.schema_id
        return (metadata.schema_by_id(schema_id) if schema_id is not None else None) or metadata.schema()


class IcebergReader(LakeReader):
    """Every registered catalog's published rows."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def files(self, dataset: Dataset) -> SnapshotFiles | None:
        """See `LakeReader.files`."""
        published = self._published(dataset)
        if published is None:
            return None
        with _reading(f"listing the files of {dataset.coordinate}"):
            paths = _data_files(published, dataset)
        return SnapshotFiles(
            snapshot_id=published.snapshot.snapshot_id,
            location=published.table.location(),
            fields=tuple(
                LakeField(field_id=field.field_id, name=field.name, type=str(field.field_type))
                for field in published.schema.fields
            ),
            paths=paths,
        )

    def digest(self, dataset: Dataset, mapping: Mapping) -> Digest:
        """See `LakeReader.digest`."""
        published = self._published(dataset)
        if published is None:
            raise LakeError(f"nothing was ever published to {dataset.coordinate}", remedy="Sync the table first.")
        ids = _field_ids(published, mapping, dataset)
        rows = total = 0
        with _reading(f"reading {dataset.coordinate}"):
            paths = _data_files(published, dataset)
            for texts in _one_ahead(_texts(published.table, paths, ids, mapping)):
                rows += len(texts)
                total += checksum(texts)
        return Digest(rows=rows, checksum=total % 2**64)

    def _published(self, dataset: Dataset) -> _Published | None:
        with lake_errors(f"loading {dataset.coordinate}"):
            try:
                table = load(self._catalogs.open(dataset.catalog), dataset.identifier)
            except NoSuchTableError as error:
                if dataset.committed_moment is None:
                    return None
                raise LakeError(f"the table of {dataset.coordinate} is gone from the catalog") from error
        if table.properties.get(DATASET) != str(dataset.id):
            raise LakeError(
                f"the table {'.'.join(dataset.identifier)} in the catalog is not {dataset.coordinate}'s",
                remedy="Move or drop that table, or give the credential another destination.",
            )
        snapshot = table.metadata.current_snapshot()
        return _Published(table, snapshot) if snapshot else None


@contextmanager
def _reading(doing: str) -> Iterator[None]:
    """As `lake_errors`, and for files that are no Parquet or Avro as well. Values in the messages are not repeated."""
    try:
        with lake_errors(doing):
            yield
    except (pa.ArrowException, ValueError, EOFError) as error:
        raise StorageFailed(f"a file of the warehouse cannot be read ({doing}): {type(error).__name__}") from error


def _data_files(published: _Published, dataset: Dataset) -> tuple[str, ...]:
    paths: list[str] = []
    for manifest in published.snapshot.manifests(published.table.io):
        for entry in manifest.fetch_manifest_entry(published.table.io, discard_deleted=True):
            file = entry.data_file
            if manifest.content is ManifestContent.DELETES or file.content is not DataFileContent.DATA:
                raise LakeError(
                    f"{dataset.coordinate} has delete files, which cannot be applied yet",
                    remedy="Sync the table in full, or compact it, then read it again.",
                )
            if file.file_format is not FileFormat.PARQUET:
                raise LakeError(f"{dataset.coordinate} has files in {file.file_format}", remedy=_SYNC_AGAIN)
            paths.append(file.file_path)
    return tuple(paths)


def _field_ids(published: _Published, mapping: Mapping, dataset: Dataset) -> list[int]:
    """The field ids of the mapping's columns; `LakeError` when the lake holds other columns or other types."""
    recorded = json.loads(published.table.properties.get(COLUMNS_PROPERTY, '{"oid": 0, "ids": {}}'))
    ids = {int(attnum): field_id for attnum, field_id in recorded["ids"].items()}
    if recorded["oid"] != mapping.relation.oid or ids.keys() != {column.attnum for column in mapping.columns}:
        raise LakeError(
            f"{dataset.coordinate} does not hold the columns that {mapping.relation.qualified_name} has now",
            remedy=_SYNC_AGAIN,
        )
    held = {field.field_id: field.field_type for field in published.schema.fields}
    for column in mapping.columns:
        if held.get(ids[column.attnum]) != iceberg_type(column.base):
            raise LakeError(
                f"{dataset.coordinate} holds column {column.source_name} as {held.get(ids[column.attnum])}, "
                f"its type is {column.base} now",
                remedy=_SYNC_AGAIN,
            )
    return [ids[column.attnum] for column in mapping.columns]


def _texts(table: Table, paths: tuple[str, ...], ids: list[int], mapping: Mapping) -> Iterator[pa.Array]:
    types = [column.base for column in mapping.columns]
    arrow_types = [arrow_type(base) for base in types]
    for path in paths:
        with table.io.new_input(path).open() as source, pq.ParquetFile(source, pre_buffer=False) as file:
            # A field that this file lacks has no name here, and every one of its values is null.
            names = _names_by_id(file.schema_arrow)
            wanted = [names.get(field_id) for field_id in ids]
            # Reading no column at all would not say how many rows there are.
            read = [name for name in wanted if name is not None] or file.schema_arrow.names[:1]
            for batch in file.iter_batches(batch_size=BATCH_ROWS_MAX, columns=read):
                columns = [
                    pa.nulls(batch.num_rows, type_) if name is None else _as_type(batch.column(name), type_)
                    for name, type_ in zip(wanted, arrow_types, strict=True)
                ]
                yield canonical_texts(columns, types, batch.num_rows)


def _names_by_id(schema: pa.Schema) -> dict[int, str]:
    key = b"PARQUET:field_id"
    return {int(field.metadata[key]): field.name for field in schema if field.metadata and key in field.metadata}


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type.equals(wanted) else column.cast(wanted)


def _one_ahead(texts: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """*texts*, the next one being made while the caller is busy with this one: Arrow works without the GIL, MD5 not."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(next, texts, None)
        while (ready := pending.result()) is not None:
            pending = pool.submit(next, texts, None)
            yield ready
