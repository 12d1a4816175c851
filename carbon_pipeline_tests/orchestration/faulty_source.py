"""Sources that break in the middle of a table, or have a person interrupt the process there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from carbon_pipeline.errors import CarbonError
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.port import Source
from carbon_pipeline.source.reading import Reading
from carbon_pipeline.source.relation import Introspection
from carbon_pipeline.verify.digest import Digest


@dataclass
class FaultySource(Source):
    """A real source that calls `fault` after the first batch of the tables it is to befall."""

    real: Source
    error: CarbonError | None
    """Raised; without one the process gets the signal of Ctrl-C, which is what Dagster sends to cancel a run."""
    tables: frozenset[str] | None = None
    """All of them when none are named."""
    left: list[int] = field(default_factory=lambda: [1_000])
    """How many times more; a list, so that sources made one after the other can count together."""

    def introspect(self) -> Introspection:
        """As it is."""
        return self.real.introspect()

    def digest(self, mapping: Mapping) -> Digest:
        """As it is."""
        return self.real.digest(mapping)

    @contextmanager
    def read(self, mapping: Mapping) -> Iterator[Reading]:
        """As it is, up to the fault."""
        with self.real.read(mapping) as reading:
            befallen = self.tables is None or mapping.relation.name in self.tables
            yield replace(reading, batches=self._broken(reading.batches)) if befallen else reading

    def _broken(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if self.left[0] > 0:
                self.left[0] -= 1
                self._fault()

    def _fault(self) -> None:
        if self.error is not None:
            raise self.error
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
