"""How a stranger checks a proof: commands and queries that need nothing of ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from carbon_pipeline.control_plane.records import OperationStory
from carbon_pipeline.lake.reader import FileProof, SnapshotProof

_LOCAL = re.compile(r"file:(?://(?:localhost)?)?(/.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Each is ready to run as it is."""

    sha256: str
    """For a shell."""
    rows: str
    """For DuckDB: rows and checksum of the files."""
    snapshot: str
    """For DuckDB: what the table's metadata says of the snapshot."""
    ledger: str | None
    """For psql, on the control plane."""
    source: str | None
    """For psql, on the source: rows and checksum as it is by then."""


def every_file(snapshot: SnapshotProof) -> tuple[FileProof, ...]:
    """All that the snapshot consists of."""
    return (snapshot.manifest_list, *snapshot.manifests, *snapshot.data_files)


def sha256_commands(files: Iterable[FileProof]) -> str:
    """A shell script that fails when a file is not what it was, local ones by one list, others one by one."""
    local = [(file, found[1]) for file in files if (found := _LOCAL.fullmatch(file.path))]
    away = [file for file in files if not _LOCAL.fullmatch(file.path)]
    lines = ["set -e"]
    if local:
        listed = (f"{file.sha256}  {path}" for file, path in local)
        lines += ["sha256sum --check --strict <<'FILES'", *listed, "FILES"]
    lines += [f"{_fetch(file.path)} | sha256sum | grep -q {file.sha256}" for file in away]
    return "\n".join(lines) + "\n"


def _fetch(uri: str) -> str:
    return f"aws s3 cp {shlex.quote(uri)} -" if uri.startswith(("s3:", "s3a:")) else f"curl -fsS {shlex.quote(uri)}"


def snapshot_query(snapshot: SnapshotProof) -> str:
    """For DuckDB: the snapshot's operation, parent and manifest list, from the table's metadata file."""
    found = _LOCAL.fullmatch(snapshot.metadata_location)
    path = (snapshot.metadata_location if found is None else found[1]).replace("'", "''")
    return f"""SELECT
  s->>'$."snapshot-id"' AS snapshot_id,
  s->>'$."parent-snapshot-id"' AS parent_snapshot_id,
  s->>'$.summary."carbon.operation-id"' AS operation_id,
  s->>'$."manifest-list"' AS manifest_list
FROM (SELECT unnest(json_extract(content, '$.snapshots[*]')) AS s FROM read_text('{path}'))
WHERE s->>'$."snapshot-id"' = '{snapshot.snapshot_id}';
"""  # noqa: S608 - a number and a quoted path


def ledger_query(story: OperationStory) -> str:
    """For psql on the control plane: the operation, and every move that it made."""
    return f"""SELECT seq, status, ruling, reason, table_uuid, base_snapshot_id, snapshot_id, rows, actor_user,
  settled_at
FROM carbon.dataset_transactions WHERE id = '{story.line.id}';
SELECT at, from_status, to_status, ruling, snapshot_id, session
FROM carbon.dataset_transaction_events WHERE operation_id = '{story.line.id}' ORDER BY id;
"""  # noqa: S608 - an operation's id
