"""A lake that shows of each operation what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.outcome import Outcome
from carbon_pipeline.lake.port import Announce, Janitor, Lake, Staged
from carbon_pipeline.ledger.operation import Intent, Operation, Permit, TableHead
from carbon_pipeline.ratify.evidence import Absent, Evidence
from carbon_pipeline.schema.mapping import Mapping as ColumnsMapping

ABSENT = Absent(head_snapshot_id=5, seen=None)


class ScriptedLake(Lake):
    """Shows `ABSENT` of every operation that has no evidence of its own. It only takes part in ratifying."""

    def __init__(
        self,
        shows: Mapping[OperationId, Evidence] | None = None,
        *,
        on_observe: Callable[[Operation], None] = lambda _: None,
    ) -> None:
        self._shows = dict(shows or {})
        self._on_observe = on_observe
        self.observed: list[OperationId] = []
        self.fenced: list[OperationId] = []

    def ensure_table(self, dataset: Dataset, mapping: ColumnsMapping) -> TableHead:
        """Nothing is written in these tests."""
        raise NotImplementedError

    def stage(
        self, intent: Intent, mapping: ColumnsMapping, batches: Iterable[pa.RecordBatch], announce: Announce
    ) -> Staged:
        """Nothing is written in these tests."""
        raise NotImplementedError

    def commit(self, permit: Permit, staged: Staged) -> Outcome:
        """Nothing is written in these tests."""
        raise NotImplementedError

    def observe(self, operation: Operation) -> Evidence:
        """What the script says."""
        self.observed.append(operation.id)
        self._on_observe(operation)
        return self._shows.get(operation.id, ABSENT)

    def fence(self, operation: Operation, absence: Absent) -> bool:
        """Always stands."""
        self.fenced.append(operation.id)
        return True


class ScriptedJanitor(Janitor):
    """Calls files unreferenced unless told otherwise, and remembers what it removed."""

    def __init__(self, referenced: Iterable[str] = ()) -> None:
        self._referenced = frozenset(referenced)
        self.removed: list[str] = []

    def unreferenced(self, dataset: Dataset, paths: Sequence[str]) -> Sequence[str]:
        """Those that the script does not name."""
        return [path for path in paths if path not in self._referenced]

    def remove(self, dataset: Dataset, paths: Sequence[str]) -> None:
        """Remembered only."""
        self.removed += paths
