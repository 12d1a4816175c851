"""Sending one commit, and saying what came of it.

PyIceberg 0.12's own commit loop is not used. It retries conflicts without checking what it conflicts with, deletes the
manifests of a commit that landed when the catalog answers it with 409 on the last attempt, and repeats the request
after 401 and 419. Here one request is sent, once, asserting the table's UUID and main's snapshot; whatever the answer
is, the table is then looked at, and only what it shows counts:

    our snapshot is on main                             landed
    409, and an unbroken ancestry on which another
    commit follows our base and ours is not             refused
    anything else                                       unknown
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from carbon_pipeline.lake.iceberg.observe import evidence_in
from carbon_pipeline.lake.iceberg.plan import CommitPlan
from carbon_pipeline.lake.outcome import Landed, Outcome, Refused, Unknown
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ratify.evidence import Absent, Evidence, OnMain, TargetReplaced, Unreachable


def send_once(catalog: Catalog, table: Table, plan: CommitPlan) -> TableMetadata:
    """One request, without the repetition after 401 and 419 that PyIceberg wraps around the REST catalog's method."""
    method: Any = type(catalog).commit_table
    once = getattr(method, "__wrapped__", method)
    metadata: TableMetadata = once(catalog, table, plan.requirements, plan.updates).metadata
    return metadata


def load(catalog: Catalog, identifier: tuple[str, str]) -> Table:
    """The table as the catalog has it now."""
    return catalog.load_table(identifier)


def look(catalog: Catalog, operation: Operation) -> Evidence:
    """What the catalog shows of *operation*. Whatever goes wrong while looking proves nothing."""
    try:
        metadata = load(catalog, operation.dataset.identifier).metadata
        return evidence_in(metadata, operation)
    except NoSuchTableError:
        return TargetReplaced(reason="the table is gone from the catalog")
    except Exception as error:
        return Unreachable(reason=f"the catalog could not be read ({type(error).__name__})")


def commit(catalog: Catalog, table: Table, plan: CommitPlan, operation: Operation) -> Outcome:
    """Send *plan* and classify what came of it. Raises nothing."""
    try:
        metadata = send_once(catalog, table, plan)
        answer: BaseException | None = None
        evidence = evidence_in(metadata, operation)
    except BaseException as error:
        answer = error
        evidence = look(catalog, operation) if isinstance(error, Exception) else Unreachable(reason="interrupted")
    return _classify(answer, evidence, operation)


def _classify(answer: BaseException | None, evidence: Evidence, operation: Operation) -> Outcome:
    if isinstance(evidence, OnMain):
        return Landed(facts=evidence.facts)
    if (
        isinstance(answer, CommitFailedException)
        and isinstance(evidence, Absent)
        # With main still at our base nothing explains the conflict, and a request on its way could still land.
        and evidence.head_snapshot_id != operation.base_snapshot_id
    ):
        return Refused(reason="another commit came first, and the table shows nothing of ours")
    name = type(answer).__name__ if answer is not None else "an answer without our snapshot"
    return Unknown(reason=f"the catalog answered with {name}", cause=answer)
