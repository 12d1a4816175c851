"""What the control plane knows, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from carbon_pipeline.destination.coordinate import Dataset, Destination
from carbon_pipeline.identity import CredentialId, OperationId, WorkspaceId
from carbon_pipeline.lake.writers import Mode
from carbon_pipeline.ledger.states import OperationStatus, Ruling


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
