"""What every lake does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from carbon_pipeline.errors import CommitRefused
from carbon_pipeline.lake.outcome import Landed, Refused
from carbon_pipeline.ratify.evidence import Absent, Broken, OffMain, OnMain, TargetReplaced, Witness, WitnessOnly
from carbon_pipeline_tests.behaviours.lake_benches import (
    MAPPING,
    ONE,
    OTHER,
    IcebergLakeBench,
    LakeBench,
    MemoryLakeBench,
    batches,
)


@pytest.fixture(params=["memory", "real"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> LakeBench:
    """The same lake twice."""
    return MemoryLakeBench() if request.param == "memory" else IcebergLakeBench(tmp_path)


def test_a_table_is_made_once(bench: LakeBench) -> None:
    """A new table is empty and has no snapshot; asking again gives the same one."""
    head = bench.lake.ensure_table(bench.dataset, MAPPING)
    assert head.base_snapshot_id is None
    assert bench.lake.ensure_table(bench.dataset, MAPPING) == head
    assert bench.rows() == ()


def test_a_write_lands(bench: LakeBench) -> None:
    """What is staged is not visible; committed, it is the table, and the facts are those of the planned snapshot."""
    written = bench.stage(ONE)
    assert bench.rows() == ()
    outcome = bench.commit(written)
    assert isinstance(outcome, Landed)
    assert bench.rows() == tuple(sorted(ONE))
    facts = outcome.facts
    assert (facts.snapshot_id, facts.parent_snapshot_id, facts.rows) == (written.staged.snapshot_id, None, len(ONE))
    assert bench.lake.ensure_table(bench.dataset, MAPPING).base_snapshot_id == facts.snapshot_id


def test_a_second_write_replaces(bench: LakeBench) -> None:
    """Nothing of the first remains to be seen."""
    first = bench.publish(ONE)
    second = bench.publish(OTHER)
    assert bench.rows() == tuple(sorted(OTHER))
    assert second.operation.base_snapshot_id == first.staged.snapshot_id


def test_an_empty_write_lands(bench: LakeBench) -> None:
    """A relation without rows makes a table without rows, and its write can be found."""
    bench.publish(ONE)
    written = bench.publish(())
    assert bench.rows() == ()
    assert isinstance(bench.lake.observe(written.operation), OnMain)


def test_files_are_announced_first(bench: LakeBench) -> None:
    """Every file of a write was announced at a moment when it was not there yet."""
    there_already: list[str] = []

    def announce(files: Sequence[str]) -> None:
        there_already.extend(bench.existing(files))
        bench.announced.extend(files)

    staged = bench.lake.stage(bench.open(), MAPPING, batches(ONE), announce)
    assert there_already == []
    assert set(staged.files) <= set(bench.announced)
    assert sorted(bench.existing(staged.files)) == sorted(staged.files)


def test_an_announcement_that_fails_stops_the_write(bench: LakeBench) -> None:
    """What cannot be put on record is not written."""
    refused: list[str] = []

    def announce(files: Sequence[str]) -> None:
        refused.extend(files)
        raise RuntimeError("the ledger is away")

    with pytest.raises(RuntimeError, match="ledger is away"):
        bench.lake.stage(bench.open(), MAPPING, batches(ONE), announce)
    assert refused
    assert bench.existing(refused) == []


def test_a_source_that_fails_leaves_nothing(bench: LakeBench) -> None:
    """Half a stream is no table: its error goes on, and what was written is deleted."""

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(ONE)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="source broke"):
        bench.lake.stage(bench.open(), MAPPING, broken(), bench.announced.extend)
    assert bench.existing(bench.announced) == []
    assert bench.rows() == ()


def test_evidence_of_a_write_on_its_way(bench: LakeBench) -> None:
    """Before the request it is absent, on the head that it started from; afterwards it is on main with its facts."""
    bench.publish(ONE)
    written = bench.stage(OTHER)
    before = bench.lake.observe(written.operation)
    assert isinstance(before, Absent)
    assert before.head_snapshot_id == written.operation.base_snapshot_id
    outcome = bench.commit(written)
    assert isinstance(outcome, Landed)
    assert bench.lake.observe(written.operation) == OnMain(facts=outcome.facts)
    bench.commit_foreign()
    assert bench.lake.observe(written.operation) == OnMain(facts=outcome.facts)


def test_a_request_lands_once(bench: LakeBench) -> None:
    """Sent again, it is found to have landed, and changes nothing."""
    written = bench.publish(ONE)
    again = bench.commit(written)
    assert isinstance(again, Landed)
    assert again.facts.snapshot_id == written.staged.snapshot_id
    assert bench.rows() == tuple(sorted(ONE))


def test_two_writes_on_one_base(bench: LakeBench) -> None:
    """The first to come lands; the other is refused, with proof, and stays absent."""
    first, second = bench.stage(ONE), bench.stage(OTHER)
    assert isinstance(bench.commit(first), Landed)
    assert isinstance(bench.commit(second), Refused)
    assert bench.rows() == tuple(sorted(ONE))
    evidence = bench.lake.observe(second.operation)
    assert isinstance(evidence, Absent)
    assert evidence.head_snapshot_id == first.staged.snapshot_id


def test_staging_on_a_table_that_moved_on(bench: LakeBench) -> None:
    """An operation asserts one base for life."""
    intent = bench.open()
    bench.publish(ONE)
    with pytest.raises(CommitRefused):
        bench.lake.stage(intent, MAPPING, batches(OTHER), bench.announced.extend)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_fence_keeps_out(bench: LakeBench, is_first: bool) -> None:  # pytest passes it by name
    """Fenced, a write can land no more; the table's rows are untouched, and the next write goes on top."""
    shown = () if is_first else tuple(sorted(ONE))
    if not is_first:
        bench.publish(ONE)
    written = bench.stage(OTHER)
    evidence = bench.lake.observe(written.operation)
    assert isinstance(evidence, Absent)
    assert bench.lake.fence(written.operation, evidence)
    assert isinstance(bench.commit(written), Refused)
    assert bench.rows() == shown
    assert isinstance(bench.lake.observe(written.operation), Absent)
    bench.publish(OTHER)
    assert bench.rows() == tuple(sorted(OTHER))


