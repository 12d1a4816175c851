"""What was synced outside Dagster, told to Dagster: events without a run, each with its partition."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.orchestration.metadata import materialization
from carbon_pipeline.orchestration.partitions import add_partitions, ensure_pool
from carbon_pipeline.orchestration.translator import facts_of
from carbon_pipeline.sync import Receipt


def report_runless(instance: dg.DagsterInstance, credential: Credential, receipts: Iterable[Receipt]) -> int:
    """Report what was published as materialisations of the credential's asset; returns how many there were.

    The partitions come first: an event of an unknown partition is kept and shown nowhere.
    """
    facts, told = facts_of(credential), list(receipts)
    ensure_pool(instance, facts)
    add_partitions(instance, facts, [receipt.dataset.partition_key for receipt in told])
    for receipt in told:
        instance.report_runless_asset_event(materialization(facts.asset_key, receipt))
    return len(told)
