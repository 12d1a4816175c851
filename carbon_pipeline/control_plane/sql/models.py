"""The control plane's tables as SQLAlchemy sees them. The rules that bind them stand in `migrations/`.

Every class is named after a row, so that none is taken for the frozen value of the same thing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    Computed,
    Dialect,
    FetchedValue,
    LargeBinary,
    MetaData,
    Numeric,
    Text,
    TypeDecorator,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, ENUM, JSONB, TIMESTAMP
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import UserDefinedType

from carbon_pipeline.control_plane.records import EventKind, Governance, SweepTrigger
from carbon_pipeline.gate.verdict import Role
from carbon_pipeline.ledger.states import OperationStatus, Ruling, SyncStatus
from carbon_pipeline.source.reading import format_lsn, parse_lsn

SCHEMA = "carbon"
"""Our own PostgreSQL schema: names like `schemas` must not meet another program's in `public`."""


class Uint64(TypeDecorator[int]):
    """An unsigned 64-bit number, such as a system identifier."""

    impl = Numeric(20, 0)
    cache_ok = True

    def process_result_value(self, value: Decimal | None, dialect: Dialect) -> int | None:  # noqa: ARG002 - not ours
        """Exactly, without a detour through float."""
        return None if value is None else int(value)


class UtcTime(TypeDecorator[datetime]):
    """A moment, in UTC whatever the session's time zone is."""

    impl = TIMESTAMP(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - not ours
        """The same moment in UTC."""
        return None if value is None else value.astimezone(UTC)


class Lsn(UserDefinedType[int]):
    """PostgreSQL's `pg_lsn`, a byte position here."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """The type's name in SQL."""
        return "pg_lsn"

    def bind_processor(self, dialect: Dialect) -> Callable[[int | None], str | None]:  # noqa: ARG002 - not ours
        """As PostgreSQL reads it."""
        return lambda value: None if value is None else format_lsn(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], int | None]:  # noqa: ARG002 - not ours
        """From what PostgreSQL prints."""
        return lambda value: None if value is None else parse_lsn(value)


Id = Annotated[UUID, mapped_column(primary_key=True, server_default=FetchedValue())]
"""A primary key that the database makes where none is given."""


Number = Annotated[int, mapped_column(primary_key=True, server_default=FetchedValue())]
"""A primary key that the database counts."""


def _enum(labels: type[StrEnum], name: str) -> ENUM:
    return ENUM(
        labels, name=name, schema=SCHEMA, create_type=False, values_callable=lambda enum: [m.value for m in enum]
    )


class Row(DeclarativeBase):
    """A row of the control plane."""

    metadata = MetaData(schema=SCHEMA)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it so
        str: Text(),
        int: BigInteger(),
        bool: Boolean(),
        bytes: LargeBinary(),
        UUID: Uuid(),
        datetime: UtcTime(),
        dict[str, Any]: JSONB(),
        list[Any]: JSONB(none_as_null=True),
        Role: _enum(Role, "member_role"),
        Governance: _enum(Governance, "catalog_governance"),
        OperationStatus: _enum(OperationStatus, "operation_status"),
        Ruling: _enum(Ruling, "operation_ruling"),
        SyncStatus: _enum(SyncStatus, "sync_status"),
        EventKind: _enum(EventKind, "operation_event_kind"),
        SweepTrigger: _enum(SweepTrigger, "sweep_trigger"),
    }


class TransitionRow(Row):
    """A legal move of an operation."""

    __tablename__ = "operation_transitions"

    from_status: Mapped[OperationStatus] = mapped_column(primary_key=True)
    to_status: Mapped[OperationStatus] = mapped_column(primary_key=True)


class RulingRow(Row):
    """What a ruling makes of an operation."""

    __tablename__ = "operation_rulings"

    ruling: Mapped[Ruling] = mapped_column(primary_key=True)
    status: Mapped[OperationStatus]
    sync_status: Mapped[SyncStatus]
    comes_from: Mapped[list[OperationStatus]] = mapped_column(ARRAY(_enum(OperationStatus, "operation_status")))


class WorkspaceRow(Row):
    """A tenant."""

    __tablename__ = "workspaces"

    id: Mapped[Id]
    name: Mapped[str]
    slug: Mapped[str]
    created_at: Mapped[datetime]


class MemberRow(Row):
    """A person's role in a workspace."""

    __tablename__ = "workspace_members"

    workspace_id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[Role]
    invited_by: Mapped[str | None]
    invited_at: Mapped[datetime]
    joined_at: Mapped[datetime | None]


class CatalogRow(Row):
    """A registered catalog."""

    __tablename__ = "catalogs"

    id: Mapped[Id]
    name: Mapped[str]
    kind: Mapped[str]
    uri_host: Mapped[str]
    governance: Mapped[Governance]
    created_at: Mapped[datetime]


class SchemaRow(Row):
    """A workspace's schema in a catalog."""

    __tablename__ = "schemas"

    id: Mapped[Id]
    workspace_id: Mapped[UUID]
    catalog_id: Mapped[UUID]
    name: Mapped[str]
    created_at: Mapped[datetime]


class CredentialRow(Row):
    """A source."""

    __tablename__ = "user_credentials"

    id: Mapped[Id]
    workspace_id: Mapped[UUID]
    name: Mapped[str]
    slug: Mapped[str]
    kind: Mapped[str]
    sealed_connection: Mapped[bytes]
    system_identifier: Mapped[int] = mapped_column(Uint64())
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata")
    destination_catalog: Mapped[str] = mapped_column(Computed("metadata #>> '{warehouse_destination,catalog}'"))
    created_by: Mapped[str]
    created_at: Mapped[datetime]