def test_a_fence_that_comes_too_late(bench: LakeBench) -> None:
    """When main has moved on since it was looked at there is no fence, and it says so."""
    written = bench.stage(ONE)
    evidence = bench.lake.observe(written.operation)
    assert isinstance(evidence, Absent)
    assert isinstance(bench.commit(written), Landed)
    assert not bench.lake.fence(written.operation, evidence)
    assert isinstance(bench.lake.observe(written.operation), OnMain)


def test_moved_back(bench: LakeBench) -> None:
    """A write behind which main was moved back is off main, and what main shows instead is named."""
    first, second = bench.publish(ONE), bench.publish(OTHER)
    bench.roll_back()
    evidence = bench.lake.observe(second.operation)
    assert isinstance(evidence, OffMain)
    assert evidence.shown_operation_id == first.operation.id
    assert bench.rows() == tuple(sorted(ONE))


def test_expired(bench: LakeBench) -> None:
    """A write whose snapshot is forgotten is known by more than one witness."""
    bench.publish(ONE)
    written = bench.publish(OTHER)
    bench.commit_foreign()
    bench.expire()
    evidence = bench.lake.observe(written.operation)
    assert isinstance(evidence, WitnessOnly)
    assert {Witness.WATERMARK, Witness.METADATA_LOG} <= evidence.witnesses


@pytest.mark.parametrize("is_first", [True, False])
def test_expired_and_disowned(bench: LakeBench, is_first: bool) -> None:
    """A write that landed is not taken for absent when its snapshot and its watermark are gone, be it the table's first
    one: PyIceberg forgets with a snapshot that it was a parent, so the oldest one left looks like the table's first."""
    if not is_first:
        bench.publish(ONE)
    written = bench.publish(OTHER)
    bench.commit_foreign()
    bench.expire()
    bench.overwrite_watermark()
    evidence = bench.lake.observe(written.operation)
    assert isinstance(evidence, WitnessOnly)
    assert Witness.METADATA_LOG in evidence.witnesses


@pytest.mark.parametrize("is_first", [True, False])
def test_expired_behind_other_writes(bench: LakeBench, is_first: bool) -> None:
    """A write that never was, on a base that is forgotten, cannot be proved absent."""
    if not is_first:
        bench.publish(ONE)
    written = bench.stage(ONE)
    bench.publish(ONE)
    bench.publish(OTHER)
    bench.expire()
    assert isinstance(bench.lake.observe(written.operation), Broken)


def test_a_table_that_is_gone(bench: LakeBench) -> None:
    """Dropped, or dropped and made anew: neither tells anything of a write to the old one."""
    written = bench.publish(ONE)
    bench.drop()
    assert isinstance(bench.lake.observe(written.operation), TargetReplaced)
    bench.lake.ensure_table(bench.dataset, MAPPING)
    assert isinstance(bench.lake.observe(written.operation), TargetReplaced)


def test_the_janitor(bench: LakeBench) -> None:
    """Files that a snapshot refers to are kept, those of a write that never landed go, and going twice is no error."""
    landed = bench.publish(ONE)
    left = bench.stage(OTHER)
    assert list(bench.janitor.unreferenced(bench.dataset, landed.staged.files)) == []
    assert sorted(bench.janitor.unreferenced(bench.dataset, left.staged.files)) == sorted(left.staged.files)
    for _ in range(2):
        bench.janitor.remove(bench.dataset, left.staged.files)
    assert bench.existing(left.staged.files) == []
    assert bench.rows() == tuple(sorted(ONE))
