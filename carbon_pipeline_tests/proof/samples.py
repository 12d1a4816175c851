"""One operation, its snapshot and its files, in agreement."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from carbon_pipeline.control_plane.records import (
    AnnouncedFile,
    DatasetStatus,
    EventKind,
    OperationEvent,
    OperationLine,
    OperationStory,
    SyncLogEntry,
)
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.identity import CredentialId, DatasetId, OperationId, WorkspaceId
from carbon_pipeline.lake.reader import FileProof, LakeField, ProvenColumn, SnapshotProof
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.states import OperationStatus, Ruling, SyncStatus
from carbon_pipeline.schema.type_map import BaseKind, BaseType
from carbon_pipeline.source.reading import Moment
from carbon_pipeline.verify.digest import Digest

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
OPERATION = OperationId(UUID(int=7))
SNAPSHOT = 2**62 + 1
TABLE = "0197f3a2-0000-7000-8000-000000000000"
LIST, MANIFEST, DATA = "file:///w/snap.avro", "file:///w/m0.avro", "file:///w/00000.parquet"


def dataset() -> Dataset:
    """Its home."""
    return Dataset(
        id=DatasetId(UUID(int=6)),
        workspace_id=WorkspaceId(UUID(int=1)),
        workspace="acme",
        credential_id=CredentialId(UUID(int=2)),
        catalog="main",
        schema="default",
        name="orders",
        identifier=("acme__default", "orders"),
        location="file:///w",
        relation="public.orders",
        partition_key="public.orders",
        committed_moment=None,
    )


def status() -> DatasetStatus:
    """Where it stands."""
    return DatasetStatus(
        dataset=dataset(),
        credential="shop",
        rows=10,
        size_bytes=100,
        snapshot_id=SNAPSHOT,
        source_time=NOON,
        age_seconds=60,
        last_operation=None,
    )


def line() -> OperationLine:
    """The operation in a list."""
    return OperationLine(
        id=OPERATION,
        dataset=dataset(),
        credential="shop",
        seq=3,
        writer=Writer.SYNC_FULL,
        mode=Mode.REPLACE,
        status=OperationStatus.COMMITTED,
        ruling=Ruling.LANDED,
        reason="the catalog shows it",
        user="ada",
        run_id=None,
        opened_at=NOON,
        age_seconds=60,
        seconds=1.5,
        lease_is_live=False,
        rows_written=10,
        rows=10,
        snapshot_id=SNAPSHOT,
    )


def story() -> OperationStory:
    """All of it."""
    return OperationStory(
        line=line(),
        engine="carbon_pipeline",
        policy="role:owner",
        holder="host:1",
        code_version="0.1.0",
        relation="public.orders",
        moment=Moment(system_identifier=1, lsn=0x16B374D848, time=NOON),
        catalog_uri="sqlite:///catalog",
        warehouse="file:///w",
        identifier=("acme__default", "orders"),
        table_uuid=TABLE,
        base_snapshot_id=None,
        planned_snapshot_id=SNAPSHOT,
        parent_snapshot_id=None,
        size_bytes=100,
        data_files=1,
        has_identity=True,
        bytes_written=400,
        heartbeat_at=NOON,
        lease_until=NOON,
        committing_at=NOON,
        settled_at=NOON,
        sync_log=SyncLogEntry(
            status=SyncStatus.SUCCEEDED,
            source_time=NOON,
            rows=10,
            has_identity=True,
            started_at=NOON,
            finished_at=NOON,
        ),
        events=tuple(_events()),
        files=tuple(AnnouncedFile(path=path, announced_at=NOON, removed_at=None) for path in (DATA, MANIFEST, LIST)),
    )


def _events() -> list[OperationEvent]:
    moves = [
        (None, OperationStatus.OPEN, None),
        (OperationStatus.OPEN, OperationStatus.COMMITTING, None),
        (OperationStatus.COMMITTING, OperationStatus.COMMITTED, Ruling.LANDED),
    ]
    return [
        OperationEvent(
            at=NOON,
            kind=EventKind.TRANSITION,
            from_status=before,
            to_status=after,
            ruling=ruling,
            reason=None,
            snapshot_id=None,
            session="carbon pid 1 on host as ada",
            database_user="carbon",
        )
        for before, after, ruling in moves
    ]


def file_proof(path: str, size_bytes: int, rows: int | None) -> FileProof:
    """A file of the size that is recorded."""
    return FileProof(path=path, size_bytes=size_bytes, recorded_bytes=size_bytes, sha256="ab" * 32, rows=rows)


def snapshot() -> SnapshotProof:
    """What main shows."""
    stamps = {
        "operation-id": str(OPERATION),
        "seq": "3",
        "writer": "sync.full",
        "write-mode": "replace",
        "source-lsn": "16/B374D848",
        "source-time": NOON.isoformat(),
        "source-system": "1",
        "rows": "10",
        "code-version": "0.1.0",
    }
    totals = {"total-records": "10", "total-files-size": "100", "total-data-files": "1"}
    return SnapshotProof(
        table_uuid=TABLE,
        location="file:///w",
        metadata_location="file:///w/metadata.json",
        watermark=f"3:{OPERATION}",
        head_snapshot_id=SNAPSHOT,
        fences=(),
        snapshot_id=SNAPSHOT,
        parent_snapshot_id=None,
        sequence_number=1,
        committed_at=NOON,
        schema_id=0,
        summary=totals | {f"carbon.{name}": value for name, value in stamps.items()},
        stamps=stamps,
        columns=(
            ProvenColumn(
                attnum=1, field=LakeField(field_id=1, name="id", type="int"), base=BaseType(kind=BaseKind.INTEGER)
            ),
        ),
        manifest_list=file_proof(LIST, 50, None),
        manifests=(file_proof(MANIFEST, 60, 10),),
        data_files=(file_proof(DATA, 100, 10),),
        digest=Digest(rows=10, checksum=255),
    )
