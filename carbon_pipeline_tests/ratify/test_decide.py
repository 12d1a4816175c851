"""Deciding is total: every status with every kind of evidence has one answer, or is refused as nonsense."""

from __future__ import annotations

from typing import get_args

import pytest

from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.ledger.states import FINAL, RULINGS, OperationStatus, Ruling
from carbon_pipeline.ratify.decide import Action, Fence, Leave, Settle, decide
from carbon_pipeline.ratify.evidence import (
    Absent,
    Broken,
    Evidence,
    OffMain,
    OnMain,
    TargetReplaced,
    Unreachable,
    WitnessOnly,
)

FACTS = SnapshotFacts(snapshot_id=1, parent_snapshot_id=None, rows=2, size_bytes=3, data_files=1, has_identity=True)

EVIDENCE: dict[Evidence, Ruling | type[Action]] = {
    Unreachable(reason="503"): Leave,
    TargetReplaced(reason="another uuid"): Ruling.TARGET_REPLACED,
    OnMain(facts=FACTS): Ruling.LANDED,
    OffMain(facts=FACTS): Ruling.ROLLED_BACK,
    WitnessOnly(witness="the watermark names it"): Ruling.EVIDENCE_EXPIRED,
    Absent(head_snapshot_id=7): Fence,
    Absent(head_snapshot_id=None): Fence,
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
    assert decide(OperationStatus.COMMITTING, Absent(head_snapshot_id=7)) == Fence(head_snapshot_id=7)


@pytest.mark.parametrize("evidence", [None, *EVIDENCE], ids=lambda evidence: type(evidence).__name__)
def test_an_open_operation_never_landed(evidence: Evidence | None) -> None:
    """Whatever the catalog shows, an open operation has sent nothing."""
    action = decide(OperationStatus.OPEN, evidence)
    assert isinstance(action, Settle)
    assert action.settlement.ruling is Ruling.NEVER_LANDED


@pytest.mark.parametrize("status", FINAL)
@pytest.mark.parametrize("evidence", [None, *EVIDENCE], ids=lambda evidence: type(evidence).__name__)
def test_a_final_operation_is_not_decided_again(status: OperationStatus, evidence: Evidence | None) -> None:
    """Ruling twice is a programming error, said aloud."""
    with pytest.raises(ValueError, match="nothing to decide"):
        decide(status, evidence)


def test_a_committing_operation_needs_evidence() -> None:
    """Not having asked the catalog is not evidence."""
    with pytest.raises(ValueError, match="nothing to decide"):
        decide(OperationStatus.COMMITTING, None)
