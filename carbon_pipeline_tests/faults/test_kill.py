"""A sync killed at any moment, and the next one: the table is right, and nothing stays open."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pyarrow.parquet as pq
import pytest

from carbon_pipeline.control_plane.records import Credential, DatasetStatus
from carbon_pipeline.deployment import Deployment
from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.verify.digest import Equality
from carbon_pipeline_tests.conftest import Connect, admin_connection
from carbon_pipeline_tests.faults.worker import DieAt, start

ROWS = 20_000
KILLS = 50

SOURCE = f"""
CREATE TABLE marked (id int PRIMARY KEY, version int NOT NULL, payload text NOT NULL);
INSERT INTO marked SELECT i, 0, repeat(md5(i::text), 4) FROM generate_series(1, {ROWS}) i;
"""


def write_version(server: EmbeddedServer, database: str, version: int) -> None:
    """Give every row of the source the same new mark."""
    with admin_connection(server, database) as connection:
        connection.execute("UPDATE marked SET version = %s", (version,))


def published(deployment: Deployment, credential: Credential) -> tuple[int, int, int, int]:
    """What a reader sees now: rows, distinct keys, least and greatest mark."""
    status = status_of(deployment, credential)
    files = deployment.reader.files(status.dataset)
    assert files is not None
    ids: set[int] = set()
    versions: set[int] = set()
    rows = 0
    for path in files.paths:
        table = pq.read_table(path.removeprefix("file://"), columns=["id", "version"])
        ids.update(table["id"].to_pylist())
        versions.update(table["version"].to_pylist())
        rows += table.num_rows
    return rows, len(ids), min(versions), max(versions)


def status_of(deployment: Deployment, credential: Credential) -> DatasetStatus:
    """The one dataset of a credential."""
    [status] = deployment.directory.datasets(credential=credential)
    return status


def last_status(deployment: Deployment, credential: Credential) -> OperationStatus:
    """Where the newest operation of the credential's dataset stands."""
    operation = status_of(deployment, credential).last_operation
    assert operation is not None
    return operation.status


def verdicts(deployment: Deployment, credential: Credential) -> list[Equality | None]:
    """What comparing each table with its source says."""
    return [v.comparison.verdict if v.comparison else None for v in deployment.verify(credential)]


def sync_and_compare(deployment: Deployment, credential: Credential) -> None:
    """Sync in this process, then hold every table against its source."""
    assert [result.error for result in deployment.sync(credential)] == [None]
    assert verdicts(deployment, credential) == [Equality.EQUAL]


@contextmanager
def watched(deployment: Deployment, credential: Credential) -> Iterator[list[tuple[int, int, int, int]]]:
    """Keep reading the table meanwhile, and give back everything that was seen."""
    seen: list[tuple[int, int, int, int]] = []
    failures: list[BaseException] = []
    stop = Event()

    def read() -> None:
        while not stop.is_set():
            try:
                seen.append(published(deployment, credential))
            except BaseException as error:
                failures.append(error)
                return

    reader = Thread(target=read)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()
    assert failures == []


def test_fifty_kills_at_random_moments(
    deployment: Deployment, connect: Connect, server: EmbeddedServer, home: Path
) -> None:
    """After each of fifty kills the next sync publishes the source exactly and settles what the dead one left open;
    a reader sees whole versions only, old or new, throughout."""
    seed = int(os.environ.get("CARBON_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    credential, database = connect(SOURCE)
    sync_and_compare(deployment, credential)
    begun = time.monotonic()
    whole = start(str(home), credential.name)
    whole.join()
    assert whole.exitcode == 0
    longest = 1.1 * (time.monotonic() - begun)
    left: Counter[OperationStatus] = Counter()
    with watched(deployment, credential) as seen:
        for version in range(1, KILLS + 1):
            write_version(server, database, version)
            process = start(str(home), credential.name)
            process.join(chance.uniform(0, longest))
            process.kill()
            process.join()
            left[last_status(deployment, credential)] += 1
            sync_and_compare(deployment, credential)
            assert last_status(deployment, credential) is OperationStatus.COMMITTED
    assert {(rows, keys) for rows, keys, _, _ in seen} == {(ROWS, ROWS)}
    assert all(least == greatest for _, _, least, greatest in seen)
    assert left[OperationStatus.OPEN] > 0, f"no kill met an open operation: {left}"


@pytest.mark.parametrize(
    ("point", "ruling"), [(DieAt.BEFORE_THE_REQUEST, Ruling.FENCED), (DieAt.AFTER_THE_REQUEST, Ruling.LANDED)]
)
def test_kill_around_the_request(
    deployment: Deployment, connect: Connect, home: Path, point: DieAt, ruling: Ruling
) -> None:
    """Killed just before the request, the operation is fenced and aborted; just after, it is found to have landed."""
    credential, _ = connect(SOURCE)
    process = start(str(home), credential.name, point=point)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert last_status(deployment, credential) is OperationStatus.COMMITTING
    [result] = deployment.sync(credential)
    assert result.receipt is not None
    assert result.receipt.settled_before is not None
    assert result.receipt.settled_before.ruling is ruling
    assert verdicts(deployment, credential) == [Equality.EQUAL]


def test_two_syncs_of_one_table_at_once(deployment: Deployment, connect: Connect, home: Path) -> None:
    """Two processes sync one table at the same time: the ledger serialises them, and the table is right."""
    credential, _ = connect(SOURCE)
    sync_and_compare(deployment, credential)
    both = [start(str(home), credential.name) for _ in range(2)]
    for process in both:
        process.join()
    assert 0 in {process.exitcode for process in both}
    assert last_status(deployment, credential) is OperationStatus.COMMITTED
    assert verdicts(deployment, credential) == [Equality.EQUAL]
