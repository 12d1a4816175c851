"""One run for all the tables of a credential, several at a time.

A run costs Dagster itself some ten seconds, so a run per table would cost hours where there are a thousand. The one
op says for each table what an asset's own step would: that it is planned, and that it was materialised, each with its
partition. What was planned and did not come shows as failed once the run has ended.
"""

# No `from __future__ import annotations`: Dagster reads the context's annotation, and not from text.
from collections.abc import Iterable
from contextlib import closing
from typing import cast

import dagster as dg
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent  # planned events have no public door

from carbon_pipeline.errors import CarbonError
from carbon_pipeline.orchestration.assets import PIPELINE
from carbon_pipeline.orchestration.failures import explained
from carbon_pipeline.orchestration.metadata import materialization
from carbon_pipeline.orchestration.partitions import add_partitions, ensure_pool
from carbon_pipeline.orchestration.port import Pipeline, Survey
from carbon_pipeline.orchestration.report import StoryOf, report_settled_before
from carbon_pipeline.orchestration.translator import CredentialFacts
from carbon_pipeline.source.relation import Relation
from carbon_pipeline.sync_all import Listener, TableResult, sync_all

CREDENTIAL_TAG = "carbon/credential"
"""On every sync run; `dagster.yaml` lets one such run per value work at a time."""

_NAMED_FAILURES = 3


_CONFIG = {
    "tables": dg.Field([str], default_value=[], description="Partition keys, as in public.orders. None means all."),
    "workers": dg.Field(int, default_value=4, description="Tables that are read at a time."),
}


def sync_job(facts: CredentialFacts) -> dg.JobDefinition:
    """The job that syncs many tables of one credential."""
    name = f"sync_{facts.joined}"

    @dg.op(
        name=f"{name}_tables",
        description="Publishes each table and says so; one that fails never stops the others.",
        config_schema=_CONFIG,
        required_resource_keys={PIPELINE},
        pool=facts.pool,
    )
    def sync_tables(context: dg.OpExecutionContext) -> None:
        pipeline: Pipeline = getattr(context.resources, PIPELINE)
        ensure_pool(context.instance, facts)
        with explained():
            survey = pipeline.survey(facts)
            chosen = _chosen(survey, context.op_config["tables"])
        _plan(context, facts, chosen)
        failed = _sync(context, survey, chosen.values(), pipeline.story)
        if failed:
            raise _failure(failed, len(chosen))

    @dg.job(
        name=name,
        description=f"Syncs every table of source {facts.name} in one run, or the ones that its config names.",
        tags={CREDENTIAL_TAG: facts.label},
    )
    def sync_credential() -> None:
        sync_tables()

    return sync_credential


def _chosen(survey: Survey, keys: Iterable[str]) -> dict[str, Relation]:
    named = {key: survey.relation(key) for key in keys}
    return named or survey.relations


def _plan(context: dg.OpExecutionContext, facts: CredentialFacts, keys: Iterable[str]) -> None:
    """Say which tables are to come. Their partitions must be there before."""
    add_partitions(context.instance, facts, keys)
    for key in keys:
        planned = AssetMaterializationPlannedData(asset_key=facts.asset_key, partition=key)
        event = DagsterEvent.build_asset_materialization_planned_event(
            context.job_name, str(context.op_handle), planned
        )
        context.instance.report_dagster_event(event, run_id=context.run_id)


def _sync(
    context: dg.OpExecutionContext, survey: Survey, relations: Iterable[Relation], story_of: StoryOf
) -> list[TableResult]:
    """Sync the relations, log each result as it comes, and return those that failed."""
    orders = [survey.order(relation, context.run_id) for relation in relations]
    workers, failed = context.op_config["workers"], []
    # Closed here and now: a cancelled run must stop the tables under way, whoever else still holds the generator.
    with closing(sync_all(survey.ports, orders, workers=workers, listener=_RunLog(context))) as results:
        for result in results:
            _tell(context, survey.facts.asset_key, result, story_of)
            if result.error is not None:
                failed.append(result)
    return failed


def _tell(context: dg.OpExecutionContext, key: dg.AssetKey, result: TableResult, story_of: StoryOf) -> None:
    name = result.relation.qualified_name
    if result.receipt is not None:
        report_settled_before(context.instance, key, result.receipt, story_of, context.log)
        context.log_event(materialization(key, result.receipt))
        context.log.info(f"{name}: published in {result.seconds:.1f} s")
    elif result.error is not None:
        context.log.error(f"{name}: {result.error.message} — {result.error.remedy}")


class _RunLog(Listener):
    """Says in the run's log which tables are being read."""

    def __init__(self, context: dg.OpExecutionContext) -> None:
        self._log = context.log

    def started(self, relation: Relation) -> None:
        """Said from the worker's thread."""
        self._log.info(f"{relation.qualified_name}: reading")


def _failure(failed: list[TableResult], total: int) -> dg.Failure:
    """The run's failure, with a row for each table that failed; the others are published."""
    errors = [(result.relation.qualified_name, cast("CarbonError", result.error)) for result in failed]
    named = "; ".join(f"{name}: {error.message}" for name, error in errors[:_NAMED_FAILURES])
    more = f"; and {len(errors) - _NAMED_FAILURES} more" if len(errors) > _NAMED_FAILURES else ""
    rows = [
        dg.TableRecord({"table": name, "kind": error.kind, "error": error.message, "remedy": error.remedy})
        for name, error in errors
    ]
    return dg.Failure(
        description=f"{len(errors)} of {total} tables failed: {named}{more}",
        metadata={"remedy": dg.MetadataValue.md(errors[0][1].remedy), "failed": dg.MetadataValue.table(rows)},
        allow_retries=False,
    )
