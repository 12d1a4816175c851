"""What was synced from the terminal is told to Dagster, and found there like everything else."""

from __future__ import annotations

import dagster as dg

from carbon_pipeline.deployment import Deployment
from carbon_pipeline.orchestration.report import report_runless
from carbon_pipeline_tests.orchestration.conftest import Stage


def test_a_sync_outside_dagster_shows_under_its_partitions(shop: Stage, deployment: Deployment) -> None:
    """Each table's event has its partition, its metadata and its data version, and no run."""
    with dg.DagsterInstance.ephemeral() as fresh:
        receipts = [r.receipt for r in deployment.sync(shop.credential) if r.receipt is not None]
        assert report_runless(fresh, shop.credential, receipts) == 2
        assert sorted(fresh.get_dynamic_partitions(shop.facts.joined)) == ["public.customers", "public.orders"]
        (record,) = fresh.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=shop.facts.asset_key, asset_partitions=["public.orders"]), limit=5
        ).records
        event = record.asset_materialization
        assert event is not None
        assert record.run_id == ""
        assert event.metadata["dagster/partition_row_count"].value == 1000
        assert (event.tags or {})["dagster/data_version"] == event.metadata["carbon/snapshot_id"].value
        assert shop.facts.pool in fresh.event_log_storage.get_concurrency_keys()


def test_a_report_says_the_same_as_a_run(shop: Stage, deployment: Deployment) -> None:
    """Whoever materialised it, a table's event has the same keys."""
    assert shop.materialise("public.orders").success
    receipts = [r.receipt for r in deployment.sync(shop.credential, ["orders"]) if r.receipt is not None]
    report_runless(shop.instance, shop.credential, receipts)
    reported, ran = shop.materialisations("public.orders")
    assert set(reported.metadata) == set(ran.metadata)
    assert reported.metadata["carbon/operation_id"] != ran.metadata["carbon/operation_id"]


def test_nothing_to_report_changes_nothing(shop: Stage) -> None:
    """A sync in which every table failed reports none."""
    with dg.DagsterInstance.ephemeral() as fresh:
        assert report_runless(fresh, shop.credential, []) == 0
        assert fresh.get_dynamic_partitions(shop.facts.joined) == []
