"""A control plane of a test's own, with a credential and numbered tables: for what looks at all operations at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Engine

from carbon_pipeline.control_plane.records import Credential, Governance
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.control_plane.sql.migrate import migrate
from carbon_pipeline.destination.coordinate import DEFAULTED, Dataset
from carbon_pipeline.gate.verdict import Role
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.samples import (
    ACTOR,
    PLANNED,
    SYSTEM,
    Address,
    found,
    leave,
    ledger_on,
    relation,
)

_TABLES = tuple(relation(f"t{number}", 1000 + number) for number in range(40))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A migrated control plane whose ledger grants no lease: whatever is left there is its writer's no more."""

    address: Address
    engine: Engine
    directory: Directory
    ledger: SqlLedger
    credential: Credential

    def table(self, number: int) -> Relation:
        """The numbered table."""
        return _TABLES[number]

    def dataset(self, number: int) -> Dataset:
        """The numbered table's dataset."""
        return self.ledger.coordinate(self.credential.id, self.table(number), found(*_TABLES))

    def leave(
        self,
        number: int,
        status: OperationStatus,
        *,
        ledger: SqlLedger | None = None,
        files: Iterable[str] = (),
        snapshot_id: int = PLANNED,
    ) -> Operation:
        """An unsettled operation of the numbered table, whose writer is gone."""
        made, dataset = self.table(number), self.dataset(number)
        return leave(ledger or self.ledger, dataset, made, status, files=files, snapshot_id=snapshot_id)


def plane_at(address: Address) -> Plane:
    """A new control plane in this empty database."""
    engine = address.engine()
    migrate(engine)
    directory = Directory(engine)
    directory.register_catalog("main", kind="sql", uri_host="127.0.0.1", governance=Governance.OWN)
    workspace = directory.create_workspace("plane", owner="owner")
    directory.add_member(workspace.id, ACTOR.user, Role.OWNER, invited_by="owner")
    credential = directory.add_credential(
        workspace=workspace,
        name="shop",
        destination=DEFAULTED,
        system_identifier=SYSTEM,
        created_by="ada",
        seal=lambda _: b"sealed",
    )
    ledger = ledger_on(engine, lease_seconds=0)
    return Plane(address=address, engine=engine, directory=directory, ledger=ledger, credential=credential)
