"""The control plane's tables in memory, with the rules that PostgreSQL enforces on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from carbon_pipeline.destination.coordinate import DEFAULT_CATALOG, DEFAULT_SCHEMA, Dataset, table_identifier
from carbon_pipeline.gate.verdict import Role
from carbon_pipeline.identity import (
    CredentialId,
    DatasetId,
    OperationId,
    WorkspaceId,
    partition_key,
    relation_name,
)
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ledger.states import FINAL, TRANSITIONS, UNSETTLED, OperationStatus, Ruling, SyncStatus
from carbon_pipeline.source.reading import Moment
from carbon_pipeline.source.relation import Introspection, Relation
from carbon_pipeline_tests.simulation.clock import ManualClock
from carbon_pipeline_tests.simulation.process import Process

LEASE_SECONDS = 120.0


class BrokenRule(AssertionError):
    """A constraint of the database was about to be broken: a mistake, and no fault of the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One source and whose it is."""

    id: CredentialId
    workspace_id: WorkspaceId
    workspace: str
    system_identifier: int


@dataclass(slots=True, kw_only=True)
class OperationRow:
    """One intended write."""

    operation: Operation
    lease_until: datetime
    committed_before: Moment | None
    """What the dataset showed when it opened."""
    ruling: Ruling | None = None
    reason: str | None = None
    facts: SnapshotFacts | None = None
    committing_at: datetime | None = None
    committing_tick: int | None = None
    settled_at: datetime | None = None
    rows_written: int = 0
    files: list[str] = field(default_factory=list)
    files_removed: bool = False

    @property
    def id(self) -> OperationId:
        """The operation's id."""
        return self.operation.id

    @property
    def status(self) -> OperationStatus:
        """Where it stands."""
        return self.operation.status


@dataclass(slots=True, kw_only=True)
class SyncLogRow:
    """An operation's row in the freshness oracle."""

    status: SyncStatus = SyncStatus.PENDING
    moment: Moment | None = None


@dataclass(slots=True, kw_only=True)
class DatasetRow:
    """A relation's home, and the operation that it shows."""

    dataset: Dataset
    oid: int
    committed: OperationId | None = None
    committed_by: Process | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A move of an operation. Events are only ever added."""

    tick: int
    operation_id: OperationId
    before: OperationStatus | None
    after: OperationStatus
    ruling: Ruling | None
    by: str
    lease_was_live: bool
    age_seconds: float


class Session:
    """A connection that holds, or held, a dataset's lock."""

    def __init__(self, plane: ControlPlane, dataset_id: DatasetId, process: Process) -> None:
        self._plane = plane
        self.dataset_id = dataset_id
        self.process = process
        self.is_open = True

    def lose(self) -> None:
        """The connection is gone, and with it the lock."""
        self.is_open = False
        if self._plane.locks.get(self.dataset_id) is self:
            del self._plane.locks[self.dataset_id]


class ControlPlane:
    """The tables, and the locks of those who are connected."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.credentials: dict[CredentialId, Credential] = {}
        self.members: dict[tuple[WorkspaceId, str], Role] = {}
        self.datasets: dict[DatasetId, DatasetRow] = {}
        self.operations: dict[OperationId, OperationRow] = {}
        self.sync_log: dict[OperationId, list[SyncLogRow]] = {}
        self.events: list[Event] = []
        self.locks: dict[DatasetId, Session] = {}
        self._next = 0

    def new_uuid(self) -> UUID:
        """The next id."""
        self._next += 1
        return UUID(int=self._next)

    def cut(self, process: Process) -> None:
        """Every connection of this process is gone."""
        for session in [session for session in self.locks.values() if session.process is process]:
            session.lose()

    def dataset(self, dataset_id: DatasetId) -> Dataset:
        """The dataset with the moment that its committed operation shows."""
        row = self.datasets[dataset_id]
        moment = None if row.committed is None else self.operations[row.committed].operation.moment
        return replace(row.dataset, committed_moment=moment)

    def unsettled(self) -> Iterator[OperationRow]:
        """The open and committing operations, the oldest first."""
        return (row for row in self.operations.values() if row.status in UNSETTLED)

    def find_or_mint(self, credential: Credential, relation: Relation, found: Introspection) -> Dataset:
        """The relation's dataset: by its oid, then by the name of a relation that is gone, then a new one."""
        own = [row for row in self.datasets.values() if row.dataset.credential_id == credential.id]
        row = next((row for row in own if row.oid == relation.oid), None)
        if row is None:
            same_name = (row for row in own if row.dataset.relation == relation.qualified_name)
            row = next((row for row in same_name if row.oid not in found.oids), None)
        if row is None:
            row = self._mint(credential, relation)
        row.oid = relation.oid
        row.dataset = replace(row.dataset, relation=relation.qualified_name)
        return self.dataset(row.dataset.id)

    def _mint(self, credential: Credential, relation: Relation) -> DatasetRow:
        name = relation_name(relation.schema, relation.name)
        dataset = Dataset(
            id=DatasetId(self.new_uuid()),
            workspace_id=credential.workspace_id,
            workspace=credential.workspace,
            credential_id=credential.id,
            catalog=DEFAULT_CATALOG,
            schema=DEFAULT_SCHEMA,
            name=name,
            identifier=table_identifier(credential.workspace, DEFAULT_SCHEMA, name),
            location=f"memory://{credential.workspace}/{name}",
            relation=relation.qualified_name,
            partition_key=partition_key(relation.schema, relation.name),
            committed_moment=None,
        )
        self.datasets[dataset.id] = DatasetRow(dataset=dataset, oid=relation.oid)
        return self.datasets[dataset.id]

    def move(self, row: OperationRow, status: OperationStatus, ruling: Ruling | None, process: Process) -> None:
        """Change an operation's status, which the table of transitions must allow, and put it on record."""
        if status not in TRANSITIONS[row.status]:
            raise BrokenRule(f"an operation cannot go from {row.status} to {status}")
        self.record(row, status, ruling, process)

    def record(self, row: OperationRow, status: OperationStatus, ruling: Ruling | None, process: Process) -> None:
        """Change an operation's status and put it on record."""
        before = None if status is OperationStatus.OPEN else row.status
        self.events.append(
            Event(
                tick=self.clock.tick(),
                operation_id=row.id,
                before=before,
                after=status,
                ruling=ruling,
                by=process.name,
                lease_was_live=row.lease_until > self.clock.now,
                age_seconds=(self.clock.now - row.operation.opened_at).total_seconds(),
            )
        )
        row.operation = replace(row.operation, status=status)
        row.ruling = ruling
        if status in FINAL:
            row.settled_at = self.clock.now

    def lease_end(self) -> datetime:
        """When a lease that is granted now ends."""
        return self.clock.now + timedelta(seconds=LEASE_SECONDS)
