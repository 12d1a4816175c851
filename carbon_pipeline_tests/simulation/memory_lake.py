"""The lake's protocol on the catalog in memory: what `lake/iceberg` does, on tables that are small enough to see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from uuid import UUID

import pyarrow as pa

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CommitRefused, LakeError, LakeUnreachable, StorageFailed
from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.outcome import Landed, Outcome, Refused, SnapshotFacts, Unknown
from carbon_pipeline.lake.port import Announce, Janitor, Lake, Staged
from carbon_pipeline.ledger.operation import Intent, Operation, Permit, TableHead
from carbon_pipeline.ratify.evidence import (
    Absent,
    Broken,
    Evidence,
    OffMain,
    OnMain,
    TargetReplaced,
    Unreachable,
    Witness,
    WitnessOnly,
)
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline_tests.simulation.memory_catalog import (
    DATASET,
    FENCE,
    OPERATION_ID,
    WATERMARK,
    Conflict,
    MemoryCatalog,
    NoAnswer,
    NoSuchTable,
    Request,
    Snapshot,
    Table,
    paths_of,
)
from carbon_pipeline_tests.simulation.memory_source import rows_of
from carbon_pipeline_tests.simulation.process import Process


def watermark_of(operation: Operation) -> str:
    """The watermark that an operation leaves."""
    return f"{operation.seq}:{operation.id}"


class MemoryLake(Lake):
    """The lake as one process sees it."""

    def __init__(self, catalog: MemoryCatalog, process: Process) -> None:
        self._catalog = catalog
        self._process = process

    def ensure_table(self, dataset: Dataset, mapping: Mapping) -> TableHead:
        """See `Lake.ensure_table`."""
        try:
            table = self._load_or_create(dataset)
        except NoAnswer:
            raise LakeUnreachable("the catalog does not answer") from None
        if table.properties.get(DATASET) != str(dataset.id):
            raise CommitRefused(f"the table in the place of {dataset.coordinate} belongs to somebody else")
        return TableHead(
            catalog_uri="memory://catalog",
            warehouse="memory://warehouse",
            table_uuid=table.uuid,
            base_snapshot_id=table.main,
        )

    def _load_or_create(self, dataset: Dataset) -> Table:
        try:
            return self._catalog.load(self._process, dataset.identifier)
        except NoSuchTable:
            return self._catalog.create(self._process, dataset.identifier, {DATASET: str(dataset.id)})

    def stage(self, intent: Intent, mapping: Mapping, batches: Iterable[pa.RecordBatch], announce: Announce) -> Staged:
        """See `Lake.stage`. A file per batch, and one for the manifests."""
        operation = intent.operation
        self._load_at_base(operation)
        snapshot_id = self._catalog.new_id()
        paths: list[str] = []
        rows = 0
        try:
            for path, part in self._parts(operation, batches):
                paths.append(path)
                announce([path])
                self._put(path, part)
                rows += len(part)
        except BaseException:
            for path in paths:
                with suppress(Exception):
                    self._catalog.delete(self._process, path)
            raise
        snapshot = Snapshot(
            id=snapshot_id,
            parent=operation.base_snapshot_id,
            summary={OPERATION_ID: str(operation.id)},
            files=tuple((path, snapshot_id) for path in paths),
            rows=rows,
        )
        return Staged(
            rows=rows,
            size_bytes=rows,
            snapshot_id=snapshot_id,
            files=tuple(paths),
            plan=self._plan(operation, snapshot),
        )

    def _parts(
        self, operation: Operation, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[str, tuple[tuple[int, str], ...]]]:
        folder = f"{operation.dataset.location}/data/{operation.id}"
        for number, batch in enumerate(batches):
            yield f"{folder}/{number}", rows_of(batch)
        yield f"{folder}/manifest", ()

    def _put(self, path: str, rows: tuple[tuple[int, str], ...]) -> None:
        try:
            self._catalog.put(self._process, path, rows)
        except OSError:
            raise StorageFailed("writing data files failed") from None

    def _plan(self, operation: Operation, snapshot: Snapshot) -> Request:
        return Request(
            identifier=operation.dataset.identifier,
            uuid=operation.table_uuid,
            asserts_main=True,
            snapshot=snapshot,
            properties={WATERMARK: watermark_of(operation)},
            by=self._process.name,
        )

    def _load_at_base(self, operation: Operation) -> None:
        try:
            table = self._catalog.load(self._process, operation.dataset.identifier)
        except (NoAnswer, NoSuchTable):
            raise LakeUnreachable("the catalog does not answer") from None
        if (table.uuid, table.main) != (operation.table_uuid, operation.base_snapshot_id):
            raise CommitRefused(f"{operation.dataset.coordinate} changed after the operation opened")

    def commit(self, permit: Permit, staged: Staged) -> Outcome:
        """See `Lake.commit`."""
        operation = permit.intent.operation
        assert isinstance(staged.plan, Request)
        try:
            return self._commit(operation, staged.plan)
        except BaseException as error:
            return Unknown(reason=type(error).__name__, cause=error)

    def _commit(self, operation: Operation, plan: Request) -> Outcome:
        before = self.observe(operation)
        if isinstance(before, OnMain):
            return Landed(facts=before.facts)
        if not isinstance(before, Absent):
            return Unknown(reason="the request was not sent", cause=None)
        if self._explains_a_conflict(before, operation):
            return Refused(reason="another commit came before the request was sent")
        try:
            table = self._catalog.request(self._process, plan)
        except BaseException as error:
            return self._classify(operation, error)
        return Landed(facts=facts_of(table.snapshots[plan.snapshot.id]))

    def _classify(self, operation: Operation, answer: BaseException) -> Outcome:
        """What a failed request came to. Only what the table shows counts."""
        evidence = self.observe(operation) if isinstance(answer, Exception) else Unreachable(reason="interrupted")
        if isinstance(evidence, OnMain):
            return Landed(facts=evidence.facts)
        if isinstance(answer, Conflict) and self._explains_a_conflict(evidence, operation):
            return Refused(reason="another commit came first")
        return Unknown(reason=f"the catalog answered with {type(answer).__name__}", cause=answer)

    def _explains_a_conflict(self, evidence: Evidence, operation: Operation) -> bool:
        return isinstance(evidence, Absent) and evidence.head_snapshot_id != operation.base_snapshot_id

    def observe(self, operation: Operation) -> Evidence:
        """See `Lake.observe`."""
        try:
            table = self._catalog.load(self._process, operation.dataset.identifier)
        except NoSuchTable:
            return TargetReplaced(reason="the table is gone")
        except NoAnswer:
            return Unreachable(reason="the catalog does not answer")
        return evidence_in(table, self._catalog.logs[table.uuid], operation)

    def fence(self, operation: Operation, absence: Absent) -> bool:
        """See `Lake.fence`."""
        seen = absence.seen
        assert isinstance(seen, Table)
        try:
            self._catalog.request(self._process, self._fence_on(seen, operation))
        except Exception:
            return self._is_fenced(operation)
        return True

    def _fence_on(self, seen: Table, operation: Operation) -> Request:
        head = seen.head
        snapshot = Snapshot(
            id=self._catalog.new_id(),
            parent=seen.main,
            summary={FENCE: str(operation.id)},
            files=() if head is None else head.files,
            rows=0 if head is None else head.rows,
        )
        return Request(
            identifier=operation.dataset.identifier,
            uuid=seen.uuid,
            asserts_main=True,
            snapshot=snapshot,
            properties={},
            by=self._process.name,
        )

    def _is_fenced(self, operation: Operation) -> bool:
        try:
            head = self._catalog.load(self._process, operation.dataset.identifier).head
        except (NoAnswer, NoSuchTable):
            raise LakeUnreachable("the catalog does not answer") from None
        return head is not None and head.summary.get(FENCE) == str(operation.id)


class MemoryJanitor(Janitor):
    """The clean-up as one process sees it."""

    def __init__(self, catalog: MemoryCatalog, process: Process) -> None:
        self._catalog = catalog
        self._process = process

    def unreferenced(self, dataset: Dataset, paths: Sequence[str]) -> Sequence[str]:
        """See `Janitor.unreferenced`."""
        try:
            table = self._catalog.load(self._process, dataset.identifier)
        except NoSuchTable:
            raise LakeError("the table is gone, so nothing says what its files belong to") from None
        except NoAnswer:
            raise LakeUnreachable("the catalog does not answer") from None
        held = set(paths_of(table.snapshots.values()))
        return [path for path in paths if path not in held]

    def remove(self, dataset: Dataset, paths: Sequence[str]) -> None:
        """See `Janitor.remove`."""
        for path in paths:
            try:
                self._catalog.delete(self._process, path)
            except OSError:
                raise StorageFailed("a file could not be removed") from None


def facts_of(snapshot: Snapshot) -> SnapshotFacts:
    """What a snapshot says of itself."""
    return SnapshotFacts(
        snapshot_id=snapshot.id,
        parent_snapshot_id=snapshot.parent,
        rows=snapshot.rows,
        size_bytes=snapshot.rows,
        data_files=len(snapshot.files),
        has_identity=True,
    )


def evidence_in(table: Table, log: Sequence[Table], operation: Operation) -> Evidence:
    """What a table shows of an operation: presence everywhere first, then absence."""
    if table.uuid != operation.table_uuid:
        return TargetReplaced(reason="another table stands in its place")
    marker = str(operation.id)
    chain, missing = table.ancestry()
    for snapshot in chain:
        if snapshot.summary.get(OPERATION_ID) == marker:
            return OnMain(facts=facts_of(snapshot))
    for snapshot in table.snapshots.values():
        if snapshot.summary.get(OPERATION_ID) == marker:
            return OffMain(facts=facts_of(snapshot), shown_operation_id=newest_shown(chain))
    absence = absence_in(table, chain, missing, operation)
    named = table.properties.get(WATERMARK) == watermark_of(operation)
    if isinstance(absence, Absent) and not named:
        return absence
    witnesses = frozenset(witnesses_in(table, log, operation))
    return WitnessOnly(witnesses=witnesses) if witnesses else absence


def newest_shown(chain: Iterable[Snapshot]) -> OperationId | None:
    """The newest operation in a chain of snapshots."""
    markers = (snapshot.summary.get(OPERATION_ID) for snapshot in chain)
    return next((OperationId(UUID(marker)) for marker in markers if marker), None)


def absence_in(table: Table, chain: list[Snapshot], missing: int | None, operation: Operation) -> Absent | Broken:
    """Whether main's ancestry is unbroken back to the operation's base."""
    base = operation.base_snapshot_id
    if base in {snapshot.id for snapshot in chain} or (base is None and missing is None and is_whole(table, chain)):
        return Absent(head_snapshot_id=table.main, seen=table)
    return Broken(reason="the base is not in main's ancestry" if missing is None else "main's ancestry has expired")


def is_whole(table: Table, chain: list[Snapshot]) -> bool:
    """Whether a chain goes back to the table's very first snapshot. That it names no parent does not say so."""
    return chain[-1].sequence == 1 if chain else table.last_sequence == 0


def witnesses_in(table: Table, log: Sequence[Table], operation: Operation) -> Iterator[Witness]:
    """Whatever else speaks for an operation."""
    marker = str(operation.id)
    if table.properties.get(WATERMARK) == watermark_of(operation):
        yield Witness.WATERMARK
    if any(snapshot.summary.get(OPERATION_ID) == marker for each in log for snapshot in each.snapshots.values()):
        yield Witness.METADATA_LOG
    if table.head is not None and operation.snapshot_id in {added_by for _, added_by in table.head.files}:
        yield Witness.MANIFEST
