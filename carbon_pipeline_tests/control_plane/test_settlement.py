"""Settling: operation, sync log and dataset facts in one transaction, from the operation's own row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.control_plane.records import DatasetStatus
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import ControlPlaneError, LedgerConflict
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.operation import Intent, Settlement
from carbon_pipeline.ledger.states import RULINGS, OperationStatus, Ruling, SyncStatus
from carbon_pipeline.source.relation import Keys, Relation
from carbon_pipeline_tests.control_plane.cutting_proxy import Cut, cutting_proxy
from carbon_pipeline_tests.control_plane.samples import (
    ACTOR,
    FACTS,
    FAILED,
    LANDED,
    PLANNED,
    Address,
    column,
    end,
    found,
    leave,
    ledger_on,
    mint,
    moment,
    publish,
    relation,
    request,
    ruled,
    status_of,
)


def one(engine: Engine, statement: str, **values: Any) -> Any:
    """The only row of a raw query."""
    with engine.connect() as connection:
        return connection.execute(text(statement), values).one()


def dataset_row(engine: Engine, dataset: Dataset) -> Any:
    """The dataset's whole row."""
    return one(engine, "SELECT * FROM carbon.datasets WHERE id = :id", id=dataset.id)


def committing(ledger: SqlLedger, dataset: Dataset, made: Relation, minutes: int = 0) -> Intent:
    """An operation that was left `committing` by a writer that is gone."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, made, at=moment(minutes)))
        claim.advance(intent, PLANNED)
        return intent


def standing(directory: Directory, dataset: Dataset) -> DatasetStatus:
    """Where the dataset stands."""
    return next(each for each in directory.datasets() if each.dataset.id == dataset.id)


def test_a_landed_operation_completes_everything(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """Operation committed, sync log succeeded, facts and freshness on the dataset, schema version: all at once."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        claim.advance(intent, PLANNED)
        entry = claim.settle(intent.operation, LANDED)
    assert (entry.status, entry.ruling, entry.seq, entry.facts) == (
        OperationStatus.COMMITTED,
        Ruling.LANDED,
        1,
        FACTS,
    )
    assert 0 < entry.seconds < 10
    row = dataset_row(engine, dataset)
    assert (row.row_count, row.size_bytes, row.data_files, row.snapshot_id) == (
        336_776,
        20_000_000,
        2,
        FACTS.snapshot_id,
    )
    assert (row.schema_version, row.committed_seq, row.committed_operation_id) == (1, 1, entry.operation_id)
    log = one(engine, "SELECT * FROM carbon.iceberg_sync_log WHERE operation_id = :id", id=entry.operation_id)
    assert (log.status, log.has_identity, log.rows, log.source_time) == (
        SyncStatus.SUCCEEDED,
        True,
        336_776,
        moment().time,
    )
    now = standing(directory, dataset)
    assert now.dataset.committed_moment == moment()
    assert (now.rows, now.source_time) == (336_776, moment().time)
    assert now.age_seconds is not None
    assert now.last_operation is not None
    assert (now.last_operation.ruling, now.last_operation.id) == (Ruling.LANDED, entry.operation_id)


