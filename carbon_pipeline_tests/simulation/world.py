"""Two tenants' sources, one catalog, one control plane, and processes that sync, sweep and clean up between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.gate.verdict import Actor, Role
from carbon_pipeline.identity import CredentialId, WorkspaceId
from carbon_pipeline.ratify.orphans import remove_orphans
from carbon_pipeline.ratify.sweep import SweepReport, Terms, sweep
from carbon_pipeline.source.relation import Relation
from carbon_pipeline.sync import Order, Ports, Receipt, prepare, publish
from carbon_pipeline_tests.simulation.clock import ManualClock
from carbon_pipeline_tests.simulation.control_plane import ControlPlane, Credential
from carbon_pipeline_tests.simulation.faults import Killed, Plan
from carbon_pipeline_tests.simulation.memory_catalog import Identifier, MemoryCatalog
from carbon_pipeline_tests.simulation.memory_lake import MemoryJanitor, MemoryLake
from carbon_pipeline_tests.simulation.memory_ledger import MemoryFileList, MemoryLedger
from carbon_pipeline_tests.simulation.memory_source import CANARY, Database, MemorySource, relation
from carbon_pipeline_tests.simulation.process import Process

SWEEPER = Actor(user="sweeper")
NAMES = ("ada", "bob")
RELATIONS: dict[str, Relation] = {name: relation(f"{name}s", oid) for oid, name in enumerate(NAMES, start=16_400)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One tenant with one source of one table."""

    name: str
    actor: Actor
    credential: Credential
    database: Database


class World:
    """Everything there is."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.plane = ControlPlane(self.clock)
        self.catalog = MemoryCatalog(self.clock)
        self.tenants = {name: self._tenant(name, number) for number, name in enumerate(NAMES, start=1)}
        self.processes: list[Process] = []
        self.findings: list[str] = []
        """What was seen to go wrong on the way, one line each."""

    def _tenant(self, name: str, number: int) -> Tenant:
        credential = Credential(
            id=CredentialId(self.plane.new_uuid()),
            workspace_id=WorkspaceId(self.plane.new_uuid()),
            workspace=name,
            system_identifier=number,
        )
        self.plane.credentials[credential.id] = credential
        self.plane.members[credential.workspace_id, name] = Role.OWNER
        self.plane.members[credential.workspace_id, SWEEPER.user] = Role.OWNER
        return Tenant(
            name=name, actor=Actor(user=name), credential=credential, database=Database(RELATIONS[name], number)
        )

    def process(self, name: str, tenant: str | None, plan: Plan | None = None) -> Process:
        """A new process."""
        made = Process(f"{name} {len(self.processes) + 1}", tenant, plan)
        made.started_at = self.clock.ticked
        self.processes.append(made)
        return made

    def sync(self, tenant: str = "ada", plan: Plan | None = None) -> Process:
        """A process that syncs a tenant's table, run until it ends or is held."""
        process = self.process(f"sync of {tenant}", tenant, plan)
        return self._run(process, lambda: self._sync(process, self.tenants[tenant]))

    def _sync(self, process: Process, tenant: Tenant) -> Receipt:
        source = MemorySource(tenant.database, process)
        ports = Ports(source=source, lake=MemoryLake(self.catalog, process), ledger=MemoryLedger(self.plane, process))
        order = Order(
            credential_id=tenant.credential.id,
            relation=tenant.database.relation,
            found=source.introspect(),
            actor=tenant.actor,
        )
        with prepare(ports, order) as prepared:
            return publish(prepared)

    def sweep(self, plan: Plan | None = None, terms: Terms | None = None) -> Process:
        """A process that settles what can be settled, held to its own terms when it is done."""
        process = self.process("sweep", None, plan)
        wanted = terms or Terms()

        def job() -> SweepReport:
            ledger, lake = MemoryLedger(self.plane, process), MemoryLake(self.catalog, process)
            return sweep(ledger, lake, SWEEPER, wanted)

        before = self.fingerprint()
        self._run(process, job)
        if process.is_done:
            self._audit(process, wanted, unchanged=before == self.fingerprint())
        return process

    def clean_up(self, min_age_hours: float, plan: Plan | None = None) -> Process:
        """A process that removes what aborted writes left behind."""
        process = self.process("clean-up", None, plan)
        files, janitor = MemoryFileList(self.plane, process), MemoryJanitor(self.catalog, process)
        return self._run(process, lambda: remove_orphans(files, janitor, min_age_hours))

    def _run(self, process: Process, job: Callable[[], object]) -> Process:
        def guarded() -> object:
            try:
                return job()
            except (Killed, KeyboardInterrupt):
                raise
            except CarbonError as error:
                self._listen(process, error)
                raise

        return process.run(guarded)

    def _listen(self, process: Process, error: CarbonError) -> None:
        said = " ".join([error.message, error.remedy, *getattr(error, "__notes__", ())])
        if CANARY in said:
            self.findings.append(f"9: {process.name} gave a secret away: {error.kind}")

    def _audit(self, process: Process, terms: Terms, *, unchanged: bool) -> None:
        """A sweep changes nothing on a dry run, aborts at most so many, and leaves alone what is young or alive."""
        own = [event for event in self.plane.events if event.by == process.name]
        if terms.dry_run and not unchanged:
            self.findings.append(f"{process.name}: a dry run changed something")
        if sum(event.after == "aborted" for event in own) > terms.aborts_max:
            self.findings.append(f"{process.name}: it aborted more than {terms.aborts_max}")
        for event in own:
            if event.lease_was_live or event.age_seconds < terms.min_age_seconds:
                self.findings.append(f"{process.name}: it settled {event.operation_id}, which was young or alive")

    def fingerprint(self) -> Any:
        """Everything that a dry run, or a second sweep, must leave as it is."""
        catalog, plane = self.catalog, self.plane
        operations = [(row.operation, row.ruling, row.reason) for row in plane.operations.values()]
        datasets = [(row.dataset, row.committed) for row in plane.datasets.values()]
        tables = [(name, table.uuid, table.main, table.properties) for name, table in catalog.tables.items()]
        return (operations, datasets, tables, sorted(catalog.store), len(plane.events), len(catalog.landings))

    def dataset_of(self, tenant: str) -> Dataset | None:
        """The tenant's dataset, once there is one."""
        rows = self.plane.datasets.values()
        wanted = self.tenants[tenant].credential.id
        return next((self.plane.dataset(row.dataset.id) for row in rows if row.dataset.credential_id == wanted), None)

    def table_of(self, tenant: str) -> Identifier | None:
        """The name of the tenant's table, once there is one."""
        dataset = self.dataset_of(tenant)
        return dataset.identifier if dataset is not None and dataset.identifier in self.catalog.tables else None

    def held(self) -> list[Process]:
        """The processes that wait to be told to go on."""
        return [process for process in self.processes if process.is_held]

    def end(self) -> None:
        """Let no thread outlive the world."""
        for process in self.held():
            process.kill()


def impatient(minutes: float = 5, **changes: Any) -> Terms:
    """A sweep's terms with this minimum age."""
    return replace(Terms(min_age_seconds=minutes * 60), **changes)
