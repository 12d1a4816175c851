"""The asset of one credential."""

# No `from __future__ import annotations`: Dagster reads the context's annotation, and not from text.
from collections.abc import Iterator

import dagster as dg

from carbon_pipeline.orchestration.failures import explained
from carbon_pipeline.orchestration.partitions import partitions_of
from carbon_pipeline.orchestration.port import Pipeline
from carbon_pipeline.orchestration.translator import CredentialFacts, asset_spec
from carbon_pipeline.sync import Prepared, prepare

PIPELINE = "carbon"
"""The resource: a `Pipeline`."""
LAKEHOUSE = "lakehouse"
"""The IO manager."""


def credential_asset(facts: CredentialFacts, code_version: str) -> dg.AssetsDefinition:
    """One asset for the credential, one partition per table.

    No backfill policy: a range would run many tables in one step, whose checks Dagster attributes to none of them.
    """
    spec = asset_spec(facts, partitions_of(facts), code_version)

    @dg.asset(
        key=spec.key,
        description=spec.description,
        group_name=spec.group_name,
        kinds=spec.kinds,
        owners=spec.owners,
        code_version=spec.code_version,
        metadata=spec.metadata,
        partitions_def=spec.partitions_def,
        io_manager_key=LAKEHOUSE,
        required_resource_keys={PIPELINE},
        pool=facts.pool,
    )
    def table(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Prepared]]:
        pipeline: Pipeline = getattr(context.resources, PIPELINE)
        with explained():
            survey = pipeline.survey(facts)
            order = survey.order(survey.relation(context.partition_key), context.run.run_id)
            with prepare(survey.ports, order) as prepared:
                yield dg.Output(prepared)

    return table
