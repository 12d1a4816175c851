"""What every ledger does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from carbon_pipeline.errors import DatasetHeld, LedgerConflict
from carbon_pipeline.gate.verdict import Actor, Role
from carbon_pipeline.ledger.states import FINAL, RULINGS, UNSETTLED, OperationStatus, Ruling
from carbon_pipeline_tests.behaviours.ledger_benches import (
    SNAPSHOT,
    TWO_TABLES,
    LedgerBench,
    MemoryLedgerBench,
    SqlLedgerBench,
    settlement,
)


@pytest.fixture(params=["memory", "real"])
def bench(request: pytest.FixtureRequest) -> LedgerBench:
    """The same ledger twice."""
    if request.param == "memory":
        return MemoryLedgerBench()
    connect: Callable[..., tuple[object, str]] = request.getfixturevalue("connect")
    credential, _ = connect(TWO_TABLES)
    return SqlLedgerBench(request.getfixturevalue("deployment"), credential)  # type: ignore[arg-type]  # a credential


def test_a_coordinate_is_minted_once(bench: LedgerBench) -> None:
    """Asking again gives the same dataset, which shows nothing yet; another relation's is another one."""
    assert bench.dataset() == bench.dataset()
    assert bench.dataset().committed_moment is None
    assert bench.another_dataset().id != bench.dataset().id


def test_roles(bench: LedgerBench) -> None:
    """A member has a role, a stranger none."""
    workspace_id = bench.dataset().workspace_id
    assert bench.ledger.role_of(bench.actor, workspace_id) is Role.OWNER
    assert bench.ledger.role_of(Actor(user="nobody at all"), workspace_id) is None


def test_one_claim_per_dataset(bench: LedgerBench) -> None:
    """A second claim does not get in while the first is held, and does afterwards; other datasets do not wait."""
    dataset = bench.dataset()
    with bench.ledger.claim(dataset, bench.actor):
        with pytest.raises(DatasetHeld), bench.ledger.claim(dataset, bench.actor, wait_seconds=0):
            pass
        with bench.ledger.claim(bench.another_dataset(), bench.actor, wait_seconds=0):
            pass
    with bench.ledger.claim(dataset, bench.actor, wait_seconds=0):
        pass


def test_an_error_frees_the_claim(bench: LedgerBench) -> None:
    """Whatever ends a claim's context frees it."""
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), bench.ledger.claim(bench.dataset(), bench.actor):
            raise error
    with bench.ledger.claim(bench.dataset(), bench.actor, wait_seconds=0):
        pass


def test_open(bench: LedgerBench) -> None:
    """An opened operation is what was asked for, and everybody finds it: the claim and the sweep."""
    dataset, moment = bench.dataset(), bench.moment()
    with bench.ledger.claim(dataset, bench.actor) as claim:
        assert claim.unsettled() is None
        operation = claim.open(bench.request(dataset, moment)).operation
        assert (operation.status, operation.seq, operation.snapshot_id) == (OperationStatus.OPEN, 1, None)
        assert (operation.table_uuid, operation.base_snapshot_id, operation.moment) == ("a-uuid", 7, moment)
        assert claim.unsettled() == operation
        [found] = bench.unsettled()
        assert found.operation.id == operation.id
        assert found.lease_is_live
        assert 0 <= found.age_seconds < 60
        claim.settle(operation, settlement(Ruling.FAILED))
        assert claim.unsettled() is None
        assert bench.unsettled() == []


def test_one_unsettled_operation(bench: LedgerBench) -> None:
    """None opens while another is unsettled; the next one counts on."""
    with bench.ledger.claim(bench.dataset(), bench.actor) as claim:
        first = claim.open(bench.request(bench.dataset()))
        with pytest.raises(LedgerConflict):
            claim.open(bench.request(bench.dataset()))
        claim.settle(first.operation, settlement(Ruling.FAILED))
        second = claim.open(bench.request(bench.dataset()))
        assert second.operation.seq == first.operation.seq + 1
        claim.settle(second.operation, settlement(Ruling.FAILED))


def test_advance(bench: LedgerBench) -> None:
    """Advancing names the snapshot, happens once, and ends the beats."""
    with bench.ledger.claim(bench.dataset(), bench.actor) as claim:
        intent = claim.open(bench.request(bench.dataset()))
        claim.beat(intent, 1, 10, ["a", "b"])
        assert claim.advance(intent, SNAPSHOT).intent.operation.id == intent.operation.id
        left = claim.unsettled()
        assert left is not None
        assert (left.status, left.snapshot_id) == (OperationStatus.COMMITTING, SNAPSHOT)
        with pytest.raises(LedgerConflict):
            claim.advance(intent, SNAPSHOT)
        with pytest.raises(LedgerConflict):
            claim.beat(intent, 2, 20, ["c"])
        claim.settle(left, settlement(Ruling.LANDED))