class DatasetRow(Row):
    """A relation's home: what was minted, where its source stands, and what the last commit left behind."""

    __tablename__ = "datasets"

    id: Mapped[Id]
    workspace_id: Mapped[UUID]
    credential_id: Mapped[UUID]
    system_identifier: Mapped[int] = mapped_column(Uint64())
    source_oid: Mapped[int]
    source_schema: Mapped[str]
    source_name: Mapped[str]
    partition_key: Mapped[str]
    catalog_id: Mapped[UUID]
    schema_id: Mapped[UUID]
    schema_name: Mapped[str]
    name: Mapped[str]
    namespace: Mapped[str]
    table_name: Mapped[str]
    location: Mapped[str]
    created_at: Mapped[datetime]
    row_count: Mapped[int | None]
    size_bytes: Mapped[int | None]
    data_files: Mapped[int | None]
    snapshot_id: Mapped[int | None]
    columns: Mapped[list[Any] | None]
    primary_key: Mapped[list[Any] | None]
    foreign_keys: Mapped[list[Any] | None]
    keys_failed: Mapped[str | None]
    schema_version: Mapped[int | None]
    committed_operation_id: Mapped[UUID | None]
    committed_seq: Mapped[int | None]
    source_system_identifier: Mapped[int | None] = mapped_column(Uint64())
    source_lsn: Mapped[int | None] = mapped_column(Lsn())
    source_time: Mapped[datetime | None]
    updated_at: Mapped[datetime | None]


class OperationRow(Row):
    """One intended write."""

    __tablename__ = "dataset_transactions"

    id: Mapped[Id]
    dataset_id: Mapped[UUID]
    seq: Mapped[int]
    writer: Mapped[str]
    mode: Mapped[str]
    status: Mapped[OperationStatus]
    ruling: Mapped[Ruling | None]
    reason: Mapped[str | None]
    catalog_uri: Mapped[str]
    warehouse: Mapped[str]
    namespace: Mapped[str]
    table_name: Mapped[str]
    table_uuid: Mapped[str]
    base_snapshot_id: Mapped[int | None]
    actor_user: Mapped[str]
    actor_engine: Mapped[str]
    policy: Mapped[str]
    code_version: Mapped[str]
    run_id: Mapped[str | None]
    holder: Mapped[str]
    source_system_identifier: Mapped[int] = mapped_column(Uint64())
    source_lsn: Mapped[int] = mapped_column(Lsn())
    source_time: Mapped[datetime]
    relation: Mapped[dict[str, Any]]
    opened_at: Mapped[datetime]
    lease_until: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    rows_written: Mapped[int]
    bytes_written: Mapped[int]
    committing_at: Mapped[datetime | None]
    settled_at: Mapped[datetime | None]
    snapshot_id: Mapped[int | None]
    parent_snapshot_id: Mapped[int | None]
    rows: Mapped[int | None]
    size_bytes: Mapped[int | None]
    data_files: Mapped[int | None]
    has_identity: Mapped[bool | None]
    planned_snapshot_id: Mapped[int | None]


class EventRow(Row):
    """A move of an operation, or its late landing."""

    __tablename__ = "dataset_transaction_events"

    id: Mapped[Number]
    operation_id: Mapped[UUID]
    at: Mapped[datetime]
    kind: Mapped[EventKind]
    from_status: Mapped[OperationStatus | None]
    to_status: Mapped[OperationStatus]
    ruling: Mapped[Ruling | None]
    reason: Mapped[str | None]
    snapshot_id: Mapped[int | None]
    session: Mapped[str | None]
    database_user: Mapped[str | None]


class FileRow(Row):
    """A file that an operation announced."""

    __tablename__ = "dataset_transaction_files"

    operation_id: Mapped[UUID] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    announced_at: Mapped[datetime]
    removed_at: Mapped[datetime | None]


class SyncLogRow(Row):
    """An operation's row in the freshness oracle."""

    __tablename__ = "iceberg_sync_log"

    operation_id: Mapped[UUID] = mapped_column(primary_key=True)
    dataset_id: Mapped[UUID]
    status: Mapped[SyncStatus]
    has_identity: Mapped[bool | None]
    source_lsn: Mapped[int | None] = mapped_column(Lsn())
    source_time: Mapped[datetime | None]
    rows: Mapped[int | None]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class SchemaVersionRow(Row):
    """A dataset's columns from one operation on."""

    __tablename__ = "dataset_schema_versions"

    dataset_id: Mapped[UUID] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    columns: Mapped[list[Any]]
    operation_id: Mapped[UUID]
    created_at: Mapped[datetime]


class SweepRow(Row):
    """A sweep that was made."""

    __tablename__ = "ratify_sweeps"

    id: Mapped[Number]
    trigger: Mapped[SweepTrigger]
    began_at: Mapped[datetime]
    ended_at: Mapped[datetime]
    dry_run: Mapped[bool]
    settled: Mapped[int]
    left_alone: Mapped[int]
    held_back: Mapped[int]
    late: Mapped[int]
    alarm: Mapped[str | None]


class TickRow(Row):
    """A trigger's last look."""

    __tablename__ = "ratify_ticks"

    trigger: Mapped[SweepTrigger] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    decision: Mapped[str]
    idle_at: Mapped[datetime | None]
