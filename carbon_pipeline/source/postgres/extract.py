"""COPY → Arrow batches, with bounded memory and nothing nulled, rounded or lost on the way."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg import sql

from carbon_pipeline.errors import SourceBroke, SourceError
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.postgres.failures import explained
from carbon_pipeline.source.postgres.refusal import refusal
from carbon_pipeline.source.postgres.session import Options, Session
from carbon_pipeline.source.postgres.snapshot import Pinned
from carbon_pipeline.source.postgres.wire import WIRE, csv_type, finished

Batches = Generator[pa.RecordBatch, None, None]

_PARSING = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


class BatchStream(Iterator[pa.RecordBatch]):
    """Batches that end in StopIteration only when all were handed out, and in an error in every other case.

    A generator alone would not do: after an error, or once closed, it ends like one that is drained, and a short load
    would look complete.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches: Batches | None = batches
        self._drained = False

    def __next__(self) -> pa.RecordBatch:
        if self._drained:
            raise StopIteration
        batches, self._batches = self._batches, None
        if batches is None:
            raise SourceBroke("the reading was closed before its end")
        try:
            batch = next(batches)
        except StopIteration:
            self._drained = True
            raise
        self._batches = batches
        return batch

    def close(self) -> None:
        """Ends what is under way, at once."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()


def copy_statement(pinned: Pinned) -> sql.Composed:
    """COPY of the mapped columns; of a constant where there are none, since CSV cannot spell a row of nothing."""
    columns: list[sql.Composable] = [
        WIRE[column.base.kind].expression.format(column=sql.Identifier(column.source_name))
        for column in pinned.mapping.columns
    ] or [sql.SQL("1")]
    return sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(
        sql.SQL(", ").join(columns), pinned.rows
    )


def stream(session: Session, pinned: Pinned, options: Options) -> Batches:
    """The pinned relation's rows. COPY starts when the first batch is asked for."""
    statement, rows = copy_statement(pinned), 0
    with explained(pinned.subject), session.cursor() as cursor:
        with cursor.copy(statement) as copy, _closing_on_failure(session):
            for chunk, count in _chunks(copy, options):
                yield _batch(chunk, count, pinned)
                rows += count
        # psycopg ends the loop above only on CommandComplete; its tag says how many rows PostgreSQL sent.
        if cursor.rowcount != rows:
            raise SourceBroke(f"{pinned.subject.words}: the source sent {cursor.rowcount} rows, {rows} arrived")


@contextmanager
def _closing_on_failure(session: Session) -> Iterator[None]:
    """Closes the connection when a COPY is left before its end, by an error or by a consumer who has seen enough.

    psycopg would else send a cancel and drain what is left, and wait for both from a server that may be gone. The
    server ends the COPY by itself, at its next row.
    """
    try:
        yield
    except BaseException:
        session.close()
        raise


def _chunks(copy: psycopg.Copy, options: Options) -> Iterator[tuple[bytearray, int]]:
    """Whole rows, as many as fit. Each is parsed on its own, so no value ever straddles a block of the parser."""
    chunk, count = bytearray(), 0
    bytes_max, rows_max = options.chunk_bytes, options.chunk_rows
    for row in copy:
        chunk += row
        count += 1
        if count >= rows_max or len(chunk) >= bytes_max:
            yield chunk, count
            chunk, count = bytearray(), 0
    if count:
        yield chunk, count


def _batch(chunk: bytearray, count: int, pinned: Pinned) -> pa.RecordBatch:
    mapping = pinned.mapping
    types = {str(i): csv_type(column.base) for i, column in enumerate(mapping.columns)} or {"0": pa.int32()}
    try:
        table = read_csv(chunk, types)
    except pa.ArrowInvalid:
        # Arrow's message holds the value, so it goes no further; what it means is found out column by column.
        failed: SourceError = refusal(lambda only: read_csv(chunk, types, only), pinned)
        raise failed from None
    if table.num_rows != count:
        raise SourceBroke(f"{pinned.subject.words}: {count} rows arrived, {table.num_rows} could be told apart")
    return _record_batch(table, mapping)


def read_csv(chunk: bytearray, types: dict[str, pa.DataType], only: tuple[str, pa.DataType] | None = None) -> pa.Table:
    """Parses whole rows; *only* one column of them, as another type, when asked.

    PostgreSQL quotes every value and leaves nulls bare, so the empty string and null stay apart, and no word is null.
    """
    return pa_csv.read_csv(
        pa.py_buffer(chunk),
        read_options=pa_csv.ReadOptions(
            use_threads=False, block_size=len(chunk) + 1, column_names=list(types), encoding="utf8"
        ),
        parse_options=_PARSING,
        convert_options=pa_csv.ConvertOptions(
            column_types=types if only is None else {only[0]: only[1]},
            include_columns=[] if only is None else [only[0]],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
            check_utf8=True,
        ),
    )


def _record_batch(table: pa.Table, mapping: Mapping) -> pa.RecordBatch:
    if not mapping.columns:
        # A batch without columns has no array to take its length from, but a struct without fields has one.
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), table.num_rows, [None]))
    arrays = [finished(column.base, table.column(i).combine_chunks()) for i, column in enumerate(mapping.columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=mapping.arrow_schema)
