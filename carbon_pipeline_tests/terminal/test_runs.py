"""A sync and a verification, watched."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence

import pytest

from carbon_pipeline.errors import SourceForbids, SourceRefusedLogin
from carbon_pipeline.ledger.states import Ruling
from carbon_pipeline.source.relation import Relation
from carbon_pipeline.sync_all import Listener, TableResult
from carbon_pipeline.terminal.documents import sync_document
from carbon_pipeline.terminal.progress import Bars, Lines, bars
from carbon_pipeline.terminal.runs import SyncOutcome, Tally, VerifyOutcome, run_sync, say_sync_summary
from carbon_pipeline.terminal.views import Held
from carbon_pipeline.verify.digest import Comparison, Digest
from carbon_pipeline_tests.terminal import samples
from carbon_pipeline_tests.terminal.samples import dataset, entry, failed, published, relation, screen


def synced(
    results: Sequence[TableResult], planned: Sequence[Relation] = (), *, data: bool = False
) -> tuple[SyncOutcome, str, str]:
    """The outcome of a sync that yields *results*, and what was said."""

    def start(listener: Listener) -> Generator[TableResult, None, None]:
        listener.planned(planned or [result.relation for result in results])
        yield from results

    made, out, err = screen()
    outcome = run_sync(made, "shop", start, say_results=True, results_are_data=data)
    say_sync_summary(made, [outcome], 1.5)
    return outcome, out.getvalue(), err.getvalue()


def test_a_line_per_table() -> None:
    """Rows, bytes, seconds and snapshot, and the sum at the end."""
    outcome, out, err = synced([published()])
    assert out == (
        "public.orders        1,234 rows  56.8 kB  0.75 s  snapshot 4611686018427387905\n"
        "1 table published, 1,234 rows, 1.50 s\n"
    )
    assert err == ""
    assert outcome.complete


def test_what_was_settled_first_is_said() -> None:
    """An older operation that the write found open is named with its ruling."""
    before = entry(Ruling.NEVER_LANDED, rows=None)
    out = synced([published(before=before)])[1]
    assert f"settled first: operation {before.operation_id} is aborted (never_landed)" in out


def test_a_failure_is_an_error_line_and_the_others_go_on() -> None:
    """The error and its remedy are on stderr; stdout says who failed."""
    error = SourceForbids("role reader may not read public.secret")
    outcome, out, err = synced([failed(error, "secret"), published(oid=2)])
    assert err == f"error: public.secret: {error.message}\n  {error.remedy}\n"
    assert out.splitlines()[-1] == "1 table published, 1,234 rows, 1.50 s; 1 failed: public.secret"
    assert not outcome.complete


def test_tables_that_were_not_attempted_are_counted_and_named() -> None:
    """After an error that would meet every table alike, the rest is not tried, and that is said."""
    tables = [relation("a", oid=1), relation("b", oid=2), relation("c", oid=3)]
    outcome, out, err = synced([failed(SourceRefusedLogin("no"), "a")], tables)
    assert "2 tables not attempted after that error: public.b, public.c" in err
    assert "2 not attempted: public.b, public.c" in out
    assert outcome.not_attempted == ("public.b", "public.c")


def test_stdout_is_left_to_the_document() -> None:
    """With --json, results are not printed as lines; the snapshot's id is text, since it has more than 53 bits."""
    outcome, out, _ = synced([published()], data=True)
    assert out == "1 table published, 1,234 rows, 1.50 s\n"
    assert '"snapshot_id": "4611686018427387905"' in json.dumps(sync_document([outcome]))


def test_closing_reaches_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """When printing is interrupted, the sync behind it is closed before anything else happens."""
    closed = []

    def start(_listener: Listener) -> Generator[TableResult, None, None]:
        try:
            yield published()
        finally:
            closed.append(True)

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    made, _, _ = screen()
    monkeypatch.setattr(type(made), "show", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_sync(made, "shop", start, say_results=True, results_are_data=False)
    assert closed == [True]


def test_lines_come_every_ten_seconds_at_most() -> None:
    """Without a terminal a long table says now and then how far it is, and how long it may take."""
    said: list[str] = []
    now = iter([0.0, 5.0, 10.0, 12.0, 20.0])
    lines, table = Lines(said.append, clock=lambda: next(now)), relation(estimated_rows=4000)
    lines.started(table)
    for rows in (500, 1000, 1200, 5000):
        lines.progressed(table, rows, rows * 100)
    assert said == [
        "public.orders: 1,000 rows, 100 kB, 100 rows/s, 30 s left",
        "public.orders: 5,000 rows, 500 kB, 250 rows/s",
    ]


def test_bars_follow_the_tables() -> None:
    """Each table has a bar while it is read; past its estimate nothing is promised; all of it leaves no trace."""
    made, out, _ = screen(terminal=True, width=80)
    with bars(made.out) as progress:
        drawn = Bars(progress)
        drawn.planned([relation(oid=1), relation("[b]", oid=2, estimated_rows=None)])
        for table in drawn.relations:
            drawn.started(table)
            drawn.progressed(table, 2000, 16_000)
        assert [task.total for task in progress.tasks] == [2, 2000, None]
        progress.refresh()
        assert "public.[b]" in out.getvalue()
        drawn.finished(published())
        assert progress.tasks[0].completed == 1
        assert len(progress.tasks) == 2


@pytest.mark.parametrize(
    ("terminals", "data", "expected"),
    [
        ((True, True), False, "out"),
        ((True, True), True, "err"),
        ((False, True), False, "err"),
        ((False, False), False, None),
        ((True, False), True, None),
    ],
)
def test_bars_are_drawn_where_no_program_reads(terminals: tuple[bool, bool], data: bool, expected: str | None) -> None:
    """On stdout when a person reads it, else on stderr when a person reads that, else nowhere."""
    out, err = (samples.screen(terminal=terminal)[0].out for terminal in terminals)
    chosen = type(samples.screen()[0])(out=out, err=err).bars_on(results_are_data=data)
    assert chosen is {"out": out, "err": err, None: None}[expected]


def held(*pairs: tuple[int, int]) -> VerifyOutcome:
    """Datasets with so many rows at the source and in the lake."""
    return VerifyOutcome(
        credential="shop",
        held=tuple(
            Held(
                table="public.t",
                dataset=dataset(),
                comparison=Comparison(
                    source=Digest(rows=source, checksum=source), lake=Digest(rows=lake, checksum=lake)
                ),
                error=None,
            )
            for source, lake in pairs
        ),
    )


def test_nothing_verified_is_not_a_pass() -> None:
    """No dataset at all is *not measured*."""
    assert not Tally.of([held()]).all_equal
    assert str(Tally.of([held()])) == "nothing verified: nothing is published yet"


def test_verdicts_are_counted() -> None:
    """A source that could not be looked at counts as not verified, and spoils the verdict."""
    assert Tally.of([held((1, 1), (2, 2))]).all_equal
    broken = VerifyOutcome(credential="gone", error=SourceRefusedLogin("no"))
    tally = Tally.of([held((1, 1), (2, 3)), broken])
    assert (tally.equal, tally.different, tally.failed, tally.all_equal) == (1, 1, 1, False)


def test_a_screen_without_a_terminal_has_no_width() -> None:
    """Through a pipe lines stay whole, however long."""
    made, out, _ = screen()
    made.say("x" * 300)
    assert made.width is None
    assert out.getvalue() == "x" * 300 + "\n"
