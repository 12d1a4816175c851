"""What launches the job `ratify`: a sensor that looks every half minute, and a schedule in case it does not.

Both only look and decide, and put on record that they did; a look that could not ask the control plane fails, so that
nobody takes it for a sign of life.
"""

# No `from __future__ import annotations`: Dagster reads the context's annotation, and not from text.
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg
from dagster._core.storage.dagster_run import (  # DagsterInstance's own arguments
    NOT_FINISHED_STATUSES,
    RunRecord,
    RunsFilter,
)

from carbon_pipeline.control_plane.records import SweepTrigger, TickDecision
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.ledger.operation import Unsettled
from carbon_pipeline.orchestration.port import Pipeline
from carbon_pipeline.orchestration.ratify_job import RATIFY, RUN_SECONDS_MAX, SETTLE, TRIGGER_TAG, ensure_pool
from carbon_pipeline.ratify.decide import Standing, may_be_swept
from carbon_pipeline.ratify.sweep import MIN_AGE_SECONDS

LOOK_AGAIN_SECONDS = 300
"""How long an operation that a run has left unsettled waits for the next one, as while its catalog is away."""

_TICK_SECONDS = 30
_UNSETTLED_MAX = 1_000
_RUNS_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The job's last runs, by this machine's clock."""

    on_its_way: str | None = None
    """A run that is queued or at work."""
    last_began_ago: float | None = None
    """Seconds since the last run that a trigger launched began to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a trigger decides, and why."""

    decision: TickDecision
    reason: str


def ratify_sensor(job: dg.JobDefinition, min_age_seconds: int = int(MIN_AGE_SECONDS)) -> dg.SensorDefinition:
    """The sensor that launches the job when an operation is due."""

    @dg.sensor(
        name="ratify_unsettled",
        description="Launches the job `ratify` when a write is unsettled and its writer has had time enough.",
        job=job,
        minimum_interval_seconds=_TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def ratify_unsettled(context: dg.SensorEvaluationContext, carbon: dg.ResourceParam[Pipeline]) -> dg.SensorResult:
        ensure_pool(context.instance)
        runs = runs_of(context.instance)
        with _in_words():
            ratifier = carbon.ratifier()
            unsettled = ratifier.unsettled(_UNSETTLED_MAX)
            look = look_at(unsettled, runs, min_age_seconds)
            ratifier.record_tick(SweepTrigger.SENSOR, look.decision)
        if look.decision is not TickDecision.LAUNCHED:
            return dg.SensorResult(skip_reason=look.reason)
        return dg.SensorResult(run_requests=[_request(SweepTrigger.SENSOR, min_age_seconds)])

    return ratify_unsettled


def ratify_schedule(job: dg.JobDefinition, min_age_seconds: int = int(MIN_AGE_SECONDS)) -> dg.ScheduleDefinition:
    """The schedule that launches the job whatever the sensor does. Late landings are watched for by it alone."""

    @dg.schedule(
        name="ratify_every_quarter_hour",
        description="Launches the job `ratify` every quarter of an hour, should the sensor not.",
        job=job,
        cron_schedule="*/15 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    def ratify_every_quarter_hour(
        context: dg.ScheduleEvaluationContext, carbon: dg.ResourceParam[Pipeline]
    ) -> dg.RunRequest | dg.SkipReason:
        ensure_pool(context.instance)
        on_its_way = runs_of(context.instance).on_its_way
        decision = TickDecision.LAUNCHED if on_its_way is None else TickDecision.RUNNING
        with _in_words():
            carbon.ratifier().record_tick(SweepTrigger.SCHEDULE, decision)
        if on_its_way is not None:
            return dg.SkipReason(_said_running(on_its_way))
        return _request(SweepTrigger.SCHEDULE, min_age_seconds)

    return ratify_every_quarter_hour


def look_at(unsettled: Sequence[Unsettled], runs: Runs, min_age_seconds: float) -> Look:
    """Decide whether a run is to be launched. Every run looks at all operations, so one at a time is enough."""
    if runs.on_its_way is not None:
        return Look(decision=TickDecision.RUNNING, reason=_said_running(runs.on_its_way))
    if not unsettled:
        return Look(decision=TickDecision.NOTHING_UNSETTLED, reason="nothing is unsettled")
    waiting = [may_be_swept(_standing(found), min_age_seconds) for found in unsettled]
    due = [found for found, leave in zip(unsettled, waiting, strict=True) if leave is None]
    if not due and len(unsettled) < _UNSETTLED_MAX:
        first = next(leave.reason for leave in waiting if leave is not None)
        reason = f"{len(unsettled)} unsettled, none of them due yet; of the oldest, {_named(unsettled[0])}: {first}"
        return Look(decision=TickDecision.NOTHING_DUE, reason=reason)
    ago = runs.last_began_ago
    if ago is None or ago >= LOOK_AGAIN_SECONDS or any(found.age_seconds - min_age_seconds < ago for found in due):
        return Look(decision=TickDecision.LAUNCHED, reason=f"{len(due)} due")
    reason = (
        f"{len(due)} left unsettled by the last run, such as {_named(due[0])}; "
        f"the next one is due in {LOOK_AGAIN_SECONDS - ago:.0f} s"
    )
    return Look(decision=TickDecision.NOTHING_DUE, reason=reason)


def runs_of(instance: dg.DagsterInstance) -> Runs:
    """The job's last runs. One that has lost its process looks alive, though not for longer than a sweep can take."""
    records, now = instance.get_run_records(RunsFilter(job_name=RATIFY), limit=_RUNS_MAX), time.time()
    on_its_way = [record.dagster_run.run_id for record in records if _is_on_its_way(record, now)]
    began = [now - record.start_time for record in records if record.start_time and _was_triggered(record)]
    return Runs(on_its_way=next(iter(on_its_way), None), last_began_ago=min(began, default=None))


def _is_on_its_way(record: RunRecord, now: float) -> bool:
    if record.dagster_run.status not in NOT_FINISHED_STATUSES:
        return False
    return record.start_time is None or now - record.start_time < RUN_SECONDS_MAX


def _was_triggered(record: RunRecord) -> bool:
    """A person's own run may have been a dry one, or one on other terms."""
    return TRIGGER_TAG in record.dagster_run.tags


def _standing(found: Unsettled) -> Standing:
    return Standing(status=found.operation.status, age_seconds=found.age_seconds, lease_is_live=found.lease_is_live)


def _named(found: Unsettled) -> str:
    return f"{found.operation.dataset.coordinate} (operation {found.operation.id})"


def _said_running(run_id: str) -> str:
    return f"run {run_id} is on its way"


def _request(trigger: SweepTrigger, min_age_seconds: int) -> dg.RunRequest:
    """A run on the same terms. It has no key: Dagster launches a key once for ever."""
    config = {"ops": {SETTLE: {"config": {"min_age_seconds": min_age_seconds}}}}
    return dg.RunRequest(run_config=config, tags={TRIGGER_TAG: trigger.value})


@contextmanager
def _in_words() -> Iterator[None]:
    """Let an error out without its cause: Dagster keeps whole chains, and a driver may quote an address."""
    try:
        yield
    except CarbonError as error:
        raise error from None
