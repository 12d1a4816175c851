"""The whole thing as a person meets it: `dagster dev` at the repository's root, asked through what the UI asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carbon_pipeline.control_plane.records import OperationLine, SweepTrigger
from carbon_pipeline.deployment import Deployment, open_deployment
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.settings import read_settings
from carbon_pipeline_tests.faults.worker import DieAt
from carbon_pipeline_tests.orchestration.conftest import OwnHome
from carbon_pipeline_tests.orchestration.dagster_dev import ROOT, Dev, dagster_dev, wait_for
from carbon_pipeline_tests.orchestration.dead_worker import leave_behind, make_old

pytestmark = pytest.mark.slow

ASSET = ["main", "shop"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that `dagster dev` prints."""
    return tmp_path_factory.mktemp("dev") / "dagster-dev.log"


@pytest.fixture(scope="module")
def deployment(own_home: OwnHome) -> Iterator[Deployment]:
    """The home's deployment, as another process sees it."""
    opened = open_deployment(read_settings({"CARBON_HOME": str(own_home.path), "CARBON_USER": "tester"}))
    yield opened
    opened.engine.dispose()


@pytest.fixture(scope="module")
def left_behind(own_home: OwnHome, deployment: Deployment) -> OperationLine:
    """A write whose process was killed an hour ago, just after its request."""
    line = leave_behind(deployment, own_home.credential, "customers", DieAt.AFTER_THE_REQUEST)
    make_old(deployment, line)
    return line


@pytest.fixture(scope="module")
def dev(own_home: OwnHome, left_behind: OperationLine, log: Path) -> Iterator[Dev]:
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


def partitions(dev: Dev) -> set[str]:
    """The tables that the UI knows of."""
    return set(node(dev)["partitionKeyConnection"]["results"])


def test_discovery_runs_by_itself_and_the_tables_appear(dev: Dev) -> None:
    """The sensor is running from the start, its first tick launches discovery, and the partitions are there."""
    wait_for(lambda: {"public.orders", "public.customers"} <= partitions(dev))
    shown = node(dev)
    assert (shown["groupName"], sorted(shown["kinds"])) == ("main", ["iceberg", "postgres"])
    assert shown["owners"] == [{"team": "main"}]
    sensors = dev.ask(
        """{ sensorsOrError(repositorySelector: {repositoryLocationName: "carbon_pipeline",
             repositoryName: "__repository__"}) { ... on Sensors { results { name sensorState { status } } } } }"""
    )["sensorsOrError"]["results"]
    assert sensors == [
        {"name": name, "sensorState": {"status": "RUNNING"}} for name in ("discover_new_tables", "ratify_unsettled")
    ]


def test_what_a_killed_writer_left_is_settled_without_anybody_asking(
    dev: Dev, deployment: Deployment, left_behind: OperationLine
) -> None:
    """The sensor launches the job, the job completes the write, and the UI shows the materialisation, without a run."""
    story = wait_for(lambda: (s := deployment.directory.operation(str(left_behind.id))).line.ruling and s)
    assert story.line.ruling is Ruling.LANDED
    event = wait_for(lambda: next((e for e in node(dev)["assetMaterializations"] if e["runId"] == ""), None))
    told = {entry["label"]: entry.get("intValue", entry.get("text")) for entry in event["metadataEntries"]}
    assert (event["partition"], told["dagster/partition_row_count"]) == ("public.customers", 2)
    assert told["carbon/operation_id"] == str(left_behind.id)
    sweep, tick = deployment.directory.last_sweep(), deployment.directory.last_tick(SweepTrigger.SENSOR)
    assert sweep is not None
    assert sweep.trigger in {SweepTrigger.SENSOR, SweepTrigger.SCHEDULE}
    assert tick is not None
    assert tick.age_seconds < 120


def test_a_table_materialised_by_hand_shows_what_it_did(dev: Dev) -> None:
    """A launch of one partition succeeds, and the UI gets rows, snapshot and operation for it."""
    wait_for(lambda: "public.orders" in partitions(dev))
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


def test_a_run_cancelled_in_the_ui_ends_its_operation(dev: Dev, own_home: OwnHome, deployment: Deployment) -> None:
    """Terminating a run stops the write, and the ledger has no open operation afterwards."""
    own_home.execute("CREATE TABLE big AS SELECT i, md5(i::text) a FROM generate_series(1, 6000000) i")

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
