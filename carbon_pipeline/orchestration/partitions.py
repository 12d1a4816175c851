"""The tables of a credential as Dagster's dynamic partitions."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from carbon_pipeline.orchestration.translator import CredentialFacts

POOL_LIMIT = 4
"""Runs that may read one source at a time, unless a person has set another limit."""


def partitions_of(facts: CredentialFacts) -> dg.DynamicPartitionsDefinition:
    """The partitions of one credential: a key per table, minted with the table's dataset, which a rename keeps."""
    return dg.DynamicPartitionsDefinition(name=facts.joined)


def add_partitions(instance: dg.DagsterInstance, facts: CredentialFacts, keys: Iterable[str]) -> list[str]:
    """Add the keys that are not there yet, and return them.

    None is ever taken away: Dagster would hide the key and keep its events, which come back with the key.
    """
    known = set(instance.get_dynamic_partitions(facts.joined))
    new = [key for key in dict.fromkeys(keys) if key not in known]
    if new:
        instance.add_dynamic_partitions(facts.joined, new)
    return new


def ensure_pool(instance: dg.DagsterInstance, facts: CredentialFacts) -> None:
    """Give the credential's pool its limit, unless it has one."""
    ensure_limit(instance, facts.pool, POOL_LIMIT)


def ensure_limit(instance: dg.DagsterInstance, pool: str, limit: int) -> None:
    """Give a pool this limit, unless it has one.

    A pool that only `default_limit` knows of is not enforced for the first runs that use it.
    """
    if pool not in instance.event_log_storage.get_concurrency_keys():
        instance.event_log_storage.set_concurrency_slots(pool, limit)
