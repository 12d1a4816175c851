"""Main's snapshot of a table, opened: its data files, and the canonical text of every row that they hold.

Columns are told by the field ids in the Parquet schema, never by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import LakeError, StorageFailed
from carbon_pipeline.lake.iceberg.canonical import canonical_texts, checksum
from carbon_pipeline.lake.iceberg.catalog import Catalogs, lake_errors
from carbon_pipeline.lake.iceberg.commit import load
from carbon_pipeline.lake.iceberg.stamps import DATASET
from carbon_pipeline.schema.mapping import arrow_type
from carbon_pipeline.schema.type_map import BaseType
from carbon_pipeline.verify.digest import Digest

BATCH_ROWS_MAX = 65_536

SYNC_AGAIN = "Sync the table again; it will be written as the source has it now."


@dataclass(frozen=True, slots=True)
class Published:
    """A table and main's snapshot, of one and the same metadata."""

    table: Table
    snapshot: Snapshot

    @property
    def schema(self) -> Schema:
        """The schema that the snapshot was written with."""
        metadata, schema_id = self.table.metadata, self.snapshot.schema_id
        return (metadata.schema_by_id(schema_id) if schema_id is not None else None) or metadata.schema()


def published(catalogs: Catalogs, dataset: Dataset) -> Published | None:
    """What the catalog shows of *dataset*; none when nothing was ever published."""
    with lake_errors(f"loading {dataset.coordinate}"):
        try:
            table = load(catalogs.open(dataset.catalog), dataset.identifier)
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
    return Published(table, snapshot) if snapshot else None


@contextmanager
def reading(doing: str) -> Iterator[None]:
    """As `lake_errors`, and for files that are no Parquet or Avro as well. Values in the messages are not repeated."""
    try:
        with lake_errors(doing):
            yield
    except (pa.ArrowException, ValueError, EOFError) as error:
        raise StorageFailed(f"a file of the warehouse cannot be read ({doing}): {type(error).__name__}") from error


def data_files(found: Published, dataset: Dataset) -> tuple[DataFile, ...]:
    """The snapshot's data files, as its manifests describe them. `LakeError` for what cannot be read as rows."""
    files: list[DataFile] = []
    for manifest in found.snapshot.manifests(found.table.io):
        for entry in manifest.fetch_manifest_entry(found.table.io, discard_deleted=True):
            file = entry.data_file
            if manifest.content is ManifestContent.DELETES or file.content is not DataFileContent.DATA:
                raise LakeError(
                    f"{dataset.coordinate} has delete files, which cannot be applied yet",
                    remedy="Sync the table in full, or compact it, then read it again.",
                )
            if file.file_format is not FileFormat.PARQUET:
                raise LakeError(f"{dataset.coordinate} has files in {file.file_format}", remedy=SYNC_AGAIN)
            files.append(file)
    return tuple(files)


Columns = Sequence[tuple[int, BaseType]]
"""Field id and base type, in the order in which a row's canonical text has them."""


def digest_of(table: Table, paths: Sequence[str], columns: Columns) -> Digest:
    """The digest (see `verify.digest`) of these columns, read back from these files."""
    rows = total = 0
    for texts in _one_ahead(_texts(table, paths, columns)):
        rows += len(texts)
        total += checksum(texts)
    return Digest(rows=rows, checksum=total % 2**64)


def _texts(table: Table, paths: Sequence[str], columns: Columns) -> Iterator[pa.Array]:
    ids, types = [field_id for field_id, _ in columns], [base for _, base in columns]
    arrow_types = [arrow_type(base) for base in types]
    for path in paths:
        with table.io.new_input(path).open() as source, pq.ParquetFile(source, pre_buffer=False) as file:
            # A field that this file lacks has no name here, and every one of its values is null.
            names = _names_by_id(file.schema_arrow)
            wanted = [names.get(field_id) for field_id in ids]
            # Reading no column at all would not say how many rows there are.
            read = [name for name in wanted if name is not None] or file.schema_arrow.names[:1]
            for batch in file.iter_batches(batch_size=BATCH_ROWS_MAX, columns=read):
                arrays = [
                    pa.nulls(batch.num_rows, type_) if name is None else _as_type(batch.column(name), type_)
                    for name, type_ in zip(wanted, arrow_types, strict=True)
                ]
                yield canonical_texts(arrays, types, batch.num_rows)


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
