"""The IO manager: a thin adapter between Dagster's output and `publish`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import dagster as dg
from dagster import DagsterInvariantViolationError
from dagster._core.execution.context.system import StepExecutionContext  # what an output's context belongs to

from carbon_pipeline.errors import UsageError
from carbon_pipeline.orchestration.failures import explained, failure_of
from carbon_pipeline.orchestration.metadata import data_version, metadata_of
from carbon_pipeline.orchestration.port import Pipeline
from carbon_pipeline.orchestration.report import report_settled_before
from carbon_pipeline.sync import Prepared, Receipt, publish

_NEWS_SECONDS = 10


class PublishingIOManager(dg.IOManager):
    """Publishes what the asset's body prepared. The body is suspended meanwhile, and holds the source's snapshot."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Publish, and tell the materialisation about it."""
        with explained():
            if not isinstance(obj, Prepared):
                raise UsageError(
                    f"{context.asset_key.to_user_string()} yielded {type(obj).__name__}, only a prepared write can be "
                    "published",
                    remedy="Yield what carbon_pipeline.sync.prepare gives, inside its context.",
                )
            _check_partition(context.asset_partition_keys, obj)
            receipt = publish(obj, _news(context.log.info, obj.dataset.relation))
        context.add_output_metadata(metadata_of(receipt))
        step = _step(context)
        if step is not None:
            report_settled_before(step.instance, context.asset_key, receipt, self._pipeline.story, context.log)
            _stamp(step, context.asset_key, receipt)

    def load_input(self, context: dg.InputContext) -> object:
        """Refuse, in words: rows are read through the lakehouse's own door, which any process can open."""
        raise failure_of(
            UsageError(
                f"{context.asset_key.to_user_string()} cannot be an argument of another asset",
                remedy="Depend on it by `deps=` and read it with `deployment.lakehouse(workspace)`.",
            )
        )


def _check_partition(keys: Sequence[str], prepared: Prepared) -> None:
    """One output is one table; a range of partitions would say the same of them all."""
    if list(keys) != [prepared.dataset.partition_key]:
        raise UsageError(
            f"the write of {prepared.dataset.partition_key} came as that of {', '.join(keys)}",
            remedy="Launch one run per partition, or the credential's sync job for many tables in one run.",
        )


def _news(say: Callable[[str], None], relation: str) -> Callable[[int, int], None]:
    """Progress into the run's log, every now and then."""
    last = time.monotonic()

    def progress(rows: int, size_bytes: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _NEWS_SECONDS:
            last = time.monotonic()
            say(f"{relation}: {rows:,} rows, {size_bytes / 1e6:,.0f} MB of Arrow read")

    return progress


def _step(context: dg.OutputContext) -> StepExecutionContext | None:
    """The step that the output is of; a context from `build_output_context` belongs to none."""
    try:
        return context.step_context
    except DagsterInvariantViolationError:
        return None


def _stamp(step: StepExecutionContext, key: dg.AssetKey, receipt: Receipt) -> None:
    """The snapshot's id is known only now, and only the step's own context takes a data version this late."""
    version = data_version(receipt)
    if version is not None:
        step.set_data_version(key, version)
