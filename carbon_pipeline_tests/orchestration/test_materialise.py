"""One table materialised as its credential's partition, in Dagster and for real."""

from __future__ import annotations

from datetime import datetime

import dagster as dg
import pytest

from carbon_pipeline.control_plane.records import DatasetStatus
from carbon_pipeline.deployment import Deployment
from carbon_pipeline.errors import CarbonError, SourceBroke, ValueNotRepresentable
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.orchestration import failures
from carbon_pipeline.orchestration.io_manager import PublishingIOManager
from carbon_pipeline.orchestration.port import Pipeline
from carbon_pipeline.source.reading import parse_lsn
from carbon_pipeline_tests.orchestration.conftest import AlteredPipeline, Stage
from carbon_pipeline_tests.orchestration.faulty_source import FaultySource

ORDERS = "public.orders"


def orders(deployment: Deployment, shop: Stage) -> DatasetStatus:
    """Where the orders stand in the control plane."""
    every = deployment.directory.datasets(credential=shop.credential)
    (status,) = [status for status in every if status.dataset.relation == ORDERS]
    return status


def test_a_partition_is_published_and_says_what_it_did(shop: Stage, deployment: Deployment) -> None:
    """The table lands in the lake, and its materialisation carries rows, bytes, snapshot, operation and moment."""
    result = shop.materialise(ORDERS)
    assert result.success
    status = orders(deployment, shop)
    assert status.last_operation is not None
    assert (status.rows, status.last_operation.ruling) == (1000, Ruling.LANDED)
    (event,) = shop.materialisations(ORDERS)
    metadata = {key: value.value for key, value in event.metadata.items()}
    assert metadata["dagster/partition_row_count"] == 1000
    assert metadata["dagster/table_name"] == ".".join((status.dataset.catalog, *status.dataset.identifier))
    assert metadata["dagster/uri"] == status.dataset.location
    assert metadata["carbon/operation_id"] == str(status.last_operation.id)
    assert metadata["carbon/snapshot_id"] == str(status.snapshot_id)
    assert metadata["carbon/bytes"] == status.size_bytes
    assert metadata["carbon/settled_before"] == "nothing"
    assert metadata["carbon/ruling"] == "landed"
    assert float(str(metadata["carbon/seconds"])) > 0
    assert parse_lsn(str(metadata["carbon/source_lsn"])) > 0
    assert status.source_time is not None
    assert datetime.fromtimestamp(float(str(metadata["carbon/source_time"])), tz=status.source_time.tzinfo) == (
        status.source_time
    )
    assert event.tags is not None
    assert event.tags["dagster/data_version"] == str(status.snapshot_id)


def test_the_columns_are_told_with_their_receipts(shop: Stage) -> None:
    """Dagster's column schema has types, comments and keys; the receipts say what each translation does."""
    assert shop.materialise(ORDERS).success
    (event,) = shop.materialisations(ORDERS)
    schema = event.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchemaMetadataValue)
    told = {
        column.name: (column.type, column.description, column.constraints.nullable, tuple(column.constraints.other))
        for column in schema.schema.columns
    }
    assert told == {
        "id": ("integer", None, False, ("from integer", "primary key")),
        "note": ("text", "what the customer wrote", False, ("from character varying(20)",)),
        "amount": ("decimal(10,2)", None, True, ("from numeric(10,2)",)),
        "span": ("text", None, True, ("from interval",)),
    }
    receipts = event.metadata["carbon/receipts"]
    assert isinstance(receipts, dg.TableMetadataValue)
    fidelity = {record.data["column"]: (record.data["fidelity"], record.data["reason"]) for record in receipts.records}
    assert fidelity["id"] == ("exact", "")
    assert fidelity["span"] == ("as text", "interval has no native type in the lake")


def test_the_run_is_on_the_operation(shop: Stage, deployment: Deployment) -> None:
    """The ledger knows which Dagster run was behind a write."""
    result = shop.materialise(ORDERS)
    with deployment.engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT run_id, actor_user FROM carbon.dataset_transactions WHERE run_id = %s", (result.run_id,)
        ).all()
    assert [tuple(row) for row in rows] == [(result.run_id, "tester")]


def failure_of(result: dg.ExecuteInProcessResult) -> tuple[str, dict[str, object]]:
    """What a person sees of a failed run: description and metadata of the step's failure."""
    (event,) = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    assert data is not None
    return data.description or "", {key: value.value for key, value in data.metadata.items()}


def broken(shop: Stage, error: CarbonError | None, times: int = 1_000) -> AlteredPipeline:
    """The shop's pipeline with a source that breaks so many times."""
    left = [times]
    return AlteredPipeline(shop.pipeline, lambda source: FaultySource(source, error, left=left))


