"""What goes wrong at one table: a clear error with a remedy, nothing half-written, and the other tables go on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.deployment import Deployment
from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline.errors import (
    NotAdmitted,
    RelationNotFound,
    SourceBroke,
    SourceForbids,
    StorageFailed,
    ValueNotRepresentable,
)
from carbon_pipeline.gate.verdict import Role
from carbon_pipeline.lake.iceberg.catalog import CatalogConfig, Catalogs
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.source.relation import Relation
from carbon_pipeline.sync_all import Listener, TableResult
from carbon_pipeline_tests.conftest import Connect, admin_connection

TWO_TABLES = """
CREATE TABLE good (id int PRIMARY KEY);
INSERT INTO good SELECT generate_series(1, 100);
CREATE TABLE bad (id int PRIMARY KEY, payload text);
INSERT INTO bad
    SELECT i, md5(i::text) || md5((-i)::text) || md5((i * 7)::text) || md5((i * 11)::text)
    FROM generate_series(1, 200000) i;
"""


def sync(deployment: Deployment, credential: Credential, listener: Listener | None = None) -> dict[str, TableResult]:
    """Every table's result, by name."""
    return {r.relation.name: r for r in deployment.sync(credential, listener=listener)}


def unsettled(deployment: Deployment, credential: Credential) -> list[str]:
    """The datasets of a credential whose last operation is not settled."""
    return [
        status.dataset.name
        for status in deployment.directory.datasets(credential=credential)
        if status.last_operation and status.last_operation.status in {OperationStatus.OPEN, OperationStatus.COMMITTING}
    ]


def data_files(deployment: Deployment) -> set[Path]:
    """Every Parquet file in the local warehouse."""
    folder = Path(deployment.catalogs.config("main").warehouse.removeprefix("file://"))
    return set(folder.rglob("*.parquet"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_full_disk(deployment: Deployment, connect: Connect, small_disk: Path) -> None:
    """A warehouse without room fails the table that does not fit, deletes what it wrote, and publishes the other; with
    room again the same sync works."""
    config = deployment.catalogs.config("main")
    cramped = CatalogConfig(name="main", properties={**config.properties, "warehouse": f"file://{small_disk}"})
    crowded = replace(deployment, catalogs=Catalogs({"main": cramped}))
    credential, _ = connect(TWO_TABLES)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 2_000_000)
    results = sync(crowded, credential)
    assert results["good"].error is None
    assert isinstance(results["bad"].error, StorageFailed)
    assert "space" in results["bad"].error.remedy
    assert unsettled(crowded, credential) == []
    assert len(data_files(crowded)) == 1
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert [result.error for result in sync(crowded, credential).values()] == [None, None]


def test_permission_denied_on_one_table(
    deployment: Deployment, connect: Connect, server: EmbeddedServer, make_database: Callable[[str], str]
) -> None:
    """A table that the source's user may not read is named with the grant it lacks; the other one is published."""
    credential, database = connect(TWO_TABLES)
    with admin_connection(server, database) as connection:
        connection.execute(b"CREATE ROLE narrow LOGIN PASSWORD 'narrow'")
        connection.execute(b"GRANT SELECT ON good TO narrow")
    try:
        narrow = replace(deployment.connection(credential), user="narrow", password="narrow")
        deployment.reconnect(credential, narrow)
        results = sync(deployment, credential)
    finally:
        with admin_connection(server, database) as connection:
            connection.execute(b"DROP OWNED BY narrow; DROP ROLE narrow")
    assert results["good"].error is None
    assert isinstance(results["bad"].error, SourceForbids)
    assert "bad" in results["bad"].error.message
    assert "SELECT" in results["bad"].error.remedy


class _Meddler(Listener):
    """Does something to the source as soon as a table's first rows have been read."""

    def __init__(self, table: str, act: Callable[[], None]) -> None:
        self._table = table
        self._act = act
        self._done = Event()

    def progressed(self, relation: Relation, rows: int, size_bytes: int) -> None:
        """Act once."""
        if relation.name == self._table and not self._done.is_set():
            self._done.set()
            self._act()


def test_source_dies_mid_way(deployment: Deployment, connect: Connect, server: EmbeddedServer) -> None:
    """The source's server process is ended while a table is read: nothing of the attempt is published or left."""
    credential, database = connect(TWO_TABLES)
    before = data_files(deployment)

    def end_readers() -> None:
        with admin_connection(server) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = %s AND query LIKE 'COPY%%payload%%' AND pid <> pg_backend_pid()",
                (database,),
            )

    results = sync(deployment, credential, _Meddler("bad", end_readers))
    assert isinstance(results["bad"].error, SourceBroke)
    assert results["good"].error is None
    assert unsettled(deployment, credential) == []
    assert len(data_files(deployment) - before) == 1
    assert sync(deployment, credential)["bad"].error is None


