"""Sweeps, operations and the overview, as a person reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from carbon_pipeline.control_plane.records import (
    Alarm,
    EventKind,
    OrphanCount,
    SweepRecord,
    SweepTrigger,
    TickDecision,
    TickRecord,
)
from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.writers import Mode, Writer
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ledger.states import UNSETTLED, OperationStatus, Ruling
from carbon_pipeline.ratify.orphans import OrphanReport
from carbon_pipeline.ratify.sweep import Case, SweepReport, Verdict
from carbon_pipeline.source.reading import Moment
from carbon_pipeline.terminal.documents import overview_document
from carbon_pipeline.terminal.operations import PROOFS, WAITING, line_document, lines_grid, proof_in_words, say_story
from carbon_pipeline.terminal.overview import say_overview, say_trouble
from carbon_pipeline.terminal.sweeps import Swept, say_sweep, summary_line, sweep_document
from carbon_pipeline.terminal.sweeps import say_trouble as say_sweep_trouble
from carbon_pipeline.terminal.views import Overview, Summary, Watch
from carbon_pipeline_tests.proof.samples import NOON, dataset, line, story
from carbon_pipeline_tests.terminal.samples import screen


def operation(number: int, status: OperationStatus = OperationStatus.COMMITTING) -> Operation:
    """An operation of the sample dataset."""
    return Operation(
        id=OperationId(UUID(int=number << 96)),
        dataset=dataset(),
        seq=number,
        status=status,
        writer=Writer.SYNC_FULL,
        mode=Mode.REPLACE,
        table_uuid="t",
        base_snapshot_id=None,
        moment=Moment(system_identifier=1, lsn=1, time=NOON),
        opened_at=NOON,
        snapshot_id=None,
    )


CASES = (
    Case(operation=operation(1), verdict=Verdict.SETTLED, ruling=Ruling.LANDED, reason="on main"),
    Case(operation=operation(2), verdict=Verdict.SETTLED, ruling=Ruling.FENCED, reason="absent"),
    Case(operation=operation(3), verdict=Verdict.LEFT, ruling=None, reason="it is 3 s old", waits=True),
    Case(operation=operation(4), verdict=Verdict.LEFT, ruling=None, reason="no answer", stuck=True),
    Case(operation=operation(5), verdict=Verdict.HELD_BACK, ruling=Ruling.FENCED, reason="absent"),
)


def swept(*cases: Case, alarm: str | None = None, late: tuple[Operation, ...] = ()) -> Swept:
    """A sweep with these cases."""
    return Swept(
        report=SweepReport(cases=cases, late=late, alarm=alarm, dry_run=False),
        orphans=OrphanReport(removed=2, kept=("file:///w/kept",), failed=("default.x: gone",)),
        reported=1,
    )


def test_a_sweep_has_a_line_for_what_was_due() -> None:
    """What is merely young is counted and not listed."""
    made, out, _ = screen(width=200)
    say_sweep(made, swept(*CASES))
    lines = out.getvalue().splitlines()
    assert len(lines) == 1 + 4 + 3
    assert lines[1].split("  ")[0] == "default.orders"
    assert "00000001" in lines[1]
    assert "00000003" not in out.getvalue()
    assert lines[-3] == "2 settled (1 fenced, 1 landed), 2 left alone, 1 held back"
    assert lines[-2:] == ["2 orphans removed", "1 materialisation reported to Dagster that the dead never did"]


@pytest.mark.parametrize(
    ("found", "well"),
    [
        (swept(), True),
        (swept(*CASES[:3]), True),
        (swept(CASES[3]), False),
        (swept(alarm="too many"), False),
        (swept(late=(operation(9),)), False),
    ],
)
def test_only_what_needs_a_person_is_a_failure(found: Swept, well: bool) -> None:
    """An alarm, a late landing, and what nobody answered for; not what is left to its writer."""
    assert found.is_well is sweep_document(found)["is_well"] is well


def test_each_trouble_has_its_remedy() -> None:
    """On stderr, with what to do below it."""
    made, out, err = screen(width=400)
    say_sweep_trouble(made, swept(CASES[3], alarm="too many", late=(operation(9),)))
    said = err.getvalue()
    assert out.getvalue() == ""
    for text in ("alarm: too many", "--max-aborts N", "was aborted, and the lake shows it", "Roll the table back"):
        assert text in said
    assert "alarm: 1 operation could not be settled: no answer" in said
    assert "warning: file:///w/kept is left" in said
    assert "warning: orphans of default.x: gone" in said


def test_a_dry_run_says_that_it_is_one() -> None:
    """In the summary, with what would be done."""
    case = replace(CASES[0], verdict=Verdict.WOULD_SETTLE)
    report = SweepReport(cases=(case,), late=(), alarm=None, dry_run=True)
    assert summary_line(report) == "1 would settle (1 landed), 0 left alone; a dry run, nothing was changed"


def test_every_ruling_and_every_wait_has_its_words() -> None:
    """No operation is without a proof, or a word on what it waits for."""
    assert set(PROOFS) == set(Ruling)
    assert set(WAITING) == set(UNSETTLED)
    assert proof_in_words(line()) == PROOFS[Ruling.LANDED]


def test_a_story_tells_everything() -> None:
    """Who, from where, to where, what came of it, each transition and the first files."""
    made, out, _ = screen(width=200)
    late = replace(story().events[-1], kind=EventKind.LATE_LANDING)
    many = tuple(replace(story().files[0], path=f"file:///w/{i}") for i in range(8))
    say_story(made, replace(story(), events=(*story().events, late), files=many))
    said = out.getvalue()
    for text in (
        "operation 00000000-0000-0000-0000-000000000007",
        "default.orders, write 3: committed (landed)",
        "ada, by carbon_pipeline",
        "role:owner",
        "LSN 16/B374D848",
        "acme__default.orders",
        "snapshot 4611686018427387905",
        "nothing → open, by carbon pid 1 on host as ada",
        "committing → committed (landed)",
        "landed late, after that ruling",
        "8 files announced, 0 removed since",
        "… 3 more; --json has all",
    ):
        assert text in said


def test_an_unsettled_line_says_whether_its_writer_may_live() -> None:
    """Lease live or over; the figures that nobody knows yet are dashes."""
    unsettled = replace(line(), status=OperationStatus.OPEN, ruling=None, rows=None, seconds=None, lease_is_live=True)
    [row] = lines_grid([unsettled]).rows
    assert "open, lease live" in [cell.plain for cell in row]
    assert line_document(unsettled)["rows"] is None


def overview(**watch: object) -> Overview:
    """A deployment whose watch is well but for *watch*."""
    sweep = SweepRecord(
        id=1,
        trigger=SweepTrigger.SENSOR,
        began_at=NOON,
        ended_at=NOON,
        age_seconds=90,
        dry_run=False,
        settled=2,
        left_alone=1,
        held_back=0,
        late=0,
        alarm=None,
    )
    well = Watch(
        last_sweep=sweep,
        last_tick=TickRecord(
            trigger=SweepTrigger.SENSOR, at=NOON, age_seconds=20, decision=TickDecision.NOTHING_UNSETTLED
        ),
        deadline_seconds=900,
        overdue=False,
        unsettled=(),
        orphans=OrphanCount(files=0, operations=0),
        alarms=(),
    )
    return Overview(
        home=Path("/home"),
        control_plane="db:5432/carbon",
        embedded=False,
        server=None,
        summary=Summary(open_operations=0, credentials=1, defaulted_destinations=0),
        watch=replace(well, **watch),  # type: ignore[arg-type]
    )


def test_the_heartbeat() -> None:
    """Who swept last and what came of it, and what the sensor saw."""
    made, out, err = screen(width=200)
    say_overview(made, overview(orphans=OrphanCount(files=12, operations=3)))
    say_trouble(made, overview())
    assert "ratify         last sweep 1 min ago, by sensor: 2 settled, 1 left alone\n" in out.getvalue()
    assert "sensor         looked 20 s ago: nothing is unsettled\n" in out.getvalue()
    assert "orphans        12 files of 3 aborted operations\n" in out.getvalue()
    assert err.getvalue() == ""


def test_a_watch_that_is_not_kept() -> None:
    """Overdue, and alarms of the last day: each with a remedy, and not well."""
    alarm = Alarm(at=NOON, age_seconds=7200, text="default.orders landed late", operation_id=OperationId(UUID(int=7)))
    found = overview(overdue=True, alarms=(alarm,), last_sweep=None, last_tick=None)
    made, out, err = screen(width=200)
    say_overview(made, found)
    say_trouble(made, found)
    assert "ratify         nobody has swept yet\n" in out.getvalue()
    assert "sensor         has never looked\n" in out.getvalue()
    assert "alarm: nobody has looked for unsettled writes within the last 15 min 00 s\n" in err.getvalue()
    assert "alarm: default.orders landed late (2 h ago)\n" in err.getvalue()
    assert not found.is_well
    assert overview_document(found)["is_well"] is False
