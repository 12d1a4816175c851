"""All the definitions of one code location, from its credentials."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from carbon_pipeline.orchestration.assets import LAKEHOUSE, PIPELINE, credential_asset
from carbon_pipeline.orchestration.discovery import discovery_job, discovery_sensor
from carbon_pipeline.orchestration.io_manager import PublishingIOManager
from carbon_pipeline.orchestration.port import Pipeline
from carbon_pipeline.orchestration.ratify_job import ratify_job
from carbon_pipeline.orchestration.ratify_triggers import ratify_schedule, ratify_sensor
from carbon_pipeline.orchestration.sync_job import sync_job
from carbon_pipeline.orchestration.translator import CredentialFacts


def build_definitions(
    credentials: Sequence[CredentialFacts], *, pipeline: Pipeline, code_version: str
) -> dg.Definitions:
    """One asset and one sync job per credential; discovery and ratify for all of them.

    Everything runs in the run's own process: with Dagster's usual executor a killed run would leave its step alive,
    and it would go on writing.
    """
    discovery, ratify = discovery_job(credentials), ratify_job()
    return dg.Definitions(
        assets=[credential_asset(facts, code_version) for facts in credentials],
        jobs=[*(sync_job(facts) for facts in credentials), discovery, ratify],
        sensors=[discovery_sensor(credentials, discovery), ratify_sensor(ratify)],
        schedules=[ratify_schedule(ratify)],
        resources={PIPELINE: pipeline, LAKEHOUSE: PublishingIOManager(pipeline)},
        executor=dg.in_process_executor,
    )
