"""The JSON documents of `--json`. Their keys are an interface: a key may be added, none changes its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from carbon_pipeline.control_plane.records import DatasetStatus, LastOperation, Workspace
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.ledger.operation import Entry
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.reading import format_lsn
from carbon_pipeline.source.relation import Keys, Relation
from carbon_pipeline.sync_all import TableResult
from carbon_pipeline.terminal.operations import line_document
from carbon_pipeline.terminal.runs import SyncOutcome, Tally, VerifyOutcome
from carbon_pipeline.terminal.views import Held, Overview, Source, Watch
from carbon_pipeline.verify.digest import Comparison, Digest

Document = dict[str, object]


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _wide(number: int | None) -> str | None:
    """As text: JavaScript and older versions of jq have no integers of 64 bits."""
    return None if number is None else str(number)


def error_document(error: CarbonError | None) -> Document | None:
    """An error by its kind, what happened, and what to do."""
    return None if error is None else {"kind": error.kind, "message": error.message, "remedy": error.remedy}


def workspace_document(workspace: Workspace) -> Document:
    """A tenant."""
    return {"id": str(workspace.id), "name": workspace.name}


def credential_document(source: Source) -> Document:
    """A credential without its secret; the address is null where the secret could not be opened."""
    credential, connection = source.credential, source.connection
    return {
        "id": str(credential.id),
        "name": credential.name,
        "workspace": credential.workspace.name,
        "destination": str(credential.destination),
        "destination_origin": credential.destination.origin.value,
        "system_identifier": _wide(credential.system_identifier),
        "host": connection and connection.host,
        "port": connection and connection.port,
        "database": connection and connection.database,
        "created_by": credential.created_by,
        "created_at": _instant(credential.created_at),
    }


def dataset_document(dataset: Dataset | None) -> Document | None:
    """A dataset's coordinate and what the catalog calls it."""
    if dataset is None:
        return None
    return {
        "id": str(dataset.id),
        "coordinate": dataset.coordinate,
        "workspace": dataset.workspace,
        "catalog": dataset.catalog,
        "identifier": ".".join(dataset.identifier),
        "location": dataset.location,
    }


def relation_document(relation: Relation, home: Dataset | None, status: DatasetStatus | None) -> Document:
    """A table of the source, its dataset, and where that stands."""
    return {
        "table": relation.qualified_name,
        "kind": relation.kind.value,
        "columns": len(relation.columns),
        "estimated_rows": relation.estimated_rows,
        "size_bytes": relation.size_bytes,
        "dataset": dataset_document(home),
        "last_sync": None if status is None or status.snapshot_id is None else _freshness(status),
        "keys": keys_document(relation.keys),
    }


def keys_document(keys: Keys) -> Document:
    """Keys; where `failed` is not null they are not known, which is another thing than none."""
    foreign = [
        {
            "name": key.name,
            "columns": list(key.columns),
            "references": f"{key.referenced_schema}.{key.referenced_table}",
            "referenced_columns": list(key.referenced_columns),
        }
        for key in keys.foreign
    ]
    return {"primary": list(keys.primary), "foreign": foreign, "failed": keys.failed}


def columns_document(mapping: Mapping) -> list[Document]:
    """What each column is, what it becomes, and the receipt."""
    return [
        {
            "name": column.source_name,
            "lake_name": column.name,
            "source_type": column.source_type,
            "base_type": str(column.base),
            "fidelity": column.receipt.fidelity.value,
            "reason": column.receipt.reason,
            "not_null": column.not_null,
            "comment": column.comment,
        }
        for column in mapping.columns
    ]


def _freshness(status: DatasetStatus) -> Document:
    return {
        "rows": status.rows,
        "size_bytes": status.size_bytes,
        "snapshot_id": _wide(status.snapshot_id),
        "source_time": _instant(status.source_time),
        "age_seconds": status.age_seconds,
    }


def status_document(status: DatasetStatus) -> Document:
    """Where one dataset stands."""
    return {
        "dataset": dataset_document(status.dataset),
        "credential": status.credential,
        "table": status.dataset.relation,
        **_freshness(status),
        "last_operation": _operation(status.last_operation),
    }


def _operation(last: LastOperation | None) -> Document | None:
    if last is None:
        return None
    return {
        "id": str(last.id),
        "status": last.status.value,
        "ruling": last.ruling and last.ruling.value,
        "mode": last.mode.value,
        "opened_at": _instant(last.opened_at),
        "seconds": last.seconds,
        "reason": last.reason,
    }


def result_document(credential: str, result: TableResult) -> Document:
    """What became of one table in a sync: `receipt` or `error` is null."""
    return {
        "credential": credential,
        "table": result.relation.qualified_name,
        "seconds": round(result.seconds, 3),
        "receipt": _receipt(result),
        "error": error_document(result.error),
    }


