"""A sensor decides, a job settles, a schedule backs it up, and Dagster is told what dead runs never said."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import dagster as dg
import pytest

from carbon_pipeline.control_plane.records import OperationLine, OperationStory, SweepTrigger, TickDecision
from carbon_pipeline.control_plane.sql.engine import engine_from_fields
from carbon_pipeline.definitions import DeployedPipeline
from carbon_pipeline.deployment import Deployment
from carbon_pipeline.errors import ControlPlaneError
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.operation import Operation, Unsettled
from carbon_pipeline.ledger.states import OperationStatus, Ruling, SyncStatus
from carbon_pipeline.orchestration.port import Pipeline, Ratifier
from carbon_pipeline.orchestration.ratify_job import RATIFY, TRIGGER_TAG
from carbon_pipeline.orchestration.ratify_triggers import LOOK_AGAIN_SECONDS, Runs, look_at, ratify_sensor
from carbon_pipeline.orchestration.report import report_repaired, report_runless
from carbon_pipeline.ratify.orphans import OrphanReport
from carbon_pipeline.ratify.sweep import SweepReport, Terms
from carbon_pipeline_tests.faults.worker import DieAt
from carbon_pipeline_tests.orchestration.conftest import AlteredPipeline, Stage
from carbon_pipeline_tests.orchestration.dead_worker import end_leases, leave_behind

ORDERS, CUSTOMERS = "public.orders", "public.customers"


@pytest.fixture(autouse=True)
def settled_before(deployment: Deployment) -> None:
    """Whatever other tests have left open."""
    end_leases(deployment)
    deployment.ratify(SweepTrigger.LIBRARY, Terms(min_age_seconds=0, aborts_max=1000))


def ratify(shop: Stage, pipeline: Pipeline | None = None, **config: object) -> dg.ExecuteInProcessResult:
    """The job, which leaves nothing alone for being young unless *config* says so."""
    return shop.run(RATIFY, pipeline, **{"min_age_seconds": 0, **config})


def line_now(deployment: Deployment, line: OperationLine) -> OperationLine:
    """The operation as it is now."""
    return deployment.directory.operation(str(line.id)).line


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    """What the job's output says."""
    (event,) = [event for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_OUTPUT]
    return {key: value.value for key, value in event.step_output_data.metadata.items()}


def failure_of(result: dg.ExecuteInProcessResult) -> tuple[str, Mapping[str, dg.MetadataValue]]:
    """What a person sees of a failed run."""
    (event,) = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    assert data is not None
    return data.description or "", data.metadata


def test_the_job_completes_what_landed_and_reports_it_once(shop: Stage, deployment: Deployment) -> None:
    """Killed after the request, a write is completed from its snapshot: ledger, sync log, dataset, and in Dagster the
    materialisation that its run never reported, under its partition and once, however often the job runs."""
    line = leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    assert shop.materialisations(ORDERS) == []
    first = ratify(shop)
    assert first.success
    assert ratify(shop).success
    story = deployment.directory.operation(str(line.id))
    assert (story.line.ruling, story.sync_log.status) == (Ruling.LANDED, SyncStatus.SUCCEEDED)
    (status,) = [s for s in deployment.directory.datasets(shop.credential) if s.dataset.relation == ORDERS]
    assert (status.rows, status.snapshot_id) == (1000, story.line.snapshot_id)
    (event,) = shop.materialisations(ORDERS)
    assert shop.materialisations(CUSTOMERS) == []
    told = {key: value.value for key, value in event.metadata.items()}
    assert told["carbon/repaired"] is True
    assert told["carbon/operation_id"] == str(line.id)
    assert told["carbon/snapshot_id"] == str(story.line.snapshot_id)
    assert told["dagster/partition_row_count"] == 1000
    assert told["carbon/bytes"] == status.size_bytes
    assert told["carbon/ruling"] == "landed"
    assert told["carbon/source_time"] == story.moment.time.timestamp()
    assert "as tester" in str(told["carbon/repaired_by"])
    assert story.holder in str(told["carbon/writer"])
    assert (event.tags or {})["dagster/data_version"] == str(story.line.snapshot_id)
    said = metadata_of(first)
    assert (said["settled"], said["left"], said["materialisations"], said["landed late"]) == (1, 0, 1, 0)
    sweep = deployment.directory.last_sweep()
    assert sweep is not None
    assert sweep.trigger is SweepTrigger.LIBRARY


