"""What a table shows of one operation, read from its metadata alone."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from carbon_pipeline.lake.iceberg.stamps import OPERATION_ID, WATERMARK, watermark_of
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ratify.evidence import Absent, Broken, Evidence, OffMain, OnMain, TargetReplaced, WitnessOnly
from carbon_pipeline.schema.row_identity import ROW_INDEX


def stamped_with(snapshot: Snapshot, key: str, value: str) -> bool:
    """Whether a snapshot's summary carries *value* under *key*."""
    return snapshot.summary is not None and snapshot.summary[key] == value


def facts_of(snapshot: Snapshot, metadata: TableMetadata) -> SnapshotFacts:
    """What a snapshot says of itself."""
    summary = snapshot.summary
    schema = metadata.schema_by_id(snapshot.schema_id) if snapshot.schema_id is not None else metadata.schema()
    return SnapshotFacts(
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        rows=_count(summary["total-records"] if summary else None),
        size_bytes=_count(summary["total-files-size"] if summary else None),
        data_files=_count(summary["total-data-files"] if summary else None),
        has_identity=schema is not None and ROW_INDEX in schema.column_names,
    )


def _count(text: str | None) -> int:
    if text is None:
        raise ValueError("the snapshot's summary has no totals")
    return int(text)


def _ancestry(metadata: TableMetadata) -> tuple[list[Snapshot], int | None]:
    """Main's snapshots from its head back, and the parent id at which the chain leaves the metadata, if it does."""
    chain: list[Snapshot] = []
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    head = metadata.current_snapshot()
    next_id = head.snapshot_id if head else None
    while next_id is not None and next_id in by_id:
        chain.append(by_id[next_id])
        next_id = by_id[next_id].parent_snapshot_id
    return chain, next_id


def evidence_in(metadata: TableMetadata, operation: Operation) -> Evidence:
    """The evidence for or against *operation* in a table's current metadata."""
    if str(metadata.table_uuid) != operation.table_uuid:
        return TargetReplaced(reason=f"the table in its place has UUID {metadata.table_uuid}")
    chain, missing = _ancestry(metadata)
    for snapshot in chain:
        if stamped_with(snapshot, OPERATION_ID, str(operation.id)):
            return OnMain(facts=facts_of(snapshot, metadata))
    for snapshot in metadata.snapshots:
        if stamped_with(snapshot, OPERATION_ID, str(operation.id)):
            return OffMain(facts=facts_of(snapshot, metadata))
    if metadata.properties.get(WATERMARK) == watermark_of(operation):
        return WitnessOnly(witness=f"the table's watermark is {watermark_of(operation)}, its snapshot has expired")
    return _absence(chain, missing, operation)


def _absence(chain: list[Snapshot], missing: int | None, operation: Operation) -> Evidence:
    head = chain[0].snapshot_id if chain else None
    ids = {snapshot.snapshot_id for snapshot in chain}
    if operation.base_snapshot_id in ids:
        return Absent(head_snapshot_id=head)
    if missing is not None:
        return Broken(reason=f"main's ancestry ends at snapshot {missing}, which has expired, before the base")
    if operation.base_snapshot_id is None:
        return Absent(head_snapshot_id=head)
    return Broken(reason=f"the base snapshot {operation.base_snapshot_id} is not in main's ancestry any more")
