"""Deciding is total: every status with every kind of evidence has one answer."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

import pytest

from carbon_pipeline.identity import OperationId
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.ledger.states import FINAL, RULINGS, OperationStatus, Ruling
from carbon_pipeline.ratify.decide import (
    Action,
    Fence,
    Leave,
    Settle,
    Standing,
    decide,
    fenced,
    may_be_swept,
    needs_evidence,
)
from carbon_pipeline.ratify.evidence import (
    Absent,
    Broken,
    Evidence,
    OffMain,
    OnMain,
    TargetReplaced,
    Unreachable,
    Witness,
    WitnessOnly,
)

FACTS = SnapshotFacts(snapshot_id=1, parent_snapshot_id=None, rows=2, size_bytes=3, data_files=1, has_identity=True)

SHOWN = OperationId(UUID(int=5))

EVIDENCE: dict[Evidence, Ruling | type[Action]] = {
    Unreachable(reason="503"): Leave,
    TargetReplaced(reason="another uuid"): Ruling.TARGET_REPLACED,
    OnMain(facts=FACTS): Ruling.LANDED,
    OffMain(facts=FACTS, shown_operation_id=None): Ruling.ROLLED_BACK,
    OffMain(facts=FACTS, shown_operation_id=SHOWN): Ruling.ROLLED_BACK,
    WitnessOnly(witnesses=frozenset()): Ruling.NO_EVIDENCE,
    WitnessOnly(witnesses=frozenset({Witness.WATERMARK})): Ruling.NO_EVIDENCE,
    WitnessOnly(witnesses=frozenset({Witness.METADATA_LOG})): Ruling.EVIDENCE_EXPIRED,
    WitnessOnly(witnesses=frozenset({Witness.MANIFEST})): Ruling.EVIDENCE_EXPIRED,
    WitnessOnly(witnesses=frozenset(Witness)): Ruling.EVIDENCE_EXPIRED,
    Absent(head_snapshot_id=7, seen=None): Fence,
    Absent(head_snapshot_id=None, seen=None): Fence,
    Broken(reason="a parent is missing"): Ruling.NO_EVIDENCE,
}


def test_the_table_names_every_kind_of_evidence() -> None:
    """A new kind of evidence has to be put into this test's table first."""
    assert {type(evidence) for evidence in EVIDENCE} == set(get_args(Evidence))


@pytest.mark.parametrize("evidence", EVIDENCE, ids=lambda evidence: type(evidence).__name__)
def test_a_committing_operation_is_ruled_by_evidence(evidence: Evidence) -> None:
    """Each kind of evidence leads to its one answer, and every ruling is one that may come from `committing`."""
    expected = EVIDENCE[evidence]
    action = decide(OperationStatus.COMMITTING, evidence)
    if isinstance(expected, Ruling):
        assert isinstance(action, Settle)
        assert action.settlement.ruling is expected
        assert OperationStatus.COMMITTING in RULINGS[expected].comes_from
    else:
        assert isinstance(action, expected)


def test_only_landing_brings_facts() -> None:
    """The dataset's facts move with a snapshot on main, and with nothing else."""
    with_facts = {
        action.settlement.ruling
        for evidence in EVIDENCE
        if isinstance(action := decide(OperationStatus.COMMITTING, evidence), Settle)
        and action.settlement.facts is not None
    }
    assert with_facts == {Ruling.LANDED}


def test_the_fence_stands_on_the_head_that_was_read() -> None:
    """A fence on another head would prove nothing about the ancestry that was walked."""
    absence = Absent(head_snapshot_id=7, seen=object())
    assert decide(OperationStatus.COMMITTING, absence) == Fence(absence=absence)
    assert fenced(7).ruling is fenced(None).ruling is Ruling.FENCED


def test_a_rollback_names_what_main_still_shows() -> None:
    """Freshness falls back to the operation that main shows now."""
    action = decide(OperationStatus.COMMITTING, OffMain(facts=FACTS, shown_operation_id=SHOWN))
    assert isinstance(action, Settle)
    assert action.settlement.shown_operation_id == SHOWN


@pytest.mark.parametrize("evidence", [None, *EVIDENCE], ids=lambda evidence: type(evidence).__name__)
def test_an_open_operation_never_landed(evidence: Evidence | None) -> None:
    """Whatever the catalog shows, an open operation has sent nothing."""
    action = decide(OperationStatus.OPEN, evidence)
    assert isinstance(action, Settle)
    assert action.settlement.ruling is Ruling.NEVER_LANDED


@pytest.mark.parametrize("status", FINAL)
@pytest.mark.parametrize("evidence", [None, *EVIDENCE], ids=lambda evidence: type(evidence).__name__)
def test_a_final_operation_is_not_decided_again(status: OperationStatus, evidence: Evidence | None) -> None:
    """What somebody else has settled meanwhile is left as it is."""
    assert isinstance(decide(status, evidence), Leave)


def test_a_committing_operation_needs_evidence() -> None:
    """Not having asked the catalog is not evidence."""
    assert needs_evidence(OperationStatus.COMMITTING)
    assert isinstance(decide(OperationStatus.COMMITTING, None), Leave)
    assert not any(needs_evidence(status) for status in OperationStatus if status is not OperationStatus.COMMITTING)


@pytest.mark.parametrize(
    ("age_seconds", "lease_is_live", "swept"), [(299.9, False, False), (300, False, True), (9999, True, False)]
)
def test_a_sweep_leaves_the_young_and_the_living(age_seconds: float, *, lease_is_live: bool, swept: bool) -> None:
    """Younger than the minimum age, or under a live lease: not for the sweep."""
    standing = Standing(status=OperationStatus.COMMITTING, age_seconds=age_seconds, lease_is_live=lease_is_live)
    assert (may_be_swept(standing, 300) is None) is swept
