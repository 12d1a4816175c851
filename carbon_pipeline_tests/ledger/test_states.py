"""The table of states, transitions and rulings is whole and consistent with itself."""

from __future__ import annotations

from itertools import product

import pytest

from carbon_pipeline.ledger.states import FINAL, RULINGS, TRANSITIONS, UNSETTLED, OperationStatus, Ruling, SyncStatus


def test_every_status_is_unsettled_or_final() -> None:
    """No status is forgotten, and none is both."""
    assert set(UNSETTLED) | set(FINAL) == set(OperationStatus)
    assert set(UNSETTLED) & set(FINAL) == set()


def test_every_status_has_its_row_of_transitions() -> None:
    """A final status leads nowhere; an unsettled one leads to every final one."""
    assert set(TRANSITIONS) == set(OperationStatus)
    for status in FINAL:
        assert TRANSITIONS[status] == frozenset()
    for status in UNSETTLED:
        assert TRANSITIONS[status] >= set(FINAL)


def test_nothing_returns_to_open() -> None:
    """An operation is open once, and `committing` comes from `open` only."""
    assert all(OperationStatus.OPEN not in targets for targets in TRANSITIONS.values())
    assert [s for s, targets in TRANSITIONS.items() if OperationStatus.COMMITTING in targets] == [OperationStatus.OPEN]


def test_every_ruling_has_its_row() -> None:
    """A ruling without a row could not be settled with."""
    assert set(RULINGS) == set(Ruling)


@pytest.mark.parametrize(("ruling", "status"), list(product(Ruling, OperationStatus)))
def test_rulings_move_along_legal_transitions(ruling: Ruling, status: OperationStatus) -> None:
    """Wherever a ruling may come from, its status is a legal target; it never comes from a final status."""
    rule = RULINGS[ruling]
    if status in rule.comes_from:
        assert rule.status in TRANSITIONS[status]
        assert status in UNSETTLED
    assert rule.status in FINAL
    assert rule.comes_from


@pytest.mark.parametrize("ruling", Ruling)
def test_sync_log_follows_the_status(ruling: Ruling) -> None:
    """The sync log succeeds with `committed`, and fails with `aborted` and with `unverifiable`."""
    expected = SyncStatus.SUCCEEDED if RULINGS[ruling].status is OperationStatus.COMMITTED else SyncStatus.FAILED
    assert RULINGS[ruling].sync is expected
