"""Sweeps, ticks and alarms on record: whether anybody still looks, by the control plane's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.control_plane.records import EventKind, SweepTrigger, TickDecision
from carbon_pipeline.errors import ControlPlaneError
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.ratify.sweep import Case, SweepReport, Verdict
from carbon_pipeline_tests.control_plane.plane import Plane
from carbon_pipeline_tests.control_plane.samples import end

QUIET = SweepReport(cases=(), late=(), alarm=None, dry_run=False)
DRY = SweepReport(cases=(), late=(), alarm="a dry run's", dry_run=True)


def backdate_records(plane: Plane, *, minutes: float) -> None:
    """Make every sweep and tick look older."""
    span = {"span": timedelta(minutes=minutes)}
    with plane.engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(
            text("UPDATE carbon.ratify_sweeps SET began_at = began_at - :span, ended_at = ended_at - :span"), span
        )
        connection.execute(text("UPDATE carbon.ratify_ticks SET at = at - :span, idle_at = idle_at - :span"), span)


def test_a_sweep_comes_back_as_it_was(plane: Plane) -> None:
    """Its counts, its alarm, and its two ends by one clock, whatever this process's clock says."""
    operation = plane.leave(1, OperationStatus.OPEN)
    counted = {Verdict.SETTLED: 4, Verdict.LEFT: 3, Verdict.HELD_BACK: 2}
    cases = tuple(
        Case(operation=operation, verdict=verdict, ruling=None, reason="r")
        for verdict, times in counted.items()
        for _ in range(times)
    )
    report = SweepReport(cases=cases, late=(), alarm="look here", dry_run=False)
    recorded = plane.directory.record_sweep(SweepTrigger.SCHEDULE, report, seconds=90)
    assert (recorded.settled, recorded.left_alone, recorded.held_back, recorded.late) == (4, 3, 2, 0)
    assert (recorded.trigger, recorded.alarm, recorded.dry_run) == (SweepTrigger.SCHEDULE, "look here", False)
    assert timedelta(seconds=90) <= recorded.ended_at - recorded.began_at < timedelta(seconds=95)
    last = plane.directory.last_sweep()
    assert last is not None
    assert (last.id, last.began_at, last.alarm) == (recorded.id, recorded.began_at, "look here")
    assert 0 <= last.age_seconds < 60


def test_a_dry_sweep_is_on_record_and_counts_for_nothing(plane: Plane) -> None:
    """It settled nothing, so it is neither the last sweep nor a sign of life, and its alarm is its reader's."""
    assert plane.directory.last_sweep() is None
    assert plane.directory.record_sweep(SweepTrigger.TERMINAL, DRY, seconds=1).dry_run
    assert plane.directory.last_sweep() is None
    assert plane.directory.ratify_is_overdue(60)
    assert plane.directory.alarms(24) == ()


def test_would_settle_counts_as_settled_in_a_dry_run(plane: Plane) -> None:
    """A dry run's record says what a real one would have done."""
    case = Case(operation=plane.leave(1, OperationStatus.OPEN), verdict=Verdict.WOULD_SETTLE, ruling=None, reason="r")
    report = SweepReport(cases=(case,), late=(), alarm=None, dry_run=True)
    assert plane.directory.record_sweep(SweepTrigger.LIBRARY, report, seconds=0).settled == 1


def test_a_sweep_keeps_ratify_from_being_overdue(plane: Plane) -> None:
    """For as long as the deadline allows."""
    assert plane.directory.ratify_is_overdue(600)
    plane.directory.record_sweep(SweepTrigger.SENSOR, QUIET, seconds=1)
    assert not plane.directory.ratify_is_overdue(600)
    backdate_records(plane, minutes=11)
    assert plane.directory.ratify_is_overdue(600)


@pytest.mark.parametrize("decision", TickDecision)
def test_a_look_that_found_nothing_to_do_is_a_sign_of_life(plane: Plane, decision: TickDecision) -> None:
    """A tick that launched a sweep, or waited for one, is none: that sweep has to show itself."""
    plane.directory.record_tick(SweepTrigger.SENSOR, decision)
    tick = plane.directory.last_tick(SweepTrigger.SENSOR)
    assert tick is not None
    assert (tick.trigger, tick.decision) == (SweepTrigger.SENSOR, decision)
    assert tick.age_seconds < 60
    assert datetime.now(UTC) - tick.at < timedelta(minutes=5)
    assert plane.directory.ratify_is_overdue(600) is not decision.is_idle
    assert plane.directory.last_tick(SweepTrigger.SCHEDULE) is None


def test_a_launch_does_not_undo_an_idle_look(plane: Plane) -> None:
    """A sensor that found nothing a minute ago and launches a sweep now is not overdue; one whose launches never end in
    a sweep is, once the deadline is over."""
    plane.directory.record_tick(SweepTrigger.SENSOR, TickDecision.NOTHING_UNSETTLED)
    backdate_records(plane, minutes=1)
    plane.directory.record_tick(SweepTrigger.SENSOR, TickDecision.LAUNCHED)
    tick = plane.directory.last_tick(SweepTrigger.SENSOR)
    assert tick is not None
    assert tick.decision is TickDecision.LAUNCHED
    assert not plane.directory.ratify_is_overdue(600)
    backdate_records(plane, minutes=10)
    plane.directory.record_tick(SweepTrigger.SENSOR, TickDecision.LAUNCHED)
    assert plane.directory.ratify_is_overdue(600)


def test_alarms_are_listed_for_a_while(plane: Plane) -> None:
    """The newest first, the same alarm of several sweeps once, and none of before."""
    long_ago = SweepReport(cases=(), late=(), alarm="long ago", dry_run=False)
    plane.directory.record_sweep(SweepTrigger.SENSOR, long_ago, seconds=1)
    backdate_records(plane, minutes=25 * 60)
    late = plane.leave(1, OperationStatus.COMMITTING)
    end(plane.ledger, late, Ruling.REFUSED)
    for alarm in ("too many", "too many", "far too many"):
        report = SweepReport(cases=(), late=(late,), alarm=alarm, dry_run=False)
        plane.directory.record_sweep(SweepTrigger.SENSOR, report, seconds=1)
    alarms = plane.directory.alarms(24)
    assert [each.text for each in alarms if each.operation_id is None] == ["far too many", "too many"]
    assert [each.operation_id for each in alarms if each.operation_id] == [late.id]
    assert [each.at for each in alarms] == sorted((each.at for each in alarms), reverse=True)
    assert all(0 <= each.age_seconds < 60 for each in alarms)
    assert "long ago" in [each.text for each in plane.directory.alarms(48)]


def test_a_sweep_is_recorded_whole_or_not_at_all(plane: Plane) -> None:
    """A report that calls an operation late which was not aborted is refused with all that is in it."""
    left = plane.leave(1, OperationStatus.COMMITTING)
    with pytest.raises(ControlPlaneError, match="only an aborted one can land late"):
        plane.directory.record_sweep(
            SweepTrigger.LIBRARY, SweepReport(cases=(), late=(left,), alarm=None, dry_run=False), seconds=1
        )
    assert plane.directory.last_sweep() is None
    assert {event.kind for event in plane.directory.operation(str(left.id)).events} == {EventKind.TRANSITION}


def test_a_recorded_sweep_stays(plane: Plane) -> None:
    """What a sweep found is not rewritten."""
    plane.directory.record_sweep(SweepTrigger.SENSOR, QUIET, seconds=1)
    with pytest.raises(IntegrityError, match="stays as it was recorded"), plane.engine.begin() as connection:
        connection.execute(text("UPDATE carbon.ratify_sweeps SET alarm = NULL"))
