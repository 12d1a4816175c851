"""Sweeps and ticks on record: who settled what when, whether anybody still looks, and what a person has to look at."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Interval, Text, Uuid, and_, cast, func, literal, null, select, union_all
from sqlalchemy.dialects.postgresql import insert

from carbon_pipeline.control_plane.records import (
    Alarm,
    EventKind,
    SweepRecord,
    SweepTrigger,
    TickDecision,
    TickRecord,
)
from carbon_pipeline.control_plane.sql.models import DatasetRow, EventRow, FileRow, OperationRow, SweepRow, TickRow
from carbon_pipeline.control_plane.sql.rows import Found, Query
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.ratify.sweep import SweepReport, Verdict


def record_sweep(connection: Connection, trigger: SweepTrigger, report: SweepReport, seconds: float) -> SweepRecord:
    """Record a sweep that has just ended. Its beginning is reckoned back, so that one clock gives both."""
    verdicts = Counter(case.verdict for case in report.cases)
    sweep_id = connection.scalar(
        insert(SweepRow)
        .values(
            trigger=trigger,
            began_at=_ago(timedelta(seconds=seconds)),
            ended_at=func.clock_timestamp(),
            dry_run=report.dry_run,
            settled=verdicts[Verdict.SETTLED] + verdicts[Verdict.WOULD_SETTLE],
            left_alone=verdicts[Verdict.LEFT],
            held_back=verdicts[Verdict.HELD_BACK],
            late=len(report.late),
            alarm=report.alarm,
        )
        .returning(SweepRow.id)
    )
    if report.late and not report.dry_run:
        _record_late(connection, report)
    return sweep_of(connection.execute(select_sweeps().where(SweepRow.id == sweep_id)).one())


def _record_late(connection: Connection, report: SweepReport) -> None:
    """One event per operation for good; the database fills in what it knows of the operation."""
    reason = "it was aborted, and the lake shows it all the same"
    late = [
        {"operation_id": operation.id, "kind": EventKind.LATE_LANDING, "reason": reason} for operation in report.late
    ]
    connection.execute(insert(EventRow).values(late).on_conflict_do_nothing())


def select_sweeps() -> Query:
    """Sweeps for `sweep_of`, the newest first."""
    return select(*SweepRow.__table__.columns, _age(SweepRow.ended_at)).order_by(SweepRow.ended_at.desc())


def sweep_of(row: Found) -> SweepRecord:
    """The record of a row of `select_sweeps`."""
    return SweepRecord(
        id=row.id,
        trigger=row.trigger,
        began_at=row.began_at,
        ended_at=row.ended_at,
        age_seconds=float(row.age_seconds),
        dry_run=row.dry_run,
        settled=row.settled,
        left_alone=row.left_alone,
        held_back=row.held_back,
        late=row.late,
        alarm=row.alarm,
    )


def record_tick(connection: Connection, trigger: SweepTrigger, decision: TickDecision) -> None:
    """Put this look in the place of the trigger's last one."""
    now = func.clock_timestamp()
    tick = insert(TickRow).values(
        trigger=trigger, at=now, decision=decision.value, idle_at=now if decision.is_idle else null()
    )
    connection.execute(
        tick.on_conflict_do_update(
            index_elements=[TickRow.trigger],
            set_={
                "at": tick.excluded.at,
                "decision": tick.excluded.decision,
                "idle_at": func.coalesce(tick.excluded.idle_at, TickRow.idle_at),
            },
        )
    )


def select_ticks() -> Query:
    """Ticks for `tick_of`."""
    return select(*TickRow.__table__.columns, _age(TickRow.at))


def tick_of(row: Found) -> TickRecord:
    """The record of a row of `select_ticks`."""
    return TickRecord(
        trigger=row.trigger, at=row.at, age_seconds=float(row.age_seconds), decision=TickDecision(row.decision)
    )


def select_overdue(deadline_seconds: float) -> Query:
    """Whether neither a sweep nor an idle look falls into these last seconds."""
    since = _ago(timedelta(seconds=deadline_seconds))
    swept = select(SweepRow.id).where(SweepRow.dry_run.is_(False), SweepRow.ended_at >= since)
    idle = select(TickRow.trigger).where(TickRow.idle_at >= since)
    return select(and_(~swept.exists(), ~idle.exists()).label("overdue"))


def select_orphan_count() -> Query:
    """How many files of how many aborted operations are not removed."""
    return (
        select(
            func.count().label("files"),
            func.count(FileRow.operation_id.distinct()).label("operations"),
        )
        .join(OperationRow, OperationRow.id == FileRow.operation_id)
        .where(OperationRow.status == OperationStatus.ABORTED, FileRow.removed_at.is_(None))
    )


def select_alarms(hours: float) -> Query:
    """Alarms of sweeps and late landings, the newest first. Sweeps that raise the same alarm again raise it once."""
    since = _ago(timedelta(hours=hours))
    of_sweeps = (
        select(
            func.max(SweepRow.ended_at).label("at"),
            SweepRow.alarm.label("text"),
            cast(null(), Uuid()).label("operation_id"),
        )
        .where(SweepRow.alarm.is_not(None), SweepRow.dry_run.is_(False), SweepRow.ended_at >= since)
        .group_by(SweepRow.alarm)
    )
    of_operations = (
        select(EventRow.at, _late_landing_said(), EventRow.operation_id)
        .join(OperationRow, OperationRow.id == EventRow.operation_id)
        .join(DatasetRow, DatasetRow.id == OperationRow.dataset_id)
        .where(EventRow.kind == EventKind.LATE_LANDING, EventRow.at >= since)
    )
    alarms = union_all(of_sweeps, of_operations).subquery("alarms")
    return select(*alarms.c, _age(alarms.c.at)).order_by(alarms.c.at.desc())


def alarm_of(row: Found) -> Alarm:
    """The alarm of a row of `select_alarms`."""
    return Alarm(
        at=row.at,
        age_seconds=float(row.age_seconds),
        text=row.text,
        operation_id=None if row.operation_id is None else OperationId(row.operation_id),
    )


def _late_landing_said() -> Any:
    return func.format(
        "%s.%s shows operation %s, which was ruled %s: snapshot %s landed late",
        DatasetRow.schema_name,
        DatasetRow.name,
        EventRow.operation_id,
        cast(EventRow.ruling, Text()),
        func.coalesce(cast(EventRow.snapshot_id, Text()), "unknown"),
    ).label("text")


def _age(at: Any) -> Any:
    return func.extract("epoch", func.clock_timestamp() - at).label("age_seconds")


def _ago(span: timedelta) -> Any:
    return func.clock_timestamp() - literal(span, Interval)
