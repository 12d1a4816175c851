"""What does not hold between ledger, snapshot and files is found, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from carbon_pipeline.control_plane.records import DatasetStatus, OperationStory
from carbon_pipeline.identity import DatasetId
from carbon_pipeline.lake.reader import SnapshotProof
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.proof.checks import checks
from carbon_pipeline_tests.proof.samples import snapshot, status, story

Facts = tuple[DatasetStatus, OperationStory, SnapshotProof]


def failing(facts: Facts) -> list[str]:
    """The names of the checks that do not hold."""
    return [check.name for check in checks(*facts) if not check.holds]


def test_what_agrees_holds() -> None:
    """Every check holds, and says what it looked at."""
    found = checks(status(), story(), snapshot())
    assert all(check.holds for check in found)
    assert [check.name for check in found] == [
        *("operation_on_record", "operation_committed", "same_snapshot", "same_table", "same_parent", "stamps_match"),
        *("watermark", "rows", "bytes", "data_files", "file_sizes", "files_announced"),
    ]


def test_without_an_operation_nothing_else_is_asked() -> None:
    """A snapshot without a stamp, with one that the ledger does not know, or with another dataset's."""
    [bare] = checks(status(), None, replace(snapshot(), stamps={}))
    assert (bare.holds, bare.says) == (False, "the snapshot bears no operation's stamp")
    [unknown] = checks(status(), None, snapshot())
    assert "the ledger has no operation" in unknown.says
    elsewhere = replace(
        story(), line=replace(story().line, dataset=replace(story().line.dataset, id=DatasetId(UUID(int=99))))
    )
    [foreign] = checks(status(), elsewhere, snapshot())
    assert not foreign.holds


def _line(facts: Facts, **changes: object) -> Facts:
    found, told, shown = facts
    return found, replace(told, line=replace(told.line, **changes)), shown  # type: ignore[arg-type]


def _story(facts: Facts, **changes: object) -> Facts:
    return facts[0], replace(facts[1], **changes), facts[2]  # type: ignore[arg-type]


def _shown(facts: Facts, **changes: object) -> Facts:
    return facts[0], facts[1], replace(facts[2], **changes)  # type: ignore[arg-type]


def _file(facts: Facts, **changes: object) -> Facts:
    [file] = facts[2].data_files
    return _shown(facts, data_files=(replace(file, **changes),))  # type: ignore[arg-type]


CHANGES: dict[str, tuple[Callable[[Facts], Facts], list[str]]] = {
    "an unsettled operation": (
        lambda f: _line(f, status=OperationStatus.COMMITTING, ruling=None),
        ["operation_committed"],
    ),
    "an aborted one": (
        lambda f: _line(f, status=OperationStatus.ABORTED, ruling=Ruling.FENCED),
        ["operation_committed"],
    ),
    "another snapshot on record": (lambda f: _line(f, snapshot_id=1), ["same_snapshot"]),
    "a dataset that shows another": (lambda f: (replace(f[0], snapshot_id=1), *f[1:]), ["same_snapshot"]),
    "another table": (lambda f: _shown(f, table_uuid="other"), ["same_table"]),
    "another base": (lambda f: _story(f, base_snapshot_id=5), ["same_parent"]),
    "another source moment": (
        lambda f: _story(f, moment=replace(f[1].moment, time=f[1].moment.time + timedelta(seconds=1))),
        ["stamps_match"],
    ),
    "no watermark": (lambda f: _shown(f, watermark=None), ["watermark"]),
    "rows that were lost": (lambda f: _shown(f, digest=replace(f[2].digest, rows=9)), ["rows"]),
    "a file entry of other rows": (lambda f: _file(f, rows=11), ["rows"]),
    "a file cut short": (lambda f: _file(f, size_bytes=99), ["bytes", "file_sizes"]),
    "a file nobody announced": (lambda f: _file(f, path="file:///w/strange.parquet"), ["files_announced"]),
    "a file too many": (
        lambda f: _shown(f, data_files=(*f[2].data_files, replace(f[2].manifests[0], rows=0))),
        ["bytes", "data_files"],
    ),
    "a summary without totals": (lambda f: _shown(f, summary={}), ["rows", "bytes", "data_files"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_difference_is_found(change: str) -> None:
    """One change of the facts, and the checks that it must fail, no more."""
    make, expected = CHANGES[change]
    assert failing(make((status(), story(), snapshot()))) == expected