def test_facts_are_complete_from_the_row_alone(
    engine: Engine, address: Address, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """A reconciler that knows nothing of the relation completes a dead writer's dataset as its writer would have."""
    committing(ledger, dataset, users)
    stranger = address.engine()
    with ledger_on(stranger).claim(dataset, ACTOR) as claim:
        left = claim.unsettled()
        assert left is not None
        claim.settle(left, LANDED)
    stranger.dispose()
    row = dataset_row(engine, dataset)
    assert [(each["attnum"], each["name"], each["base"], each["not_null"]) for each in row.columns] == [
        (1, "id", "text", True),
        (2, "name", "text", False),
    ]
    assert row.primary_key == ["id"]
    assert row.foreign_keys == [
        {
            "name": "owned",
            "columns": ["name"],
            "referenced_schema": "public",
            "referenced_table": "owners",
            "referenced_columns": ["id"],
        }
    ]
    assert row.keys_failed is None
    assert row.source_time == moment().time


def test_keys_that_could_not_be_read_are_said_so(engine: Engine, ledger: SqlLedger, dataset: Dataset) -> None:
    """Not known is on record as not known, never as none."""
    publish(ledger, dataset, replace(relation("users", 16_400), keys=Keys(failed="permission denied")))
    row = dataset_row(engine, dataset)
    assert (row.primary_key, row.foreign_keys, row.keys_failed) == ([], [], "permission denied")


def test_a_schema_version_per_change(engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """The same columns keep their version; others get the next one, and the old one stays."""
    wider = replace(users, columns=(*users.columns, column(3, "email")))
    for made in (users, users, wider, wider, users):
        publish(ledger, dataset, made)
    with engine.connect() as connection:
        versions = connection.execute(
            text(
                "SELECT v.version, jsonb_array_length(v.columns), t.seq FROM carbon.dataset_schema_versions v"
                " JOIN carbon.dataset_transactions t ON t.id = v.operation_id WHERE v.dataset_id = :id ORDER BY 1"
            ),
            {"id": dataset.id},
        ).all()
    assert [tuple(row) for row in versions] == [(1, 2, 1), (2, 3, 3), (3, 2, 5)]
    assert dataset_row(engine, dataset).schema_version == 3


def test_settling_twice_is_refused(ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """The second settlement hears what the first one ruled; nothing is ruled anew, not even alike."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        claim.advance(intent, PLANNED)
        claim.settle(intent.operation, LANDED)
        for settlement in (LANDED, ruled(Ruling.FENCED)):
            with pytest.raises(LedgerConflict, match="is committed, ruled landed"):
                claim.settle(intent.operation, settlement)


@pytest.mark.parametrize("ruling", Ruling)
@pytest.mark.parametrize("status", [OperationStatus.OPEN, OperationStatus.COMMITTING])
def test_each_ruling_from_each_state(
    ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation, ruling: Ruling, status: OperationStatus
) -> None:
    """A ruling settles from the states that it may come from, and conflicts elsewhere."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users))
        if status is OperationStatus.COMMITTING:
            claim.advance(intent, PLANNED)
        if status in RULINGS[ruling].comes_from:
            assert claim.settle(intent.operation, ruled(ruling)).status is RULINGS[ruling].status
        else:
            with pytest.raises(LedgerConflict, match=f"is {status}"):
                claim.settle(intent.operation, ruled(ruling))
    assert status_of(directory, dataset) is (RULINGS[ruling].status if status in RULINGS[ruling].comes_from else status)


@pytest.mark.parametrize("ruling", [ruling for ruling in Ruling if ruling not in {Ruling.LANDED, Ruling.NOOP}])
def test_only_what_is_on_main_counts_as_fresh(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation, ruling: Ruling
) -> None:
    """A later operation that is not on main, even one that landed once and was rolled back to what was before, moves
    neither facts nor freshness; its sync log has no source moment."""
    published = publish(ledger, dataset, users)
    before = dataset_row(engine, dataset)
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users, at=moment(minutes=5)))
        if OperationStatus.OPEN not in RULINGS[ruling].comes_from:
            claim.advance(intent, PLANNED + 1)
        claim.settle(intent.operation, ruled(ruling, shown=published))
    assert dataset_row(engine, dataset) == before
    assert standing(directory, dataset).dataset.committed_moment == moment()
    log = one(engine, "SELECT * FROM carbon.iceberg_sync_log WHERE operation_id = :id", id=intent.operation.id)
    assert (log.status, log.source_time, log.source_lsn) == (RULINGS[ruling].sync, None, None)


def rolled_back(ledger: SqlLedger, dataset: Dataset, made: Relation, shown: OperationId | None) -> None:
    """A third operation that landed, and behind which main was moved back to what *shown* had left."""
    left = leave(ledger, dataset, made, OperationStatus.COMMITTING, at=moment(minutes=30), snapshot_id=30)
    with ledger.claim(dataset, ACTOR) as claim:
        claim.settle(left, ruled(Ruling.ROLLED_BACK, shown=shown))


def test_a_rollback_lowers_freshness(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """When main was moved back behind two operations, the dataset shows again what the one before them had left: its
    source moment, its snapshot, its columns under a schema version of their own. The next operation moves it on."""
    wider = replace(users, columns=(*users.columns, column(3, "email")))
    first = publish(ledger, dataset, users, at=moment(minutes=10), snapshot_id=10)
    publish(ledger, dataset, wider, at=moment(minutes=20), snapshot_id=20)
    assert dataset_row(engine, dataset).committed_seq == 2
    rolled_back(ledger, dataset, wider, first)
    row = dataset_row(engine, dataset)
    assert (row.committed_operation_id, row.committed_seq, row.snapshot_id) == (first, 1, 10)
    assert (row.row_count, row.size_bytes, row.data_files) == (FACTS.rows, FACTS.size_bytes, FACTS.data_files)
    assert ([each["name"] for each in row.columns], row.schema_version) == (["id", "name"], 3)
    assert standing(directory, dataset).dataset.committed_moment == moment(minutes=10)
    fourth = publish(ledger, dataset, users, at=moment(minutes=40), snapshot_id=40)
    assert dataset_row(engine, dataset).committed_operation_id == fourth


def test_a_rollback_to_nothing_of_ours(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """Where main shows no operation that the ledger committed on this dataset, the dataset is as before its first one:
    nothing is claimed of it. An aborted operation, another dataset's, an unknown one and the rolled back one itself
    are no such."""
    never = dataset_row(engine, dataset)._asdict()
    made = relation("other", 2)
    other = ledger.coordinate(dataset.credential_id, made, found(users, made))
    stranger = publish(ledger, other, made)
    aborted = leave(ledger, dataset, users, OperationStatus.OPEN)
    end(ledger, aborted, Ruling.FAILED)
    for shown in (None, stranger, aborted.id, OperationId(dataset.id)):
        publish(ledger, dataset, users)
        rolled_back(ledger, dataset, users, shown)
        assert dataset_row(engine, dataset)._asdict() | {"updated_at": None} == never
        assert standing(directory, dataset).dataset.committed_moment is None
    publish(ledger, dataset, users)
    left = leave(ledger, dataset, users, OperationStatus.COMMITTING)
    with ledger.claim(dataset, ACTOR) as claim:
        claim.settle(left, ruled(Ruling.ROLLED_BACK, shown=left.id))
    assert standing(directory, dataset).dataset.committed_moment is None


def test_a_rollback_to_what_is_shown_anyway(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """Main moved back to the snapshot that the dataset shows lowers nothing: a later operation that found nothing to
    change saw the source equal to that very snapshot."""
    first = publish(ledger, dataset, users, snapshot_id=10)
    with ledger.claim(dataset, ACTOR) as claim:
        claim.settle(claim.open(request(dataset, users, at=moment(minutes=5))).operation, ruled(Ruling.NOOP))
    before = dataset_row(engine, dataset)
    rolled_back(ledger, dataset, users, first)
    assert dataset_row(engine, dataset) == before
    assert before.source_time == moment(minutes=5).time


def test_a_rollback_never_raises_freshness(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """Main that somebody moved on by hand, to an operation of which the dataset shows nothing, is not believed to be
    fresher for it: freshness rises when an operation lands, and then only."""
    publish(ledger, dataset, users, at=moment(minutes=10), snapshot_id=10)
    second = leave(ledger, dataset, users, OperationStatus.COMMITTING, at=moment(minutes=20), snapshot_id=20)
    end(ledger, second, Ruling.EVIDENCE_EXPIRED)
    before = dataset_row(engine, dataset)
    rolled_back(ledger, dataset, users, second.id)
    assert dataset_row(engine, dataset) == before


def test_facts_go_back_with_a_rollback_only(
    engine: Engine, ledger: SqlLedger, dataset: Dataset, users: Relation
) -> None:
    """By raw SQL a dataset cannot be lowered, not even when an operation was once ruled rolled back."""
    first = publish(ledger, dataset, users, snapshot_id=10)
    second = publish(ledger, dataset, users, snapshot_id=20)
    rolled_back(ledger, dataset, users, second)
    assert dataset_row(engine, dataset).committed_seq == 2
    with pytest.raises(IntegrityError, match="only move forward"), engine.begin() as connection:
        connection.execute(
            text("UPDATE carbon.datasets SET committed_seq = 1, committed_operation_id = :first WHERE id = :id"),
            {"first": first, "id": dataset.id},
        )


def test_a_noop_is_fresh_without_new_facts(
    engine: Engine, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """Nothing to change means that the dataset shows the later moment with the snapshot that it has."""
    publish(ledger, dataset, users)
    with ledger.claim(dataset, ACTOR) as claim:
        claim.settle(claim.open(request(dataset, users, at=moment(minutes=5))).operation, ruled(Ruling.NOOP))
    now = standing(directory, dataset)
    assert now.dataset.committed_moment == moment(minutes=5)
    assert (now.snapshot_id, now.rows) == (FACTS.snapshot_id, FACTS.rows)


def test_landing_without_facts_is_refused(
    ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation
) -> None:
    """A landed operation without its snapshot cannot be recorded, and stays as it was."""
    committing(ledger, dataset, users)
    with ledger.claim(dataset, ACTOR) as claim:
        left = claim.unsettled()
        assert left is not None
        with pytest.raises(ControlPlaneError, match="landed_with_its_facts"):
            claim.settle(left, Settlement(ruling=Ruling.LANDED, reason="seen"))
    assert status_of(directory, dataset) is OperationStatus.COMMITTING


def test_what_an_operation_records_comes_back(ledger: SqlLedger, dataset: Dataset, users: Relation) -> None:
    """`unsettled` gives back what `open` recorded, to the microsecond and to the byte of the log."""
    with ledger.claim(dataset, ACTOR) as claim:
        intent = claim.open(request(dataset, users, base_snapshot_id=2**62))
        assert claim.unsettled() == intent.operation
        assert intent.operation.moment == moment()
        assert intent.operation.base_snapshot_id == 2**62
        assert intent.code_version == "0.1.0"
        claim.settle(intent.operation, FAILED)


def test_a_system_identifier_of_64_bits(ledger: SqlLedger, add_credential: Any, users: Relation) -> None:
    """System identifiers are unsigned: one beyond 63 bits is kept exactly."""
    large = 2**64 - 3
    credential = add_credential("large", system_identifier=large)
    assert credential.system_identifier == large
    dataset = mint(ledger, credential, users)
    publish(ledger, dataset, users, at=moment(system_identifier=large))
    again = ledger.coordinate(credential.id, users, found(users, system_identifier=large))
    assert again.committed_moment == moment(system_identifier=large)


@pytest.mark.parametrize("cut", Cut)
def test_the_outcome_of_commit_may_be_unknown(
    address: Address, ledger: SqlLedger, directory: Directory, dataset: Dataset, users: Relation, cut: Cut
) -> None:
    """When the connection breaks around the settling COMMIT, the row is read again: if the ruling is there, it is
    returned; if not, the error says that the next sync settles, and it does."""
    with cutting_proxy(address.host, address.port) as proxy:
        through = address.engine(port=proxy.port)
        with ledger_on(through).claim(dataset, ACTOR) as claim:
            intent = claim.open(request(dataset, users))
            claim.advance(intent, PLANNED)
            proxy.cut = cut
            if cut is Cut.AFTER_COMMIT:
                assert claim.settle(intent.operation, LANDED).facts == FACTS
            else:
                with pytest.raises(ControlPlaneError, match="next sync of this table settles"):
                    claim.settle(intent.operation, LANDED)
        through.dispose()
    expected = OperationStatus.COMMITTED if cut is Cut.AFTER_COMMIT else OperationStatus.COMMITTING
    assert status_of(directory, dataset) is expected
    with ledger.claim(dataset, ACTOR) as claim:
        left = claim.unsettled()
        if left is not None:
            claim.settle(left, LANDED)
    assert standing(directory, dataset).rows == FACTS.rows


@pytest.mark.parametrize("cut", Cut)
def test_an_advance_that_broke_gives_no_permit(
    address: Address, directory: Directory, dataset: Dataset, users: Relation, cut: Cut
) -> None:
    """A writer that does not know whether it is `committing` sends nothing: it gets no permit either way."""
    with cutting_proxy(address.host, address.port) as proxy:
        through = address.engine(port=proxy.port)
        with ledger_on(through).claim(dataset, ACTOR) as claim:
            intent = claim.open(request(dataset, users))
            proxy.cut = cut
            with pytest.raises(ControlPlaneError):
                claim.advance(intent, PLANNED)
        through.dispose()
    expected = OperationStatus.COMMITTING if cut is Cut.AFTER_COMMIT else OperationStatus.OPEN
    assert status_of(directory, dataset) is expected
