"""What the control plane knows, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from carbon_pipeline.destination.coordinate import Dataset, Destination
from carbon_pipeline.identity import CredentialId, OperationId, WorkspaceId
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.states import OperationStatus, Ruling, SyncStatus
from carbon_pipeline.source.reading import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A tenant."""

    id: WorkspaceId
    name: str


class Governance(StrEnum):
    """Whose rules a catalog keeps."""

    OWN = "own"
    """One's own: readable identifiers, nobody else inside."""
    GOVERNED = "governed"
    """It asks before it acts, and wants the tenant's name."""
    SHARED = "shared"
    """Other parties write there too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """A registered catalog."""

    name: str
    kind: str
    """PyIceberg's name for its type: `sql`, `rest`."""
    uri_host: str
    """The host that a writer to this catalog talks to."""
    governance: Governance


class TlsMode(StrEnum):
    """libpq's `sslmode` (PostgreSQL manual, "SSL Mode Descriptions")."""

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach one PostgreSQL database. Only ever stored sealed."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    tls: TlsMode = TlsMode.PREFER
    tls_root_certificate: str | None = None
    """Path of a file with the certificates to trust; the system's otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One source of a workspace, without its secret."""

    id: CredentialId
    workspace: Workspace
    name: str
    destination: Destination
    system_identifier: int
    """Of the database that was connected; another one behind the same address is refused."""
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOperation:
    """A dataset's newest operation."""

    id: OperationId
    status: OperationStatus
    ruling: Ruling | None
    mode: Mode
    opened_at: datetime
    seconds: float | None
    """From open to settle; none while it is unsettled."""
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetStatus:
    """Where one dataset stands, all ages by the control plane's clock."""

    dataset: Dataset
    credential: str
    rows: int | None
    size_bytes: int | None
    snapshot_id: int | None
    source_time: datetime | None
    age_seconds: float | None
    """How long ago the source looked as the dataset does."""
    last_operation: LastOperation | None


class OperationFilter(StrEnum):
    """Which operations a list is of."""

    OPEN = "open"
    """Unsettled: `open` or `committing`."""
    FAILED = "failed"
    """Ended without their rows on record: `aborted` or `unverifiable`."""
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLine:
    """One operation in a list, all ages by the control plane's clock."""

    id: OperationId
    dataset: Dataset
    credential: str
    seq: int
    writer: Writer
    mode: Mode
    status: OperationStatus
    ruling: Ruling | None
    reason: str | None
    user: str
    """Who wrote."""
    run_id: str | None
    opened_at: datetime
    age_seconds: float
    """Since it opened."""
    seconds: float | None
    """From open to settle; none while it is unsettled."""
    lease_is_live: bool
    """Whether its writer may still be at work; false once it is settled."""
    rows_written: int
    """How far its writer said it was."""
    rows: int | None
    """What the snapshot holds; none unless it landed."""
    snapshot_id: int | None
    """The snapshot that landed; none unless one did."""


class EventKind(StrEnum):
    """What an entry of an operation's history is about."""

    TRANSITION = "transition"
    LATE_LANDING = "late_landing"
    """It was aborted, and is in the lake all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEvent:
    """One entry of an operation's history, as the database wrote it."""

    at: datetime
    kind: EventKind
    from_status: OperationStatus | None
    """None when it opened."""
    to_status: OperationStatus
    ruling: Ruling | None
    reason: str | None
    snapshot_id: int | None
    """Planned, on the way to `committing` and in a late landing; landed, at the end."""
    session: str | None
    """The session that did it, by the name that it gave itself; none where the history was rebuilt by a migration."""
    database_user: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedFile:
    """A file that an operation said it was about to write."""

    path: str
    announced_at: datetime
    removed_at: datetime | None
    """When it was removed as an orphan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLogEntry:
    """An operation's row in the sync log."""

    status: SyncStatus
    source_time: datetime | None
    """None where the row does not make the dataset as fresh as that."""
    rows: int | None
    has_identity: bool | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStory:
    """Everything that is on record of one operation."""

    line: OperationLine
    engine: str
    policy: str
    """The rule that admitted it."""
    holder: str
    """Host and process of its writer."""
    code_version: str
    relation: str
    """The source's `schema.table` as it was called when the operation opened."""
    moment: Moment
    """The source's moment that its rows show."""
    catalog_uri: str
    warehouse: str
    identifier: tuple[str, str]
    """Namespace and table name: with the two above, the whole destination."""
    table_uuid: str
    base_snapshot_id: int | None
    planned_snapshot_id: int | None
    """The snapshot that its request named; none unless it was `committing`."""
    parent_snapshot_id: int | None
    size_bytes: int | None
    data_files: int | None
    has_identity: bool | None
    bytes_written: int
    heartbeat_at: datetime
    lease_until: datetime
    committing_at: datetime | None
    settled_at: datetime | None
    sync_log: SyncLogEntry
    events: tuple[OperationEvent, ...]
    """In the order in which they happened."""
    files: tuple[AnnouncedFile, ...]


class SweepTrigger(StrEnum):
    """Who asked for a sweep."""

    SENSOR = "sensor"
    SCHEDULE = "schedule"
    TERMINAL = "terminal"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """One sweep, as it was recorded."""

    id: int
    trigger: SweepTrigger
    began_at: datetime
    ended_at: datetime
    age_seconds: float
    """Since it ended, by the control plane's clock."""
    dry_run: bool
    settled: int
    """In a dry run, what would have been."""
    left_alone: int
    held_back: int
    late: int
    alarm: str | None


class TickDecision(StrEnum):
    """What a look at the ledger came to, without a sweep."""

    NOTHING_UNSETTLED = "nothing is unsettled"
    NOTHING_DUE = "nothing is due yet"
    LAUNCHED = "launched a sweep"
    RUNNING = "a sweep is running already"

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return self in {TickDecision.NOTHING_UNSETTLED, TickDecision.NOTHING_DUE}


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """The last time that a trigger looked whether a sweep is due."""

    trigger: SweepTrigger
    at: datetime
    age_seconds: float
    decision: TickDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanCount:
    """What aborted operations announced and nobody has removed yet, written or not."""

    files: int
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that a person has to look at."""

    at: datetime
    age_seconds: float
    text: str
    operation_id: OperationId | None
    """The operation that landed late; none when a whole sweep raised the alarm."""
