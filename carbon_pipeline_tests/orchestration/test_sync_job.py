"""All tables of a credential in one run, each attributed to its own partition."""

from __future__ import annotations

import dagster as dg

from carbon_pipeline.deployment import Deployment
from carbon_pipeline.errors import SourceRefusedLogin, ValueNotRepresentable
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.orchestration.port import Pipeline, Ratifier, Survey
from carbon_pipeline.orchestration.translator import CredentialFacts
from carbon_pipeline_tests.orchestration.conftest import AlteredPipeline, MakeStage, Stage
from carbon_pipeline_tests.orchestration.faulty_source import FaultySource

ORDERS, CUSTOMERS = "public.orders", "public.customers"


def sync_name(stage: Stage) -> str:
    """The credential's sync job."""
    return f"sync_{stage.facts.joined}"


def planned(stage: Stage, run_id: str) -> set[str | None]:
    """The partitions that the run said it would materialise."""
    records = stage.instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    return {
        record.event_log_entry.get_dagster_event().asset_materialization_planned_data.partition
        for record in records.records
    }


def test_every_table_is_planned_and_materialised_under_its_partition(shop: Stage) -> None:
    """One run, two tables: each has its own event with its own facts, and the run's id."""
    result = shop.run(sync_name(shop))
    assert result.success
    assert planned(shop, result.run_id) == {ORDERS, CUSTOMERS}
    rows = {}
    for partition in (ORDERS, CUSTOMERS):
        (event,) = shop.materialisations(partition)
        rows[partition] = event.metadata["dagster/partition_row_count"].value
        assert event.tags is not None
        assert event.tags["dagster/data_version"] == event.metadata["carbon/snapshot_id"].value
    assert rows == {ORDERS: 1000, CUSTOMERS: 2}
    events = shop.instance.fetch_materializations(shop.facts.asset_key, limit=10).records
    assert {event.run_id for event in events} == {result.run_id}


def test_named_tables_only(shop: Stage) -> None:
    """The run's configuration may name the partitions that it is about."""
    result = shop.run(sync_name(shop), tables=[CUSTOMERS])
    assert result.success
    assert planned(shop, result.run_id) == {CUSTOMERS}
    assert shop.materialisations(ORDERS) == []


def test_a_table_created_since_becomes_a_partition(shop: Stage, make_stage: MakeStage) -> None:
    """The job notices new tables itself: their partition is there before their event."""
    stage = make_stage("CREATE TABLE a (x int)")
    stage.instance.delete_dynamic_partition(stage.facts.joined, "public.a")
    assert stage.run(sync_name(stage)).success
    assert stage.instance.get_dynamic_partitions(stage.facts.joined) == ["public.a"]


def test_one_that_fails_does_not_stop_the_others_and_fails_the_run(shop: Stage) -> None:
    """The failed table is named with its remedy and has no event; the other one is published."""
    error = ValueNotRepresentable("orders.amount: a value that no rule covers")
    faulty = AlteredPipeline(shop.pipeline, lambda source: FaultySource(source, error, frozenset({"orders"})))
    result = shop.run(sync_name(shop), faulty)
    assert not result.success
    (event,) = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    assert data is not None
    assert data.description == f"1 of 2 tables failed: public.orders: {error.message}"
    table = data.metadata["failed"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["remedy"] for record in table.records] == [error.remedy]
    assert planned(shop, result.run_id) == {ORDERS, CUSTOMERS}
    assert shop.materialisations(ORDERS) == []
    assert len(shop.materialisations(CUSTOMERS)) == 1


class RefusingPipeline(Pipeline):
    """A source whose password was changed."""

    def credentials(self) -> tuple[CredentialFacts, ...]:
        """None."""
        return ()

    def survey(self, facts: CredentialFacts) -> Survey:
        """Refused."""
        raise SourceRefusedLogin(f"{facts.label}: the source refused the login")

    def ratifier(self) -> Ratifier:
        """Not asked here."""
        raise AssertionError("asked for the ratifier")


def test_a_source_that_lets_nobody_in_is_said_once(shop: Stage) -> None:
    """What would meet every table alike ends the run with the reason and the remedy, and nothing was planned."""
    result = shop.run(sync_name(shop), RefusingPipeline())
    (event,) = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    assert data is not None
    assert data.description == f"{shop.facts.label}: the source refused the login"
    assert data.metadata["kind"].value == "SourceRefusedLogin"
    assert planned(shop, result.run_id) == set()


def test_an_unknown_table_is_refused_by_name(shop: Stage) -> None:
    """A partition key that stands for nothing ends the run before anything is read."""
    result = shop.run(sync_name(shop), tables=[ORDERS, "public.nothing"])
    assert not result.success
    assert planned(shop, result.run_id) == set()


def test_a_cancelled_run_stops_every_table(shop: Stage, deployment: Deployment) -> None:
    """An interruption reaches the tables under way, and none of them is left open."""
    interrupted = AlteredPipeline(shop.pipeline, lambda source: FaultySource(source, None))
    assert not shop.run(sync_name(shop), interrupted).success
    every = [status.last_operation for status in deployment.directory.datasets(credential=shop.credential)]
    opened = [operation for operation in every if operation is not None]
    assert opened
    assert {operation.status for operation in opened} <= {OperationStatus.ABORTED, OperationStatus.COMMITTED}
    assert OperationStatus.ABORTED in {operation.status for operation in opened}


def test_the_pool_has_its_limit_before_it_is_needed(shop: Stage) -> None:
    """A limit is set once, and one that a person has set stays."""
    limits = {limit.name: limit.limit for limit in shop.instance.event_log_storage.get_pool_limits()}
    assert limits[shop.facts.pool] == 4
    shop.instance.event_log_storage.set_concurrency_slots(shop.facts.pool, 2)
    assert shop.run(sync_name(shop)).success
    limits = {limit.name: limit.limit for limit in shop.instance.event_log_storage.get_pool_limits()}
    assert limits[shop.facts.pool] == 2
