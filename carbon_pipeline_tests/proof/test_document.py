"""The document, and the commands in it."""

from __future__ import annotations

import json
from dataclasses import replace

from carbon_pipeline.errors import SourceUnreachable
from carbon_pipeline.lake.reader import SnapshotProof
from carbon_pipeline.proof.document import HOW, Proof, SourceAnswer, Standing, proof_document
from carbon_pipeline.proof.recheck import Recheck, every_file, ledger_query, sha256_commands, snapshot_query
from carbon_pipeline.query.duckdb.digest import statement
from carbon_pipeline.verify.digest import Digest
from carbon_pipeline_tests.proof.samples import NOON, OPERATION, SNAPSHOT, file_proof, snapshot, status, story


def proof(source: SourceAnswer | None = None, shown: SnapshotProof | None = None) -> Proof:
    """A proof of the sample."""
    shown = shown or snapshot()
    return Proof(
        made_at=NOON,
        made_by="carbon_pipeline 0.1.0",
        status=status(),
        story=story(),
        snapshot=shown,
        source=source,
        recheck=Recheck(
            sha256=sha256_commands(every_file(shown)),
            rows=statement(shown.columns, [file.path for file in shown.data_files]),
            snapshot=snapshot_query(shown),
            ledger=ledger_query(story()),
            source="SELECT 1",
        ),
    )


def test_the_documents_keys() -> None:
    """They are an interface, and every 64-bit number is a text."""
    document = proof_document(proof())
    assert list(document) == [
        *("document", "made_at", "made_by", "dataset", "operation", "snapshot", "files", "totals", "digest", "source"),
        *("checks", "verdict", "recheck"),
    ]
    again = json.loads(json.dumps(document))
    assert again["snapshot"]["id"] == again["operation"]["snapshot_id"] == str(SNAPSHOT)
    assert set(again["operation"]) == {
        *("id", "seq", "writer", "mode", "status", "ruling", "reason", "actor", "policy", "code_version", "holder"),
        *("run_id", "source", "base_snapshot_id", "snapshot_id", "rows", "size_bytes", "opened_at", "committing_at"),
        "settled_at",
    }
    assert set(again["recheck"]) == set(HOW)
    assert again["digest"]["checksum"] == "00000000000000ff"
    assert (again["verdict"], again["source"]) == ("proven", None)


def test_the_sources_answer() -> None:
    """Equal, different, or why it gave none; the verdict over what is held is another matter."""
    equal = proof(SourceAnswer(digest=Digest(rows=10, checksum=255), error=None))
    assert proof_document(equal)["source"] == {
        "rows": 10,
        "checksum": "00000000000000ff",
        "verdict": "equal",
        "error": None,
    }
    other = proof(SourceAnswer(digest=Digest(rows=10, checksum=254), error=None))
    assert json.loads(json.dumps(proof_document(other)["source"]))["verdict"] == "different"
    away = proof(SourceAnswer(digest=None, error=SourceUnreachable("nobody listens")))
    found = json.loads(json.dumps(proof_document(away)["source"]))
    assert (found["verdict"], found["error"]["kind"]) == (None, "SourceUnreachable")
    assert away.standing is Standing.PROVEN


def test_what_does_not_hold_is_not_proven() -> None:
    """One failing check is enough."""
    assert proof(shown=replace(snapshot(), watermark=None)).standing is Standing.NOT_PROVEN


def test_files_elsewhere_are_fetched_one_by_one() -> None:
    """Local files are one list; an object store's are streamed; nothing in a path is taken for a command."""
    script = sha256_commands(
        [file_proof("file:///w/a b", 1, None), file_proof("s3://b/it's", 1, 1), file_proof("https://h/x", 1, 1)]
    )
    assert script.splitlines() == [
        "set -e",
        "sha256sum --check --strict <<'FILES'",
        f"{'ab' * 32}  /w/a b",
        "FILES",
        f"aws s3 cp 's3://b/it'\"'\"'s' - | sha256sum | grep -q {'ab' * 32}",
        f"curl -fsS https://h/x | sha256sum | grep -q {'ab' * 32}",
    ]


def test_duckdb_reads_object_stores_by_uri() -> None:
    """Only a `file:` URI becomes a path; quotes are escaped."""
    text = statement(snapshot().columns, ["s3://bucket/it's.parquet", "file:///w/1.parquet"])
    assert "'s3://bucket/it''s.parquet'" in text
    assert "'/w/1.parquet'" in text
    assert "1: {name: 'id', type: 'INTEGER', default_value: NULL}" in text


def test_the_ledgers_query_names_the_operation() -> None:
    """By its id alone."""
    assert ledger_query(story()).count(str(OPERATION)) == 2
