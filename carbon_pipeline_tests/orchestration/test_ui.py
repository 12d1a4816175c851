"""Dagster's UI in a real browser: the asset's page and a materialisation, as a person sees them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from carbon_pipeline_tests.orchestration.conftest import OwnHome
from carbon_pipeline_tests.orchestration.dagster_dev import Dev, dagster_dev, wait_for

CHROMIUM = shutil.which("chromium")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1400",
    "--virtual-time-budget=20000",
)


def chromium(*arguments: str) -> str:
    """What a fresh browser prints."""
    with tempfile.TemporaryDirectory(prefix="carbon-chromium-", ignore_cleanup_errors=True) as profile:
        command = [str(CHROMIUM), *_FLAGS, f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def page(url: str, picture: Path) -> str:
    """The page's DOM once it has settled; a screenshot of it goes to *picture*."""
    chromium(f"--screenshot={picture}", url)
    assert picture.stat().st_size > 10_000
    return chromium("--dump-dom", url)


@pytest.fixture(scope="module")
def dev(own_home: OwnHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A `dagster dev` in which one table was materialised by hand."""
    with dagster_dev(own_home.path, tmp_path_factory.mktemp("ui") / "dagster-dev.log") as running:
        assert running.ended(running.launch("discover")) == "SUCCESS"
        launched = running.launch("__ASSET_JOB", assets=[["main", "shop"]], tags={"dagster/partition": "public.orders"})
        assert running.ended(launched) == "SUCCESS"
        yield running


def test_the_assets_page_shows_its_tables(dev: Dev, tmp_path: Path) -> None:
    """The page names the asset, its tables as partitions, and how many rows the last one has."""
    dom = wait_for(
        lambda: (
            "public.orders" in (shown := page(f"{dev.url}/assets/main/shop?view=partitions", tmp_path / "asset.png"))
            and shown
        )
    )
    assert "shop" in dom
    assert "public.customers" in dom


def test_a_materialisation_shows_what_it_did(dev: Dev, tmp_path: Path) -> None:
    """A table's page shows row count, snapshot and operation of its materialisation."""
    address = f"{dev.url}/assets/main/shop?view=partitions&partition=public.orders"
    dom = wait_for(
        lambda: "carbon/operation_id" in (shown := page(address, tmp_path / "materialisation.png")) and shown
    )
    assert "carbon/snapshot_id" in dom
    assert "1000" in dom or "1,000" in dom
