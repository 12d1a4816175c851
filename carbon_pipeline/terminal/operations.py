"""Operations as `carbon ledger` shows them: a list, or the whole story of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from rich.text import Text

from carbon_pipeline.control_plane.records import (
    AnnouncedFile,
    EventKind,
    OperationEvent,
    OperationLine,
    OperationStory,
    SyncLogEntry,
)
from carbon_pipeline.ledger.states import UNSETTLED, OperationStatus, Ruling
from carbon_pipeline.source.reading import format_lsn
from carbon_pipeline.terminal.grid import Column, Grid, cell
from carbon_pipeline.terminal.screen import Screen
from carbon_pipeline.terminal.spelling import UNKNOWN, age, count, counted, duration, instant, size
from carbon_pipeline.terminal.sweeps import SHORT_ID
from carbon_pipeline.terminal.views import BAD, DOUBTFUL, GOOD, QUIET

Document = dict[str, object]

FILES_SHOWN = 5

PROOFS: dict[Ruling, str] = {
    Ruling.LANDED: "The catalog shows its snapshot, stamped with its id, in main's ancestry.",
    Ruling.NOOP: "There was nothing to change, so nothing was written and no snapshot was made.",
    Ruling.ROLLED_BACK: "Its snapshot is in the catalog, so it landed; main was moved back behind it since.",
    Ruling.EVIDENCE_EXPIRED: "Its snapshot has expired, and more than the table's watermark still names it.",
    Ruling.NEVER_LANDED: "It was still open when it was aborted, by the same compare-and-set that it would have "
    "needed to send a request: so it has sent none and can send none.",
    Ruling.FENCED: "Main's ancestry was unbroken back to its base and did not have it, and a fence on top of that head "
    "makes a late request fail.",
    Ruling.FAILED: "Its own writer ended it before any request was sent.",
    Ruling.REFUSED: "The catalog refused its request, and the table's history explains that and has nothing of it.",
    Ruling.TARGET_REPLACED: "The table that it wrote to is gone, or another one stands in its place.",
    Ruling.NO_EVIDENCE: "Neither its presence nor its absence can be proved, so it never counts as fresh.",
}
"""What each ruling rests on, in words."""

WAITING: dict[OperationStatus, str] = {
    OperationStatus.OPEN: "It has sent no request. The next sync of the table aborts it if its writer is gone, or a "
    "sweep once its lease is over.",
    OperationStatus.COMMITTING: "Its request may have been sent, so only what the catalog shows can end it: the next "
    "sync of the table asks if its writer is gone, or a sweep once its lease is over.",
}
"""What will happen to an unsettled operation."""


def proof_in_words(line: OperationLine) -> str:
    """Why the operation counts as what it counts as."""
    return WAITING[line.status] if line.ruling is None else PROOFS[line.ruling]


def lines_grid(lines: Iterable[OperationLine]) -> Grid:
    """Operations, one a line."""
    columns = (
        Column(title="operation"),
        Column(title="dataset"),
        Column(title="seq", right=True, spare=2),
        Column(title="mode", spare=5),
        Column(title="by", spare=4),
        Column(title="opened"),
        Column(title="took", right=True, spare=3),
        Column(title="rows", right=True),
        Column(title="status"),
        Column(title="reason", spare=6),
    )
    return Grid(columns=columns, rows=tuple(_line_row(line) for line in lines))


def _line_row(line: OperationLine) -> tuple[Text, ...]:
    return (
        cell(str(line.id)[:SHORT_ID], "bold"),
        cell(line.dataset.coordinate),
        cell(str(line.seq)),
        cell(line.mode),
        cell(line.user),
        cell(age(line.age_seconds)),
        cell(duration(line.seconds)),
        cell(count(line.rows)),
        cell(ended(line), _style(line)),
        cell(line.reason or "", QUIET),
    )


def ended(line: OperationLine) -> str:
    """`committed (landed)`, `committing, lease live`."""
    if line.ruling is not None:
        return f"{line.status} ({line.ruling})"
    return f"{line.status}, {'lease live' if line.lease_is_live else 'lease over'}"


def _style(line: OperationLine) -> str:
    if line.status in UNSETTLED:
        return DOUBTFUL
    return GOOD if line.status is OperationStatus.COMMITTED else BAD


def say_story(screen: Screen, story: OperationStory) -> None:
    """Everything on record of one operation, in the order in which it happened."""
    line = story.line
    screen.say(f"operation {line.id}", "bold")
    screen.show(cell(f"{line.dataset.coordinate}, write {line.seq}: ").append(cell(ended(line), _style(line))))
    screen.say(proof_in_words(line))
    if line.reason:
        screen.say(f"On record: {line.reason}")
    for title, fields in (
        ("Who", _who(story)),
        ("From", _source(story)),
        ("To", _target(story)),
        ("Came of it", _outcome(story)),
    ):
        screen.say()
        screen.say(title, QUIET)
        for name, text in fields:
            screen.say(f"  {name:<15}{text}")
    _say_events(screen, story.events)
    _say_files(screen, story.files)


Fields = Iterator[tuple[str, str]]


def _who(story: OperationStory) -> Fields:
    line = story.line
    yield "user", f"{line.user}, by {story.engine}"
    yield "allowed by", story.policy
    yield "writer", f"{line.writer}, {line.mode}"
    yield "process", story.holder
    yield "Dagster run", line.run_id or "none"
    yield "code version", story.code_version


def _source(story: OperationStory) -> Fields:
    yield "source", f"{story.line.credential}, system {story.moment.system_identifier}"
    yield "table", story.relation
    yield "as of", f"{instant(story.moment.time)}, LSN {format_lsn(story.moment.lsn)}"


def _target(story: OperationStory) -> Fields:
    yield "table", ".".join(story.identifier)
    yield "catalog", story.catalog_uri
    yield "warehouse", story.warehouse
    yield "table UUID", story.table_uuid
    yield "base", _snapshot(story.base_snapshot_id)


def _outcome(story: OperationStory) -> Fields:
    line, log = story.line, story.sync_log
    yield "planned", _snapshot(story.planned_snapshot_id)
    yield "landed", _snapshot(line.snapshot_id)
    yield "rows", count(line.rows) if line.rows is not None else f"{UNKNOWN} ({count(line.rows_written)} read)"
    yield "size", f"{size(story.size_bytes)} in {count(story.data_files)} data files"
    yield "sync log", f"{log.status}" + ("" if log.source_time is None else f", fresh as of {instant(log.source_time)}")
    if line.status in UNSETTLED:
        yield "lease", f"until {instant(story.lease_until)}, last sign of life {instant(story.heartbeat_at)}"
    else:
        yield "took", duration(line.seconds)


def _snapshot(snapshot_id: int | None) -> str:
    return UNKNOWN if snapshot_id is None else f"snapshot {snapshot_id}"


def _say_events(screen: Screen, events: Iterable[OperationEvent]) -> None:
    screen.say()
    screen.say("What happened", QUIET)
    for event in events:
        ruled = "" if event.ruling is None else f" ({event.ruling})"
        said = f"{event.from_status or 'nothing'} → {event.to_status}{ruled}"
        if event.kind is EventKind.LATE_LANDING:
            said = "landed late, after that ruling"
        session = event.session or "unknown session"
        screen.say(
            f"  {_precisely(event.at)}  {said}, by {session}", BAD if event.kind is EventKind.LATE_LANDING else ""
        )


def _precisely(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="milliseconds")


def _say_files(screen: Screen, files: tuple[AnnouncedFile, ...]) -> None:
    screen.say()
    removed = sum(file.removed_at is not None for file in files)
    screen.say(f"{counted(len(files), 'file')} announced, {removed:,} removed since", QUIET)
    for file in files[:FILES_SHOWN]:
        screen.say(f"  {file.path}" + ("" if file.removed_at is None else f" (removed {instant(file.removed_at)})"))
    if len(files) > FILES_SHOWN:
        screen.say(f"  … {len(files) - FILES_SHOWN:,} more; --json has all", QUIET)


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _wide(number: int | None) -> str | None:
    return None if number is None else str(number)


def line_document(line: OperationLine) -> Document:
    """An operation in a list."""
    return {
        "id": str(line.id),
        "workspace": line.dataset.workspace,
        "dataset": line.dataset.coordinate,
        "credential": line.credential,
        "seq": line.seq,
        "writer": line.writer.value,
        "mode": line.mode.value,
        "status": line.status.value,
        "ruling": line.ruling and line.ruling.value,
        "reason": line.reason,
        "user": line.user,
        "run_id": line.run_id,
        "opened_at": _instant(line.opened_at),
        "age_seconds": line.age_seconds,
        "seconds": line.seconds,
        "lease_is_live": line.lease_is_live,
        "rows_written": line.rows_written,
        "rows": line.rows,
        "snapshot_id": _wide(line.snapshot_id),
    }


def story_document(story: OperationStory) -> Document:
    """One operation with everything."""
    return {
        **line_document(story.line),
        "proof": proof_in_words(story.line),
        "engine": story.engine,
        "policy": story.policy,
        "holder": story.holder,
        "code_version": story.code_version,
        "source": {
            "table": story.relation,
            "system_identifier": _wide(story.moment.system_identifier),
            "lsn": format_lsn(story.moment.lsn),
            "time": _instant(story.moment.time),
        },
        "destination": {
            "catalog_uri": story.catalog_uri,
            "warehouse": story.warehouse,
            "identifier": ".".join(story.identifier),
            "table_uuid": story.table_uuid,
        },
        "base_snapshot_id": _wide(story.base_snapshot_id),
        "planned_snapshot_id": _wide(story.planned_snapshot_id),
        "parent_snapshot_id": _wide(story.parent_snapshot_id),
        "size_bytes": story.size_bytes,
        "bytes_written": story.bytes_written,
        "data_files": story.data_files,
        "has_identity": story.has_identity,
        "heartbeat_at": _instant(story.heartbeat_at),
        "lease_until": _instant(story.lease_until),
        "committing_at": _instant(story.committing_at),
        "settled_at": _instant(story.settled_at),
        "sync_log": _sync_log(story.sync_log),
        "events": [_event(event) for event in story.events],
        "files": [
            {
                "path": file.path,
                "announced_at": _instant(file.announced_at),
                "removed_at": _instant(file.removed_at),
            }
            for file in story.files
        ],
    }


def _sync_log(entry: SyncLogEntry) -> Document:
    return {
        "status": entry.status.value,
        "source_time": _instant(entry.source_time),
        "rows": entry.rows,
        "has_identity": entry.has_identity,
        "started_at": _instant(entry.started_at),
        "finished_at": _instant(entry.finished_at),
    }


def _event(event: OperationEvent) -> Document:
    return {
        "at": _instant(event.at),
        "kind": event.kind.value,
        "from": event.from_status and event.from_status.value,
        "to": event.to_status.value,
        "ruling": event.ruling and event.ruling.value,
        "reason": event.reason,
        "snapshot_id": _wide(event.snapshot_id),
        "session": event.session,
        "database_user": event.database_user,
    }
