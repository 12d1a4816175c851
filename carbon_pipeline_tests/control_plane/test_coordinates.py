"""Find-or-create of coordinates: the source names a dataset, the dataset's own name never changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from carbon_pipeline.control_plane.records import Credential, Workspace
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.destination.coordinate import parse_destination
from carbon_pipeline.errors import SetupError, SourceReplaced, UsageError
from carbon_pipeline.gate.verdict import Actor, Role
from carbon_pipeline.identity import CredentialId, WorkspaceId, safe_name
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.samples import SYSTEM, found, mint, publish, relation

AddCredential = Callable[..., Credential]


def test_minted_once_and_found_again(ledger: SqlLedger, credential: Credential, users: Relation) -> None:
    """The first call mints the coordinate with identifier, location and partition key; the second finds it."""
    dataset = mint(ledger, credential, users)
    assert dataset.coordinate == "default.users"
    assert dataset.identifier == (f"{safe_name(credential.workspace.name)}__default", "users")
    assert dataset.location == f"file:///warehouse/{credential.workspace.id}/{dataset.id}"
    assert (dataset.relation, dataset.partition_key) == ("public.users", "public.users")
    assert (dataset.workspace, dataset.catalog) == (credential.workspace.name, "main")
    assert dataset.committed_moment is None
    assert mint(ledger, credential, users) == dataset


def test_eight_callers_at_once_get_one_dataset(
    ledger: SqlLedger, directory: Directory, add_credential: AddCredential
) -> None:
    """However many callers see a relation first, it has one home."""
    for number in range(8):
        credential = add_credential(f"raced {number}")
        made = relation("raced", 100 + number)
        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(lambda _, c=credential, r=made: mint(ledger, c, r).id, range(8)))
        assert len(set(ids)) == 1
        assert len(directory.datasets(credential=credential)) == 1


def test_two_sources_race_for_one_name(ledger: SqlLedger, add_credential: AddCredential) -> None:
    """Sources that bring the same name at the same moment get a dataset each, one of them with the plain name."""
    credentials = [add_credential(f"source {number}") for number in range(8)]
    made = relation("orders", 1)
    with ThreadPoolExecutor(8) as pool:
        datasets = list(pool.map(lambda credential: mint(ledger, credential, made), credentials))
    names = [dataset.name for dataset in datasets]
    assert len(set(names)) == 8
    assert names.count("orders") == 1
    assert len({dataset.identifier for dataset in datasets}) == 8


def test_two_sources_never_share_a_dataset(ledger: SqlLedger, add_credential: AddCredential, users: Relation) -> None:
    """The second source with a table of the same name gets a name with a hash, always the same one."""
    first, second = add_credential("one"), add_credential("two")
    plain, hashed = mint(ledger, first, users), mint(ledger, second, users)
    assert plain.name == "users"
    assert hashed.name.startswith("users_")
    assert plain.id != hashed.id
    assert plain.identifier != hashed.identifier
    assert mint(ledger, second, users) == hashed


def test_a_coordinate_is_unique_across_catalogs(
    ledger: SqlLedger, add_credential: AddCredential, users: Relation
) -> None:
    """`schema.name` says one thing in a workspace, in whichever catalog it lies."""
    first = add_credential("one", destination=parse_destination("main.sales"))
    second = add_credential("two", destination=parse_destination("second.sales"))
    here, there = mint(ledger, first, users), mint(ledger, second, users)
    assert (here.catalog, there.catalog) == ("main", "second")
    assert here.coordinate != there.coordinate
    assert there.location.startswith("file:///second/")


def test_tenants_have_names_of_their_own(
    ledger: SqlLedger, directory: Directory, add_credential: AddCredential, users: Relation, workspace: Workspace
) -> None:
    """Two tenants may both have `default.users`, in places that differ."""
    stranger = directory.create_workspace(f"neighbour of {workspace.name}", owner="eve")
    ours = mint(ledger, add_credential(), users)
    theirs = mint(ledger, add_credential(workspace=stranger), users)
    assert ours.coordinate == theirs.coordinate
    assert ours.identifier != theirs.identifier
    assert str(stranger.id) in theirs.location
    assert str(stranger.id) not in ours.location


def test_a_rename_is_followed_by_oid(ledger: SqlLedger, credential: Credential, users: Relation) -> None:
    """A renamed relation keeps its dataset, its partition key and its place; only the source name is new."""
    before = mint(ledger, credential, users)
    publish(ledger, before, users)
    after = mint(ledger, credential, relation("people", users.oid, schema="crm"))
    assert after.id == before.id
    assert after.relation == "crm.people"
    assert (after.coordinate, after.identifier, after.location) == (
        before.coordinate,
        before.identifier,
        before.location,
    )
    assert after.partition_key == "public.users"
    assert after.committed_moment is not None


def test_dropped_and_made_anew_is_the_same_dataset(ledger: SqlLedger, credential: Credential, users: Relation) -> None:
    """A relation of the same name whose predecessor is gone takes over its dataset."""
    before = mint(ledger, credential, users)
    anew = relation("users", 99_000)
    after = mint(ledger, credential, anew)
    assert after.id == before.id
    assert mint(ledger, credential, anew) == after


def test_a_new_relation_under_an_old_name(ledger: SqlLedger, credential: Credential, users: Relation) -> None:
    """`users` was renamed and a new `users` made: both exist, so they are two datasets with two partition keys,
    whichever is looked at first."""
    before = mint(ledger, credential, users)
    renamed, newcomer = relation("users_old", users.oid), relation("users", 99_000)
    now = found(renamed, newcomer)
    second = ledger.coordinate(credential.id, newcomer, now)
    first = ledger.coordinate(credential.id, renamed, now)
    assert first.id == before.id
    assert second.id != first.id
    assert first.relation == "public.users_old"
    assert second.name.startswith("users_")
    assert first.partition_key == "public.users"
    assert second.partition_key.startswith("public.users_")


def test_names_swapped_at_the_source(ledger: SqlLedger, credential: Credential) -> None:
    """Two relations that exchange their names keep their datasets: the oid names a relation, not its name."""
    a, b = relation("a", 1), relation("b", 2)
    both = found(a, b)
    one, two = (ledger.coordinate(credential.id, each, both) for each in (a, b))
    swapped = found(relation("b", 1), relation("a", 2))
    again = [ledger.coordinate(credential.id, each, swapped) for each in swapped.relations]
    assert [each.id for each in again] == [one.id, two.id]
    assert [each.relation for each in again] == ["public.b", "public.a"]


def test_another_database_behind_the_address_is_refused(
    ledger: SqlLedger, credential: Credential, users: Relation
) -> None:
    """A credential stands for one database system; another one is named and not read into the same datasets."""
    with pytest.raises(SourceReplaced, match=f"{SYSTEM}.*now system 5 answers"):
        ledger.coordinate(credential.id, users, found(users, system_identifier=5))


def test_an_unknown_credential_is_said_so(ledger: SqlLedger, users: Relation) -> None:
    """A credential that is gone is an error of usage, not a crash."""
    with pytest.raises(UsageError, match="no credential"):
        ledger.coordinate(CredentialId(uuid4()), users, found(users))


def test_a_catalog_that_this_process_does_not_know(
    engine: Engine, directory: Directory, add_credential: AddCredential, users: Relation
) -> None:
    """A dataset is minted only where its warehouse is known, so that its location is right for good."""
    elsewhere = SqlLedger(engine, code_version="0.1.0", warehouses={"main": "file:///warehouse"})
    credential = add_credential(destination=parse_destination("second.sales"))
    with pytest.raises(SetupError, match="catalog second"):
        mint(elsewhere, credential, users)
    assert directory.datasets(credential=credential) == ()


@pytest.mark.parametrize("name", ["a/../b", "x?y#z", "Ünïcode", "drop table", "a\nb", "'; --", "*", "x" * 63])
def test_hostile_names_stay_in_their_place(ledger: SqlLedger, credential: Credential, name: str) -> None:
    """Whatever a relation is called, its names in the lake are plain, its location is made of ids, and the source's
    own name is kept."""
    dataset = mint(ledger, credential, relation(name, 7, schema=name))
    assert dataset.relation == f"{name}.{name}"
    assert dataset.name.replace("_", "").isalnum()
    assert dataset.name.isascii()
    assert dataset.location.endswith(f"/{credential.workspace.id}/{dataset.id}")


def test_roles(ledger: SqlLedger, directory: Directory, workspace: Workspace) -> None:
    """A member has a role in his own workspace, and a stranger has none."""
    directory.add_member(workspace.id, "grace", Role.VIEWER, invited_by="ada")
    assert ledger.role_of(Actor(user="grace"), workspace.id) is Role.VIEWER
    directory.add_member(workspace.id, "grace", Role.EDITOR, invited_by="ada")
    assert ledger.role_of(Actor(user="grace"), workspace.id) is Role.EDITOR
    assert ledger.role_of(Actor(user="mallory"), workspace.id) is None
    assert ledger.role_of(Actor(user="grace"), WorkspaceId(uuid4())) is None
