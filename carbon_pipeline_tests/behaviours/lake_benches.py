"""A lake with one dataset: in memory, and Iceberg on a SQL catalog and real files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.gate.verdict import Role
from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.iceberg import stamps
from carbon_pipeline.lake.iceberg.janitor import IcebergJanitor
from carbon_pipeline.lake.outcome import Landed, Outcome
from carbon_pipeline.lake.port import Janitor, Lake, Staged
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.operation import Intent, Operation, Permit
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.schema.mapping import Mapping, map_relation
from carbon_pipeline.source.reading import Moment
from carbon_pipeline.source.relation import Introspection
from carbon_pipeline_tests.lake.workshop import Workshop
from carbon_pipeline_tests.simulation.clock import START
from carbon_pipeline_tests.simulation.memory_catalog import WATERMARK
from carbon_pipeline_tests.simulation.memory_lake import MemoryJanitor, MemoryLake
from carbon_pipeline_tests.simulation.memory_source import Rows, relation
from carbon_pipeline_tests.simulation.process import Process
from carbon_pipeline_tests.simulation.world import World

MAPPING: Mapping = map_relation(relation("t", 1))
"""A number and a text."""

ONE: Rows = ((1, "one"), (2, "two"), (3, "three"))
OTHER: Rows = ((1, "uno"), (4, "quattro"))


def batches(rows: Rows) -> Iterator[pa.RecordBatch]:
    """The rows, a batch for each."""
    for key, value in rows:
        yield pa.RecordBatch.from_arrays([pa.array([key], pa.int64()), pa.array([value])], schema=MAPPING.arrow_schema)


class Written:
    """A write on its way: its operation, and what is staged of it."""

    def __init__(self, permit: Permit, staged: Staged) -> None:
        self.permit = permit
        self.staged = staged
        self.operation: Operation = permit.intent.operation


class LakeBench(ABC):
    """One lake, one dataset, and what others do to its table."""

    lake: Lake
    janitor: Janitor
    dataset: Dataset

    def __init__(self) -> None:
        self.announced: list[str] = []
        self._seq = 0

    def open(self) -> Intent:
        """An operation on the table as it is."""
        head = self.lake.ensure_table(self.dataset, MAPPING)
        self._seq += 1
        operation = Operation(
            id=OperationId(UUID(int=self._seq)),
            dataset=self.dataset,
            seq=self._seq,
            status=OperationStatus.OPEN,
            writer=Writer.SYNC_FULL,
            mode=Mode.REPLACE,
            table_uuid=head.table_uuid,
            base_snapshot_id=head.base_snapshot_id,
            moment=Moment(system_identifier=1, lsn=self._seq, time=START + timedelta(seconds=self._seq)),
            opened_at=START,
            snapshot_id=None,
        )
        return Intent(operation=operation, code_version="bench")

    def stage(self, rows: Rows) -> Written:
        """Everything up to the request."""
        intent = self.open()
        staged = self.lake.stage(intent, MAPPING, batches(rows), self.announced.extend)
        moved = replace(intent.operation, status=OperationStatus.COMMITTING, snapshot_id=staged.snapshot_id)
        return Written(Permit(intent=replace(intent, operation=moved)), staged)

    def commit(self, written: Written) -> Outcome:
        """The request."""
        return self.lake.commit(written.permit, written.staged)

    def publish(self, rows: Rows) -> Written:
        """A whole write that lands."""
        written = self.stage(rows)
        outcome = self.commit(written)
        assert isinstance(outcome, Landed), outcome
        return written

    @abstractmethod
    def rows(self) -> Rows:
        """What a reader finds, sorted."""

    @abstractmethod
    def existing(self, paths: Sequence[str]) -> list[str]:
        """Those of the files that are there."""

    @abstractmethod
    def roll_back(self) -> None:
        """Main goes back by one snapshot."""

    @abstractmethod
    def commit_foreign(self) -> None:
        """Another engine commits on top, without a mark of ours."""

    @abstractmethod
    def expire(self) -> None:
        """Every snapshot but main's is forgotten."""

    @abstractmethod
    def overwrite_watermark(self) -> None:
        """Somebody puts nonsense into the watermark's place."""

    @abstractmethod
    def drop(self) -> None:
        """The table goes."""


class MemoryLakeBench(LakeBench):
    """The twin."""

    def __init__(self) -> None:
        super().__init__()
        world = World()
        tenant = world.tenants["ada"]
        assert world.plane.members[tenant.credential.workspace_id, "ada"] is Role.OWNER
        process = Process("bench", "ada")
        self._catalog = world.catalog
        self.lake = MemoryLake(world.catalog, process)
        self.janitor = MemoryJanitor(world.catalog, process)
        made = tenant.database.relation
        found = Introspection(system_identifier=1, database="shop", server_version="18.0", relations=(made,))
        self.dataset = world.plane.find_or_mint(tenant.credential, made, found)

    def rows(self) -> Rows:
        """Main's."""
        return tuple(sorted(self._catalog.rows(self.dataset.identifier) or ()))

    def existing(self, paths: Sequence[str]) -> list[str]:
        """In the store."""
        return [path for path in paths if path in self._catalog.store]

    def roll_back(self) -> None:
        """By hand."""
        self._catalog.roll_back(self.dataset.identifier)

    def commit_foreign(self) -> None:
        """A compaction."""
        self._catalog.compact(self.dataset.identifier)

    def expire(self) -> None:
        """By hand."""
        self._catalog.expire(self.dataset.identifier)

    def overwrite_watermark(self) -> None:
        """By hand."""
        self._catalog.set_property(self.dataset.identifier, WATERMARK, "0:nobody")

    def drop(self) -> None:
        """By hand."""
        self._catalog.drop(self.dataset.identifier, recreate=False)


class IcebergLakeBench(LakeBench):
    """The real one."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._workshop = Workshop(folder)
        self.lake = self._workshop.lake
        self.janitor = IcebergJanitor(self._workshop.catalogs)
        self.dataset = self._workshop.dataset

    def rows(self) -> Rows:
        """PyIceberg's own reader."""
        table = self._workshop.table.scan(selected_fields=("id", "value")).to_arrow()
        return tuple(sorted(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True)))

    def existing(self, paths: Sequence[str]) -> list[str]:
        """On disk."""
        return [path for path in paths if Path(path.removeprefix("file://")).exists()]

    def roll_back(self) -> None:
        """By PyIceberg."""
        table = self._workshop.table
        head = table.current_snapshot()
        assert head is not None
        assert head.parent_snapshot_id is not None
        table.manage_snapshots().rollback_to_snapshot(head.parent_snapshot_id).commit()

    def commit_foreign(self) -> None:
        """PyIceberg appends nothing, which leaves a snapshot."""
        table = self._workshop.table
        table.append(table.schema().as_arrow().empty_table())

    def expire(self) -> None:
        """By PyIceberg."""
        table = self._workshop.table
        old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != table.metadata.current_snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def overwrite_watermark(self) -> None:
        """By PyIceberg."""
        with self._workshop.table.transaction() as transaction:
            transaction.set_properties({stamps.WATERMARK: "0:nobody"})

    def drop(self) -> None:
        """By PyIceberg."""
        self._workshop.catalogs.open("main").drop_table(self.dataset.identifier)
