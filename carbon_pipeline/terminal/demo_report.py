"""The demo's table and its last line."""

from __future__ import annotations

from rich.text import Text

from carbon_pipeline.identity import DatasetId
from carbon_pipeline.sync_all import TableResult
from carbon_pipeline.terminal.grid import Column, Grid, cell
from carbon_pipeline.terminal.runs import SyncOutcome, Tally, VerifyOutcome
from carbon_pipeline.terminal.spelling import UNKNOWN, count, counted, duration, size
from carbon_pipeline.terminal.views import BAD, Held, verdict_cell


def demo_grid(synced: SyncOutcome, verified: VerifyOutcome) -> Grid:
    """What was published, and whether it is what the source has."""
    columns = (
        Column(title="table"),
        Column(title="rows", right=True),
        Column(title="size", right=True),
        Column(title="time", right=True),
        Column(title="snapshot", right=True, spare=1),
        Column(title="verdict"),
    )
    held = {one.dataset.id: one for one in verified.held}
    results = sorted(synced.results, key=lambda result: result.relation.qualified_name)
    return Grid(columns=columns, rows=tuple(_row(result, held) for result in results))


def _row(result: TableResult, held: dict[DatasetId, Held]) -> tuple[Text, ...]:
    facts = None if result.receipt is None else result.receipt.entry.facts
    one = None if result.receipt is None else held.get(result.receipt.dataset.id)
    return (
        cell(result.relation.qualified_name, "bold"),
        cell(count(None if facts is None else facts.rows)),
        cell(size(None if facts is None else facts.size_bytes)),
        cell(duration(result.seconds)),
        cell(UNKNOWN if facts is None else str(facts.snapshot_id)),
        cell("not published", BAD) if one is None else verdict_cell(one),
    )


def last_line(synced: SyncOutcome, verified: VerifyOutcome) -> str:
    """`5 tables, 367,687 rows, all equal`, or what is not so."""
    tally = Tally.of([verified])
    rows = sum(one.comparison.lake.rows for one in verified.held if one.comparison is not None)
    verdict = "all equal" if tally.all_equal else str(tally)
    missing = len(synced.failed) + len(synced.not_attempted)
    unpublished = f", {missing:,} not published" if missing else ""
    return f"{counted(len(verified.held), 'table')}, {counted(rows, 'row')}, {verdict}{unpublished}"
