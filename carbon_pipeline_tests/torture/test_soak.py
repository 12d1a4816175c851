"""Ten seconds of writers, reconcilers and a nemesis; `make torture` has many minutes of it."""

from __future__ import annotations

import os
import random

from carbon_pipeline_tests.torture import soak
from carbon_pipeline_tests.torture.figures import Figures
from carbon_pipeline_tests.torture.ground import Arena


def test_ten_seconds(arena: Arena, figures: Figures) -> None:
    """Nothing that was acknowledged is lost, nothing is there twice, nothing aborted is visible, nothing stays open."""
    seed = int(os.environ.get("CARBON_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    done = soak.run(arena, seed, figures, seconds=10)
    assert figures.found == []
    assert done.total() > 5, done
