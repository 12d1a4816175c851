"""A source in memory: one relation, and every version that it ever had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa

from carbon_pipeline.errors import SourceUnreachable
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.port import Source
from carbon_pipeline.source.reading import Moment, Reading
from carbon_pipeline.source.relation import Column, Introspection, Keys, Relation, RelationKind, TypeKind
from carbon_pipeline.verify.digest import Digest
from carbon_pipeline_tests.simulation.clock import START
from carbon_pipeline_tests.simulation.process import Process

CANARY = "s3cr3t-canary-0xC0FFEE"
"""In every failure of a driver or a file system; it must never come out in a word of ours."""

Rows = tuple[tuple[int, str], ...]

BATCH_ROWS = 2


def relation(name: str, oid: int) -> Relation:
    """A table of a number and a text, the number being its key."""
    columns = tuple(
        Column(
            attnum=attnum,
            name=column,
            declared_type=declared,
            type_name=declared,
            type_kind=TypeKind.BUILT_IN,
            precision=None,
            scale=None,
            not_null=attnum == 1,
            comment=None,
        )
        for attnum, (column, declared) in enumerate((("id", "int8"), ("value", "text")), start=1)
    )
    return Relation(
        oid=oid,
        schema="public",
        name=name,
        kind=RelationKind.TABLE,
        columns=columns,
        keys=Keys(primary=("id",)),
        estimated_rows=None,
        size_bytes=0,
        comment=None,
    )


class Database:
    """The customer's database. Every version is one transaction, and its number is the LSN."""

    def __init__(self, made: Relation, system_identifier: int) -> None:
        self.relation = made
        self.system_identifier = system_identifier
        self.versions: list[Rows] = [()]
        self.change()

    def change(self) -> None:
        """Every row gets a new value, one is new, and from time to time one goes."""
        number = len(self.versions)
        keys = range(number // 3, number + 3)
        self.versions.append(tuple((key, f"{self.relation.name} {key} as of {number}") for key in keys))

    @property
    def lsn(self) -> int:
        """Where it stands."""
        return len(self.versions) - 1

    @property
    def rows(self) -> Rows:
        """What it holds now."""
        return self.versions[-1]

    @property
    def moment(self) -> Moment:
        """Now."""
        return Moment(system_identifier=self.system_identifier, lsn=self.lsn, time=START + timedelta(seconds=self.lsn))


def _unreachable() -> BaseException:
    return SourceUnreachable("the source does not answer")


def _driver_broke() -> BaseException:
    return RuntimeError(f"connection to postgresql://u:{CANARY}@db failed")


class MemorySource(Source):
    """The source as one process sees it."""

    def __init__(self, database: Database, process: Process) -> None:
        self._database = database
        self._process = process

    def introspect(self) -> Introspection:
        """Its one relation."""
        return self._process.cross("source.introspect", self._found, _unreachable)

    def _found(self) -> Introspection:
        return Introspection(
            system_identifier=self._database.system_identifier,
            database="shop",
            server_version="18.0",
            relations=(self._database.relation,),
        )

    @contextmanager
    def read(self, mapping: Mapping) -> Iterator[Reading]:
        """The rows of this moment, however late they are drained."""
        rows, moment = self._process.cross(
            "source.read", lambda: (self._database.rows, self._database.moment), _unreachable
        )
        yield Reading(moment=moment, batches=self._batches(mapping, rows))

    def _batches(self, mapping: Mapping, rows: Rows) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), BATCH_ROWS):
            part = rows[start : start + BATCH_ROWS]
            yield self._process.cross("source.batch", lambda part=part: _batch(mapping, part), _driver_broke)  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def digest(self, mapping: Mapping) -> Digest:
        """Count, and a checksum that only equals itself."""
        rows = self._process.cross("source.digest", lambda: self._database.rows, _unreachable)
        return Digest(rows=len(rows), checksum=hash(tuple(sorted(rows))) & 0xFFFF_FFFF_FFFF_FFFF)


def _batch(mapping: Mapping, rows: Rows) -> pa.RecordBatch:
    keys, values = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(values)], schema=mapping.arrow_schema)


def rows_of(batch: pa.RecordBatch) -> Rows:
    """A batch as tuples."""
    return tuple(zip(*(column.to_pylist() for column in batch.columns), strict=True))