def test_the_job_aborts_what_never_landed_and_reports_nothing(shop: Stage, deployment: Deployment) -> None:
    """Killed before the request, a write is fenced and aborted; there is no materialisation, and the log says why."""
    line = leave_behind(deployment, shop.credential, "orders", DieAt.BEFORE_THE_REQUEST)
    result = ratify(shop)
    assert result.success
    assert line_now(deployment, line).ruling is Ruling.FENCED
    assert shop.materialisations(ORDERS) == []
    said = metadata_of(result)
    assert (said["settled"], said["materialisations"]) == (1, 0)
    logged = [
        record.event_log_entry.user_message for record in shop.instance.get_records_for_run(result.run_id).records
    ]
    assert [entry for entry in logged if str(line.id) in entry and "settled as fenced" in entry]


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(shop: Stage, deployment: Deployment) -> None:
    """The case is in the run's table; the ledger, the lake and Dagster are as before."""
    line = leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    before = deployment.directory.operation(str(line.id))
    result = ratify(shop, dry_run=True)
    assert result.success
    after = deployment.directory.operation(str(line.id))
    assert (after.line.status, after.events) == (OperationStatus.COMMITTING, before.events)
    assert shop.materialisations(ORDERS) == []
    said = metadata_of(result)
    assert said["would settle"] == 1
    assert "materialisations" not in said
    assert "files removed" not in said


def test_too_many_aborts_abort_none_and_fail_the_run(shop: Stage, deployment: Deployment) -> None:
    """Over the limit of the run's configuration nothing is aborted; the run fails with the counts and a remedy."""
    line = leave_behind(deployment, shop.credential, "orders", DieAt.BEFORE_THE_REQUEST)
    result = ratify(shop, max_aborts=0)
    assert not result.success
    description, metadata = failure_of(result)
    assert description == "aborting 1 of them is over the limit of 0: none was aborted"
    assert "max_aborts" in str(metadata["remedy"].value)
    assert metadata["held back"].value == 1
    table = metadata["cases"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["operation"] for record in table.records] == [str(line.id)]
    assert line_now(deployment, line).status is OperationStatus.COMMITTING
    assert ratify(shop, max_aborts=1).success


def test_young_operations_and_live_leases_are_left_alone(shop: Stage, deployment: Deployment) -> None:
    """The minimum age comes from the run's configuration, and the case says how old the operation is."""
    line = leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    result = ratify(shop, min_age_seconds=3600)
    assert result.success
    assert metadata_of(result)["left"] == 1
    assert line_now(deployment, line).status is OperationStatus.COMMITTING


class AlteredRatifier(Ratifier):
    """A real ratifier that finds more, or fails."""

    def __init__(
        self, real: Ratifier, *, late: Sequence[Operation] = (), lost: ControlPlaneError | None = None
    ) -> None:
        self._real = real
        self._late = tuple(late)
        self._lost = lost

    def unsettled(self, limit: int) -> Sequence[Unsettled]:
        """As it is."""
        return self._real.unsettled(limit)

    def record_tick(self, trigger: SweepTrigger, decision: TickDecision) -> None:
        """As it is."""
        self._real.record_tick(trigger, decision)

    def sweep(self, trigger: SweepTrigger, terms: Terms) -> SweepReport:
        """With the late landings, which a fence makes impossible otherwise."""
        return replace(self._real.sweep(trigger, terms), late=self._late)

    def remove_orphans(self) -> OrphanReport:
        """As it is."""
        return self._real.remove_orphans()

    def recent(self, limit: int) -> Sequence[OperationLine]:
        """As it is."""
        return self._real.recent(limit)

    def story(self, operation_id: OperationId) -> OperationStory:
        """As it is, unless it cannot be asked."""
        if self._lost is not None:
            raise self._lost
        return self._real.story(operation_id)


class RatifiedPipeline(AlteredPipeline):
    """The real pipeline with another ratifier."""

    def __init__(self, real: Pipeline, ratifier: Ratifier) -> None:
        super().__init__(real, lambda source: source)
        self._ratifier = ratifier

    def ratifier(self) -> Ratifier:
        """The other one."""
        return self._ratifier


