"""Relations, requests and settlements to put into a ledger, and the address of a control plane for other processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, text

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.engine import engine_from_fields
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.control_plane.sql.models import Row
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.gate.verdict import Actor, Role, admit
from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.operation import OpenRequest, Operation, Settlement, TableHead
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.schema.mapping import map_relation
from carbon_pipeline.source.reading import Moment
from carbon_pipeline.source.relation import (
    Column,
    ForeignKey,
    Introspection,
    Keys,
    Relation,
    RelationKind,
    TypeKind,
)

SYSTEM = 7_600_000_000_000_000_001
"""A system identifier; two of the tests use one beyond 63 bits."""

ACTOR = Actor(user="ada")
STARTED = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)
WAREHOUSES = {"main": "file:///warehouse", "second": "file:///second"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A control plane's address in parts, as it is handed to another process."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str

    def engine(self, *, port: int | None = None) -> Engine:
        """A new engine for it, through another port where something stands in between."""
        return engine_from_fields(
            host=self.host, port=port or self.port, user=self.user, password=self.password, database=self.database
        )


def ledger_on(
    engine: Engine, *, wait_seconds: float = 0.3, beat_seconds: float = 0, lease_seconds: float = 120
) -> SqlLedger:
    """A ledger that waits briefly for a claim and writes every beat."""
    return SqlLedger(
        engine,
        code_version="0.1.0",
        warehouses=WAREHOUSES,
        wait_seconds=wait_seconds,
        beat_seconds=beat_seconds,
        lease_seconds=lease_seconds,
    )


def backdate(engine: Engine, operation_id: OperationId, *, hours: float) -> None:
    """Make an operation look older than it is, past the guards that refuse it to everybody but a superuser."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(
            text(
                "UPDATE carbon.dataset_transactions SET opened_at = opened_at - :span, settled_at = settled_at - :span"
                " WHERE id = :id"
            ),
            {"span": timedelta(hours=hours), "id": operation_id},
        )


def dump(engine: Engine) -> str:
    """Every row of every table as text, as `pg_dump` would show it."""
    with engine.connect() as connection:
        return "\n".join(
            f"{table.name} {row}"
            for table in Row.metadata.sorted_tables
            for row in sorted(connection.scalars(text(f"SELECT CAST(t AS text) FROM {table.fullname} t")))
        )


def column(attnum: int, name: str, type_name: str = "text") -> Column:
    """A plain column."""
    return Column(
        attnum=attnum,
        name=name,
        declared_type=type_name,
        type_name=type_name,
        type_kind=TypeKind.BUILT_IN,
        precision=None,
        scale=None,
        not_null=attnum == 1,
        comment=None,
    )


def relation(name: str, oid: int, *, schema: str = "public", columns: Iterable[str] = ("id", "name")) -> Relation:
    """A table with a primary key on its first column and a reference to `public.owners`."""
    made = tuple(column(number, each) for number, each in enumerate(columns, start=1))
    reference = ForeignKey(
        name="owned",
        columns=(made[-1].name,),
        referenced_schema="public",
        referenced_table="owners",
        referenced_columns=("id",),
    )
    return Relation(
        oid=oid,
        schema=schema,
        name=name,
        kind=RelationKind.TABLE,
        columns=made,
        keys=Keys(primary=(made[0].name,), foreign=(reference,)),
        estimated_rows=None,
        size_bytes=8192,
        comment=None,
    )


def found(*relations: Relation, system_identifier: int = SYSTEM) -> Introspection:
    """An introspection that found these."""
    return Introspection(
        system_identifier=system_identifier, database="shop", server_version="18.0", relations=relations
    )


def mint(ledger: SqlLedger, credential: Credential, made: Relation) -> Dataset:
    """The dataset of a relation that is all its source has."""
    return ledger.coordinate(credential.id, made, found(made, system_identifier=credential.system_identifier))


def moment(minutes: int = 0, *, system_identifier: int = SYSTEM) -> Moment:
    """The source's moment some minutes after the start."""
    return Moment(
        system_identifier=system_identifier, lsn=0x16_B374_D848 + minutes, time=STARTED + timedelta(minutes=minutes)
    )


def request(
    dataset: Dataset, made: Relation, *, at: Moment | None = None, base_snapshot_id: int | None = None
) -> OpenRequest:
    """A request to replace the dataset's rows by the relation's."""
    return OpenRequest(
        admitted=admit(dataset, ACTOR, Role.OWNER),
        mapping=map_relation(made),
        writer=Writer.SYNC_FULL,
        mode=Mode.REPLACE,
        moment=at or moment(),
        head=TableHead(
            catalog_uri="postgresql://127.0.0.1/lakehouse",
            warehouse=WAREHOUSES[dataset.catalog],
            table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
            base_snapshot_id=base_snapshot_id,
        ),
        run_id=None,
    )


PLANNED = 6_100_000_000_000_000_007
"""The snapshot that a request names."""

FACTS = SnapshotFacts(
    snapshot_id=PLANNED,
    parent_snapshot_id=6_100_000_000_000_000_006,
    rows=336_776,
    size_bytes=20_000_000,
    data_files=2,
    has_identity=True,
)
LANDED = Settlement(ruling=Ruling.LANDED, reason="the catalog shows it", facts=FACTS)
FAILED = Settlement(ruling=Ruling.FAILED, reason="SourceBroke before the request was sent")


def ruled(ruling: Ruling, *, shown: OperationId | None = None) -> Settlement:
    """A settlement with this ruling, with facts where it needs them; *shown* is what main still shows."""
    facts = FACTS if ruling is Ruling.LANDED else None
    return Settlement(ruling=ruling, reason="as told", facts=facts, shown_operation_id=shown)


def publish(
    ledger: SqlLedger, dataset: Dataset, made: Relation, *, at: Moment | None = None, snapshot_id: int = PLANNED
) -> OperationId:
    """One whole operation that lands."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, made, at=at))
        claim.advance(intent, snapshot_id)
        claim.settle(intent.operation, replace(LANDED, facts=replace(FACTS, snapshot_id=snapshot_id)))
        return intent.operation.id


def status_of(directory: Directory, dataset: Dataset) -> object:
    """Where the dataset's newest operation stands."""
    last = next(each for each in directory.datasets() if each.dataset.id == dataset.id).last_operation
    assert last is not None
    return last.status


def leave(
    ledger: SqlLedger,
    dataset: Dataset,
    made: Relation,
    status: OperationStatus,
    *,
    at: Moment | None = None,
    files: Iterable[str] = (),
    snapshot_id: int = PLANNED,
) -> Operation:
    """An operation that its writer left unsettled at *status*, having announced *files*."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, made, at=at))
        if announced := tuple(files):
            claim.beat(intent, 0, 0, announced)
        if status is OperationStatus.OPEN:
            return intent.operation
        return claim.advance(intent, snapshot_id).intent.operation


def end(ledger: SqlLedger, operation: Operation, ruling: Ruling) -> None:
    """Settle an operation that was left."""
    with ledger.claim(operation.dataset, ACTOR) as claim:
        claim.settle(operation, ruled(ruling))
