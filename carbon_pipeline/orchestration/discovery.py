"""New tables become partitions: a sensor decides which sources are due, a job looks at them.

Looking at a source may take long and may fail, and what a sensor does is seen nowhere; so the sensor only asks the
clock and the control plane, and the job does the work in a run of its own.
"""

# No `from __future__ import annotations`: Dagster reads the context's annotation, and not from text.
import json
import time
from collections.abc import Mapping, Sequence

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES, RunsFilter  # DagsterInstance's own arguments

from carbon_pipeline.errors import CarbonError
from carbon_pipeline.orchestration.assets import PIPELINE
from carbon_pipeline.orchestration.partitions import add_partitions, ensure_pool
from carbon_pipeline.orchestration.port import Pipeline
from carbon_pipeline.orchestration.translator import CredentialFacts

DISCOVER = "discover"
DISCOVERY_SECONDS = 15 * 60
"""How long a new table may go unnoticed; a sync of its credential notices it at once."""
_TICK_SECONDS = 30
_NAMED_FAILURES = 3


_CONFIG = {
    "credentials": dg.Field([str], default_value=[], description="As workspace/credential. None means every source."),
}


def discovery_job(every: Sequence[CredentialFacts]) -> dg.JobDefinition:
    """The job that adds a partition for each table found."""

    @dg.op(
        name="look_at_sources",
        description="Reads each source's catalogue and adds a partition for each table that is new.",
        config_schema=_CONFIG,
        required_resource_keys={PIPELINE},
    )
    def look_at_sources(context: dg.OpExecutionContext) -> None:
        named = context.op_config["credentials"]
        chosen = [facts for facts in every if not named or facts.label in named]
        looked = [(facts, _look(context, facts)) for facts in chosen]
        failed = [(facts, error) for facts, error in looked if error is not None]
        if failed:
            raise _failure(failed, len(chosen))

    @dg.job(name=DISCOVER, description="Adds a partition for each new table of each source.")
    def discover() -> None:
        look_at_sources()

    return discover


def _look(context: dg.OpExecutionContext, facts: CredentialFacts) -> CarbonError | None:
    """Look at one source. An error is logged and returned: the other sources have a right to be looked at."""
    pipeline: Pipeline = getattr(context.resources, PIPELINE)
    ensure_pool(context.instance, facts)
    try:
        found = pipeline.survey(facts).relations
    except CarbonError as error:
        context.log.error(f"{facts.label}: {error.message} — {error.remedy}")  # noqa: TRY400 - no traceback: it may quote
        return error
    new = add_partitions(context.instance, facts, found)
    gone = set(context.instance.get_dynamic_partitions(facts.joined)) - set(found)
    context.log.info(
        f"{facts.label}: {len(found)} tables, {len(new)} of them new{_listed(new)}; "
        f"{len(gone)} partitions whose table is gone{_listed(sorted(gone))}"
    )
    return None


def _failure(failed: Sequence[tuple[CredentialFacts, CarbonError]], total: int) -> dg.Failure:
    named = "; ".join(f"{facts.label}: {error.message}" for facts, error in failed[:_NAMED_FAILURES])
    more = f"; and {len(failed) - _NAMED_FAILURES} more" if len(failed) > _NAMED_FAILURES else ""
    return dg.Failure(
        description=f"{len(failed)} of {total} sources could not be looked at: {named}{more}",
        metadata={facts.label: dg.MetadataValue.md(error.remedy) for facts, error in failed},
        allow_retries=False,
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10])
    return f" ({shown}{', …' if len(names) > 10 else ''})" if names else ""


def discovery_sensor(every: Sequence[CredentialFacts], job: dg.JobDefinition) -> dg.SensorDefinition:
    """The sensor that launches discovery for the sources that are due."""

    @dg.sensor(
        name="discover_new_tables",
        description="Launches the job `discover` for every source that nobody has looked at for a while.",
        job=job,
        minimum_interval_seconds=_TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def discover_new_tables(context: dg.SensorEvaluationContext, carbon: dg.ResourceParam[Pipeline]) -> dg.SensorResult:
        connected = carbon.credentials()
        for facts in every:
            ensure_pool(context.instance, facts)
        if _is_running(context.instance):
            return dg.SensorResult(skip_reason="a discovery is on its way")
        looked, now = _read_cursor(context.cursor), time.time()
        due = due_sources([facts.label for facts in every], looked, now)
        if not due:
            return dg.SensorResult(skip_reason=why_nothing_is_due(every, connected, looked, now))
        config = {"ops": {"look_at_sources": {"config": {"credentials": due}}}}
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_config=config, tags={"carbon/sources": str(len(due))})],
            cursor=json.dumps({**looked, **dict.fromkeys(due, now)}, sort_keys=True),
        )

    return discover_new_tables


def due_sources(labels: Sequence[str], looked: Mapping[str, float], now: float) -> list[str]:
    """The sources that nobody has looked at for `DISCOVERY_SECONDS`, or ever."""
    return [label for label in labels if now - looked.get(label, 0) >= DISCOVERY_SECONDS]


def why_nothing_is_due(
    every: Sequence[CredentialFacts], connected: Sequence[CredentialFacts], looked: Mapping[str, float], now: float
) -> str:
    """The sensor's word for doing nothing, and for what a person may want to do about it."""
    unknown = sorted({facts.label for facts in connected} - {facts.label for facts in every})
    if unknown:
        return (
            f"{', '.join(unknown)} was connected after this code location was loaded: reload it (Deployment → Reload)"
        )
    if not every:
        return "there is no source yet: `carbon connect postgres` adds one"
    wait = min(looked.get(facts.label, 0) for facts in every) + DISCOVERY_SECONDS - now
    return f"{len(every)} sources looked at; the next look is due in {wait / 60:.0f} minutes"


def _is_running(instance: dg.DagsterInstance) -> bool:
    return bool(instance.get_run_records(RunsFilter(job_name=DISCOVER, statuses=NOT_FINISHED_STATUSES), limit=1))


def _read_cursor(cursor: str | None) -> dict[str, float]:
    return {str(label): float(seconds) for label, seconds in json.loads(cursor or "{}").items()}