def _receipt(result: TableResult) -> Document | None:
    if result.receipt is None:
        return None
    entry, moment = result.receipt.entry, result.receipt.reading.moment
    return {
        "dataset": dataset_document(result.receipt.dataset),
        **_entry(entry),
        "source_time": _instant(moment.time),
        "source_lsn": format_lsn(moment.lsn),
        "settled_first": None if result.receipt.settled_before is None else _entry(result.receipt.settled_before),
    }


def _entry(entry: Entry) -> Document:
    facts = entry.facts
    return {
        "operation_id": str(entry.operation_id),
        "seq": entry.seq,
        "status": entry.status.value,
        "ruling": entry.ruling.value,
        "rows": facts and facts.rows,
        "size_bytes": facts and facts.size_bytes,
        "snapshot_id": _wide(None if facts is None else facts.snapshot_id),
    }


def sync_document(outcomes: Sequence[SyncOutcome]) -> Document:
    """A whole sync. `errors` are of credentials whose source could not be looked at."""
    return {
        "tables": [result_document(outcome.credential, result) for outcome in outcomes for result in outcome.results],
        "not_attempted": [
            {"credential": outcome.credential, "table": table}
            for outcome in outcomes
            for table in outcome.not_attempted
        ],
        "errors": [
            {"credential": outcome.credential, **(error_document(outcome.error) or {})}
            for outcome in outcomes
            if outcome.error is not None
        ],
    }


def verify_document(outcomes: Sequence[VerifyOutcome], tally: Tally) -> Document:
    """A whole verification; `all_equal` is what the exit code says too."""
    return {
        "tables": [held_document(outcome.credential, one) for outcome in outcomes for one in outcome.held],
        "errors": [
            {"credential": outcome.credential, **(error_document(outcome.error) or {})}
            for outcome in outcomes
            if outcome.error is not None
        ],
        "equal": tally.equal,
        "different": tally.different,
        "not_verified": tally.failed,
        "all_equal": tally.all_equal,
    }


def overview_document(overview: Overview) -> Document:
    """`carbon status`. Figures are null where the embedded server is down, because nobody knows them then.

    `is_well` is what the exit code says too.
    """
    summary = overview.summary
    return {
        "home": str(overview.home),
        "control_plane": overview.control_plane,
        "embedded_server": {
            "in_use": overview.embedded,
            "running": overview.server is not None,
            "address": overview.server,
        },
        "catalogs": [
            {"name": place.name, "kind": place.kind, "uri": place.uri, "warehouse": place.warehouse}
            for place in overview.catalogs
        ],
        "summary": None
        if summary is None
        else {
            "datasets": len(overview.statuses),
            "published": sum(status.snapshot_id is not None for status in overview.statuses),
            "open_operations": summary.open_operations,
            "credentials": summary.credentials,
            "defaulted_destinations": summary.defaulted_destinations,
        },
        "ratify": None if overview.watch is None else watch_document(overview.watch),
        "is_well": overview.is_well,
        "datasets": [status_document(status) for status in overview.statuses],
    }


def watch_document(watch: Watch) -> Document:
    """Whether anybody settles what writers leave behind."""
    sweep, tick = watch.last_sweep, watch.last_tick
    return {
        "overdue": watch.overdue,
        "deadline_seconds": watch.deadline_seconds,
        "last_sweep": None
        if sweep is None
        else {
            "trigger": sweep.trigger.value,
            "ended_at": _instant(sweep.ended_at),
            "age_seconds": sweep.age_seconds,
            "settled": sweep.settled,
            "left_alone": sweep.left_alone,
            "held_back": sweep.held_back,
            "late": sweep.late,
            "alarm": sweep.alarm,
        },
        "sensor": None
        if tick is None
        else {"at": _instant(tick.at), "age_seconds": tick.age_seconds, "decision": tick.decision.value},
        "unsettled": [line_document(line) for line in watch.unsettled],
        "orphans": {"files": watch.orphans.files, "operations": watch.orphans.operations},
        "alarms": [
            {
                "at": _instant(alarm.at),
                "age_seconds": alarm.age_seconds,
                "text": alarm.text,
                "operation": None if alarm.operation_id is None else str(alarm.operation_id),
            }
            for alarm in watch.alarms
        ],
    }


def held_document(credential: str, one: Held) -> Document:
    """Both sides of one dataset; `verdict` is null where one side could not be read."""
    found = one.comparison
    return {
        "credential": credential,
        "table": one.table,
        "dataset": one.dataset.coordinate,
        "verdict": None if found is None else found.verdict.value,
        **_sides(found),
        "error": error_document(one.error),
    }


def _sides(found: Comparison | None) -> Document:
    return {"source": found and _digest(found.source), "lake": found and _digest(found.lake)}


def _digest(digest: Digest) -> Document:
    return {"rows": digest.rows, "checksum": digest.checksum_hex}
