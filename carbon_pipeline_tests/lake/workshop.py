"""A lake of a test's own: a SQL catalog in SQLite, a warehouse in a folder, a writer in the ledger's part."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
from pyiceberg.table import Table

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.identity import CredentialId, DatasetId, OperationId, WorkspaceId
from carbon_pipeline.lake.iceberg.catalog import CatalogConfig, Catalogs
from carbon_pipeline.lake.iceberg.lake import IcebergLake
from carbon_pipeline.lake.iceberg.reader import IcebergReader
from carbon_pipeline.lake.outcome import Landed, Outcome
from carbon_pipeline.lake.port import Staged
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.operation import Intent, Operation, Permit
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.ratify.evidence import Absent
from carbon_pipeline.schema.mapping import Mapping, map_relation
from carbon_pipeline.source.reading import Moment
from carbon_pipeline.source.relation import Column, Keys, Relation, RelationKind, TypeKind

OPENED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def column(attnum: int, name: str, type_name: str, precision: int | None = None, scale: int | None = None) -> Column:
    """A column of a built-in type."""
    return Column(
        attnum=attnum,
        name=name,
        declared_type=type_name,
        type_name=type_name,
        type_kind=TypeKind.BUILT_IN,
        precision=precision,
        scale=scale,
        not_null=False,
        comment=None,
    )


def mapping_of(*columns: Column, oid: int = 1) -> Mapping:
    """The mapping of a table `public.t` with these columns."""
    return map_relation(
        Relation(
            oid=oid,
            schema="public",
            name="t",
            kind=RelationKind.TABLE,
            columns=columns,
            keys=Keys(),
            estimated_rows=None,
            size_bytes=0,
            comment=None,
        )
    )


ID, NOTE, MARK, PRICE = (
    column(1, "id", "int4"),
    column(2, "note", "text"),
    column(3, "mark", "uuid"),
    column(4, "price", "numeric", 10, 2),
)
GOODS = mapping_of(ID, NOTE, MARK, PRICE)


def goods(rows: int, batch_rows: int = 1000) -> Iterable[pa.RecordBatch]:
    """Rows for `GOODS`, each of its own."""
    for start in range(0, rows, batch_rows):
        numbers = range(start, min(start + batch_rows, rows))
        marks = pa.array([UUID(int=n).bytes for n in numbers], pa.binary(16))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(numbers, pa.int32()),
                pa.array([f"note {n}" for n in numbers]),
                pa.ExtensionArray.from_storage(pa.uuid(), marks),
                pa.array([Decimal(n).scaleb(-2) for n in numbers], pa.decimal128(10, 2)),
            ],
            schema=GOODS.arrow_schema,
        )


def batch_of(mapping: Mapping, *values: list[object]) -> pa.RecordBatch:
    """One batch of a mapping's own types."""
    arrays = [pa.array(column, field.type) for column, field in zip(values, mapping.arrow_schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=mapping.arrow_schema)


class Workshop:
    """One dataset in one lake."""

    def __init__(self, folder: Path, catalog: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.warehouse = f"file://{folder}/warehouse"
        properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": self.warehouse} | (
            catalog or {"type": "sql"}
        )
        self.catalogs = Catalogs({"main": CatalogConfig(name="main", properties=properties)})
        self.lake = IcebergLake(self.catalogs)
        self.reader = IcebergReader(self.catalogs)
        self.dataset = self.new_dataset("t")
        self.announced: list[str] = []
        self._seq = 0

    def new_dataset(self, name: str, schema: str = "default") -> Dataset:
        """A dataset without a table yet."""
        workspace_id = WorkspaceId(UUID(int=7))
        dataset_id = DatasetId(uuid4())
        return Dataset(
            id=dataset_id,
            workspace_id=workspace_id,
            workspace="w",
            credential_id=CredentialId(UUID(int=8)),
            catalog="main",
            schema=schema,
            name=name,
            identifier=(f"w__{schema}", name),
            location=f"{self.warehouse}/{workspace_id}/{dataset_id}",
            relation="public.t",
            partition_key="public.t",
            committed_moment=None,
        )

    def open(self, mapping: Mapping = GOODS) -> Intent:
        """An operation on the table as it is."""
        head = self.lake.ensure_table(self.dataset, mapping)
        self._seq += 1
        operation = Operation(
            id=OperationId(uuid4()),
            dataset=self.dataset,
            seq=self._seq,
            status=OperationStatus.OPEN,
            writer=Writer.SYNC_FULL,
            mode=Mode.REPLACE,
            table_uuid=head.table_uuid,
            base_snapshot_id=head.base_snapshot_id,
            moment=Moment(system_identifier=1, lsn=self._seq, time=OPENED),
            opened_at=OPENED,
            snapshot_id=None,
        )
        return Intent(operation=operation, code_version="test")

    def stage(self, batches: Iterable[pa.RecordBatch], mapping: Mapping = GOODS) -> tuple[Permit, Staged]:
        """Everything up to the request."""
        intent = self.open(mapping)
        staged = self.lake.stage(intent, mapping, batches, self.announced.extend)
        operation = dataclasses.replace(
            intent.operation, status=OperationStatus.COMMITTING, snapshot_id=staged.snapshot_id
        )
        return Permit(intent=dataclasses.replace(intent, operation=operation)), staged

    def write(self, batches: Iterable[pa.RecordBatch], mapping: Mapping = GOODS) -> Outcome:
        """A whole replacement."""
        return self.lake.commit(*self.stage(batches, mapping))

    def publish(self, batches: Iterable[pa.RecordBatch], mapping: Mapping = GOODS) -> Landed:
        """A whole replacement that lands."""
        outcome = self.write(batches, mapping)
        assert isinstance(outcome, Landed), outcome
        return outcome

    def fence(self, operation: Operation) -> bool:
        """A fence on what the catalog shows now."""
        evidence = self.lake.observe(operation)
        assert isinstance(evidence, Absent), evidence
        return self.lake.fence(operation, evidence)

    @property
    def table(self) -> Table:
        """The table as the catalog has it now."""
        return self.catalogs.open("main").load_table(self.dataset.identifier)

    def rows(self) -> pa.Table:
        """What PyIceberg's own reader finds."""
        return self.table.scan().to_arrow()

    def data_files(self) -> list[Path]:
        """Every Parquet file below the warehouse, published or not."""
        return sorted((self.folder / "warehouse").rglob("*.parquet"))

    def as_committed(self) -> Dataset:
        """The dataset as the control plane knows it after a commit."""
        return dataclasses.replace(
            self.dataset, committed_moment=Moment(system_identifier=1, lsn=self._seq, time=OPENED)
        )
