"""The sweep on a real ledger, over a lake that shows what it is told: each operation once, by proof, within bounds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest
from sqlalchemy import text

from carbon_pipeline.control_plane.records import SweepTrigger
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.gate.verdict import Actor
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.ratify.evidence import (
    Broken,
    Evidence,
    OffMain,
    OnMain,
    TargetReplaced,
    Unreachable,
    Witness,
    WitnessOnly,
)
from carbon_pipeline.ratify.sweep import SweepReport, Terms, Verdict, sweep
from carbon_pipeline_tests.control_plane.plane import Plane
from carbon_pipeline_tests.control_plane.samples import ACTOR, FACTS, dump, end, ledger_on, publish
from carbon_pipeline_tests.control_plane.scripted_lake import ABSENT, ScriptedLake

OPEN, COMMITTING = OperationStatus.OPEN, OperationStatus.COMMITTING
RATIFIER = Actor(user="ratify")
AT_ONCE = Terms(min_age_seconds=0)


def swept(plane: Plane, lake: ScriptedLake, terms: Terms = AT_ONCE) -> SweepReport:
    """One sweep."""
    return sweep(plane.ledger, lake, RATIFIER, terms)


def verdicts(report: SweepReport) -> dict[OperationId, tuple[Verdict, Ruling | None]]:
    """What it did, by operation."""
    return {case.operation.id: (case.verdict, case.ruling) for case in report.cases}


def statuses(plane: Plane, operations: Iterable[Operation]) -> list[OperationStatus]:
    """Where these stand now."""
    return [plane.directory.operation(str(each.id)).line.status for each in operations]


def test_the_young_and_the_leased_are_left_alone(plane: Plane) -> None:
    """What is younger than the minimum age, or whose lease lives, is not even looked for in the catalog; with the age
    reached and the lease run out it is settled."""
    young = plane.leave(1, COMMITTING)
    leased = plane.leave(2, COMMITTING, ledger=ledger_on(plane.engine, lease_seconds=3600))
    lake = ScriptedLake({each.id: OnMain(facts=FACTS) for each in (young, leased)})
    report = swept(plane, lake, Terms(min_age_seconds=300))
    assert set(verdicts(report).values()) == {(Verdict.LEFT, None)}
    assert [case.reason for case in report.cases] == ["it is 0 s old, younger than 300 s", "its writer's lease is live"]
    assert lake.observed == []
    assert verdicts(swept(plane, lake)) == {young.id: (Verdict.SETTLED, Ruling.LANDED), leased.id: (Verdict.LEFT, None)}


EVIDENCE: dict[str, tuple[Evidence, Ruling | None]] = {
    "on main": (OnMain(facts=FACTS), Ruling.LANDED),
    "off main": (OffMain(facts=FACTS, shown_operation_id=None), Ruling.ROLLED_BACK),
    "absent": (ABSENT, Ruling.FENCED),
    "replaced": (TargetReplaced(reason="another uuid"), Ruling.TARGET_REPLACED),
    "broken": (Broken(reason="the ancestry ends early"), Ruling.NO_EVIDENCE),
    "expired": (WitnessOnly(witnesses=frozenset({Witness.MANIFEST})), Ruling.EVIDENCE_EXPIRED),
    "silent": (Unreachable(reason="timed out"), None),
}


def test_each_evidence_ends_its_operation(plane: Plane) -> None:
    """One sweep over an operation for each thing that a catalog can show, and an open one that it is not asked about:
    each has the ruling that follows, and one whose catalog is silent stays. Only the absent one is fenced."""
    left = {name: plane.leave(number, COMMITTING) for number, name in enumerate(EVIDENCE)}
    opened = plane.leave(20, OPEN)
    lake = ScriptedLake({left[name].id: evidence for name, (evidence, _) in EVIDENCE.items()})
    report = swept(plane, lake)
    rulings = {name: verdicts(report)[operation.id][1] for name, operation in left.items()}
    assert rulings == {name: ruling for name, (_, ruling) in EVIDENCE.items()}
    assert verdicts(report)[opened.id] == (Verdict.SETTLED, Ruling.NEVER_LANDED)
    assert lake.fenced == [left["absent"].id]
    assert opened.id not in lake.observed
    assert [each.operation.id for each in plane.ledger.unsettled(10)] == [left["silent"].id]
    assert plane.directory.dataset("t0").rows == FACTS.rows


def test_a_landed_write_is_completed_as_its_writer_would_have(plane: Plane) -> None:
    """A sweep and a writer that lived leave the same facts on a dataset."""
    publish(plane.ledger, plane.dataset(1), plane.table(1))
    left = plane.leave(2, COMMITTING)
    swept(plane, ScriptedLake({left.id: OnMain(facts=FACTS)}))
    with plane.engine.connect() as connection:
        facts = connection.execute(
            text(
                "SELECT row_count, size_bytes, data_files, snapshot_id, columns, primary_key, foreign_keys,"
                " schema_version, committed_seq, source_lsn, source_time FROM carbon.datasets"
                " WHERE name IN ('t1', 't2')"
            )
        ).all()
    assert facts[0] == facts[1]


def test_a_rollback_that_a_sweep_finds_lowers_freshness(plane: Plane) -> None:
    """The newest operation that main still shows decides what the dataset claims to be."""
    first = publish(plane.ledger, plane.dataset(1), plane.table(1), snapshot_id=10)
    publish(plane.ledger, plane.dataset(1), plane.table(1), snapshot_id=20)
    left = plane.leave(1, COMMITTING, snapshot_id=30)
    report = swept(plane, ScriptedLake({left.id: OffMain(facts=FACTS, shown_operation_id=first)}))
    assert verdicts(report) == {left.id: (Verdict.SETTLED, Ruling.ROLLED_BACK)}
    assert plane.directory.dataset("t1").snapshot_id == 10


def test_too_many_aborts_abort_none(plane: Plane) -> None:
    """Over the limit no operation is aborted or fenced, and an alarm says so; what has landed is settled all the same.
    At the limit all of them are."""
    gone = [plane.leave(number, OPEN if number % 2 else COMMITTING) for number in range(4)]
    landed = plane.leave(9, COMMITTING)
    lake = ScriptedLake({landed.id: OnMain(facts=FACTS)})
    report = swept(plane, lake, replace(AT_ONCE, aborts_max=3))
    assert report.alarm == "aborting 4 of them is over the limit of 3: none was aborted"
    assert report.is_alarming
    assert Counter(case.verdict for case in report.cases) == {Verdict.HELD_BACK: 4, Verdict.SETTLED: 1}
    assert statuses(plane, gone) == [each.status for each in gone]
    assert lake.fenced == []
    again = swept(plane, lake, replace(AT_ONCE, aborts_max=4))
    assert (again.alarm, set(statuses(plane, gone))) == (None, {OperationStatus.ABORTED})


def test_a_dry_run_changes_nothing(plane: Plane) -> None:
    """It says what it would do, and not one row of any table is another one after it, nor is anything fenced."""
    landed, absent, opened = plane.leave(1, COMMITTING), plane.leave(2, COMMITTING), plane.leave(3, OPEN)
    late = plane.leave(4, COMMITTING)
    end(plane.ledger, late, Ruling.FENCED)
    lake = ScriptedLake({each.id: OnMain(facts=FACTS) for each in (landed, late)})
    before = dump(plane.engine)
    report = swept(plane, lake, replace(AT_ONCE, dry_run=True))
    assert dump(plane.engine) == before
    assert lake.fenced == []
    assert verdicts(report) == {
        landed.id: (Verdict.WOULD_SETTLE, Ruling.LANDED),
        absent.id: (Verdict.WOULD_SETTLE, Ruling.FENCED),
        opened.id: (Verdict.WOULD_SETTLE, Ruling.NEVER_LANDED),
    }
    assert [each.id for each in report.late] == [late.id]
    real = swept(plane, lake)
    assert {key: ruling for key, (_, ruling) in verdicts(real).items()} == {
        key: ruling for key, (_, ruling) in verdicts(report).items()
    }


def test_sweeping_twice_changes_nothing_more(plane: Plane) -> None:
    """The second sweep finds nothing, asks nothing and leaves every row as it is."""
    left = [plane.leave(number, COMMITTING) for number in range(3)]
    lake = ScriptedLake({left[0].id: OnMain(facts=FACTS), left[1].id: Broken(reason="expired")})
    swept(plane, lake)
    before = dump(plane.engine)
    lake.observed.clear()
    again = swept(plane, lake)
    assert (again.cases, again.late, again.alarm) == ((), (), None)
    assert lake.observed == [left[2].id], "only the fenced one is watched"
    assert dump(plane.engine) == before


def test_two_sweeps_at_once_settle_each_operation_once(plane: Plane) -> None:
    """Whatever the one settles the other leaves; between them every operation has one settlement and one last event."""
    left = [plane.leave(number, OPEN if number % 3 == 0 else COMMITTING) for number in range(24)]
    shows: dict[OperationId, Evidence] = {each.id: OnMain(facts=FACTS) for each in left if each.status is COMMITTING}
    both_have_looked = Barrier(2)
    last = next(each for each in reversed(left) if each.status is COMMITTING)

    def wait_for_the_other(operation: Operation) -> None:
        if operation.id == last.id:
            both_have_looked.wait(timeout=60)

    def run(_: int) -> SweepReport:
        engine = plane.address.engine()
        try:
            return sweep(ledger_on(engine), ScriptedLake(shows, on_observe=wait_for_the_other), RATIFIER, AT_ONCE)
        finally:
            engine.dispose()

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(run, range(2)))
    settled = Counter(
        case.operation.id for report in reports for case in report.cases if case.verdict is Verdict.SETTLED
    )
    assert settled == {each.id: 1 for each in left}
    assert all(len(report.cases) == len(left) for report in reports), "one was done before the other began"
    for each in left:
        finals = [event for event in plane.directory.operation(str(each.id)).events if event.ruling is not None]
        assert [event.ruling for event in finals] == [Ruling.NEVER_LANDED if each.status is OPEN else Ruling.LANDED]


def test_a_held_claim_is_left(plane: Plane) -> None:
    """A dataset whose writer still has its lock is left at once, naming the holder, however dead its lease looks; the
    sweep goes on with the others."""
    held, free = plane.leave(1, COMMITTING), plane.leave(2, COMMITTING)
    lake = ScriptedLake({each.id: OnMain(facts=FACTS) for each in (held, free)})
    patient = SqlLedger(plane.engine, code_version="0.1.0", warehouses={}, wait_seconds=60)
    with plane.ledger.claim(held.dataset, ACTOR):
        began = time.monotonic()
        report = sweep(patient, lake, RATIFIER, AT_ONCE)
    assert time.monotonic() - began < 20
    assert verdicts(report) == {held.id: (Verdict.LEFT, None), free.id: (Verdict.SETTLED, Ruling.LANDED)}
    assert "is held by carbon pid" in report.cases[0].reason
    assert "as ada" in report.cases[0].reason


def test_what_moved_meanwhile_is_looked_at_anew(plane: Plane) -> None:
    """An operation that its own writer settled after the sweep had looked is left to that."""
    left = plane.leave(1, COMMITTING)
    lake = ScriptedLake({left.id: ABSENT}, on_observe=lambda each: end(plane.ledger, each, Ruling.LANDED))
    report = swept(plane, lake)
    assert [(case.verdict, case.reason) for case in report.cases] == [
        (Verdict.LEFT, "somebody else settled it meanwhile")
    ]
    assert lake.fenced == []
    assert statuses(plane, [left]) == [OperationStatus.COMMITTED]


@pytest.mark.parametrize("evidence", [OnMain(facts=FACTS), OffMain(facts=FACTS, shown_operation_id=None)])
def test_a_late_landing_is_told_once_and_never_ruled_anew(plane: Plane, evidence: Evidence) -> None:
    """An aborted operation that the lake shows is in every report while it is watched, in the history once, and stays
    aborted. A dry run tells of it and leaves no trace of it in the history."""
    late = plane.leave(1, COMMITTING)
    end(plane.ledger, late, Ruling.FENCED)
    lake = ScriptedLake({late.id: evidence})
    dry = swept(plane, lake, replace(AT_ONCE, dry_run=True))
    plane.directory.record_sweep(SweepTrigger.TERMINAL, dry, seconds=1)
    assert [each.id for each in dry.late] == [late.id]
    assert plane.directory.alarms(24) == ()
    for _ in range(2):
        report = swept(plane, lake)
        assert report.is_alarming
        assert plane.directory.record_sweep(SweepTrigger.SENSOR, report, seconds=1).late == 1
    kinds = [event.kind.value for event in plane.directory.operation(str(late.id)).events]
    assert kinds == ["transition", "transition", "transition", "late_landing"]
    assert statuses(plane, [late]) == [OperationStatus.ABORTED]
    (alarm,) = plane.directory.alarms(24)
    assert alarm.operation_id == late.id
    assert f"default.t1 shows operation {late.id}, which was ruled fenced" in alarm.text
    assert swept(plane, lake, replace(AT_ONCE, watch_hours=0)).late == ()
