"""The claim: one writer per dataset, known by name, gone with its process; and nothing moves without it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from threading import Barrier

import pytest
from sqlalchemy import Engine, event, text

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.control_plane.sql.claim import SqlClaim, Terms
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.engine import dedicated_connection
from carbon_pipeline.control_plane.sql.ledger import SqlLedger, lock_key
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CarbonError, ControlPlaneError, DatasetHeld, LedgerConflict
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.operation import OpenRequest, Settlement
from carbon_pipeline.ledger.port import Claim
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.samples import (
    ACTOR,
    FAILED,
    PLANNED,
    Address,
    found,
    ledger_on,
    relation,
    request,
    ruled,
    status_of,
)

NEVER_LANDED = Settlement(ruling=Ruling.NEVER_LANDED, reason="its writer is gone and had sent no request")


@pytest.fixture
def impatient(engine: Engine) -> SqlLedger:
    """A ledger that does not wait for a claim."""
    return ledger_on(engine, wait_seconds=0)


@contextmanager
def unlocked_claim(engine: Engine, dataset: Dataset) -> Iterator[Claim]:
    """A claim without the lock: what a writer would be whose lock was freed under it by some mishap."""
    with dedicated_connection(engine) as connection:
        with connection.begin():
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        terms = Terms(code_version="0.1.0", lease_seconds=120, beat_seconds=0)
        yield SqlClaim(connection, backend_pid=pid, engine=engine, dataset=dataset, terms=terms)


class Race:
    """Two claims on one dataset, both without the lock, that do something at the same moment."""

    def __init__(self, one: Claim, other: Claim, pool: ThreadPoolExecutor) -> None:
        self.one, self.other, self._pool = one, other, pool
        self._barrier = Barrier(2)

    def run(self, move: Callable[[Claim], object], counter_move: Callable[[Claim], object]) -> list[str]:
        """Both at once; each one's outcome in a word."""
        return list(self._pool.map(self._attempt, (self.one, self.other), (move, counter_move)))

    def _attempt(self, claim: Claim, move: Callable[[Claim], object]) -> str:
        self._barrier.wait()
        try:
            move(claim)
        except CarbonError as error:
            return error.kind
        return "done"


@pytest.fixture
def race(engine: Engine, dataset: Dataset) -> Iterator[Race]:
    """Two racers on the test's dataset."""
    with (
        unlocked_claim(engine, dataset) as one,
        unlocked_claim(engine, dataset) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        yield Race(one, other, pool)


def hold(address: Address, dataset: Dataset, made: Relation, pipe: Pipe) -> None:
    """In another process: claim, open, say so, and stay."""
    with ledger_on(address.engine()).claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, made))
        pipe.send(intent.operation.id)
        pipe.recv()