@pytest.mark.parametrize("status", UNSETTLED)
@pytest.mark.parametrize("ruling", Ruling)
def test_rulings(bench: LedgerBench, ruling: Ruling, status: OperationStatus) -> None:
    """A ruling ends an operation from the states that its row names, and from no other; then nothing ends it again."""
    dataset = bench.dataset()
    with bench.ledger.claim(dataset, bench.actor) as claim:
        operation = bench.bring(claim, status).operation
        if status not in RULINGS[ruling].comes_from:
            with pytest.raises(LedgerConflict):
                claim.settle(operation, settlement(ruling))
            assert claim.unsettled() is not None
            return
        entry = claim.settle(operation, settlement(ruling))
        assert (entry.operation_id, entry.dataset_id, entry.ruling) == (operation.id, dataset.id, ruling)
        assert entry.status is RULINGS[ruling].status
        assert entry.status in FINAL
        with pytest.raises(LedgerConflict):
            claim.settle(operation, settlement(ruling))
    shows = operation.moment if ruling in {Ruling.LANDED, Ruling.NOOP} else None
    assert bench.dataset().committed_moment == shows


def test_freshness_moves_with_what_lands(bench: LedgerBench) -> None:
    """A later landing moves the dataset on; an abort leaves it where it is."""
    with bench.ledger.claim(bench.dataset(), bench.actor) as claim:
        bench.end(claim, Ruling.LANDED)
        second = bench.end(claim, Ruling.LANDED)
        assert bench.dataset().committed_moment == second.moment
        bench.end(claim, Ruling.FENCED)
        assert bench.dataset().committed_moment == second.moment


def test_freshness_falls_back(bench: LedgerBench) -> None:
    """When main was moved back the dataset shows the operation that main shows, or nothing."""
    with bench.ledger.claim(bench.dataset(), bench.actor) as claim:
        first = bench.end(claim, Ruling.LANDED)
        bench.end(claim, Ruling.LANDED)
        rolled_back = settlement(Ruling.ROLLED_BACK)
        third = bench.bring(claim, OperationStatus.COMMITTING).operation
        claim.settle(third, replace(rolled_back, shown_operation_id=first.id))
        assert bench.dataset().committed_moment == first.moment
        fourth = bench.bring(claim, OperationStatus.COMMITTING).operation
        claim.settle(fourth, rolled_back)
        assert bench.dataset().committed_moment is None


def test_freshness_falls_to_nothing_that_was_aborted(bench: LedgerBench) -> None:
    """An aborted operation that main shows all the same is never counted as fresh."""
    with bench.ledger.claim(bench.dataset(), bench.actor) as claim:
        bench.end(claim, Ruling.LANDED)
        aborted = bench.end(claim, Ruling.FENCED)
        last = bench.bring(claim, OperationStatus.COMMITTING).operation
        claim.settle(last, replace(settlement(Ruling.ROLLED_BACK), shown_operation_id=aborted.id))
        assert bench.dataset().committed_moment is None


def test_watched(bench: LedgerBench) -> None:
    """Whatever was aborted after it may have sent a request is watched, and nothing else."""
    with bench.ledger.claim(bench.dataset(), bench.actor) as claim:
        fenced, refused = bench.end(claim, Ruling.FENCED), bench.end(claim, Ruling.REFUSED)
        bench.end(claim, Ruling.FAILED)
        bench.end(claim, Ruling.LANDED)
        bench.end(claim, Ruling.NO_EVIDENCE)
    mine = bench.dataset().id
    watched = [operation for operation in bench.ledger.watched(1) if operation.dataset.id == mine]
    assert {operation.id for operation in watched} == {fenced.id, refused.id}
    assert {operation.status for operation in watched} == {OperationStatus.ABORTED}
    assert {operation.snapshot_id for operation in watched} == {fenced.snapshot_id, refused.snapshot_id}


def test_a_claim_is_for_its_own_dataset(bench: LedgerBench) -> None:
    """A claim on one dataset moves nothing of another."""
    with (
        bench.ledger.claim(bench.dataset(), bench.actor) as claim,
        bench.ledger.claim(bench.another_dataset(), bench.actor) as other,
    ):
        intent = claim.open(bench.request(bench.dataset()))
        with pytest.raises(ValueError, match="cannot open"):
            other.open(bench.request(bench.dataset()))
        with pytest.raises(LedgerConflict):
            other.advance(intent, SNAPSHOT)
        with pytest.raises(LedgerConflict):
            other.settle(intent.operation, settlement(Ruling.FAILED))
        assert other.unsettled() is None
        claim.settle(intent.operation, settlement(Ruling.FAILED))


def test_files_left_behind(bench: LedgerBench) -> None:
    """The announced files of aborted operations are left behind, until they are marked as removed; no others are."""
    left: dict[object, tuple[str, ...]] = {}
    with bench.ledger.claim(bench.dataset(), bench.actor) as claim:
        for ruling in (Ruling.FENCED, Ruling.FAILED, Ruling.LANDED, Ruling.NO_EVIDENCE):
            intent = claim.open(bench.request(bench.dataset()))
            claim.beat(intent, 0, 0, [f"{ruling}/1"])
            claim.beat(intent, 0, 0, [f"{ruling}/2"])
            if ruling is not Ruling.FAILED:
                claim.advance(intent, SNAPSHOT)
            claim.settle(intent.operation, settlement(ruling))
            if RULINGS[ruling].status is OperationStatus.ABORTED:
                left[intent.operation.id] = (f"{ruling}/1", f"{ruling}/2")
    mine = [found for found in bench.files.left_behind(0, 1000) if found.operation.dataset.id == bench.dataset().id]
    assert {found.operation.id: found.paths for found in mine} == left
    for found in mine:
        bench.files.mark_removed(found)
    after = [found for found in bench.files.left_behind(0, 1000) if found.operation.dataset.id == bench.dataset().id]
    assert after == []
