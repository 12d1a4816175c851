"""One operation as the ledger knows it, and the three receipts that a writer gets on its way.

`Intent` is proof that the ledger knows of the write; the lake stages nothing without one. `Permit` is proof that the
operation was moved to `committing`; the lake sends nothing without one. Only a `Claim` makes either.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.gate.verdict import Admitted
from carbon_pipeline.identity import DatasetId, OperationId
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.reading import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """The lake table that an operation starts from."""

    catalog_uri: str
    """Without user or password."""
    warehouse: str
    table_uuid: str
    base_snapshot_id: int | None
    """Main's snapshot; none when the table has never had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Everything that is recorded before a byte is written."""

    admitted: Admitted
    mapping: Mapping
    writer: Writer
    mode: Mode
    moment: Moment
    head: TableHead
    run_id: str | None
    """The Dagster run, where one is behind the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation's row, as far as settling it needs."""

    id: OperationId
    dataset: Dataset
    seq: int
    status: OperationStatus
    writer: Writer
    mode: Mode
    table_uuid: str
    base_snapshot_id: int | None
    moment: Moment
    opened_at: datetime
    snapshot_id: int | None
    """The snapshot that its request names, from `committing` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """An unsettled operation as a sweep finds it, by the control plane's clock."""

    operation: Operation
    age_seconds: float
    lease_is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The ledger's receipt for an opened operation."""

    operation: Operation
    code_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """The ledger's receipt for the move from `open` to `committing`."""

    intent: Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How an operation is to end: the ruling, its reason, and what the catalog shows when it landed."""

    ruling: Ruling
    reason: str
    facts: SnapshotFacts | None = None
    shown_operation_id: OperationId | None = None
    """When main was moved back: the newest operation that it still shows, to which freshness falls back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A settled operation, as the ledger closed it."""

    operation_id: OperationId
    dataset_id: DatasetId
    seq: int
    ruling: Ruling
    status: OperationStatus
    facts: SnapshotFacts | None
    seconds: float
    """From open to settle, by the control plane's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """Files of an operation that never landed."""

    operation: Operation
    paths: tuple[str, ...]