def test_a_late_landing_fails_the_run_and_says_how_to_undo_it(shop: Stage, deployment: Deployment) -> None:
    """An operation that was aborted and is in the lake all the same is never re-ruled: a person has to roll it back."""
    line = leave_behind(deployment, shop.credential, "orders", DieAt.BEFORE_THE_REQUEST)
    (found,) = deployment.ledger.unsettled(10)
    altered = RatifiedPipeline(shop.pipeline, AlteredRatifier(shop.pipeline.ratifier(), late=[found.operation]))
    description, metadata = failure_of(ratify(shop, altered))
    assert description.startswith("landed after they had been ruled aborted: default.orders")
    assert str(line.id) in description
    assert str(metadata["remedy"].value).startswith("Roll each table back")


def test_the_next_materialisation_tells_of_the_dead_one_first(shop: Stage, deployment: Deployment) -> None:
    """A write that settles an earlier one reports that one's materialisation before its own."""
    line = leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    assert shop.materialise(ORDERS).success
    new, repaired = shop.materialisations(ORDERS)
    assert repaired.metadata["carbon/operation_id"].value == str(line.id)
    assert repaired.metadata["carbon/repaired"].value is True
    assert str(new.metadata["carbon/settled_before"].value).startswith(f"{line.id}: committed, landed")


def test_the_sync_job_tells_of_the_dead_one_first(shop: Stage, deployment: Deployment) -> None:
    """So does the run over many tables."""
    line = leave_behind(deployment, shop.credential, "customers", DieAt.AFTER_THE_REQUEST)
    assert shop.run(f"sync_{shop.facts.joined}").success
    new, repaired = shop.materialisations(CUSTOMERS)
    assert repaired.metadata["carbon/operation_id"].value == str(line.id)
    assert new.metadata["carbon/seq"].value == 2
    assert len(shop.materialisations(ORDERS)) == 1


def test_a_sync_outside_dagster_tells_of_the_dead_one_first(shop: Stage, deployment: Deployment) -> None:
    """So does what the terminal reports, and neither is told twice when it is reported again."""
    line = leave_behind(deployment, shop.credential, "customers", DieAt.AFTER_THE_REQUEST)
    receipts = [r.receipt for r in deployment.sync(shop.credential, ["customers"]) if r.receipt is not None]
    assert report_runless(shop.instance, shop.credential, receipts, shop.pipeline.story) == 1
    _, repaired = shop.materialisations(CUSTOMERS)
    assert repaired.metadata["carbon/operation_id"].value == str(line.id)
    story = shop.pipeline.story(line.id)
    assert report_repaired(shop.instance, shop.credential, [story]) == 0


def test_what_was_aborted_before_is_not_told(shop: Stage, deployment: Deployment) -> None:
    """A write that settles an earlier one as fenced has one materialisation to report: its own."""
    leave_behind(deployment, shop.credential, "orders", DieAt.BEFORE_THE_REQUEST)
    assert shop.materialise(ORDERS).success
    (event,) = shop.materialisations(ORDERS)
    assert "aborted, fenced" in str(event.metadata["carbon/settled_before"].value)


def test_a_story_that_cannot_be_told_costs_a_warning(shop: Stage, deployment: Deployment) -> None:
    """The new write has landed: that the old one cannot be looked up does not fail its run."""
    leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    lost = ControlPlaneError("the control plane does not answer")
    altered = RatifiedPipeline(shop.pipeline, AlteredRatifier(shop.pipeline.ratifier(), lost=lost))
    assert shop.materialise(ORDERS, altered).success
    assert len(shop.materialisations(ORDERS)) == 1


def test_what_is_older_than_the_last_event_is_not_told(shop: Stage, deployment: Deployment) -> None:
    """Told late, a write that a newer one has replaced would look like the newest; an event by hand is no obstacle."""
    line = leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    results = [result.receipt for result in deployment.sync(shop.credential, ["orders"])]
    shop.instance.report_runless_asset_event(dg.AssetMaterialization(shop.facts.asset_key, partition=ORDERS))
    old = shop.pipeline.story(line.id)
    (receipt,) = [receipt for receipt in results if receipt is not None]
    new = shop.pipeline.story(receipt.entry.operation_id)
    assert report_repaired(shop.instance, shop.credential, [new]) == 1
    assert report_repaired(shop.instance, shop.credential, [new, old]) == 0


