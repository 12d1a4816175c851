"""Everything that can go wrong, as one tree, and what to do about each kind.

    CarbonError
    ├── UsageError                 the command or setting asked for cannot be
    ├── SetupError                 the machine or the deployment is not ready
    │   ├── EmbeddedServerError        the embedded PostgreSQL cannot start or be reached
    │   ├── SchemaVersionError         the program and the control plane's schema differ
    │   └── VaultError                 a secret cannot be sealed or opened
    ├── SourceError                the customer's database
    │   ├── SourceUnreachable          no connection: host, port, network, TLS
    │   ├── SourceRefusedLogin         wrong user, password or database
    │   ├── SourceForbids              connected, but not allowed to read this
    │   ├── SourceReplaced             another database answers where the credential's stood
    │   ├── RelationNotFound           the table is not there (any more)
    │   ├── RelationChanged            the table changed between introspection and reading
    │   ├── ValueNotRepresentable      a value that no rule covers
    │   └── SourceBroke                the connection or the query died mid-way
    ├── LakeError                  the catalog or the warehouse
    │   ├── LakeUnreachable            the catalog does not answer, or answers wrongly
    │   └── StorageFailed              files cannot be written or read
    ├── ControlPlaneError          the control plane does not answer or refuses
    └── WriteError                 one write, seen from the ledger
        ├── NotAdmitted                the gate said no
        ├── DatasetHeld                another writer is at work on the dataset
        ├── Superseded                 newer data of the same dataset is already published
        ├── CommitRefused              the catalog has provably not taken the commit
        ├── OutcomeUnknown             nobody knows yet whether the commit landed
        └── LedgerConflict             another process settled the operation first

A message names the thing and says what happened; the remedy says what a person can do next. Neither holds a secret or
a row's values. `POLICY` says what an unattended caller does with each kind.
"""

from __future__ import annotations

from enum import StrEnum


class Reaction(StrEnum):
    """What an unattended caller does with an error."""

    RETRY = "retry"
    """Try again later; the cause usually passes by itself."""
    HOLD = "hold"
    """Leave it for a person; trying again changes nothing."""
    HALT = "halt"
    """Stop the whole run; the next table would fail alike."""


class CarbonError(Exception):
    """An error that a person can act on.

    `message` is one line; `remedy` says what to do. Both are safe to print.
    """

    default_remedy = "Run the command again; if it fails alike, look into the log."

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy or self.default_remedy

    def __str__(self) -> str:
        return f"{self.message} — {self.remedy}"

    @property
    def kind(self) -> str:
        """The class's name: what `POLICY` and `--json` output know the error by."""
        return type(self).__name__


class UsageError(CarbonError):
    """The command or setting asked for cannot be."""

    default_remedy = "See --help."


class SetupError(CarbonError):
    """The machine or the deployment is not ready."""

    default_remedy = "Mend the set-up and run the command again."


class EmbeddedServerError(SetupError):
    """The embedded PostgreSQL cannot start or be reached."""

    default_remedy = "Look into the server's log under CARBON_HOME; `carbon down`, then `carbon up` starts it afresh."


class SchemaVersionError(SetupError):
    """The program and the control plane's schema differ in version."""

    default_remedy = "Install the version of carbon_pipeline that last migrated this control plane, or a newer one."


class VaultError(SetupError):
    """A secret cannot be sealed or opened."""

    default_remedy = "Set CARBON_ENCRYPTION_KEYS to a list that holds the key it was sealed with."


class SourceError(CarbonError):
    """The customer's database."""


class SourceUnreachable(SourceError):
    """No connection: host, port, network or TLS."""

    default_remedy = "Check host, port and TLS mode, and that the database accepts connections from this machine."


class SourceRefusedLogin(SourceError):
    """Wrong user, password or database."""

    default_remedy = "Check user, password and database name, then `carbon connect postgres` again."


