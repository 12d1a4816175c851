"""A receipt as Dagster's metadata: the keys that its UI knows, and ours under `carbon/`."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from carbon_pipeline.control_plane.records import OperationStory
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.schema.mapping import ColumnMapping
from carbon_pipeline.schema.mapping import Mapping as ColumnsMapping
from carbon_pipeline.source.reading import Moment, format_lsn
from carbon_pipeline.sync import Receipt

DATA_VERSION = "dagster/data_version"
DATA_VERSION_IS_OURS = "dagster/data_version_is_user_provided"
OPERATION_ID = "carbon/operation_id"
SEQ = "carbon/seq"
URI = "dagster/uri"
"""A table's folder. It is made of ids, so it tells datasets apart that had the same name one after the other."""


def data_version(receipt: Receipt) -> dg.DataVersion | None:
    """The snapshot's id: the same one means the same rows."""
    facts = receipt.entry.facts
    return None if facts is None else dg.DataVersion(str(facts.snapshot_id))


def metadata_of(receipt: Receipt) -> dict[str, dg.MetadataValue]:
    """Everything that a materialisation says about one publication, in the order in which the UI shows it."""
    return {
        **_snapshot(receipt.entry.facts),
        **_operation(receipt),
        **_place(receipt.dataset),
        **_columns(receipt.mapping),
    }


def materialization(key: dg.AssetKey, receipt: Receipt) -> dg.AssetMaterialization:
    """The event for whoever logs one itself: the job over many tables, and the terminal."""
    version = data_version(receipt)
    return dg.AssetMaterialization(
        asset_key=key,
        partition=receipt.dataset.partition_key,
        description=f"{receipt.dataset.relation} → {receipt.dataset.coordinate}",
        metadata=metadata_of(receipt),
        tags={} if version is None else {DATA_VERSION: version.value, DATA_VERSION_IS_OURS: "true"},
    )


def repaired_materialization(key: dg.AssetKey, story: OperationStory) -> dg.AssetMaterialization:
    """The event that a dead run never reported, from what is on record of its operation."""
    line = story.line
    return dg.AssetMaterialization(
        asset_key=key,
        partition=line.dataset.partition_key,
        description=f"{story.relation} → {line.dataset.coordinate}",
        metadata={**_repaired_snapshot(story), **_repaired_operation(story), **_place(line.dataset)},
        tags={} if line.snapshot_id is None else {DATA_VERSION: str(line.snapshot_id), DATA_VERSION_IS_OURS: "true"},
    )


def _repaired_snapshot(story: OperationStory) -> dict[str, dg.MetadataValue]:
    line = story.line
    told: dict[str, dg.MetadataValue] = {}
    if line.rows is not None:
        told["dagster/partition_row_count"] = dg.MetadataValue.int(line.rows)
    if line.snapshot_id is not None:
        told["carbon/snapshot_id"] = dg.MetadataValue.text(str(line.snapshot_id))
    if story.size_bytes is not None:
        told["carbon/bytes"] = dg.MetadataValue.int(story.size_bytes)
    if story.data_files is not None:
        told["carbon/data_files"] = dg.MetadataValue.int(story.data_files)
    return told


def _repaired_operation(story: OperationStory) -> dict[str, dg.MetadataValue]:
    line, last = story.line, story.events[-1]
    run = {} if line.run_id is None else {"carbon/run_id": dg.MetadataValue.text(line.run_id)}
    return {
        OPERATION_ID: dg.MetadataValue.text(str(line.id)),
        SEQ: dg.MetadataValue.int(line.seq),
        "carbon/ruling": dg.MetadataValue.text("" if line.ruling is None else line.ruling.value),
        "carbon/seconds": dg.MetadataValue.float(round(line.seconds or 0, 3)),
        **_moment(story.moment),
        "carbon/repaired": dg.MetadataValue.bool(True),
        "carbon/repaired_by": dg.MetadataValue.text(last.session or last.database_user or "unknown"),
        "carbon/reason": dg.MetadataValue.text(line.reason or ""),
        "carbon/writer": dg.MetadataValue.text(f"{line.user}, {story.holder}"),
        **run,
    }


