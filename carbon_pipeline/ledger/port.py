"""The port to the ledger, and to the claim on one dataset that every write holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.gate.verdict import Actor, Role
from carbon_pipeline.identity import CredentialId, WorkspaceId
from carbon_pipeline.ledger.operation import (
    Entry,
    Intent,
    LeftBehind,
    OpenRequest,
    Operation,
    Permit,
    Settlement,
    Unsettled,
)
from carbon_pipeline.source.relation import Introspection, Relation


class Claim(ABC):
    """The right to write one dataset: a session advisory lock, held until the claim's context ends.

    Every method runs on the connection that holds the lock, so a writer that lost its lock cannot move an operation.
    """

    @abstractmethod
    def unsettled(self) -> Operation | None:
        """The dataset's open or committing operation, if there is one."""

    @abstractmethod
    def open(self, request: OpenRequest) -> Intent:
        """Record a new operation, and its pending sync-log row, durably."""

    @abstractmethod
    def beat(self, intent: Intent, rows: int, size_bytes: int, files: Sequence[str] = ()) -> None:
        """Extend the operation's lease and record how far it is. Cheap to call often: it writes every few seconds.

        *files* are about to be written; they are on record before this returns, however recent the last beat was.
        """

    @abstractmethod
    def advance(self, intent: Intent, snapshot_id: int) -> Permit:
        """Move the operation from `open` to `committing`, with the snapshot that its request will name.

        `LedgerConflict` when somebody ended it first.
        """

    @abstractmethod
    def settle(self, operation: Operation, settlement: Settlement) -> Entry:
        """End the operation in one transaction: operation, sync log and dataset facts.

        `LedgerConflict` when the operation is not in a state that the ruling may come from.
        """


class Ledger(ABC):
    """The control plane as the path of one table sees it."""

    @abstractmethod
    def coordinate(self, credential_id: CredentialId, relation: Relation, found: Introspection) -> Dataset:
        """The relation's dataset, found or minted.

        It is found by (credential, system identifier, oid); failing that, by the relation's name, where the relation
        that had the name is gone from *found*.
        """

    @abstractmethod
    def role_of(self, actor: Actor, workspace_id: WorkspaceId) -> Role | None:
        """The actor's role in a workspace; none for a stranger."""

    @abstractmethod
    def claim(
        self, dataset: Dataset, actor: Actor, *, wait_seconds: float | None = None
    ) -> AbstractContextManager[Claim]:
        """Take the dataset's lock. Waits *wait_seconds* (default 30), then raises `DatasetHeld` naming the holder."""

    @abstractmethod
    def unsettled(self, limit: int) -> Sequence[Unsettled]:
        """Unsettled operations of every dataset, the oldest first."""

    @abstractmethod
    def watched(self, hours: float) -> Sequence[Operation]:
        """Operations aborted in these last hours after they had been `committing`."""


class FileList(ABC):
    """The files that the ledger knows were about to be written."""

    @abstractmethod
    def left_behind(self, min_age_hours: float, limit: int) -> Sequence[LeftBehind]:
        """Files of operations that were aborted at least so long ago, and that are not marked as removed."""

    @abstractmethod
    def mark_removed(self, left: LeftBehind) -> None:
        """These files are gone."""
