"""What a table shows of one operation."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.iceberg.stamps import OPERATION_ID, WATERMARK, watermark_of
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ratify.evidence import (
    Absent,
    Broken,
    Evidence,
    OffMain,
    OnMain,
    TargetReplaced,
    Witness,
    WitnessOnly,
)
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


def landed_in(metadata: TableMetadata, operation: Operation) -> SnapshotFacts | None:
    """The facts of the operation's snapshot where main shows it, attribution measured and not assumed."""
    for snapshot in _ancestry(metadata)[0]:
        if stamped_with(snapshot, OPERATION_ID, str(operation.id)):
            return facts_of(snapshot, metadata)
    return None


def evidence_in(table: Table, operation: Operation) -> Evidence:
    """The evidence for or against *operation* in a table as it was loaded.

    Presence is looked for everywhere before absence is concluded: a snapshot may be off main, or have expired after
    main was moved back behind it, and then main's ancestry is unbroken all the same. The watermark tells of that.
    """
    metadata = table.metadata
    if str(metadata.table_uuid) != operation.table_uuid:
        return TargetReplaced(reason=f"the table in its place has UUID {metadata.table_uuid}")
    facts = landed_in(metadata, operation)
    if facts is not None:
        return OnMain(facts=facts)
    chain, missing = _ancestry(metadata)
    for snapshot in metadata.snapshots:
        if stamped_with(snapshot, OPERATION_ID, str(operation.id)):
            return OffMain(facts=facts_of(snapshot, metadata), shown_operation_id=_newest_shown(chain))
    absence = _absence(table, chain, missing, operation)
    named = metadata.properties.get(WATERMARK) == watermark_of(operation)
    if isinstance(absence, Absent) and not named:
        return absence
    witnesses = frozenset(_witnesses(table, operation))
    return WitnessOnly(witnesses=witnesses) if witnesses else absence


def _newest_shown(chain: list[Snapshot]) -> OperationId | None:
    for snapshot in chain:
        stamp = snapshot.summary[OPERATION_ID] if snapshot.summary else None
        if stamp:
            return OperationId(UUID(stamp))
    return None


def _absence(table: Table, chain: list[Snapshot], missing: int | None, operation: Operation) -> Absent | Broken:
    head = chain[0].snapshot_id if chain else None
    base = operation.base_snapshot_id
    if base in {snapshot.snapshot_id for snapshot in chain}:
        return Absent(head_snapshot_id=head, seen=table)
    if missing is not None:
        return Broken(reason=f"main's ancestry ends at snapshot {missing}, which has expired, before the base")
    if base is not None:
        return Broken(reason=f"the base snapshot {base} is not in main's ancestry any more")
    if not _reaches_the_first_commit(table.metadata, chain):
        return Broken(reason="main's ancestry does not reach back to the table's first commit")
    return Absent(head_snapshot_id=head, seen=table)


def _reaches_the_first_commit(metadata: TableMetadata, chain: list[Snapshot]) -> bool:
    """Whether nothing came before the chain. A missing parent does not say so: some engines' expiry cuts the link to an
    expired parent. Sequence numbers are never given twice (Iceberg specification, "Sequence Numbers")."""
    return chain[-1].sequence_number == 1 if chain else metadata.next_sequence_number() == 1


def _witnesses(table: Table, operation: Operation) -> Iterator[Witness]:
    if table.metadata.properties.get(WATERMARK) == watermark_of(operation):
        yield Witness.WATERMARK
    if _in_metadata_log(table, operation):
        yield Witness.METADATA_LOG
    if _in_manifests(table, operation):
        yield Witness.MANIFEST


def _in_metadata_log(table: Table, operation: Operation) -> bool:
    """Whether an earlier metadata file shows the operation's snapshot. Files that are gone say nothing."""
    for entry in reversed(table.metadata.metadata_log):
        try:
            earlier = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except FileNotFoundError:
            continue
        if any(stamped_with(snapshot, OPERATION_ID, str(operation.id)) for snapshot in earlier.snapshots):
            return True
    return False


def _in_manifests(table: Table, operation: Operation) -> bool:
    """Whether a manifest of main was added by the very snapshot that the operation's request named."""
    head = table.metadata.current_snapshot()
    if head is None or operation.snapshot_id is None:
        return False
    return any(manifest.added_snapshot_id == operation.snapshot_id for manifest in head.manifests(table.io))