@pytest.mark.parametrize(("end", "events"), [("FAILURE", 1), ("SUCCESS", 0), ("STARTED", 0)])
def test_a_run_that_died_between_its_settling_and_its_event(
    shop: Stage, deployment: Deployment, end: str, events: int
) -> None:
    """What landed in a run that has failed since, and Dagster was never told of, is told by the job; once."""
    job = shop.definitions.resolve_job_def(f"sync_{shop.facts.joined}")
    run = shop.instance.create_run_for_job(job, status=dg.DagsterRunStatus(end))
    assert [r.error for r in deployment.sync(shop.credential, ["orders"], run_id=run.run_id)] == [None]
    assert ratify(shop).success
    assert ratify(shop).success
    assert len(shop.materialisations(ORDERS)) == events


def tick(shop: Stage, min_age_seconds: int = 0, pipeline: Pipeline | None = None) -> dg.SensorResult:
    """One look of the sensor."""
    sensor = ratify_sensor(shop.definitions.resolve_job_def(RATIFY), min_age_seconds)
    context = dg.build_sensor_context(
        instance=shop.instance, definitions=shop.definitions, resources={"carbon": pipeline or shop.pipeline}
    )
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def last_tick(deployment: Deployment, trigger: SweepTrigger = SweepTrigger.SENSOR) -> TickDecision:
    """What the trigger's last look came to, as the control plane has it."""
    record = deployment.directory.last_tick(trigger)
    assert record is not None
    assert record.age_seconds < 10
    return record.decision


def reason_of(result: dg.SensorResult) -> str:
    """Why the sensor did nothing."""
    assert not result.run_requests
    assert result.skip_reason is not None
    return result.skip_reason.skip_message or ""


def test_the_sensor_records_every_look_and_launches_once(shop: Stage, deployment: Deployment) -> None:
    """Nothing unsettled, nothing due, launched, running already: each is said, and stands in the control plane."""
    assert reason_of(tick(shop)) == "nothing is unsettled"
    assert last_tick(deployment) is TickDecision.NOTHING_UNSETTLED
    line = leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    reason = reason_of(tick(shop, min_age_seconds=3600))
    named = f"{line.dataset.coordinate} (operation {line.id})"
    assert reason.startswith(f"1 unsettled, none of them due yet; of the oldest, {named}: it is ")
    assert "younger than 3600 s" in reason
    assert last_tick(deployment) is TickDecision.NOTHING_DUE
    (request,) = tick(shop).run_requests or []
    assert request.run_key is None
    assert request.tags == {TRIGGER_TAG: "sensor"}
    assert last_tick(deployment) is TickDecision.LAUNCHED
    job = shop.definitions.resolve_job_def(RATIFY)
    run = shop.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTING)
    assert reason_of(tick(shop)) == f"run {run.run_id} is on its way"
    assert last_tick(deployment) is TickDecision.RUNNING
    limits = {limit.name: limit.limit for limit in shop.instance.event_log_storage.get_pool_limits()}
    assert limits[RATIFY] == 1


def test_what_the_sensor_launches_settles_and_says_who_asked(shop: Stage, deployment: Deployment) -> None:
    """The request's own configuration and tags run the job, and the sweep on record is the sensor's."""
    leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    (request,) = tick(shop).run_requests or []
    result = shop.definitions.resolve_job_def(RATIFY).execute_in_process(
        instance=shop.instance, run_config=request.run_config, tags=dict(request.tags)
    )
    assert metadata_of(result)["settled"] == 1
    sweep = deployment.directory.last_sweep()
    assert sweep is not None
    assert (sweep.trigger, sweep.settled) == (SweepTrigger.SENSOR, 1)
    assert reason_of(tick(shop)) == "nothing is unsettled"


