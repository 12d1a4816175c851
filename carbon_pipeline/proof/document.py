"""The proof of one dataset as a JSON document: what is held, which write put it there, and how to check it.

A pure function of frozen facts. Ids of 64 bits are text, since not every reader has integers of that size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from carbon_pipeline.control_plane.records import DatasetStatus, OperationStory
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.lake.reader import FileProof, SnapshotProof
from carbon_pipeline.proof.checks import Check, checks
from carbon_pipeline.proof.recheck import Recheck
from carbon_pipeline.source.reading import format_lsn
from carbon_pipeline.verify.digest import Comparison, Digest

Document = dict[str, object]

FORMAT = "carbon.proof/1"

CHECKSUM = (
    "The sum, modulo 2^64, over all rows, of the first 64 bits (big-endian) of the MD5 of the row's canonical text. "
    "That text is one piece per column, in the order of `columns`: `n;` for null, otherwise `<length>:<text>;` with "
    "the length in UTF-8 bytes. Texts: t or f; integers, days and microseconds since 1970-01-01 (UTC) or midnight in "
    "decimal digits; decimals as their unscaled integer; floats as the hexadecimal digits of their IEEE bits; uuid and "
    "binary in hexadecimal; everything else as it is."
)

HOW = {
    "sha256": "Run with sh: every file is, byte for byte, what was read when this was written.",
    "duckdb_rows": "Run with DuckDB: reads these very files, and must print the rows and the checksum of `digest`.",
    "duckdb_snapshot": "Run with DuckDB: the table's metadata names the operation, the parent and the manifest list.",
    "psql_ledger": "Run with psql on the control plane: the operation as it stands in the ledger, and its history.",
    "psql_source": "Run with psql on the source: prints rows and checksum as the source is by then. They are those of "
    "`digest` as long as nobody has written to the table since `operation.source.time`.",
}
"""What each entry of `recheck` is, and what must come of it."""


class Standing(StrEnum):
    """What the checks come to."""

    PROVEN = "proven"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAnswer:
    """The source asked now: its digest, or why it gave none."""

    digest: Digest | None
    error: CarbonError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The facts."""

    made_at: datetime
    made_by: str
    status: DatasetStatus
    story: OperationStory | None
    """The operation that the snapshot's stamp names; none where the ledger has no such one."""
    snapshot: SnapshotProof
    source: SourceAnswer | None
    """None where it was not asked."""
    recheck: Recheck

    @property
    def checks(self) -> tuple[Check, ...]:
        """Everything that was looked at."""
        return checks(self.status, self.story, self.snapshot)

    @property
    def standing(self) -> Standing:
        """Proven when every check holds."""
        return Standing.PROVEN if all(check.holds for check in self.checks) else Standing.NOT_PROVEN

    @property
    def comparison(self) -> Comparison | None:
        """Source against lake, where the source answered."""
        if self.source is None or self.source.digest is None:
            return None
        return Comparison(source=self.source.digest, lake=self.snapshot.digest)


def proof_document(proof: Proof) -> Document:
    """The whole document."""
    snapshot = proof.snapshot
    return {
        "document": FORMAT,
        "made_at": proof.made_at.isoformat(),
        "made_by": proof.made_by,
        "dataset": _dataset(proof),
        "operation": None if proof.story is None else _operation(proof.story),
        "snapshot": _snapshot(snapshot),
        "files": {
            "manifest_list": _file(snapshot.manifest_list),
            "manifests": [_file(file) for file in snapshot.manifests],
            "data_files": [_file(file) for file in snapshot.data_files],
        },
        "totals": {
            "rows": sum(file.rows or 0 for file in snapshot.data_files),
            "size_bytes": sum(file.size_bytes for file in snapshot.data_files),
            "data_files": len(snapshot.data_files),
        },
        "digest": _digest(snapshot),
        "source": None if proof.source is None else _source(proof),
        "checks": [{"check": check.name, "holds": check.holds, "says": check.says} for check in proof.checks],
        "verdict": proof.standing.value,
        "recheck": _recheck(proof.recheck),
    }


def _wide(number: int | None) -> str | None:
    return None if number is None else str(number)


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _dataset(proof: Proof) -> Document:
    dataset, story = proof.status.dataset, proof.story
    return {
        "id": str(dataset.id),
        "coordinate": dataset.coordinate,
        "workspace": dataset.workspace,
        "credential": proof.status.credential,
        "catalog": dataset.catalog,
        "catalog_uri": story and story.catalog_uri,
        "warehouse": story and story.warehouse,
        "identifier": ".".join(dataset.identifier),
        "location": proof.snapshot.location,
    }


def _operation(story: OperationStory) -> Document:
    line = story.line
    return {
        "id": str(line.id),
        "seq": line.seq,
        "writer": line.writer.value,
        "mode": line.mode.value,
        "status": line.status.value,
        "ruling": line.ruling and line.ruling.value,
        "reason": line.reason,
        "actor": {"user": line.user, "engine": story.engine},
        "policy": story.policy,
        "code_version": story.code_version,
        "holder": story.holder,
        "run_id": line.run_id,
        "source": {
            "table": story.relation,
            "system_identifier": _wide(story.moment.system_identifier),
            "lsn": format_lsn(story.moment.lsn),
            "time": _instant(story.moment.time),
        },
        "base_snapshot_id": _wide(story.base_snapshot_id),
        "snapshot_id": _wide(line.snapshot_id),
        "rows": line.rows,
        "size_bytes": story.size_bytes,
        "opened_at": _instant(line.opened_at),
        "committing_at": _instant(story.committing_at),
        "settled_at": _instant(story.settled_at),
    }


def _snapshot(snapshot: SnapshotProof) -> Document:
    return {
        "id": _wide(snapshot.snapshot_id),
        "parent_id": _wide(snapshot.parent_snapshot_id),
        "sequence_number": snapshot.sequence_number,
        "committed_at": _instant(snapshot.committed_at),
        "schema_id": snapshot.schema_id,
        "summary": dict(snapshot.summary),
        "table_uuid": snapshot.table_uuid,
        "watermark": snapshot.watermark,
        "metadata_location": snapshot.metadata_location,
        "head_id": _wide(snapshot.head_snapshot_id),
        "fences_on_top": [_wide(fence) for fence in snapshot.fences],
    }


def _file(file: FileProof) -> Document:
    return {"path": file.path, "size_bytes": file.size_bytes, "sha256": file.sha256, "rows": file.rows}


def _digest(snapshot: SnapshotProof) -> Document:
    return {
        "rows": snapshot.digest.rows,
        "checksum": snapshot.digest.checksum_hex,
        "columns": [
            {"field_id": column.field.field_id, "name": column.field.name, "type": str(column.base)}
            for column in snapshot.columns
        ],
        "definition": CHECKSUM,
    }


def _source(proof: Proof) -> Document:
    answer, comparison = proof.source, proof.comparison
    error = None if answer is None else answer.error
    return {
        "rows": comparison and comparison.source.rows,
        "checksum": comparison and comparison.source.checksum_hex,
        "verdict": comparison and comparison.verdict.value,
        "error": error and {"kind": error.kind, "message": error.message, "remedy": error.remedy},
    }


def _recheck(recheck: Recheck) -> Document:
    texts: Mapping[str, str | None] = {
        "sha256": recheck.sha256,
        "duckdb_rows": recheck.rows,
        "duckdb_snapshot": recheck.snapshot,
        "psql_ledger": recheck.ledger,
        "psql_source": recheck.source,
    }
    return {name: {"how": HOW[name], "text": text} for name, text in texts.items()}