def terminate_holders(engine: Engine, dataset: Dataset) -> int:
    """End the sessions that hold the dataset's lock, as an administrator would."""
    statement = text(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND (classid::bigint << 32) | objid::bigint = CAST(:key AS bigint)"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with engine.begin() as connection:
        return int(connection.execute(statement, {"key": lock_key(dataset.id)}).scalar_one())


def test_a_claim_is_held_by_one(ledger: SqlLedger, impatient: SqlLedger, dataset: Dataset) -> None:
    """The second claim waits its time, then names the holder; after the first one's end it goes through at once."""
    began = time.monotonic()
    with ledger.claim(dataset, ACTOR), pytest.raises(DatasetHeld) as held, ledger.claim(dataset, ACTOR):
        pass
    assert 0.25 < time.monotonic() - began < 5
    message = str(held.value)
    assert f"{dataset.coordinate} is held by carbon pid {os.getpid()} on " in message
    assert f"as {ACTOR.user}" in message
    assert ", since 20" in message
    with impatient.claim(dataset, ACTOR):
        pass


def test_a_claim_can_be_tried_once(engine: Engine, dataset: Dataset) -> None:
    """Told not to wait, a patient ledger's claim is refused at once, naming the holder; a free one is taken."""
    patient = ledger_on(engine, wait_seconds=30)
    began = time.monotonic()
    with (
        patient.claim(dataset, ACTOR, wait_seconds=0),
        pytest.raises(DatasetHeld, match="is held by carbon pid"),
        patient.claim(dataset, ACTOR, wait_seconds=0),
    ):
        pass
    assert time.monotonic() - began < 5


def test_claims_on_other_datasets_do_not_wait(impatient: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """Serialising is per dataset."""
    made = relation("other", 2)
    with impatient.claim(dataset, ACTOR):
        other = impatient.coordinate(dataset.credential_id, made, found(users, made))
        with impatient.claim(other, ACTOR):
            pass


def test_many_claims_do_not_exhaust_the_pool(
    impatient: SqlLedger, credential: Credential, directory: Directory
) -> None:
    """A claim's connection is outside the pool, so twenty of them leave the control plane reachable."""
    relations = tuple(relation(f"t{number}", number) for number in range(1, 21))
    everything = found(*relations)
    with ExitStack() as claims:
        for each in relations:
            claims.enter_context(impatient.claim(impatient.coordinate(credential.id, each, everything), ACTOR))
        assert len(directory.datasets(credential=credential)) == 20


def test_a_claim_ends_with_its_context_even_on_errors(impatient: SqlLedger, dataset: Dataset) -> None:
    """An exception, or a cancellation, leaves no lock behind."""
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), impatient.claim(dataset, ACTOR):
            raise error


def test_a_killed_holder_frees_its_claim(
    ledger: SqlLedger, address: Address, dataset: Dataset, users: Relation
) -> None:
    """While another process holds the claim it is named with its operation; killed, it leaves the claim free and
    its operation unsettled, for the next writer to rule on."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=hold, args=(address, dataset, users, theirs))
    process.start()
    operation_id: OperationId = ours.recv()
    with pytest.raises(DatasetHeld) as held, ledger.claim(dataset, ACTOR):
        pass
    assert f"carbon pid {process.pid} on " in str(held.value)
    assert f"(operation {operation_id} is open)" in str(held.value)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with ledger.claim(dataset, ACTOR) as claim:
        left = claim.unsettled()
        assert left is not None
        assert (left.id, left.status) == (operation_id, OperationStatus.OPEN)
        assert claim.settle(left, NEVER_LANDED).status is OperationStatus.ABORTED
        assert claim.unsettled() is None


def test_a_lost_lock_moves_nothing(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """A writer whose connection died cannot beat, advance, settle or open: it has lost the lock, and does not
    connect anew under it."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        assert terminate_holders(engine, dataset) == 1
        for attempt in (
            lambda: claim.beat(intent, 1, 1),
            lambda: claim.advance(intent, PLANNED),
            lambda: claim.settle(intent.operation, FAILED),
            lambda: claim.open(request(dataset, users)),
            claim.unsettled,
        ):
            with pytest.raises(ControlPlaneError, match="next sync of this table settles"):
                attempt()
        assert status_of(directory, dataset) is OperationStatus.OPEN
        with ledger.claim(dataset, ACTOR) as second:
            left = second.unsettled()
            assert left is not None
            second.settle(left, NEVER_LANDED)


def test_one_unsettled_operation_per_dataset(ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """A second operation cannot open while one is unsettled, whoever asks."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        with pytest.raises(LedgerConflict, match="opened first"):
            claim.open(request(dataset, users))
        claim.settle(intent.operation, FAILED)
        again = claim.open(request(dataset, users))
        assert (intent.operation.seq, again.operation.seq) == (1, 2)
        claim.settle(again.operation, FAILED)


def test_two_opens_race(race: Race, dataset: Dataset, users: Relation) -> None:
    """Were two writers at work in spite of the lock, the unique index would let one of them open."""
    wanted = request(dataset, users)
    for _ in range(25):
        outcomes = race.run(lambda claim: claim.open(wanted), lambda claim: claim.open(wanted))
        assert sorted(outcomes) == ["LedgerConflict", "done"]
        left = race.one.unsettled()
        assert left is not None
        race.one.settle(left, FAILED)


def advance_against_abort(race: Race, wanted: OpenRequest) -> str:
    """One round; the winner's name."""
    intent = race.one.open(wanted)
    outcomes = race.run(
        lambda claim: claim.advance(intent, PLANNED), lambda claim: claim.settle(intent.operation, NEVER_LANDED)
    )
    assert sorted(outcomes) == ["LedgerConflict", "done"]
    left = race.one.unsettled()
    if left is None:
        assert outcomes[1] == "done"
        return "abort"
    assert (outcomes[0], left.status) == ("done", OperationStatus.COMMITTING)
    race.one.settle(left, Settlement(ruling=Ruling.FENCED, reason="fenced"))
    return "advance"


def test_advance_races_abort(race: Race, dataset: Dataset, users: Relation) -> None:
    """Of a writer that advances and a reconciler that aborts exactly one wins, and the ledger says which."""
    wanted = request(dataset, users)
    winners = {advance_against_abort(race, wanted) for _ in range(100)}
    assert winners == {"advance", "abort"}, "one side always won, so nothing was raced"


def test_a_beat_extends_the_lease(engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """A beat records how far the writer is and moves its lease by the database's clock."""
    row = text(
        "SELECT lease_until, lease_until - clock_timestamp() < interval '121 s' AS near, rows_written, bytes_written"
        " FROM carbon.dataset_transactions WHERE id = :id"
    )
    with ledger.claim(dataset, ACTOR) as claim, engine.connect() as connection:
        intent = claim.open(request(dataset, users))
        before = connection.execute(row, {"id": intent.operation.id}).one()
        claim.beat(intent, 1000, 20_000)
        after = connection.execute(row, {"id": intent.operation.id}).one()
        assert after.lease_until > before.lease_until
        assert after.near is True
        assert (after.rows_written, after.bytes_written) == (1000, 20_000)
        claim.settle(intent.operation, FAILED)


def test_beats_are_written_seldom(engine: Engine, dataset: Dataset, users: Relation) -> None:
    """However often a writer beats, the ledger writes only every few seconds."""
    with ledger_on(engine, beat_seconds=60).claim(dataset, ACTOR) as claim, engine.connect() as connection:
        intent = claim.open(request(dataset, users))
        for rows in range(1000):
            claim.beat(intent, rows, rows)
        written = connection.execute(
            text("SELECT rows_written FROM carbon.dataset_transactions WHERE id = :id"), {"id": intent.operation.id}
        ).scalar_one()
        assert written == 0
        claim.settle(intent.operation, FAILED)


def files_of(engine: Engine, operation_id: OperationId) -> list[str]:
    """The files that are on record of an operation, as any other session sees them."""
    with engine.connect() as connection:
        return list(
            connection.scalars(
                text("SELECT path FROM carbon.dataset_transaction_files WHERE operation_id = :id ORDER BY path"),
                {"id": operation_id},
            )
        )


def test_files_are_on_record_before_they_are_written(engine: Engine, dataset: Dataset, users: Relation) -> None:
    """However recent the last beat is, announced files are there for everybody when the beat returns, and the lease
    is extended; a beat without files still waits its turn."""
    row = text("SELECT lease_until, rows_written FROM carbon.dataset_transactions WHERE id = :id")
    with ledger_on(engine, beat_seconds=60).claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        with engine.connect() as connection:
            opened = connection.execute(row, {"id": intent.operation.id}).one()
        claim.beat(intent, 10, 10, ["s3://w/b.parquet", "s3://w/a.parquet"])
        assert files_of(engine, intent.operation.id) == ["s3://w/a.parquet", "s3://w/b.parquet"]
        claim.beat(intent, 20, 20, ["s3://w/b.parquet", "s3://w/c.parquet"])
        claim.beat(intent, 30, 30)
        with engine.connect() as connection:
            after = connection.execute(row, {"id": intent.operation.id}).one()
        assert after.lease_until > opened.lease_until
        assert after.rows_written == 20
        assert len(files_of(engine, intent.operation.id)) == 3
        claim.settle(intent.operation, FAILED)


def test_many_files_are_announced_in_one_statement(engine: Engine, dataset: Dataset, users: Relation) -> None:
    """A thousand files cost what one does in round trips; names are data, whatever is in them."""
    paths = ["it's; DROP TABLE x --", "ä/é\\{}'%s.parquet", *(f"part-{number:05}.parquet" for number in range(1000))]
    statements: list[str] = []

    def record(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    with ledger_on(engine).claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        event.listen(engine, "before_cursor_execute", record)
        try:
            claim.beat(intent, 0, 0, paths)
        finally:
            event.remove(engine, "before_cursor_execute", record)
        assert len([each for each in statements if "dataset_transaction_files" in each]) == 1
        assert set(files_of(engine, intent.operation.id)) == set(paths)
        claim.settle(intent.operation, FAILED)


def test_an_ended_operation_announces_nothing(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """A writer whose operation somebody ended, or that lost its lock, is stopped before it writes the file."""
    with ledger.claim(dataset, ACTOR) as claim:
        ended = claim.open(request(dataset, users))
        claim.settle(ended.operation, FAILED)
        with pytest.raises(LedgerConflict, match="is aborted, ruled failed"):
            claim.beat(ended, 1, 1, ["late.parquet"])
        lost = claim.open(request(dataset, users))
        assert terminate_holders(engine, dataset) == 1
        with pytest.raises(ControlPlaneError):
            claim.beat(lost, 1, 1, ["lost.parquet"])
    assert files_of(engine, ended.operation.id) == files_of(engine, lost.operation.id) == []


def test_a_permit_knows_its_operation_as_it_is(ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """The permit's operation is `committing` and names its snapshot, as whoever finds it in the ledger sees it."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        assert intent.operation.snapshot_id is None
        permit = claim.advance(intent, PLANNED)
        assert permit.intent.operation == claim.unsettled()
        assert (permit.intent.operation.status, permit.intent.operation.snapshot_id) == (
            OperationStatus.COMMITTING,
            PLANNED,
        )
        claim.settle(intent.operation, ruled(Ruling.FENCED))


def test_a_beat_tells_an_ended_operation(ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """A writer whose operation somebody ended hears of it at its next beat, and cannot advance."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        claim.settle(intent.operation, FAILED)
        with pytest.raises(LedgerConflict, match="is aborted, ruled failed"):
            claim.beat(intent, 1, 1)
        with pytest.raises(LedgerConflict, match="is aborted, ruled failed"):
            claim.advance(intent, PLANNED)


def test_a_claim_opens_its_own_dataset_only(ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """A claim on one dataset cannot write about another."""
    made = relation("other", 2)
    other = ledger.coordinate(dataset.credential_id, made, found(users, made))
    with ledger.claim(other, ACTOR) as claim:
        with pytest.raises(ValueError, match="cannot open an operation"):
            claim.open(request(dataset, users))
        with ledger.claim(dataset, ACTOR) as own:
            intent = own.open(request(dataset, users))
            with pytest.raises(LedgerConflict):
                claim.advance(intent, PLANNED)
            with pytest.raises(LedgerConflict):
                claim.settle(intent.operation, FAILED)
            own.settle(intent.operation, FAILED)


def test_a_session_that_moves_between_backends_is_refused(engine: Engine, dataset: Dataset, users: Relation) -> None:
    """Behind a pooler in transaction mode a lock protects nothing, so the claim refuses to work."""
    with dedicated_connection(engine) as connection:
        terms = Terms(code_version="0.1.0", lease_seconds=120, beat_seconds=0)
        claim = SqlClaim(connection, backend_pid=-1, engine=engine, dataset=dataset, terms=terms)
        with pytest.raises(ControlPlaneError, match="pooler"):
            claim.open(request(dataset, users))