def test_a_sensor_that_cannot_ask_fails_in_words(shop: Stage, deployment: Deployment) -> None:
    """A look without the control plane is a failed tick with a remedy, and no sign of life; so is the schedule's."""
    away = DeployedPipeline(deployment.settings)
    nowhere = engine_from_fields(host="127.0.0.1", port=1, user="carbon", password="hunter2", database="carbon")
    away.__dict__["_opened"] = replace(deployment, engine=nowhere)
    before = deployment.directory.last_tick(SweepTrigger.SENSOR)
    with pytest.raises(ControlPlaneError) as caught:
        tick(shop, pipeline=away)
    assert "carbon up" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    after = deployment.directory.last_tick(SweepTrigger.SENSOR)
    assert (before and before.at) == (after and after.at)
    with pytest.raises(ControlPlaneError), dg.instance_for_test() as kept:
        evaluate_schedule(shop, kept, away)


def evaluate_schedule(shop: Stage, instance: dg.DagsterInstance, pipeline: Pipeline | None = None) -> object:
    """One evaluation of the schedule, which wants an instance that another process could open too."""
    (schedule,) = shop.definitions.schedules or []
    assert isinstance(schedule, dg.ScheduleDefinition)
    context = dg.build_schedule_context(instance=instance, resources={"carbon": pipeline or shop.pipeline})
    return schedule(context)


def test_the_schedule_launches_whatever_there_is_unless_a_run_is_on_its_way(
    shop: Stage, deployment: Deployment
) -> None:
    """It does not ask what is due, so it works where the sensor's judgement is wrong; its looks are on record too."""
    job = shop.definitions.resolve_job_def(RATIFY)
    with dg.instance_for_test() as kept:
        request = evaluate_schedule(shop, kept)
        assert isinstance(request, dg.RunRequest)
        assert request.tags == {TRIGGER_TAG: "schedule"}
        assert last_tick(deployment, SweepTrigger.SCHEDULE) is TickDecision.LAUNCHED
        assert job.execute_in_process(instance=kept, run_config=request.run_config, tags=dict(request.tags)).success
        sweep = deployment.directory.last_sweep()
        assert sweep is not None
        assert sweep.trigger is SweepTrigger.SCHEDULE
        kept.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        skipped = evaluate_schedule(shop, kept)
        assert isinstance(skipped, dg.SkipReason)
        assert "is on its way" in (skipped.skip_message or "")
    assert last_tick(deployment, SweepTrigger.SCHEDULE) is TickDecision.RUNNING


def test_what_a_run_has_left_waits_and_what_is_new_does_not(shop: Stage, deployment: Deployment) -> None:
    """While a catalog is away the sensor launches a run every few minutes, not with every look."""
    leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    (found,) = deployment.ledger.unsettled(10)
    old = replace(found, age_seconds=1000.0)
    left = look_at([old], Runs(last_began_ago=60.0), 300)
    assert left.decision is TickDecision.NOTHING_DUE
    assert left.reason.startswith("1 left unsettled by the last run, such as default.orders")
    assert left.reason.endswith("the next one is due in 240 s")
    assert look_at([old], Runs(last_began_ago=float(LOOK_AGAIN_SECONDS)), 300).decision is TickDecision.LAUNCHED
    new = replace(found, age_seconds=310.0)
    assert look_at([old, new], Runs(last_began_ago=60.0), 300).decision is TickDecision.LAUNCHED
    alive = replace(found, age_seconds=1000.0, lease_is_live=True)
    assert "lease is live" in look_at([alive], Runs(), 300).reason
    assert look_at([alive] * 1000, Runs(), 300).decision is TickDecision.LAUNCHED


def test_a_run_that_lost_its_process_is_in_nobodys_way(shop: Stage, deployment: Deployment) -> None:
    """After a restart a run may say for ever that it is at work: the sensor believes it for an hour."""
    leave_behind(deployment, shop.credential, "orders", DieAt.AFTER_THE_REQUEST)
    job = shop.definitions.resolve_job_def(RATIFY)
    run = shop.instance.create_run_for_job(job)
    shop.instance.report_dagster_event(
        dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name=RATIFY), run_id=run.run_id
    )
    assert reason_of(tick(shop)) == f"run {run.run_id} is on its way"
    with pytest.MonkeyPatch.context() as later:
        now = time.time()
        later.setattr("time.time", lambda: now + 3601)
        assert tick(shop).run_requests
