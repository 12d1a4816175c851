"""A lake for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from carbon_pipeline_tests.lake.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A lake with nothing in it."""
    return Workshop(tmp_path)
