"""Sending one commit, and saying what came of it.

PyIceberg 0.12's own commit loop is not used. It retries conflicts without checking what it conflicts with, deletes the
manifests of a commit that landed when the catalog answers it with 409 on the last attempt, and repeats the request
after 401 and 419. Here one request is sent, once, asserting the table's UUID and main's snapshot. Before it the table
is loaded anew, so that a marker or a fence that came meanwhile is seen; after it the table is looked at, and only what
it shows counts:

    our snapshot is on main                             landed
    409, and an unbroken ancestry on which another
    commit follows our base and ours is not             refused
    anything else                                       unknown
"""

from __future__ import annotations

from typing import Any

import requests
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import SQLAlchemyError

from carbon_pipeline.lake.iceberg.idempotency import idempotency_key, sent_with
from carbon_pipeline.lake.iceberg.observe import evidence_in, landed_in
from carbon_pipeline.lake.iceberg.plan import CommitPlan
from carbon_pipeline.lake.outcome import Landed, Outcome, Refused, Unknown
from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ratify.evidence import Absent, Evidence, OnMain, TargetReplaced, Unreachable

CONFLICT = CommitFailedException
"""The one failure that can be a refusal, and is one only where the table proves it."""

ANSWERS: tuple[tuple[type[BaseException], str], ...] = (
    (CONFLICT, "the catalog reported a conflict that nothing on the table explains"),
    (CommitStateUnknownException, "the catalog failed while committing (500, 502 or 504)"),
    (ServiceUnavailableError, "the catalog was unavailable (503)"),
    (ServerError, "the catalog failed (5xx)"),
    (TooManyRequestsError, "the catalog had too many requests (429)"),
    (AuthorizationExpiredError, "the catalog says that the login expired (419)"),
    (UnauthorizedError, "the catalog did not accept the login (401)"),
    (ForbiddenError, "the catalog forbids it (403)"),
    (OAuthError, "the catalog's login failed"),
    (BadRequestError, "the catalog did not understand the request (400)"),
    (NoSuchTableError, "the catalog does not know the table (404)"),
    (RESTError, "the catalog gave an answer that proves nothing"),
    (requests.Timeout, "the catalog did not answer in time"),
    (requests.RequestException, "the connection to the catalog broke"),
    (ValidationError, "the catalog's answer could not be read"),
    (SQLAlchemyError, "the catalog's database failed"),
    (OSError, "the catalog's files could not be written or read"),
    (KeyboardInterrupt, "it was interrupted"),
    (BaseException, "something unforeseen happened"),
)
"""Every failure of a commit, in the order in which it is looked up, and what it says. None proves anything alone."""


def words_for(answer: BaseException) -> str:
    """What a failure says, by its row in `ANSWERS`."""
    said = next(words for kind, words in ANSWERS if isinstance(answer, kind))
    return f"{said} [{type(answer).__name__}]"


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
        return evidence_in(load(catalog, operation.dataset.identifier), operation)
    except NoSuchTableError:
        return TargetReplaced(reason="the table is gone from the catalog")
    except Exception as error:
        return Unreachable(reason=f"the catalog could not be read: {words_for(error)}")


def commit(catalog: Catalog, table: Table, plan: CommitPlan, operation: Operation) -> Outcome:
    """Send *plan* and classify what came of it. Raises nothing."""
    before = look(catalog, operation)
    if not isinstance(before, Absent) or before.head_snapshot_id != operation.base_snapshot_id:
        return _unsent(before, operation)
    try:
        with sent_with(idempotency_key(operation, plan.snapshot_id)):
            facts = landed_in(send_once(catalog, table, plan), operation)
    except BaseException as error:
        evidence = look(catalog, operation) if isinstance(error, Exception) else Unreachable(reason="interrupted")
        return _classify(error, evidence, operation)
    return Landed(facts=facts) if facts is not None else Unknown(reason="its answer lacks our snapshot", cause=None)


def _unsent(before: Evidence, operation: Operation) -> Outcome:
    """Nothing was sent, because the table is not as it was when the operation opened."""
    if isinstance(before, OnMain):
        return Landed(facts=before.facts)
    if _explains_a_conflict(before, operation):
        return Refused(reason="another commit, or a fence, came before the request was sent")
    reason = before.reason if isinstance(before, Unreachable | TargetReplaced) else "its base is gone from main"
    return Unknown(reason=f"the request was not sent: {reason}", cause=None)


def _classify(answer: BaseException, evidence: Evidence, operation: Operation) -> Outcome:
    if isinstance(evidence, OnMain):
        return Landed(facts=evidence.facts)
    if isinstance(answer, CONFLICT) and _explains_a_conflict(evidence, operation):
        return Refused(reason="another commit came first, and the table shows nothing of ours")
    return Unknown(reason=words_for(answer), cause=answer)


def _explains_a_conflict(evidence: Evidence, operation: Operation) -> bool:
    """With main still at our base nothing explains a conflict, and a request on its way could still land."""
    return isinstance(evidence, Absent) and evidence.head_snapshot_id != operation.base_snapshot_id
