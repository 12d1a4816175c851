"""One migrated control plane for the tests of this folder; each test has a workspace and a credential of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from sqlalchemy import Engine

from carbon_pipeline.control_plane.records import Credential, Governance, Workspace
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.control_plane.sql.migrate import migrate
from carbon_pipeline.destination.coordinate import DEFAULTED, Dataset
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_database
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.plane import Plane, plane_at
from carbon_pipeline_tests.control_plane.samples import SYSTEM, Address, ledger_on, mint, relation

_numbers = count(1)


@pytest.fixture(scope="session")
def address(server: EmbeddedServer) -> Address:
    """Where this folder's control plane is."""
    database = f"control_plane_{os.getpid()}"
    ensure_database(server, database)
    return Address(host=server.host, port=server.port, user=server.user, password=server.password, database=database)


@pytest.fixture(scope="session")
def engine(address: Address) -> Iterator[Engine]:
    """The control plane, at this program's version, with its catalogs."""
    made = address.engine()
    migrate(made)
    for name in ("main", "second"):
        Directory(made).register_catalog(name, kind="sql", uri_host="127.0.0.1", governance=Governance.OWN)
    yield made
    made.dispose()


@pytest.fixture
def fresh_address(server: EmbeddedServer, make_database: Callable[[str], str]) -> Address:
    """An empty database of the test's own."""
    return Address(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database=make_database("empty"),
    )


@pytest.fixture
def plane(fresh_address: Address) -> Iterator[Plane]:
    """A control plane of the test's own."""
    made = plane_at(fresh_address)
    yield made
    made.engine.dispose()


@pytest.fixture
def directory(engine: Engine) -> Directory:
    """The directory on it."""
    return Directory(engine)


@pytest.fixture
def ledger(engine: Engine) -> SqlLedger:
    """The ledger on it."""
    return ledger_on(engine)


@pytest.fixture
def workspace(directory: Directory) -> Workspace:
    """A tenant of the test's own."""
    number = next(_numbers)
    return directory.create_workspace(f"tenant-{number}", owner=f"owner-{number}")


AddCredential = Callable[..., Credential]


@pytest.fixture
def add_credential(directory: Directory, workspace: Workspace) -> AddCredential:
    """Makes credentials; in the test's workspace, to the default destination, unless told otherwise."""

    def make(name: str = "shop", **changes: object) -> Credential:
        fields = {
            "workspace": workspace,
            "destination": DEFAULTED,
            "system_identifier": SYSTEM,
            "created_by": "ada",
            "seal": lambda _: b"sealed",
        } | changes
        return directory.add_credential(name=name, **fields)  # type: ignore[arg-type]  # each test names its own

    return make


@pytest.fixture
def credential(add_credential: AddCredential) -> Credential:
    """A credential of the test's own."""
    return add_credential()


@pytest.fixture
def users() -> Relation:
    """A relation."""
    return relation("users", 16_400)


@pytest.fixture
def dataset(ledger: SqlLedger, credential: Credential, users: Relation) -> Dataset:
    """The relation's dataset."""
    return mint(ledger, credential, users)