def _place(dataset: Dataset) -> dict[str, dg.MetadataValue]:
    return {
        "dagster/table_name": dg.MetadataValue.text(".".join((dataset.catalog, *dataset.identifier))),
        URI: dg.MetadataValue.text(dataset.location),
        "carbon/dataset": dg.MetadataValue.text(dataset.coordinate),
        "carbon/relation": dg.MetadataValue.text(dataset.relation),
    }


def _moment(moment: Moment) -> dict[str, dg.MetadataValue]:
    return {
        "carbon/source_time": dg.MetadataValue.timestamp(moment.time),
        "carbon/source_lsn": dg.MetadataValue.text(format_lsn(moment.lsn)),
    }


def _operation(receipt: Receipt) -> dict[str, dg.MetadataValue]:
    entry, before = receipt.entry, receipt.settled_before
    return {
        OPERATION_ID: dg.MetadataValue.text(str(entry.operation_id)),
        SEQ: dg.MetadataValue.int(entry.seq),
        "carbon/ruling": dg.MetadataValue.text(entry.ruling.value),
        "carbon/seconds": dg.MetadataValue.float(round(entry.seconds, 3)),
        **_moment(receipt.reading.moment),
        "carbon/settled_before": dg.MetadataValue.text(
            "nothing" if before is None else f"{before.operation_id}: {before.status.value}, {before.ruling.value}"
        ),
    }


def _snapshot(facts: SnapshotFacts | None) -> Mapping[str, dg.MetadataValue]:
    if facts is None:
        return {}
    return {
        "dagster/partition_row_count": dg.MetadataValue.int(facts.rows),
        # As text: JavaScript, which shows it, has no integers of 64 bits.
        "carbon/snapshot_id": dg.MetadataValue.text(str(facts.snapshot_id)),
        "carbon/bytes": dg.MetadataValue.int(facts.size_bytes),
        "carbon/data_files": dg.MetadataValue.int(facts.data_files),
    }


def _columns(mapping: ColumnsMapping) -> dict[str, dg.MetadataValue]:
    return {
        "dagster/column_schema": dg.MetadataValue.table_schema(_schema(mapping)),
        "carbon/receipts": dg.MetadataValue.table(
            records=[dg.TableRecord(_receipt(column)) for column in mapping.columns], schema=_RECEIPTS
        ),
    }


def _schema(mapping: ColumnsMapping) -> dg.TableSchema:
    primary = mapping.relation.keys.primary
    rules = [f"primary key ({', '.join(primary)})"] if primary else []
    return dg.TableSchema(
        columns=[_column(column, primary) for column in mapping.columns],
        constraints=dg.TableConstraints(other=rules) if rules else None,
    )


def _column(column: ColumnMapping, primary: tuple[str, ...]) -> dg.TableColumn:
    said = [f"from {column.source_type}"]
    if column.source_name in primary:
        said.append("primary key")
    return dg.TableColumn(
        name=column.name,
        type=str(column.base),
        description=column.comment,
        constraints=dg.TableColumnConstraints(
            nullable=not column.not_null, unique=primary == (column.source_name,), other=said
        ),
    )


_RECEIPTS = dg.TableSchema(
    columns=[
        dg.TableColumn(name=name) for name in ("column", "source column", "source type", "type", "fidelity", "reason")
    ]
)


def _receipt(column: ColumnMapping) -> dict[str, str | float | int | bool | None]:
    return {
        "column": column.name,
        "source column": column.source_name,
        "source type": column.source_type,
        "type": str(column.base),
        "fidelity": column.receipt.fidelity.value,
        "reason": column.receipt.reason or "",
    }