def test_table_dropped_mid_way(deployment: Deployment, connect: Connect, server: EmbeddedServer) -> None:
    """Dropping a table while it is read waits for the reading, which publishes what the snapshot showed; the next sync
    does not list the table any more, and one that was planned on the old list says that it is gone."""
    credential, database = connect(TWO_TABLES)

    def drop() -> None:
        with admin_connection(server, database) as connection:
            connection.execute(b"DROP TABLE bad")

    dropping = Thread(target=drop)
    results = sync(deployment, credential, _Meddler("bad", dropping.start))
    dropping.join()
    assert results["bad"].error is None
    assert set(sync(deployment, credential)) == {"good"}
    verified = {v.dataset.relation: v.error for v in deployment.verify(credential)}
    assert verified["public.good"] is None
    assert isinstance(verified["public.bad"], RelationNotFound)


def test_value_that_nothing_covers(deployment: Deployment, connect: Connect) -> None:
    """An infinite date stops its table by name of the column, and keeps the value out of the message."""
    credential, _ = connect(TWO_TABLES + "CREATE TABLE odd (id int, due date); INSERT INTO odd VALUES (1, 'infinity')")
    results = sync(deployment, credential)
    error = results["odd"].error
    assert isinstance(error, ValueNotRepresentable)
    assert "due" in error.message
    assert results["good"].error is None
    assert unsettled(deployment, credential) == []


def test_stranger_and_viewer_are_refused(deployment: Deployment, connect: Connect) -> None:
    """Who is no member may not write, a viewer may not either, an editor may; nothing is opened for the refused."""
    credential, _ = connect("CREATE TABLE plain (id int)")
    for name, role in (("eve", None), ("vic", Role.VIEWER)):
        if role is not None:
            deployment.directory.add_member(credential.workspace.id, name, role, invited_by="tester")
        other = replace(deployment, settings=replace(deployment.settings, user=name))
        assert isinstance(sync(other, credential)["plain"].error, NotAdmitted)
    [status] = deployment.directory.datasets(credential=credential)
    assert status.last_operation is None
    deployment.directory.add_member(credential.workspace.id, "ed", Role.EDITOR, invited_by="tester")
    editor = replace(deployment, settings=replace(deployment.settings, user="ed"))
    assert sync(editor, credential)["plain"].error is None


def test_stopping_closes_what_is_under_way(deployment: Deployment, connect: Connect) -> None:
    """A caller that stops listening, as Ctrl-C makes it, leaves no operation open, no file behind, and ends soon."""
    credential, _ = connect(TWO_TABLES.replace("200000", "1000000"))
    before = data_files(deployment)
    results = deployment.sync(credential)
    assert next(results).relation.name == "good"
    results.close()
    statuses = {s.dataset.relation: s for s in deployment.directory.datasets(credential=credential)}
    last = statuses["public.bad"].last_operation
    assert last is None or last.ruling is Ruling.FAILED
    assert unsettled(deployment, credential) == []
    assert len(data_files(deployment) - before) == 1