class SourceForbids(SourceError):
    """Connected, but not allowed to read this."""

    default_remedy = "Grant the source's user SELECT on the table and USAGE on its schema."


class SourceReplaced(SourceError):
    """Another database answers where the credential's stood."""

    default_remedy = "Point the credential back at its database, or connect the new one under a name of its own."


class RelationNotFound(SourceError):
    """The table is not there (any more)."""

    default_remedy = "`carbon tables` lists what the source has."


class RelationChanged(SourceError):
    """The table changed between introspection and reading."""

    default_remedy = "Run the sync again; it will read the table as it is now."


class ValueNotRepresentable(SourceError):
    """A value that no rule covers."""

    default_remedy = "Correct the value at the source, or exclude the table."


class SourceBroke(SourceError):
    """The connection or the query died mid-way."""

    default_remedy = "Run the sync again; nothing of this attempt was published."


class LakeError(CarbonError):
    """The catalog or the warehouse."""


class LakeUnreachable(LakeError):
    """The catalog does not answer, or answers wrongly."""

    default_remedy = "Check the catalog's address and credentials, then run the command again."


class StorageFailed(LakeError):
    """Files cannot be written or read."""

    default_remedy = "Check free space and permissions of the warehouse, then run the command again."


class ControlPlaneError(CarbonError):
    """The control plane does not answer or refuses."""

    default_remedy = "Check CARBON_CONTROL_PLANE_URL (or `carbon up`), then run the command again."


class WriteError(CarbonError):
    """One write, seen from the ledger."""


class NotAdmitted(WriteError):
    """The gate said no."""

    default_remedy = "Ask an owner of the workspace for a role that may write."


class DatasetHeld(WriteError):
    """Another writer is at work on the dataset."""

    default_remedy = "Wait for it to finish, or stop it, then run the command again."


class Superseded(WriteError):
    """Newer data of the same dataset is already published."""

    default_remedy = "Nothing is lost: the dataset already shows a later moment of the source."


class CommitRefused(WriteError):
    """The catalog has provably not taken the commit."""

    default_remedy = "Run the sync again; it will start from the table as it is now."


class OutcomeUnknown(WriteError):
    """Nobody knows yet whether the commit landed."""

    default_remedy = "Nothing was deleted. The next sync of this table asks the catalog and settles it."


class LedgerConflict(WriteError):
    """Another process settled the operation first."""

    default_remedy = "Run the sync again."


POLICY: dict[type[CarbonError], Reaction] = {
    UsageError: Reaction.HALT,
    SetupError: Reaction.HALT,
    EmbeddedServerError: Reaction.HALT,
    SchemaVersionError: Reaction.HALT,
    VaultError: Reaction.HALT,
    SourceError: Reaction.HOLD,
    SourceUnreachable: Reaction.RETRY,
    SourceRefusedLogin: Reaction.HALT,
    SourceForbids: Reaction.HOLD,
    SourceReplaced: Reaction.HOLD,
    RelationNotFound: Reaction.HOLD,
    RelationChanged: Reaction.RETRY,
    ValueNotRepresentable: Reaction.HOLD,
    SourceBroke: Reaction.RETRY,
    LakeError: Reaction.HOLD,
    LakeUnreachable: Reaction.RETRY,
    StorageFailed: Reaction.HOLD,
    ControlPlaneError: Reaction.RETRY,
    WriteError: Reaction.HOLD,
    NotAdmitted: Reaction.HOLD,
    DatasetHeld: Reaction.RETRY,
    Superseded: Reaction.HOLD,
    CommitRefused: Reaction.RETRY,
    OutcomeUnknown: Reaction.RETRY,
    LedgerConflict: Reaction.RETRY,
}
"""What an unattended caller does with each kind. Every class of the tree has its own row; a test says so."""


def reaction_to(error: CarbonError) -> Reaction:
    """The row of `POLICY` for this error."""
    return POLICY[type(error)]
