"""What Dagster did not run or did not live to see, told to Dagster: events without a run, each with its partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from logging import Logger, getLogger

import dagster as dg
from dagster._core.storage.dagster_run import RunsFilter  # DagsterInstance's own argument

from carbon_pipeline.control_plane.records import Credential, OperationLine, OperationStory
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.identity import DatasetId, OperationId
from carbon_pipeline.ledger.states import Ruling
from carbon_pipeline.orchestration.metadata import SEQ, URI, materialization, repaired_materialization
from carbon_pipeline.orchestration.partitions import add_partitions, ensure_pool
from carbon_pipeline.orchestration.translator import CredentialFacts, facts_of
from carbon_pipeline.sync import Receipt

StoryOf = Callable[[OperationId], OperationStory]
"""Tells the story of an operation."""

_EVENTS_MAX = 50
"""How many of a partition's events are looked at for one that the ledger knows of; people may add others by hand."""


def report_runless(
    instance: dg.DagsterInstance, credential: Credential, receipts: Iterable[Receipt], story_of: StoryOf | None = None
) -> int:
    """Report what was published as materialisations of the credential's asset; returns how many there were.

    The partitions come first: an event of an unknown partition is kept and shown nowhere. With *story_of*, a dead run's
    write that had to be settled before is reported as well, and is not counted.
    """
    facts, told = facts_of(credential), list(receipts)
    _prepare(instance, facts, [receipt.dataset for receipt in told])
    for receipt in told:
        if story_of is not None:
            report_settled_before(instance, facts.asset_key, receipt, story_of, getLogger("dagster"))
        instance.report_runless_asset_event(materialization(facts.asset_key, receipt))
    return len(told)


def report_repaired(instance: dg.DagsterInstance, credential: Credential, stories: Iterable[OperationStory]) -> int:
    """Report what landed although its writer did not live to say so; returns how many materialisations were new.

    Safe to repeat: what Dagster knows of already is not reported again, nor is what a newer write has replaced.
    """
    return report_stories(instance, facts_of(credential), stories)


def report_stories(instance: dg.DagsterInstance, facts: CredentialFacts, stories: Iterable[OperationStory]) -> int:
    """The same for a credential as Dagster's side knows it."""
    landed = [story for story in stories if story.line.ruling is Ruling.LANDED]
    _prepare(instance, facts, [story.line.dataset for story in landed])
    in_order = sorted(landed, key=lambda story: story.line.seq)
    return sum(_report(instance, facts.asset_key, story) for story in in_order)


def report_settled_before(
    instance: dg.DagsterInstance, key: dg.AssetKey, receipt: Receipt, story_of: StoryOf, log: Logger
) -> None:
    """Report the dead run's write that this one settled first, if it landed; call it before this one's own event.

    The new write has landed by now, so a story that cannot be told is a warning.
    """
    before = receipt.settled_before
    if before is None or before.ruling is not Ruling.LANDED:
        return
    try:
        _report(instance, key, story_of(before.operation_id))
    except CarbonError as error:
        log.warning(f"Dagster was not told that operation {before.operation_id} had landed: {error.message}")


def never_told(instance: dg.DagsterInstance, recent: Sequence[OperationLine]) -> Iterator[OperationLine]:
    """Those operations of *recent*, the newest first, that landed in a run which failed: it may have died before it
    could say so. One of a dataset at most, since a newer one replaces the others."""
    newest: dict[DatasetId, OperationLine] = {}
    for line in recent:
        if line.ruling is Ruling.LANDED:
            newest.setdefault(line.dataset.id, line)
    ids = {line.run_id for line in newest.values() if line.run_id is not None}
    if not ids:
        return
    ends = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
    over = {run.run_id for run in instance.get_runs(RunsFilter(run_ids=sorted(ids), statuses=ends))}
    yield from (line for line in newest.values() if line.run_id in over)


def _report(instance: dg.DagsterInstance, key: dg.AssetKey, story: OperationStory) -> bool:
    """Report this one unless it, or a newer write of the dataset, is known: it would look like the latest."""
    known = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key, asset_partitions=[story.line.dataset.partition_key]), limit=_EVENTS_MAX
    ).records
    events = [event for record in known if (event := record.asset_materialization) is not None]
    if any(_seq(event, story.line.dataset) >= story.line.seq for event in events):
        return False
    instance.report_runless_asset_event(repaired_materialization(key, story))
    return True


def _seq(event: dg.AssetMaterialization, dataset: Dataset) -> int:
    """The number of the write that the event tells of; numbers count from one within a dataset."""
    seq, uri = event.metadata.get(SEQ), event.metadata.get(URI)
    if uri is None or uri.value != dataset.location or seq is None or not isinstance(seq.value, int):
        return 0
    return seq.value


def _prepare(instance: dg.DagsterInstance, facts: CredentialFacts, datasets: Iterable[Dataset]) -> None:
    ensure_pool(instance, facts)
    add_partitions(instance, facts, [dataset.partition_key for dataset in datasets])
