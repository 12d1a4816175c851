"""The whole thing as a person meets it: `dagster dev` at the repository's root, asked through what the UI asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carbon_pipeline.deployment import open_deployment
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.settings import read_settings
from carbon_pipeline_tests.orchestration.conftest import OwnHome
from carbon_pipeline_tests.orchestration.dagster_dev import ROOT, Dev, dagster_dev, wait_for

ASSET = ["main", "shop"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that `dagster dev` prints."""
    return tmp_path_factory.mktemp("dev") / "dagster-dev.log"


@pytest.fixture(scope="module")
def dev(own_home: OwnHome, log: Path) -> Iterator[Dev]:
    """One `dagster dev` for this module."""
    with dagster_dev(own_home.path, log) as running:
        yield running


def node(dev: Dev) -> Any:
    """The asset as the UI's catalogue shows it."""
    return dev.ask(
        """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
             groupName kinds owners { ... on TeamAssetOwner { team } } description
             partitionKeyConnection(limit: 50, ascending: true) { results }
             assetPartitionStatuses { ... on DefaultPartitionStatuses {
               materializedPartitions failedPartitions unmaterializedPartitions } }
             assetMaterializations(limit: 20) { partition runId metadataEntries { label
               ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } } } } } }""",
        key={"path": ASSET},
    )["assetNodeOrError"]


def test_discovery_runs_by_itself_and_the_tables_appear(dev: Dev) -> None:
    """The sensor is running from the start, its first tick launches discovery, and the partitions are there."""
    keys = wait_for(lambda: node(dev)["partitionKeyConnection"]["results"])
    assert {"public.orders", "public.customers"} <= set(keys)
    shown = node(dev)
    assert (shown["groupName"], sorted(shown["kinds"])) == ("main", ["iceberg", "postgres"])
    assert shown["owners"] == [{"team": "main"}]
    (sensor,) = dev.ask(
        """{ sensorsOrError(repositorySelector: {repositoryLocationName: "carbon_pipeline",
             repositoryName: "__repository__"}) { ... on Sensors { results { name sensorState { status } } } } }"""
    )["sensorsOrError"]["results"]
    assert sensor == {"name": "discover_new_tables", "sensorState": {"status": "RUNNING"}}


def test_a_table_materialised_by_hand_shows_what_it_did(dev: Dev) -> None:
    """A launch of one partition succeeds, and the UI gets rows, snapshot and operation for it."""
    wait_for(lambda: node(dev)["partitionKeyConnection"]["results"])
    run_id = dev.launch("__ASSET_JOB", assets=[ASSET], tags={"dagster/partition": "public.orders"})
    assert dev.ended(run_id) == "SUCCESS"
    event = next(event for event in node(dev)["assetMaterializations"] if event["runId"] == run_id)
    told = {entry["label"]: entry.get("intValue", entry.get("text")) for entry in event["metadataEntries"]}
    assert event["partition"] == "public.orders"
    assert told["dagster/partition_row_count"] == 1000
    assert told["carbon/snapshot_id"]
    assert told["carbon/operation_id"]
    assert "public.orders" in node(dev)["assetPartitionStatuses"]["materializedPartitions"]


def test_the_sync_job_fails_for_one_table_and_publishes_the_rest(dev: Dev, own_home: OwnHome) -> None:
    """The failed table's partition is red in the UI, the others are green."""
    own_home.execute("CREATE TABLE cursed (d date); INSERT INTO cursed VALUES ('infinity')")
    try:
        assert dev.ended(dev.launch("sync_main__shop")) == "FAILURE"
        statuses = node(dev)["assetPartitionStatuses"]
        assert statuses["failedPartitions"] == ["public.cursed"]
        assert {"public.orders", "public.customers"} <= set(statuses["materializedPartitions"])
    finally:
        own_home.execute("DROP TABLE cursed")


def test_a_run_cancelled_in_the_ui_ends_its_operation(dev: Dev, own_home: OwnHome) -> None:
    """Terminating a run stops the write, and the ledger has no open operation afterwards."""
    own_home.execute("CREATE TABLE big AS SELECT i, md5(i::text) a FROM generate_series(1, 6000000) i")
    deployment = open_deployment(read_settings({"CARBON_HOME": str(own_home.path), "CARBON_USER": "tester"}))

    def counts() -> dict[OperationStatus, int]:
        return deployment.directory.operation_counts()

    aborted = counts()[OperationStatus.ABORTED]
    try:
        run_id = dev.launch("sync_main__shop")
        wait_for(lambda: counts()[OperationStatus.OPEN])
        dev.ask("mutation($id: String!) { terminateRun(runId: $id) { __typename } }", id=run_id)
        assert dev.ended(run_id) == "CANCELED"
        wait_for(lambda: counts()[OperationStatus.OPEN] + counts()[OperationStatus.COMMITTING] == 0)
        assert counts()[OperationStatus.ABORTED] > aborted
    finally:
        deployment.engine.dispose()
        own_home.execute("DROP TABLE big")


def test_a_new_credential_shows_after_a_reload_of_the_location(dev: Dev, own_home: OwnHome) -> None:
    """The reload button fetches the credentials anew; nothing is restarted."""
    own_home.connect("second shop")
    dev.ask("""mutation { reloadRepositoryLocation(repositoryLocationName: "carbon_pipeline") { __typename } }""")
    keys = [node["assetKey"]["path"] for node in dev.ask("{ assetNodes { assetKey { path } } }")["assetNodes"]]
    assert len(keys) == 2
    assert ASSET in keys


def test_the_root_stays_clean_and_nothing_secret_was_printed(dev: Dev, own_home: OwnHome, log: Path) -> None:
    """What Dagster keeps is under the home; the log of the whole session holds no password."""
    assert dev.url
    assert own_home.password not in log.read_text()
    assert not {"storage", "history", "schedules", "logs", ".logs_queue", ".telemetry"} & {
        p.name for p in ROOT.iterdir()
    }
