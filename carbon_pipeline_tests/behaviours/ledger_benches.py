"""A ledger with a relation to write about: in memory, and on PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import timedelta
from itertools import count

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.control_plane.sql.file_list import SqlFileList
from carbon_pipeline.deployment import Deployment
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.gate.verdict import Actor, Role, admit
from carbon_pipeline.identity import CredentialId
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.operation import Intent, OpenRequest, Operation, Settlement, TableHead, Unsettled
from carbon_pipeline.ledger.port import Claim, FileList, Ledger
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.schema.mapping import map_relation
from carbon_pipeline.source.reading import Moment
from carbon_pipeline.source.relation import Introspection, Relation
from carbon_pipeline_tests.simulation.clock import START
from carbon_pipeline_tests.simulation.memory_ledger import MemoryFileList, MemoryLedger
from carbon_pipeline_tests.simulation.process import Process
from carbon_pipeline_tests.simulation.world import World

SNAPSHOT = 4_711
TWO_TABLES = "CREATE TABLE goods (id int8 PRIMARY KEY, value text); CREATE TABLE others (id int8 PRIMARY KEY);"


class LedgerBench(ABC):
    """One ledger, its file list, and a credential with at least one relation."""

    ledger: Ledger
    files: FileList
    actor: Actor
    credential_id: CredentialId
    found: Introspection

    def __init__(self) -> None:
        self._lsn = count(1)
        self._snapshot_ids = count(SNAPSHOT)

    @abstractmethod
    def another_dataset(self) -> Dataset:
        """A dataset beside the one of `dataset`."""

    def dataset(self) -> Dataset:
        """The first relation's dataset, as the ledger knows it now."""
        return self.ledger.coordinate(self.credential_id, self.found.relations[0], self.found)

    def moment(self) -> Moment:
        """A moment later than any before."""
        lsn = next(self._lsn)
        time = START + timedelta(seconds=lsn)
        return Moment(system_identifier=self.found.system_identifier, lsn=lsn, time=time)

    def request(self, dataset: Dataset, moment: Moment | None = None) -> OpenRequest:
        """A request to replace the dataset's rows."""
        return OpenRequest(
            admitted=admit(dataset, self.actor, Role.OWNER),
            mapping=map_relation(self.found.relations[0]),
            writer=Writer.SYNC_FULL,
            mode=Mode.REPLACE,
            moment=moment or self.moment(),
            head=TableHead(catalog_uri="memory://", warehouse="memory://w", table_uuid="a-uuid", base_snapshot_id=7),
            run_id=None,
        )

    def bring(self, claim: Claim, status: OperationStatus) -> Intent:
        """A new operation, open or committing."""
        intent = claim.open(self.request(self.dataset()))
        if status is OperationStatus.COMMITTING:
            claim.advance(intent, next(self._snapshot_ids))
            operation = claim.unsettled()
            assert operation is not None
            return replace(intent, operation=operation)
        return intent

    def end(self, claim: Claim, ruling: Ruling) -> Operation:
        """A new operation that ends with *ruling*, from a state that it may come from."""
        status = OperationStatus.OPEN if ruling in {Ruling.FAILED, Ruling.NOOP} else OperationStatus.COMMITTING
        intent = self.bring(claim, status)
        claim.settle(intent.operation, settlement(ruling, intent.operation.snapshot_id))
        return intent.operation

    def unsettled(self) -> list[Unsettled]:
        """What a sweep finds of this bench's datasets; others may be at work in the same ledger."""
        mine = {self.dataset().id}
        return [found for found in self.ledger.unsettled(1000) if found.operation.dataset.id in mine]


def settlement(ruling: Ruling, snapshot_id: int | None = SNAPSHOT) -> Settlement:
    """A settlement with its facts where it needs them."""
    facts = SnapshotFacts(
        snapshot_id=snapshot_id or SNAPSHOT,
        parent_snapshot_id=7,
        rows=3,
        size_bytes=30,
        data_files=1,
        has_identity=True,
    )
    return Settlement(ruling=ruling, reason="as told", facts=facts if ruling is Ruling.LANDED else None)


class MemoryLedgerBench(LedgerBench):
    """The twin."""

    def __init__(self) -> None:
        super().__init__()
        world = World()
        tenant, other = world.tenants["ada"], world.tenants["bob"]
        process = Process("bench", "ada")
        self.ledger = MemoryLedger(world.plane, process)
        self.files = MemoryFileList(world.plane, process)
        self.actor = tenant.actor
        self.credential_id = tenant.credential.id
        self.found = _found(tenant.credential.system_identifier, tenant.database.relation)
        self._other = (other.credential.id, _found(other.credential.system_identifier, other.database.relation))

    def another_dataset(self) -> Dataset:
        """The other tenant's."""
        credential_id, found = self._other
        return self.ledger.coordinate(credential_id, found.relations[0], found)


def _found(system_identifier: int, *relations: Relation) -> Introspection:
    return Introspection(
        system_identifier=system_identifier, database="shop", server_version="18.0", relations=relations
    )


class SqlLedgerBench(LedgerBench):
    """The real one."""

    def __init__(self, deployment: Deployment, credential: Credential) -> None:
        super().__init__()
        self.ledger = deployment.ledger
        self.files = SqlFileList(deployment.engine)
        self.actor = deployment.actor
        self.credential_id = credential.id
        self.found = deployment.ports(credential).source.introspect()

    def another_dataset(self) -> Dataset:
        """The second relation's."""
        return self.ledger.coordinate(self.credential_id, self.found.relations[1], self.found)
