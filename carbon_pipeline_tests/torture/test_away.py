"""The control plane away for a moment, at a few of the steps; `make torture` has all of them."""

from __future__ import annotations

import pytest

from carbon_pipeline_tests.torture import away
from carbon_pipeline_tests.torture.ground import Arena
from carbon_pipeline_tests.torture.invariants import said
from carbon_pipeline_tests.torture.statement_proxy import Cut, statement_proxy


@pytest.mark.parametrize("cut", list(Cut), ids=lambda cut: cut.name.lower())
def test_cut(arena: Arena, cut: Cut) -> None:
    """With the connection broken at five of its statements a sync fails and says what comes next, or it succeeds;
    either way every invariant holds."""
    target = arena.field()
    assert target.sync().error is None
    with statement_proxy(arena.ground.host, arena.ground.port) as proxy:
        statements = away.count_statements(target, proxy)
        assert statements > 20
        for part in (0.5, 0.7, 0.9):
            found = away.cut_round(target, proxy, round(part * statements), cut, stays_away=cut is Cut.BEFORE)
            assert not found, said(found)
