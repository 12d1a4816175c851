"""Rolling Parquet: batches in, data files with Iceberg statistics out, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from carbon_pipeline.lake.iceberg.catalog import storage_failed
from carbon_pipeline.lake.iceberg.fields import file_schema
from carbon_pipeline.lake.iceberg.statistics import file_statistics
from carbon_pipeline.lake.port import Announce
from carbon_pipeline.schema.row_identity import stamp

ROW_GROUP_ROWS_MAX = 262_144
ROW_GROUP_BYTES_MAX = 24 * 1024 * 1024
FILE_ROWS_MAX = 4_000_000
FILE_BYTES_MAX = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The data files of one operation."""

    files: tuple[DataFile, ...]
    rows: int
    size_bytes: int


class _OpenFile:
    """One Parquet file while it is being written."""

    def __init__(self, io: FileIO, path: str, schema: Schema) -> None:
        self.path = path
        self._schema = schema
        self._arrow_schema = file_schema(schema)
        self._sink = io.new_output(path).create(overwrite=False)
        self._writer = pq.ParquetWriter(
            self._sink,
            self._arrow_schema,
            compression="zstd",
            compression_level=1,
            store_decimal_as_integer=True,
            write_batch_size=65_536,
        )
        self.rows = 0

    @property
    def size_bytes(self) -> int:
        """Bytes handed to the file so far."""
        return int(self._sink.tell())

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Add one row group."""
        rows = sum(batch.num_rows for batch in batches)
        table = pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(batch.columns, schema=self._arrow_schema) for batch in batches]
        )
        self._writer.write_table(table, row_group_size=max(rows, 1))
        self.rows += rows

    def close(self) -> DataFile:
        """Finish the file and describe it with the statistics that its own footer holds."""
        self._writer.close()
        size_bytes = self.size_bytes
        self._sink.close()
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=size_bytes,
            sort_order_id=None,
            spec_id=0,
            equality_ids=None,
            key_metadata=None,
            **file_statistics(self._writer.writer.metadata, self._schema),
        )

    def abandon(self) -> None:
        """Close the handles of a file that will not be kept."""
        for handle in (self._writer, self._sink):
            try:
                handle.close()
            except Exception:  # noqa: S112  # the disk is full or the store is gone; the file is being thrown away
                continue


class FileBook:
    """Every file that an operation is about to write: announced first, and deleted again if staging fails."""

    def __init__(self, io: FileIO, announce: Announce) -> None:
        self._io = io
        self._announce = announce
        self._paths: list[str] = []

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, in the order in which they were announced."""
        return tuple(self._paths)

    def enter(self, path: str) -> str:
        """Announce a file; only then may it be written."""
        self._announce([path])
        self._paths.append(path)
        return path

    def discard(self) -> None:
        """Delete what there is of them."""
        for path in self._paths:
            try:
                self._io.delete(path)
            except Exception:  # noqa: S112  # it was never written, or stays on the ledger's list of files
                continue


class RollingWriter:
    """Writes one operation's data files below *folder*, a new file when one is full."""

    def __init__(self, io: FileIO, folder: str, schema: Schema, book: FileBook) -> None:
        self._io = io
        self._folder = folder
        self._schema = schema
        self._book = book
        self._open: _OpenFile | None = None
        self._done: list[DataFile] = []

    def write(self, row_groups: Iterable[list[pa.RecordBatch]]) -> Written:
        """Drain *row_groups*."""
        try:
            for batches in row_groups:
                self._guarded(batches)
            self._finish_file()
        finally:
            if self._open is not None:
                self._open.abandon()
        return Written(
            files=tuple(self._done),
            rows=sum(file.record_count for file in self._done),
            size_bytes=sum(file.file_size_in_bytes for file in self._done),
        )

    def _guarded(self, batches: list[pa.RecordBatch]) -> None:
        try:
            current = self._open or self._new_file()
            current.write(batches)
            if current.rows >= FILE_ROWS_MAX or current.size_bytes >= FILE_BYTES_MAX:
                self._finish_file()
        except OSError as error:
            raise storage_failed("writing data files", error) from error

    def _new_file(self) -> _OpenFile:
        path = self._book.enter(f"{self._folder}/{len(self._done):05d}.parquet")
        self._open = _OpenFile(self._io, path, self._schema)
        return self._open

    def _finish_file(self) -> None:
        if self._open is None:
            return
        try:
            self._done.append(self._open.close())
        except OSError as error:
            raise storage_failed("closing a data file", error) from error
        self._open = None


def stamped_row_groups(
    batches: Iterable[pa.RecordBatch], *, operation_id: UUID, created_at: datetime
) -> Iterator[list[pa.RecordBatch]]:
    """Stamp the identity columns and gather batches into row groups of bounded rows and bytes."""
    group: list[pa.RecordBatch] = []
    rows = size_bytes = next_index = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        group.append(stamp(batch, operation_id=operation_id, start=next_index, created_at=created_at))
        next_index += batch.num_rows
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= ROW_GROUP_ROWS_MAX or size_bytes >= ROW_GROUP_BYTES_MAX:
            yield group
            group, rows, size_bytes = [], 0, 0
    if group:
        yield group
