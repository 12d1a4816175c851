"""The `Lake` port on Iceberg."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CommitRefused, LakeUnreachable
from carbon_pipeline.lake.iceberg import stamps
from carbon_pipeline.lake.iceberg.catalog import Catalogs, lake_errors
from carbon_pipeline.lake.iceberg.commit import commit, load, look, send_once
from carbon_pipeline.lake.iceberg.fields import COLUMNS_PROPERTY, TableShape, table_shape
from carbon_pipeline.lake.iceberg.files import FileBook, RollingWriter, Written, stamped_row_groups
from carbon_pipeline.lake.iceberg.observe import stamped_with
from carbon_pipeline.lake.iceberg.plan import CommitPlan, PlanWriter, schema_updates
from carbon_pipeline.lake.outcome import Outcome, Unknown
from carbon_pipeline.lake.port import Announce, Lake, Staged
from carbon_pipeline.ledger.operation import Intent, Operation, Permit, TableHead
from carbon_pipeline.ratify.evidence import Absent, Evidence, Unreachable
from carbon_pipeline.schema.mapping import Mapping


class IcebergLake(Lake):
    """Every registered catalog behind one port."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def ensure_table(self, dataset: Dataset, mapping: Mapping) -> TableHead:
        """See `Lake.ensure_table`. Creation is safe to repeat: a table that appeared meanwhile is taken as it is."""
        catalog, config = self._catalogs.open(dataset.catalog), self._catalogs.config(dataset.catalog)
        with lake_errors(f"preparing {dataset.coordinate}"):
            try:
                table = load(catalog, dataset.identifier)
            except NoSuchTableError:
                table = _create(catalog, dataset, mapping)
        _refuse_anothers(table, dataset)
        snapshot = table.metadata.current_snapshot()
        return TableHead(
            catalog_uri=config.uri,
            warehouse=config.warehouse,
            table_uuid=str(table.metadata.table_uuid),
            base_snapshot_id=snapshot.snapshot_id if snapshot else None,
        )

    def stage(self, intent: Intent, mapping: Mapping, batches: Iterable[pa.RecordBatch], announce: Announce) -> Staged:
        """See `Lake.stage`. Data files go below `data/<operation id>/`, so that each can be told by its path."""
        operation = intent.operation
        table = self._load_at_base(operation)
        book = FileBook(table.io, announce)
        try:
            shape = _shape_for(table, mapping)
            writer = RollingWriter(table.io, f"{table.location()}/data/{operation.id}", shape.schema, book)
            groups = stamped_row_groups(batches, operation_id=operation.id, created_at=operation.opened_at)
            written = writer.write(groups)
            with lake_errors(f"writing manifests of {operation.dataset.coordinate}"):
                plan = _plan(table, shape, intent, written, book)
        except BaseException:
            book.discard()
            raise
        return Staged(
            rows=written.rows,
            size_bytes=written.size_bytes,
            snapshot_id=plan.snapshot_id,
            files=book.paths,
            plan=(table, plan),
        )

    def commit(self, permit: Permit, staged: Staged) -> Outcome:
        """See `Lake.commit`."""
        operation = permit.intent.operation
        try:
            table, plan = _planned(staged)
            return commit(self._catalogs.open(operation.dataset.catalog), table, plan, operation)
        except BaseException as error:
            return Unknown(reason=type(error).__name__, cause=error)

    def observe(self, operation: Operation) -> Evidence:
        """See `Lake.observe`."""
        try:
            return look(self._catalogs.open(operation.dataset.catalog), operation)
        except LakeUnreachable as error:
            return Unreachable(reason=error.message)

    def fence(self, operation: Operation, absence: Absent) -> bool:
        """See `Lake.fence`. The table is the one that was seen, so main's head is asserted to be still the same."""
        table = absence.seen
        if not isinstance(table, Table):
            raise TypeError("the evidence was not gathered by this lake")
        with lake_errors(f"fencing {operation.dataset.coordinate}"):
            catalog = self._catalogs.open(operation.dataset.catalog)
            book = FileBook(table.io, _unannounced)
            plan = PlanWriter(table, book).empty({stamps.FENCE: str(operation.id)})
            try:
                send_once(catalog, table, plan)
            except Exception:
                return _is_fenced(load(catalog, operation.dataset.identifier), operation)
            return True

    def _load_at_base(self, operation: Operation) -> Table:
        with lake_errors(f"loading {operation.dataset.coordinate}"):
            table = load(self._catalogs.open(operation.dataset.catalog), operation.dataset.identifier)
        head = table.metadata.current_snapshot()
        if str(table.metadata.table_uuid) != operation.table_uuid or (
            (head.snapshot_id if head else None) != operation.base_snapshot_id
        ):
            raise CommitRefused(f"{operation.dataset.coordinate} changed in the catalog after the operation opened")
        return table


def _shape_for(table: Table, mapping: Mapping) -> TableShape:
    return table_shape(mapping, table.schema(), table.properties, table.metadata.last_column_id)


def _plan(table: Table, shape: TableShape, intent: Intent, written: Written, book: FileBook) -> CommitPlan:
    properties = {stamps.WATERMARK: stamps.watermark_of(intent.operation)}
    return PlanWriter(table, book, before=schema_updates(table, shape)).replace(
        written.files, stamps.snapshot_stamp(intent, written.rows), properties
    )


def _unannounced(_: Sequence[str]) -> None:
    """A fence's one file belongs to no operation that could leave it behind."""


def _planned(staged: Staged) -> tuple[Table, CommitPlan]:
    match staged.plan:
        case (Table() as table, CommitPlan() as plan):
            return table, plan
        case _:
            raise TypeError("the staged plan was not made by this lake")


def _create(catalog: Catalog, dataset: Dataset, mapping: Mapping) -> Table:
    namespace, _ = dataset.identifier
    # A SQL catalog looks first and inserts then, so of two writers at once one meets the other's row.
    with suppress(NamespaceAlreadyExistsError, IntegrityError):
        catalog.create_namespace(namespace, {stamps.WORKSPACE: str(dataset.workspace_id)})
    shape = table_shape(mapping)
    properties = {
        "format-version": "2",
        COLUMNS_PROPERTY: shape.columns_property,
        stamps.DATASET: str(dataset.id),
        stamps.WORKSPACE: str(dataset.workspace_id),
        stamps.COORDINATE: dataset.coordinate,
        stamps.RELATION: dataset.relation,
    }
    try:
        return catalog.create_table(dataset.identifier, shape.schema, dataset.location, properties=properties)
    except TableAlreadyExistsError:
        return load(catalog, dataset.identifier)


def _refuse_anothers(table: Table, dataset: Dataset) -> None:
    owner = table.properties.get(stamps.DATASET)
    if owner != str(dataset.id):
        raise CommitRefused(
            f"the table {'.'.join(dataset.identifier)} in the catalog belongs to "
            f"{f'dataset {owner}' if owner else 'nobody that this control plane knows'}, not to {dataset.coordinate}",
            remedy="Move or drop that table, or give the credential another destination.",
        )


def _is_fenced(table: Table, operation: Operation) -> bool:
    """Whether main's head is our fence: then its request landed, whatever its answer was."""
    head = table.metadata.current_snapshot()
    return head is not None and stamped_with(head, stamps.FENCE, str(operation.id))