def test_a_failure_names_its_remedy_and_closes_its_operation(shop: Stage, deployment: Deployment) -> None:
    """An error that only a person can mend ends the run at once, in our words, and leaves nothing open."""
    error = ValueNotRepresentable("orders.amount: a value that no rule covers")
    error.__cause__ = RuntimeError("row (1, hunter2)")
    result = shop.materialise(ORDERS, broken(shop, error))
    description, metadata = failure_of(result)
    assert description == error.message
    assert metadata == {"remedy": error.remedy, "kind": "ValueNotRepresentable"}
    assert "hunter2" not in "".join(str(event) for event in result.all_events)
    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    assert_closed(deployment, shop, Ruling.FAILED)
    assert shop.materialisations(ORDERS) == []


def assert_closed(deployment: Deployment, shop: Stage, ruling: Ruling) -> None:
    """The last operation of the orders is over, with this ruling."""
    status = orders(deployment, shop)
    assert status.last_operation is not None
    assert (status.last_operation.status, status.last_operation.ruling) == (OperationStatus.ABORTED, ruling)


def test_what_may_pass_by_itself_is_tried_again(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that broke once costs a retry and no more; the same run publishes."""
    monkeypatch.setattr(failures, "RETRY_SECONDS", 0)
    result = shop.materialise(ORDERS, broken(shop, SourceBroke("the connection died"), times=1))
    assert result.success
    assert len([event for event in result.all_events if event.is_step_up_for_retry]) == 1
    assert len(shop.materialisations(ORDERS)) == 1


def test_what_does_not_pass_fails_with_its_remedy(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last retry the run fails in the same words."""
    monkeypatch.setattr(failures, "RETRY_SECONDS", 0)
    error = SourceBroke("the connection died")
    description, metadata = failure_of(shop.materialise(ORDERS, broken(shop, error)))
    assert (description, metadata["remedy"]) == (error.message, error.remedy)


def test_a_cancelled_run_stops_closes_its_operation_and_does_not_start_again(
    shop: Stage, deployment: Deployment
) -> None:
    """Dagster's interruption goes through the write, the operation ends as failed, and no retry follows."""
    result = shop.materialise(ORDERS, broken(shop, None))
    assert not result.success
    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    run = shop.instance.get_run_by_id(result.run_id)
    assert run is not None
    # It would be CANCELED had somebody asked Dagster for it, as `test_dagster_dev.py` does.
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert "interrupted unexpectedly" in str(result.all_events[-1].message)
    assert_closed(deployment, shop, Ruling.FAILED)
    assert shop.materialise(ORDERS).success


def test_a_partition_whose_table_is_gone_says_so(shop: Stage) -> None:
    """A key that no relation stands behind fails, and tells what to do."""
    shop.instance.add_dynamic_partitions(shop.facts.joined, ["public.gone"])
    description, metadata = failure_of(shop.materialise("public.gone"))
    assert "no table behind partition public.gone" in description
    assert "discover" in str(metadata["remedy"])


def test_only_a_prepared_write_can_be_published(pipeline: Pipeline) -> None:
    """Anything else that an asset yields is refused in words."""
    context = dg.build_output_context(asset_key=dg.AssetKey(["main", "shop"]))
    with pytest.raises(dg.Failure, match="main/shop yielded list, only a prepared write"):
        PublishingIOManager(pipeline).handle_output(context, [1])


def test_reading_through_the_io_manager_is_refused_in_words(pipeline: Pipeline) -> None:
    """An asset as another one's argument is told about the lakehouse's own door."""
    context = dg.build_input_context(asset_key=dg.AssetKey(["main", "shop"]))
    with pytest.raises(dg.Failure) as caught:
        PublishingIOManager(pipeline).load_input(context)
    assert "lakehouse" in str(caught.value.metadata["remedy"].value)


def test_a_renamed_table_keeps_its_partition(shop: Stage) -> None:
    """The partition is the table's, not its name's: its history goes on, and nothing new appears."""
    assert shop.materialise(ORDERS).success
    shop.execute("ALTER TABLE orders RENAME TO purchases; DELETE FROM purchases WHERE id > 10")
    assert shop.run("discover").success
    assert shop.instance.get_dynamic_partitions(shop.facts.joined) == ["public.customers", ORDERS]
    assert shop.materialise(ORDERS).success
    after, before = shop.materialisations(ORDERS)
    assert after.metadata["carbon/relation"].value == "public.purchases"
    assert after.metadata["carbon/dataset"] == before.metadata["carbon/dataset"]
    assert after.metadata["dagster/partition_row_count"].value == 10
