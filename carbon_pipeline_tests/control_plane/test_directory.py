"""The directory: workspaces, members, catalogs, credentials, and where datasets stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, event

from carbon_pipeline.control_plane.records import Credential, Governance, Workspace
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.destination.coordinate import DEFAULTED, Dataset, parse_destination
from carbon_pipeline.errors import SourceReplaced, UsageError
from carbon_pipeline.identity import CredentialId
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.samples import ACTOR, SYSTEM, found, mint, publish, relation, request

AddCredential = Callable[..., Credential]


def owner_of(workspace: Workspace) -> str:
    """The owner that the fixture gave the workspace."""
    return workspace.name.replace("tenant", "owner")


@contextmanager
def counted_statements(engine: Engine) -> Iterator[list[str]]:
    """The statements that the engine sends meanwhile."""
    statements: list[str] = []

    def record(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", record)


def test_a_workspace_is_found_by_name_and_by_owner(directory: Directory, workspace: Workspace) -> None:
    """Its owner is looked up in `workspace_members`."""
    assert directory.workspace(workspace.name) == workspace
    assert directory.workspace_owned_by(owner_of(workspace)) == workspace
    assert workspace in directory.workspaces()


def test_an_owner_of_nothing_and_of_several(directory: Directory, workspace: Workspace) -> None:
    """Owning none is said exactly, with the remedy; owning several lists them."""
    with pytest.raises(UsageError, match="nobody owns no workspace — `carbon workspace create`"):
        directory.workspace_owned_by("nobody")
    second = directory.create_workspace(f"{workspace.name} too", owner_of(workspace))
    with pytest.raises(UsageError, match=f"owns several workspaces: {workspace.name}, {second.name}"):
        directory.workspace_owned_by(owner_of(workspace))


def test_names_that_cannot_be(directory: Directory, workspace: Workspace, add_credential: AddCredential) -> None:
    """A name that is taken, blank or unprintable is refused with a reason, for workspaces and for credentials."""
    add_credential("shop")
    with pytest.raises(UsageError, match="already"):
        directory.create_workspace(workspace.name, "ada")
    with pytest.raises(UsageError, match="has a credential called shop already"):
        add_credential("shop")
    for name in ("", "  ", "a\nb"):
        with pytest.raises(UsageError, match="cannot name"):
            directory.create_workspace(name, "ada")
        with pytest.raises(UsageError, match="cannot name"):
            add_credential(name)


def test_an_unknown_name_is_answered_with_a_near_one(directory: Directory, add_credential: AddCredential) -> None:
    """A slip of the pen is met with what was meant."""
    credential = add_credential("warehouse")
    with pytest.raises(UsageError, match="Did you mean warehouse"):
        directory.credential("warehose", credential.workspace)
    with pytest.raises(UsageError, match="There is warehouse"):
        directory.credential("xyz", credential.workspace)
    with pytest.raises(UsageError, match="no workspace"):
        directory.workspace("no such")


def test_a_catalog_is_registered_once(directory: Directory) -> None:
    """The same registration again changes nothing; another host or governance under its name is refused."""
    again = directory.register_catalog("main", kind="sql", uri_host="127.0.0.1", governance=Governance.OWN)
    assert again in directory.catalogs()
    with pytest.raises(UsageError, match=r"own sql at 127\.0\.0\.1, not as governed sql"):
        directory.register_catalog("main", kind="sql", uri_host="127.0.0.1", governance=Governance.GOVERNED)
    with pytest.raises(UsageError, match="not as own sql at elsewhere"):
        directory.register_catalog("main", kind="sql", uri_host="elsewhere", governance=Governance.OWN)


def test_a_credential_is_saved_whole(directory: Directory, add_credential: AddCredential) -> None:
    """What was saved comes back: destination chosen or defaulted, system identifier, creator; sealed for its own id."""
    sealed_for: list[CredentialId] = []

    def seal(credential_id: CredentialId) -> bytes:
        sealed_for.append(credential_id)
        return b"sealed"

    chosen = add_credential("chosen", destination=parse_destination("second.sales"), seal=seal)
    defaulted = add_credential("defaulted")
    assert sealed_for == [chosen.id]
    assert directory.sealed_connection(chosen.id) == b"sealed"
    assert directory.credential("chosen") == chosen
    assert str(chosen.destination) == "second.sales"
    assert defaulted.destination == DEFAULTED
    assert (chosen.system_identifier, chosen.created_by) == (SYSTEM, "ada")
    assert directory.credentials(chosen.workspace) == (chosen, defaulted)


def test_nothing_is_saved_when_a_part_fails(
    directory: Directory, add_credential: AddCredential, workspace: Workspace
) -> None:
    """A seal that fails, or a catalog that nobody registered, leaves no credential behind."""

    def broken(_: CredentialId) -> bytes:
        raise RuntimeError("no key")

    with pytest.raises(RuntimeError):
        add_credential("a", seal=broken)
    with pytest.raises(UsageError, match="no catalog nowhere — There is main, second"):
        add_credential("b", destination=parse_destination("nowhere.sales"))
    assert directory.credentials(workspace) == ()


def test_defaulted_credentials_are_counted(directory: Directory, add_credential: AddCredential) -> None:
    """A destination that nobody chose can be found."""
    before = directory.defaulted_credentials()
    add_credential("chosen", destination=parse_destination("main.sales"))
    add_credential("defaulted")
    assert directory.defaulted_credentials() == before + 1


def test_a_name_in_two_workspaces_is_ambiguous(
    directory: Directory, add_credential: AddCredential, workspace: Workspace
) -> None:
    """Left out, the workspace is asked for; given, it decides."""
    stranger = directory.create_workspace(f"beside {workspace.name}", owner="eve")
    name = f"shared by {workspace.name}"
    ours, _ = add_credential(name), add_credential(name, workspace=stranger)
    with pytest.raises(UsageError, match="several workspaces"):
        directory.credential(name)
    assert directory.credential(name, workspace) == ours


def test_a_connection_is_replaced_for_the_same_database_only(directory: Directory, credential: Credential) -> None:
    """A new password is stored; a connection that leads to another database is refused, and the old one stays."""
    directory.update_connection(credential.id, b"new", system_identifier=SYSTEM)
    assert directory.sealed_connection(credential.id) == b"new"
    with pytest.raises(SourceReplaced, match="leads to system 5"):
        directory.update_connection(credential.id, b"other", system_identifier=5)
    assert directory.sealed_connection(credential.id) == b"new"
    with pytest.raises(UsageError, match="no credential"):
        directory.sealed_connection(CredentialId(credential.workspace.id))


def test_datasets_stand_where_their_ledger_says(
    engine: Engine, directory: Directory, ledger: SqlLedger, credential: Credential, users: Relation
) -> None:
    """Never synced, published, and at work are told apart, in one query for all of them."""
    made = relation("orders", 2)
    both = found(users, made)
    first, second = (ledger.coordinate(credential.id, each, both) for each in (users, made))
    publish(ledger, second, made)
    with ledger.claim(second, ACTOR) as claim:
        claim.open(request(second, made))
    with counted_statements(engine) as statements:
        orders, never = directory.datasets(credential=credential)
    assert len(statements) == 1
    assert (orders.dataset.id, never.dataset.id) == (second.id, first.id)
    assert (never.rows, never.age_seconds, never.last_operation) == (None, None, None)
    assert orders.credential == credential.name
    assert orders.rows == 336_776
    assert orders.last_operation is not None
    assert orders.last_operation.status is OperationStatus.OPEN
    assert orders.last_operation.seconds is None
    assert [each.dataset for each in directory.datasets(workspace=credential.workspace)] == [
        orders.dataset,
        never.dataset,
    ]
    counts = directory.operation_counts(credential.workspace)
    assert counts == dict.fromkeys(OperationStatus, 0) | {
        OperationStatus.OPEN: 1,
        OperationStatus.COMMITTED: 1,
    }


def test_a_dataset_is_found_by_what_people_call_it(
    directory: Directory, ledger: SqlLedger, dataset: Dataset, credential: Credential, add_credential: AddCredential
) -> None:
    """By its coordinate, by its name, by its source's `schema.table`; an ambiguous name lists what it could mean."""
    workspace = credential.workspace
    for name in ("default.users", "users", "public.users"):
        assert directory.dataset(name, workspace).dataset.id == dataset.id
    sales = add_credential("sales", destination=parse_destination("main.sales"))
    other = mint(ledger, sales, relation("users", 1))
    assert directory.dataset("sales.users", workspace).dataset.id == other.id
    with pytest.raises(UsageError, match=r"several datasets: .*default\.users, .*sales\.users"):
        directory.dataset("users", workspace)
    with pytest.raises(UsageError, match=r"Did you mean default\.users"):
        directory.dataset("default.user", workspace)
