"""One lakehouse, open for queries: a DuckDB in memory that can read the published files and nothing else.

Two locks, because each alone has a gap. DuckDB's own settings keep every statement from files other than the listed
ones, from the network and from extensions; but a file that may be read may be written to as well. So nothing is run
but queries that only read (see `guard`).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import duckdb
import pyarrow as pa

from carbon_pipeline.errors import CarbonError, StorageFailed, UsageError
from carbon_pipeline.query.catalogue import NamedTable, catalogue, quoted
from carbon_pipeline.query.duckdb.guard import refuse_unless_query
from carbon_pipeline.query.duckdb.values import is_carried, rows_of
from carbon_pipeline.query.duckdb.views import create_view, local_path, text_literal
from carbon_pipeline.query.result import QueryResult

MEMORY_LIMIT = "1GB"
"""DuckDB takes four fifths of the machine's memory otherwise; what needs more is spilt to disk."""
THREADS_MAX = 4
BATCH_ROWS = 2048

_UNKNOWN_TABLE = re.compile(r"Table with name (.+?) does not exist")


class Lakehouse:
    """SQL over the given snapshots. A context manager; one result at a time, a new query ends the one before."""

    def __init__(
        self, tables: Sequence[NamedTable], *, identity: bool = False, unreadable: Mapping[str, str] | None = None
    ) -> None:
        """*unreadable* are datasets, as `schema.name`, that could not be opened, each with the reason: a query that
        names one says so, and every other query goes on."""
        self._unreadable = dict(unreadable or {})
        self._catalogue = catalogue(tables, identity=identity)
        self._spill = tempfile.TemporaryDirectory(prefix="carbon-query-")
        self._reader: pa.RecordBatchReader | None = None
        self._connection = _connect(self._spill.name)
        try:
            self._publish()
            self._lock()
        except BaseException:
            self.close()
            raise

    @property
    def datasets(self) -> tuple[str, ...]:
        """The names that a query can use, each as short as it may be."""
        return self._catalogue.shortest_names

    def query(self, sql: str) -> QueryResult:
        """Run one query. `UsageError` for anything else, and for what DuckDB cannot run; rows raise it too."""
        self._end_result()
        with _explained(self.datasets, self._unreadable):
            refuse_unless_query(self._connection, sql)
            relation = self._connection.sql(sql)
            columns, types = tuple(relation.columns), tuple(str(type_) for type_ in relation.types)
            if not all(is_carried(type_) for type_ in types):
                places = enumerate(types, start=1)
                relation = relation.project(
                    ", ".join(f"#{place}" if is_carried(type_) else f"#{place}::VARCHAR" for place, type_ in places)
                )
            # A relation streams its rows; what `execute` returns would copy them all into memory first.
            reader: pa.RecordBatchReader = relation.to_arrow_reader(BATCH_ROWS)
        self._reader = reader
        return QueryResult(columns=columns, types=types, rows=self._rows(reader, types))

    def close(self) -> None:
        """End what still runs and remove what was spilt."""
        self._end_result()
        self._connection.close()
        self._spill.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, reader: pa.RecordBatchReader, types: tuple[str, ...]) -> Iterator[tuple[object, ...]]:
        while True:
            self._refuse_ended(reader)
            with _explained(self.datasets, self._unreadable):
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
            yield from rows_of(batch, types)

    def _refuse_ended(self, reader: object) -> None:
        if self._reader is not reader:
            raise UsageError("this result was ended by a newer query", remedy="Read one result before the next.")

    def _end_result(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _publish(self) -> None:
        """Make the views. DuckDB looks into a view's files here, so this comes before the lock."""
        for schema in self._catalogue.search_path:
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        for view in self._catalogue.views:
            try:
                self._connection.execute(create_view(view))
            except duckdb.Error as error:
                self._unreadable[f"{view.schema}.{view.name}"] = str(error).partition("\n")[0]
        path = ",".join(quoted(schema) for schema in (*self._catalogue.search_path, "main"))
        self._connection.execute(f"SET search_path = {text_literal(path)}")

    def _lock(self) -> None:
        files = sorted({local_path(path) for view in self._catalogue.views for path in view.paths})
        listed = ", ".join(text_literal(path) for path in files)
        for setting in (
            "TimeZone = 'UTC'",
            f"allowed_paths = [{listed}]",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")


def _connect(spill: str) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(
        ":memory:",
        config={
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": spill,
            "threads": min(os.cpu_count() or 1, THREADS_MAX),
            # Else a name that no view has could mean a variable of this program.
            "python_enable_replacements": False,
            "allow_persistent_secrets": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )


@contextmanager
def _explained(known: tuple[str, ...], unreadable: Mapping[str, str]) -> Iterator[None]:
    """Turn what DuckDB raises into a `UsageError`. While rows stream, its errors arrive as Arrow's."""
    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        raise explained(str(error), known, unreadable) from error


def explained(message: str, known: Sequence[str], unreadable: Mapping[str, str]) -> CarbonError:
    """The error for DuckDB's *message*, without its drawing of the line; with the names there are, if one was wrong."""
    kind, _, said = message.partition("\n\nLINE ")[0].partition(": ")
    if found := _UNKNOWN_TABLE.match(said):
        for dataset, reason in unreadable.items():
            if found[1] in {dataset, dataset.partition(".")[2]}:
                return StorageFailed(f"the files of {dataset} cannot be queried: {reason}")
        names = ", ".join(known) or "none; nothing was published yet"
        return UsageError(f"there is no dataset called {found[1]}", remedy=f"Datasets: {names}.")
    if kind == "Permission Error":
        return UsageError("a query reads the lakehouse's datasets and nothing else", remedy="Name a dataset.")
    if kind == "Out of Memory Error":
        return UsageError(f"the query needs more than {MEMORY_LIMIT} of memory", remedy="Select fewer rows or columns.")
    return UsageError(" ".join((said or message).split()), remedy="Correct the query; its dialect is DuckDB's.")
