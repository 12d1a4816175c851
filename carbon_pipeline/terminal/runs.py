"""Long work, watched: results are printed as they come, and counted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from carbon_pipeline.errors import CarbonError
from carbon_pipeline.ledger.operation import Entry
from carbon_pipeline.source.relation import Relation
from carbon_pipeline.sync import Receipt
from carbon_pipeline.sync_all import Listener, TableResult
from carbon_pipeline.terminal.grid import cell
from carbon_pipeline.terminal.progress import Bars, Lines, Watching, bars
from carbon_pipeline.terminal.screen import Screen
from carbon_pipeline.terminal.spelling import UNKNOWN, count, counted, duration, size
from carbon_pipeline.terminal.views import QUIET, Held, held_grid
from carbon_pipeline.verify.digest import Equality


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOutcome:
    """What became of one credential's tables."""

    credential: str
    results: tuple[TableResult, ...] = ()
    not_attempted: tuple[str, ...] = ()
    """Tables that a halting error of another one left untouched."""
    error: CarbonError | None = None
    """Why its source could not even be looked at."""

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Of what was published."""
        return tuple(result.receipt for result in self.results if result.receipt is not None)

    @property
    def failed(self) -> tuple[str, ...]:
        """Tables that were tried and not published."""
        return tuple(result.relation.qualified_name for result in self.results if result.error is not None)

    @property
    def complete(self) -> bool:
        """Whether every table was published."""
        return self.error is None and not self.failed and not self.not_attempted


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOutcome:
    """One credential's datasets, held against their source."""

    credential: str
    held: tuple[Held, ...] = ()
    error: CarbonError | None = None
    """Why its source could not even be looked at."""


@contextmanager
def listening(screen: Screen, *, results_are_data: bool) -> Iterator[Watching]:
    """A listener that draws bars on a terminal, and writes lines to stderr where there is none."""
    console = screen.bars_on(results_are_data=results_are_data)
    if console is None:
        yield Lines(screen.note)
        return
    with bars(console) as progress:
        yield Bars(progress)


def run_sync(
    screen: Screen,
    credential: str,
    start: Callable[[Listener], Generator[TableResult, None, None]],
    *,
    say_results: bool,
    results_are_data: bool,
) -> SyncOutcome:
    """Drain a sync, a line per table as it ends unless *results_are_data*. Errors are said in any case, on stderr."""
    quiet = results_are_data or not say_results
    with listening(screen, results_are_data=results_are_data) as watching:
        done = tuple(_drained(screen, watching, start(watching), quiet=quiet))
    tried = {result.relation.oid for result in done}
    missing = tuple(each.qualified_name for each in watching.relations if each.oid not in tried)
    if missing:
        screen.note(f"{counted(len(missing), 'table')} not attempted after that error: {', '.join(missing)}")
    return SyncOutcome(credential=credential, results=done, not_attempted=missing)


def _drained(
    screen: Screen, watching: Watching, results: Generator[TableResult, None, None], *, quiet: bool
) -> Iterator[TableResult]:
    """Closing *results*, which Ctrl-C does as well, waits until the tables under way have closed their operations."""
    with closing(results):
        for result in results:
            _say_result(screen, result, _name_width(watching.relations), quiet=quiet)
            yield result


def _name_width(relations: Iterable[Relation]) -> int:
    return min(40, max((cell(relation.qualified_name).cell_len for relation in relations), default=0))


def _say_result(screen: Screen, result: TableResult, name_width: int, *, quiet: bool) -> None:
    name = result.relation.qualified_name
    if result.error is not None:
        screen.error(result.error, about=name)
    if result.receipt is None or quiet:
        return
    before = result.receipt.settled_before
    if before is not None:
        screen.say(f"{name}: settled first: {settled_line(before)}", QUIET)
    line = cell(name, "bold")
    line.pad_right(max(0, name_width - line.cell_len))
    screen.show(line.append(_receipt_line(result.receipt, result.seconds), ""))


def _receipt_line(receipt: Receipt, seconds: float) -> str:
    facts = receipt.entry.facts
    rows, size_bytes, snapshot = (None, None, UNKNOWN)
    if facts is not None:
        rows, size_bytes, snapshot = facts.rows, facts.size_bytes, str(facts.snapshot_id)
    return f"  {count(rows):>11} rows  {size(size_bytes):>7}  {duration(seconds):>6}  snapshot {snapshot}"


def settled_line(entry: Entry) -> str:
    """An earlier operation, and how it ended."""
    return f"operation {entry.operation_id} is {entry.status} ({entry.ruling})"


def say_sync_summary(screen: Screen, outcomes: Sequence[SyncOutcome], seconds: float) -> None:
    """The last line of a sync; none where no table was reached, which the errors have said."""
    if not any(outcome.results for outcome in outcomes):
        return
    receipts = [receipt for outcome in outcomes for receipt in outcome.receipts]
    rows = sum(receipt.entry.facts.rows for receipt in receipts if receipt.entry.facts is not None)
    parts = [f"{counted(len(receipts), 'table')} published, {counted(rows, 'row')}, {duration(seconds)}"]
    for what, names in (
        ("failed", [name for outcome in outcomes for name in outcome.failed]),
        ("not attempted", [name for outcome in outcomes for name in outcome.not_attempted]),
    ):
        if names:
            parts.append(f"{len(names):,} {what}: {', '.join(names)}")
    screen.say("; ".join(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Verdicts, counted."""

    equal: int
    different: int
    failed: int

    @classmethod
    def of(cls, outcomes: Iterable[VerifyOutcome]) -> Tally:
        """Count them; a source that could not be looked at counts as not verified."""
        every = tuple(outcomes)
        compared = [one.comparison for outcome in every for one in outcome.held]
        verdicts = [None if comparison is None else comparison.verdict for comparison in compared]
        return cls(
            equal=verdicts.count(Equality.EQUAL),
            different=verdicts.count(Equality.DIFFERENT),
            failed=verdicts.count(None) + sum(outcome.error is not None for outcome in every),
        )

    @property
    def all_equal(self) -> bool:
        """Nothing differs, nothing failed, and something was compared at all."""
        return self.equal > 0 and self.different == 0 and self.failed == 0

    def __str__(self) -> str:
        if self.equal + self.different + self.failed == 0:
            return "nothing verified: nothing is published yet"
        return f"{self.equal:,} equal, {self.different:,} different, {self.failed:,} not verified"


def watched(screen: Screen, held: Iterator[Held], *, results_are_data: bool) -> tuple[Held, ...]:
    """Drain a verification, saying meanwhile what is being compared, and every error as it comes."""
    console = screen.bars_on(results_are_data=results_are_data)
    if console is None:
        return tuple(_said(screen, one) for one in held)
    done: list[Held] = []
    with console.status(cell("comparing…")) as status:
        for one in held:
            done.append(_said(screen, one))
            status.update(cell(f"compared {counted(len(done), 'table')}, last {one.table}"))
    return tuple(done)


def _said(screen: Screen, one: Held) -> Held:
    if one.error is not None:
        screen.error(one.error, about=one.table)
    return one


def say_verdicts(screen: Screen, outcomes: Iterable[VerifyOutcome], tally: Tally) -> None:
    """Every dataset, then the count; nothing where none was reached, which the errors have said."""
    held = [one for outcome in outcomes for one in outcome.held]
    if held:
        screen.table(held_grid(held))
    if held or not tally.failed:
        screen.say(str(tally))
