"""Find-or-create of a dataset's coordinate, safe under any number of callers at once.

Each attempt is one transaction that looks first and then inserts with ON CONFLICT DO NOTHING, or updates only what it
has just seen. Whoever loses to another caller looks again, and then finds what that one made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.control_plane.sql.models import CatalogRow, CredentialRow, DatasetRow, SchemaRow
from carbon_pipeline.control_plane.sql.rows import Found, credential_of, dataset_of, select_credentials, select_datasets
from carbon_pipeline.destination.coordinate import Dataset, table_identifier, table_location
from carbon_pipeline.errors import ControlPlaneError, SetupError, SourceReplaced, UsageError
from carbon_pipeline.identity import CredentialId, DatasetId, partition_key, relation_name, safe_name, with_hash
from carbon_pipeline.source.relation import Introspection, Relation

_ATTEMPTS_MAX = 8
"""Each lost attempt means that another caller got on, so this many losses in a row do not happen by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    credential: Credential
    relation: Relation
    oids: frozenset[int]
    """Of every relation that the source has now."""
    warehouse: str

    @property
    def source(self) -> str:
        """The relation's identity as text, for the hash that keeps two of the same name apart."""
        return f"{self.credential.id}:{self.credential.system_identifier}:{self.relation.oid}"


def find_or_mint(
    engine: Engine,
    warehouses: Mapping[str, str],
    credential_id: CredentialId,
    relation: Relation,
    found: Introspection,
) -> Dataset:
    """The relation's dataset. *warehouses* are the roots of the catalogs that this process knows, by name."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            with engine.begin() as connection:
                wanted = _wanted(_credential(connection, credential_id), relation, found, warehouses)
                row = _by_oid(connection, wanted) or _by_name(connection, wanted) or _mint(connection, wanted)
        except IntegrityError:
            continue  # another caller took the oid, the name or the key in between
        if row is not None:
            return dataset_of(row)
    raise ControlPlaneError(f"no home could be minted for {relation.qualified_name}: other writers were always faster")


def _wanted(credential: Credential, relation: Relation, found: Introspection, warehouses: Mapping[str, str]) -> _Wanted:
    if found.system_identifier != credential.system_identifier:
        raise SourceReplaced(
            f"credential {credential.name} was connected to database system {credential.system_identifier}, "
            f"and now system {found.system_identifier} answers"
        )
    return _Wanted(
        credential=credential, relation=relation, oids=found.oids, warehouse=_warehouse(warehouses, credential)
    )


def _credential(connection: Connection, credential_id: CredentialId) -> Credential:
    row = connection.execute(select_credentials().where(CredentialRow.id == credential_id)).one_or_none()
    if row is None:
        raise UsageError(f"there is no credential {credential_id}", remedy="`carbon credentials` lists them.")
    return credential_of(row)


def _warehouse(warehouses: Mapping[str, str], credential: Credential) -> str:
    catalog = credential.destination.catalog
    if catalog not in warehouses:
        raise SetupError(
            f"credential {credential.name} goes to catalog {catalog}, whose warehouse this process does not know",
            remedy="Configure that catalog here, or run where it is configured.",
        )
    return warehouses[catalog]


def _by_oid(connection: Connection, wanted: _Wanted) -> Found | None:
    """The dataset of the very relation, its source name brought up to date."""
    relation = wanted.relation
    row = _one_of(connection, wanted, DatasetRow.source_oid == relation.oid)
    if row is None or (row.source_schema, row.source_name) == (relation.schema, relation.name):
        return row
    connection.execute(
        update(DatasetRow)
        .where(DatasetRow.id == row.id)
        .values(source_schema=relation.schema, source_name=relation.name)
    )
    return _get(connection, row.id)


def _by_name(connection: Connection, wanted: _Wanted) -> Found | None:
    """The dataset of a relation of the same name that is gone from the source: dropped, and made anew."""
    relation = wanted.relation
    row = _one_of(
        connection,
        wanted,
        (DatasetRow.source_schema == relation.schema)
        & (DatasetRow.source_name == relation.name)
        & DatasetRow.source_oid.not_in(wanted.oids),
    )
    if row is None:
        return None
    rebound = connection.execute(
        update(DatasetRow)
        .where(DatasetRow.id == row.id, DatasetRow.source_oid == row.source_oid)
        .values(source_oid=relation.oid)
    )
    return _get(connection, row.id) if rebound.rowcount else None


def _one_of(connection: Connection, wanted: _Wanted, condition: Any) -> Found | None:
    """The newest dataset of the credential that meets the condition."""
    return connection.execute(
        select_datasets()
        .where(
            DatasetRow.credential_id == wanted.credential.id,
            DatasetRow.system_identifier == wanted.credential.system_identifier,
            condition,
        )
        .order_by(DatasetRow.created_at.desc())
        .limit(1)
    ).one_or_none()


def _get(connection: Connection, dataset_id: UUID) -> Found:
    return connection.execute(select_datasets().where(DatasetRow.id == dataset_id)).one()


def _mint(connection: Connection, wanted: _Wanted) -> Found | None:
    """A new dataset; none when another caller was faster with one that would collide."""
    credential, relation = wanted.credential, wanted.relation
    dataset_id = DatasetId(uuid4())
    schema = _schema(connection, credential)
    name = _free_name(connection, wanted)
    namespace, table = table_identifier(credential.workspace.name, credential.destination.schema, name)
    inserted = connection.scalar(
        insert(DatasetRow)
        .values(
            id=dataset_id,
            workspace_id=credential.workspace.id,
            credential_id=credential.id,
            system_identifier=credential.system_identifier,
            source_oid=relation.oid,
            source_schema=relation.schema,
            source_name=relation.name,
            partition_key=_free_partition_key(connection, wanted),
            catalog_id=schema.catalog_id,
            schema_id=schema.id,
            schema_name=schema.name,
            name=name,
            namespace=namespace,
            table_name=table,
            location=table_location(wanted.warehouse, credential.workspace.id, dataset_id),
        )
        .on_conflict_do_nothing()
        .returning(DatasetRow.id)
    )
    return None if inserted is None else _get(connection, dataset_id)


def _schema(connection: Connection, credential: Credential) -> Found:
    destination = credential.destination
    catalog_id = connection.scalars(select(CatalogRow.id).where(CatalogRow.name == destination.catalog)).one()
    key = {"workspace_id": credential.workspace.id, "catalog_id": catalog_id, "name": destination.schema}
    connection.execute(insert(SchemaRow).values(key).on_conflict_do_nothing())
    return connection.execute(select(SchemaRow.id, SchemaRow.catalog_id, SchemaRow.name).filter_by(**key)).one()


def _free_name(connection: Connection, wanted: _Wanted) -> str:
    """The relation's name in the lake, with a hash when another source holds the plain one in that coordinate."""
    plain = relation_name(wanted.relation.schema, wanted.relation.name)
    holder = connection.scalar(
        select(DatasetRow.id).where(
            tuple_(DatasetRow.workspace_id, DatasetRow.schema_name, DatasetRow.name)
            == tuple_(wanted.credential.workspace.id, wanted.credential.destination.schema, plain)
        )
    )
    return plain if holder is None else with_hash(plain, wanted.source)


def _free_partition_key(connection: Connection, wanted: _Wanted) -> str:
    """The relation's partition key, with a hash when a relation that was renamed since still has the plain one."""
    relation = wanted.relation
    plain = partition_key(relation.schema, relation.name)
    holder = connection.scalar(
        select(DatasetRow.id).where(DatasetRow.credential_id == wanted.credential.id, DatasetRow.partition_key == plain)
    )
    return plain if holder is None else f"{safe_name(relation.schema)}.{with_hash(relation.name, wanted.source)}"
