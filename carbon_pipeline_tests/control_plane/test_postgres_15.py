"""The control plane on Debian's PostgreSQL 15, where it is installed: the same rules, the same path."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.control_plane.records import Governance, SweepTrigger, TickDecision
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.file_list import SqlFileList
from carbon_pipeline.control_plane.sql.migrate import migrate
from carbon_pipeline.destination.coordinate import DEFAULTED
from carbon_pipeline.errors import DatasetHeld
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.ratify.sweep import SweepReport
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.samples import (
    ACTOR,
    SYSTEM,
    Address,
    end,
    leave,
    ledger_on,
    mint,
    publish,
    status_of,
)

BINARIES = Path("/usr/lib/postgresql/15/bin")

pytestmark = pytest.mark.skipif(not (BINARIES / "initdb").exists(), reason=f"there is no PostgreSQL 15 in {BINARIES}")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def run(folder: Path, program: str, *arguments: str) -> None:
    """One of the server's programs, as a user that may run a server."""
    user = "nobody" if os.geteuid() == 0 else None
    subprocess.run(
        [BINARIES / program, "-D", folder / "data", *arguments],
        user=user,
        cwd="/",
        check=True,
        stdout=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def old_engine() -> Iterator[Engine]:
    """A control plane on PostgreSQL 15."""
    folder = Path(tempfile.mkdtemp(prefix="carbon-postgres-15-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    (folder / "password").write_text("old secret")
    (folder / "password").chmod(0o644)
    run(folder, "initdb", "-U", "carbon", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "-N")
    port = free_port()
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    run(folder, "pg_ctl", "-w", "-s", "-l", str(folder / "log"), "-o", options, "start")
    engine = Address(host="127.0.0.1", port=port, user="carbon", password="old secret", database="postgres").engine()
    try:
        migrate(engine)
        yield engine
    finally:
        engine.dispose()
        run(folder, "pg_ctl", "-w", "-s", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def test_the_whole_path(old_engine: Engine, users: Relation) -> None:
    """Workspace, credential, coordinate, claim, open, advance, settle, status, story; a second claim is told of the
    first; an illegal move is refused by the database; what a sweep needs is found, and what it did is recorded."""
    directory, ledger = Directory(old_engine), ledger_on(old_engine)
    directory.register_catalog("main", kind="sql", uri_host="127.0.0.1", governance=Governance.OWN)
    credential = directory.add_credential(
        workspace=directory.create_workspace("old", owner="ada"),
        name="shop",
        destination=DEFAULTED,
        system_identifier=SYSTEM,
        created_by="ada",
        seal=lambda _: b"sealed",
    )
    dataset = mint(ledger, credential, users)
    landed = publish(ledger, dataset, users)
    assert len(directory.operation(str(landed)[:8]).events) == 3
    assert status_of(directory, dataset) is OperationStatus.COMMITTED
    with ledger.claim(dataset, ACTOR), pytest.raises(DatasetHeld, match="carbon pid"), ledger.claim(dataset, ACTOR):
        pass
    with pytest.raises(IntegrityError, match="which is final"), old_engine.begin() as connection:
        connection.execute(text("UPDATE carbon.dataset_transactions SET status = 'open'"))
    left = leave(ledger, dataset, users, OperationStatus.COMMITTING, files=["a", "b"])
    assert [each.operation.id for each in ledger.unsettled(10)] == [left.id]
    end(ledger, left, Ruling.FENCED)
    assert [each.id for each in ledger.watched(1)] == [left.id]
    (orphans,) = SqlFileList(old_engine).left_behind(0, 10)
    SqlFileList(old_engine).mark_removed(orphans)
    assert (orphans.paths, directory.orphan_count().files) == (("a", "b"), 0)
    report = SweepReport(cases=(), late=(orphans.operation,), alarm="look", dry_run=False)
    directory.record_sweep(SweepTrigger.SENSOR, report, seconds=1)
    directory.record_tick(SweepTrigger.SENSOR, TickDecision.NOTHING_DUE)
    assert len(directory.alarms(1)) == 2
    assert not directory.ratify_is_overdue(60)
