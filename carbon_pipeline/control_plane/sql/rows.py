"""From rows to frozen values, and from a mapping to the document that an operation keeps of it."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Row, Select, select

from carbon_pipeline.control_plane.records import Credential, Workspace
from carbon_pipeline.control_plane.sql.models import CatalogRow, CredentialRow, DatasetRow, OperationRow, WorkspaceRow
from carbon_pipeline.destination.coordinate import Dataset, Destination, DestinationOrigin
from carbon_pipeline.identity import CredentialId, DatasetId, OperationId, WorkspaceId
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.schema.mapping import ColumnMapping, Mapping
from carbon_pipeline.source.reading import Moment

Query = Select[*tuple[Any, ...]]
"""A query whose columns the reader names."""

Found = Row[*tuple[Any, ...]]
"""A row of such a query."""

Part = Found | SimpleNamespace
"""A row of one table, or the part of a joined row that is that table's."""

_OPERATION = "operation_"


def select_datasets() -> Query:
    """Datasets with what `dataset_of` needs."""
    return (
        select(
            DatasetRow.id,
            DatasetRow.workspace_id,
            WorkspaceRow.name.label("workspace"),
            DatasetRow.credential_id,
            CatalogRow.name.label("catalog"),
            DatasetRow.schema_name,
            DatasetRow.name,
            DatasetRow.namespace,
            DatasetRow.table_name,
            DatasetRow.location,
            DatasetRow.source_schema,
            DatasetRow.source_name,
            DatasetRow.source_oid,
            DatasetRow.partition_key,
            DatasetRow.source_system_identifier,
            DatasetRow.source_lsn,
            DatasetRow.source_time,
        )
        .join(WorkspaceRow, WorkspaceRow.id == DatasetRow.workspace_id)
        .join(CatalogRow, CatalogRow.id == DatasetRow.catalog_id)
    )


def dataset_of(row: Found) -> Dataset:
    """The dataset of a row of `select_datasets`."""
    return Dataset(
        id=DatasetId(row.id),
        workspace_id=WorkspaceId(row.workspace_id),
        workspace=row.workspace,
        credential_id=CredentialId(row.credential_id),
        catalog=row.catalog,
        schema=row.schema_name,
        name=row.name,
        identifier=(row.namespace, row.table_name),
        location=row.location,
        relation=f"{row.source_schema}.{row.source_name}",
        partition_key=row.partition_key,
        committed_moment=None if row.source_lsn is None else moment_of(row),
    )


def moment_of(row: Part) -> Moment:
    """The source's moment that a dataset or an operation shows."""
    return Moment(system_identifier=row.source_system_identifier, lsn=row.source_lsn, time=row.source_time)


def select_credentials() -> Query:
    """Credentials with what `credential_of` needs; the sealed connection is not among it."""
    return select(
        CredentialRow.id,
        CredentialRow.workspace_id,
        WorkspaceRow.name.label("workspace"),
        CredentialRow.name,
        CredentialRow.metadata_["warehouse_destination"].label("destination"),
        CredentialRow.system_identifier,
        CredentialRow.created_by,
        CredentialRow.created_at,
    ).join(WorkspaceRow, WorkspaceRow.id == CredentialRow.workspace_id)


def credential_of(row: Found) -> Credential:
    """The credential of a row of `select_credentials`."""
    return Credential(
        id=CredentialId(row.id),
        workspace=Workspace(id=WorkspaceId(row.workspace_id), name=row.workspace),
        name=row.name,
        destination=destination_of(row.destination),
        system_identifier=row.system_identifier,
        created_by=row.created_by,
        created_at=row.created_at,
    )


def destination_of(document: dict[str, str]) -> Destination:
    """The destination in a credential's metadata."""
    return Destination(
        catalog=document["catalog"], schema=document["schema"], origin=DestinationOrigin(document["origin"])
    )


def destination_document(destination: Destination) -> dict[str, Any]:
    """A credential's metadata with its destination."""
    return {
        "warehouse_destination": {
            "catalog": destination.catalog,
            "schema": destination.schema,
            "origin": destination.origin.value,
        }
    }


def select_operations() -> Query:
    """Operations with their datasets; `operation_part` and `dataset_of` take such a row apart.

    The relation's document is left out: it is long, and a list needs none of it.
    """
    columns = (column for column in OperationRow.__table__.columns if column.name != "relation")
    return (
        select_datasets()
        .add_columns(*(column.label(_OPERATION + column.name) for column in columns))
        .join(OperationRow, OperationRow.dataset_id == DatasetRow.id)
    )


def operation_part(row: Found) -> SimpleNamespace:
    """The operation's columns in a row of `select_operations`, by their own names."""
    named = row._mapping.items()  # noqa: SLF001 - documented; the underscore keeps it apart from column names
    return SimpleNamespace(
        **{str(name).removeprefix(_OPERATION): value for name, value in named if str(name).startswith(_OPERATION)}
    )


def operation_of(row: Part, dataset: Dataset) -> Operation:
    """The operation of a row with all of its columns."""
    return Operation(
        id=OperationId(row.id),
        dataset=dataset,
        seq=row.seq,
        status=row.status,
        writer=Writer(row.writer),
        mode=Mode(row.mode),
        table_uuid=row.table_uuid,
        base_snapshot_id=row.base_snapshot_id,
        moment=moment_of(row),
        opened_at=row.opened_at,
        snapshot_id=row.planned_snapshot_id,
    )


def facts_of(row: Found) -> SnapshotFacts | None:
    """What the catalog showed when the operation of this row was settled; none when it was not looked at."""
    if row.snapshot_id is None:
        return None
    return SnapshotFacts(
        snapshot_id=row.snapshot_id,
        parent_snapshot_id=row.parent_snapshot_id,
        rows=row.rows,
        size_bytes=row.size_bytes,
        data_files=row.data_files,
        has_identity=row.has_identity,
    )


def relation_document(mapping: Mapping) -> dict[str, Any]:
    """What an operation keeps of the relation that it reads: enough to complete the dataset without its writer."""
    relation = mapping.relation
    return {
        "oid": relation.oid,
        "schema": relation.schema,
        "name": relation.name,
        "kind": relation.kind.value,
        "columns": [_column_document(column) for column in mapping.columns],
        "primary_key": list(relation.keys.primary),
        "foreign_keys": [asdict(key) for key in relation.keys.foreign],
        "keys_failed": relation.keys.failed,
    }


def _column_document(column: ColumnMapping) -> dict[str, Any]:
    return {
        "attnum": column.attnum,
        "source_name": column.source_name,
        "name": column.name,
        "source_type": column.source_type,
        "base": str(column.base),
        "not_null": column.not_null,
        "fidelity": column.receipt.fidelity.value,
        "reason": column.receipt.reason,
        "comment": column.comment,
    }
