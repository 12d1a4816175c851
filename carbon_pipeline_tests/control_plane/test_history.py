"""An operation's history and files: written by the database, appended to only, whoever is at work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.control_plane.records import EventKind
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.source.relation import Relation
from carbon_pipeline_tests.control_plane.samples import PLANNED, end, leave, publish

EVENTS = "carbon.dataset_transaction_events"
FILES = "carbon.dataset_transaction_files"
OPEN, COMMITTING = OperationStatus.OPEN, OperationStatus.COMMITTING


def refused(engine: Engine, statement: str, **values: Any) -> str:
    """The database's reason for refusing a raw statement."""
    with pytest.raises(IntegrityError) as refusal, engine.begin() as connection:
        connection.execute(text(statement), values)
    return str(refusal.value.orig)


def test_a_whole_operation_leaves_its_history(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """Opened, on its way with the snapshot that it planned, landed with the one that was seen: three events, in order,
    by the database's clock, each naming the session and the database user behind it."""
    story = directory.operation(str(publish(ledger, dataset, users)))
    assert [(e.from_status, e.to_status, e.ruling, e.snapshot_id) for e in story.events] == [
        (None, OPEN, None, None),
        (OPEN, COMMITTING, None, PLANNED),
        (COMMITTING, OperationStatus.COMMITTED, Ruling.LANDED, PLANNED),
    ]
    assert [e.reason for e in story.events] == [None, None, "the catalog shows it"]
    assert sorted(e.at for e in story.events) == [e.at for e in story.events]
    assert {e.kind for e in story.events} == {EventKind.TRANSITION}
    assert all("carbon pid " in (e.session or "") and "as ada" in (e.session or "") for e in story.events)
    assert {e.database_user for e in story.events} == {engine.url.username}


def test_a_beat_is_no_event(ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation) -> None:
    """Only moves are history: what does not change an operation's status leaves no event."""
    left = leave(ledger, dataset, users, OPEN, files=["a", "b"])
    assert [e.to_status for e in directory.operation(str(left.id)).events] == [OPEN]


def test_a_move_by_hand_is_on_record_with_its_session(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """Whoever moves an operation by raw SQL is on record by the name of their session, as our own programs are."""
    left = leave(ledger, dataset, users, OPEN)
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL application_name = 'psql of somebody'"))
        connection.execute(
            text(
                "UPDATE carbon.dataset_transactions SET status = 'committing', committing_at = now(),"
                " planned_snapshot_id = 9 WHERE id = :id"
            ),
            {"id": left.id},
        )
    *_, last = directory.operation(str(left.id)).events
    assert (last.to_status, last.snapshot_id, last.session) == (COMMITTING, 9, "psql of somebody")


def test_history_is_only_appended_to(engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """Events can be neither changed nor deleted, not even with the ledger's own table."""
    operation_id = publish(ledger, dataset, users)
    for statement in (
        f"UPDATE {EVENTS} SET reason = 'x' WHERE operation_id = :id",
        f"UPDATE {EVENTS} SET at = at WHERE operation_id = :id",
        f"DELETE FROM {EVENTS} WHERE operation_id = :id",
        f"TRUNCATE {EVENTS}",
    ):
        assert "only ever appended to" in refused(engine, statement, id=operation_id)
    assert "refused" in refused(engine, f"TRUNCATE carbon.dataset_transactions, {EVENTS} CASCADE")


def test_moves_cannot_be_invented(engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """An event of a move that was not made is refused; so is a late landing of what was not aborted, or is unknown."""
    left = leave(ledger, dataset, users, COMMITTING)
    insert = f"INSERT INTO {EVENTS} (operation_id, kind, to_status) VALUES (:id, CAST(:kind AS"
    insert += " carbon.operation_event_kind), 'committed')"
    assert "records the moves" in refused(engine, insert, id=left.id, kind="transition")
    assert "only an aborted one" in refused(engine, insert, id=left.id, kind="late_landing")
    assert "not in the ledger" in refused(engine, insert, id=dataset.id, kind="late_landing")


def test_a_late_landing_is_told_by_the_database(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """What it says of the operation, its time and its session come from the database, whatever the insert claims; and
    it is there once."""
    left = leave(ledger, dataset, users, COMMITTING)
    end(ledger, left, Ruling.FENCED)
    forged = (
        f"INSERT INTO {EVENTS} (operation_id, kind, to_status, ruling, snapshot_id, at, session, database_user)"
        " VALUES (:id, 'late_landing', 'committed', 'landed', 1, '2001-01-01', 'forged', 'forged')"
    )
    with engine.begin() as connection:
        connection.execute(text(forged), {"id": left.id})
    *_, last = directory.operation(str(left.id)).events
    assert (last.kind, last.from_status, last.to_status, last.ruling, last.snapshot_id) == (
        EventKind.LATE_LANDING,
        OperationStatus.ABORTED,
        OperationStatus.ABORTED,
        Ruling.FENCED,
        PLANNED,
    )
    assert datetime.now(UTC) - last.at < timedelta(minutes=5)
    assert (last.session, last.database_user) == ("carbon", engine.url.username)
    assert "one_late_landing" in refused(engine, forged, id=left.id)


@pytest.mark.parametrize("change", ["planned_snapshot_id = 8", "planned_snapshot_id = NULL"])
@pytest.mark.parametrize("ending", [None, Ruling.FENCED])
def test_the_planned_snapshot_stays(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation, change: str, ending: Ruling | None
) -> None:
    """Once named, the snapshot that a request asks for is neither changed nor taken back, nor along with the ending."""
    left = leave(ledger, dataset, users, COMMITTING)
    with_it = f"UPDATE carbon.dataset_transactions SET {change}, status = 'aborted', ruling = 'fenced', reason = 'x',"
    with_it += " settled_at = now() WHERE id = :id"
    assert "names its snapshot once" in refused(engine, with_it, id=left.id)
    if ending is not None:
        end(ledger, left, ending)
    message = refused(engine, f"UPDATE carbon.dataset_transactions SET {change} WHERE id = :id", id=left.id)
    assert ("names its snapshot once" if ending is None else "which is final") in message


def test_the_planned_snapshot_comes_with_the_move(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """An open operation names no snapshot, and none becomes `committing` without naming one."""
    left = leave(ledger, dataset, users, OPEN)
    update = "UPDATE carbon.dataset_transactions SET {} WHERE id = :id"
    assert "names its snapshot once" in refused(engine, update.format("planned_snapshot_id = 8"), id=left.id)
    move = update.format("status = 'committing', committing_at = now()")
    assert "names_its_snapshot_when_committing" in refused(engine, move, id=left.id)
    aborted = "status = 'aborted', ruling = 'failed', reason = 'x', settled_at = now(), planned_snapshot_id = 8"
    assert "names its snapshot once" in refused(engine, update.format(aborted), id=left.id)


def test_a_file_is_announced_while_its_operation_is_open(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """After the request, and after the end, no file can be about to be written; none is announced as removed."""
    insert = f"INSERT INTO {FILES} (operation_id, path) VALUES (:id, 'x')"
    left = leave(ledger, dataset, users, COMMITTING)
    assert "announced while it is open" in refused(engine, insert, id=left.id)
    end(ledger, left, Ruling.FENCED)
    assert "announced while it is open" in refused(engine, insert, id=left.id)
    again = leave(ledger, dataset, users, OPEN)
    removed = f"INSERT INTO {FILES} (operation_id, path, removed_at) VALUES (:id, 'x', now())"
    assert "announced while it is open" in refused(engine, removed, id=again.id)
    assert "foreign key" in refused(engine, insert, id=dataset.id)


@pytest.mark.parametrize("ending", [None, Ruling.LANDED, Ruling.NO_EVIDENCE])
def test_files_of_what_may_have_landed_are_not_removed(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation, ending: Ruling | None
) -> None:
    """The removal of a file is refused unless its operation was aborted."""
    left = leave(ledger, dataset, users, COMMITTING, files=["a.parquet"])
    if ending is not None:
        end(ledger, left, ending)
    message = refused(engine, f"UPDATE {FILES} SET removed_at = now() WHERE operation_id = :id", id=left.id)
    assert "not to be removed" in message


def test_a_file_stays_on_record(engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """Announced files are not deleted, renamed or handed to another operation, and a removal is not taken back."""
    left = leave(ledger, dataset, users, OPEN, files=["a.parquet"])
    end(ledger, left, Ruling.FAILED)
    where = "WHERE operation_id = :id"
    assert "kept for good" in refused(engine, f"DELETE FROM {FILES} {where}", id=left.id)
    assert "kept for good" in refused(engine, f"TRUNCATE {FILES}")
    for change in ("path = 'b'", "announced_at = now()", "operation_id = gen_random_uuid()"):
        assert "only the removal" in refused(engine, f"UPDATE {FILES} SET {change} {where}", id=left.id)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {FILES} SET removed_at = now() {where}"), {"id": left.id})
    for change in ("removed_at = NULL", "removed_at = now()"):
        assert "only the removal" in refused(engine, f"UPDATE {FILES} SET {change} {where}", id=left.id)
