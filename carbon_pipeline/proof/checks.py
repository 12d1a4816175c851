"""What has to hold between the ledger, a snapshot and its files, for the one to prove the other: a list of checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from carbon_pipeline.control_plane.records import DatasetStatus, OperationStory
from carbon_pipeline.lake.reader import SnapshotProof
from carbon_pipeline.lake.writers import Mode
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.source.reading import format_lsn

OPERATION_STAMP = "operation-id"
"""The stamp that names a snapshot's operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    holds: bool
    says: str


def checks(status: DatasetStatus, story: OperationStory | None, snapshot: SnapshotProof) -> tuple[Check, ...]:
    """Every check; without an operation only that which says so."""
    stamp = snapshot.stamps.get(OPERATION_STAMP)
    if story is None or story.line.dataset.id != status.dataset.id:
        says = (
            "the snapshot bears no operation's stamp" if stamp is None else f"the ledger has no operation {stamp} here"
        )
        return (Check(name="operation_on_record", holds=False, says=says),)
    on_record = Check(name="operation_on_record", holds=True, says=f"the snapshot's stamp names operation {stamp}")
    return (on_record, *_of_ledger(status, story, snapshot), *_of_counts(story, snapshot), *_of_files(story, snapshot))


def _of_ledger(status: DatasetStatus, story: OperationStory, snapshot: SnapshotProof) -> Iterator[Check]:
    line = story.line
    yield Check(
        name="operation_committed",
        holds=line.status is OperationStatus.COMMITTED,
        says=f"the ledger says {line.status}" + ("" if line.ruling is None else f", ruled {line.ruling}"),
    )
    yield _equal(
        "same_snapshot",
        "operation, dataset and main name",
        (line.snapshot_id, status.snapshot_id),
        snapshot.snapshot_id,
    )
    yield _equal("same_table", "the operation's table and this one have UUID", [story.table_uuid], snapshot.table_uuid)
    yield _equal(
        "same_parent", "the operation's base and the parent are", [story.base_snapshot_id], snapshot.parent_snapshot_id
    )
    wrong = [name for name, value in _stamps(story).items() if snapshot.stamps.get(name) != value]
    yield Check(
        name="stamps_match",
        holds=not wrong,
        says=f"not as the ledger has it: {', '.join(wrong)}" if wrong else "every stamp is as the ledger has it",
    )
    yield _equal("watermark", "ledger and table say", [f"{line.seq}:{line.id}"], snapshot.watermark)


def _stamps(story: OperationStory) -> dict[str, str]:
    line, moment = story.line, story.moment
    return {
        OPERATION_STAMP: str(line.id),
        "seq": str(line.seq),
        "writer": line.writer.value,
        "write-mode": line.mode.value,
        "source-lsn": format_lsn(moment.lsn),
        "source-time": moment.time.isoformat(),
        "source-system": str(moment.system_identifier),
        "rows": str(line.rows),
        "code-version": story.code_version,
    }


def _of_counts(story: OperationStory, snapshot: SnapshotProof) -> Iterator[Check]:
    files = snapshot.data_files
    counted = (
        *(story.line.rows, _number(snapshot.summary.get("total-records"))),
        sum(file.rows or 0 for file in snapshot.manifests),
        sum(file.rows or 0 for file in files),
    )
    yield _equal(
        "rows", "ledger, summary, manifests, file entries and the rows read back are", counted, snapshot.digest.rows
    )
    sizes = (story.size_bytes, _number(snapshot.summary.get("total-files-size")))
    yield _equal(
        "bytes", "ledger, summary and the data files read back are", sizes, sum(file.size_bytes for file in files)
    )
    numbers = (story.data_files, _number(snapshot.summary.get("total-data-files")))
    yield _equal("data_files", "ledger, summary and manifests have", numbers, len(files))


def _of_files(story: OperationStory, snapshot: SnapshotProof) -> Iterator[Check]:
    every = (*snapshot.manifests, *snapshot.data_files)
    wrong = [file.path for file in every if file.recorded_bytes != file.size_bytes]
    yield Check(
        name="file_sizes",
        holds=not wrong,
        says=f"not of the size that is recorded: {', '.join(wrong)}" if wrong else "every file has its recorded size",
    )
    if story.line.mode is Mode.REPLACE:
        announced = {file.path for file in story.files}
        strange = [file.path for file in (snapshot.manifest_list, *every) if file.path not in announced]
        yield Check(
            name="files_announced",
            holds=not strange,
            says=f"the operation never announced {', '.join(strange)}"
            if strange
            else "the operation announced every file before it was written",
        )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _equal(name: str, what: str, values: Iterable[object], wanted: object) -> Check:
    found = [*values, wanted]
    if all(value == wanted for value in found):
        return Check(name=name, holds=True, says=f"{what} {_said(wanted)}")
    return Check(name=name, holds=False, says=f"{what} {', '.join(map(_said, found))}")


def _said(value: object) -> str:
    return "none" if value is None else str(value)
