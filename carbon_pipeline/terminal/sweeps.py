"""A sweep, as a person and as a program read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rich.text import Text

from carbon_pipeline.ledger.operation import Operation
from carbon_pipeline.ratify.orphans import OrphanReport
from carbon_pipeline.ratify.sweep import Case, SweepReport, Verdict
from carbon_pipeline.terminal.grid import Column, Grid, cell
from carbon_pipeline.terminal.screen import Screen
from carbon_pipeline.terminal.spelling import UNKNOWN, counted
from carbon_pipeline.terminal.views import BAD, DOUBTFUL, GOOD, QUIET

Document = dict[str, object]

SHORT_ID = 8
"""Digits of an operation's id in a table; `carbon ledger` understands them."""

TOO_MANY = (
    "So many at once are rarely dead writers: check that the catalogs and warehouses are those that the operations "
    "name (`carbon ledger --open`). If they are, run `carbon ratify --max-aborts N`."
)
ROLL_BACK = (
    "Roll the table back to the parent of that snapshot, or sync it again, which replaces its rows. The ruling stays."
)
ASK_AGAIN = "Nothing was changed or deleted. Run it again once the catalog answers."

_STYLES = {Verdict.SETTLED: GOOD, Verdict.WOULD_SETTLE: GOOD, Verdict.LEFT: DOUBTFUL, Verdict.HELD_BACK: BAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A sweep, and what was done besides. A dry run cleans nothing up."""

    report: SweepReport
    orphans: OrphanReport | None
    reported: int | None
    """Materialisations that Dagster was told of; none where it could not be told."""

    @property
    def is_well(self) -> bool:
        """Nothing that a person has to look at, and nothing left because nobody answered."""
        return not self.report.is_alarming and not self.report.stuck


def sweep_grid(report: SweepReport) -> Grid:
    """What was due, one line each."""
    columns = (
        Column(title="dataset"),
        Column(title="operation"),
        Column(title="was", spare=2),
        Column(title="verdict"),
        Column(title="ruling"),
        Column(title="reason", spare=1),
    )
    return Grid(columns=columns, rows=tuple(_row(case) for case in report.cases if not case.waits))


def _row(case: Case) -> tuple[Text, ...]:
    operation = case.operation
    return (
        cell(operation.dataset.coordinate, "bold"),
        cell(str(operation.id)[:SHORT_ID]),
        cell(operation.status),
        cell(case.verdict, _STYLES[case.verdict]),
        cell(UNKNOWN if case.ruling is None else case.ruling),
        cell(case.reason, QUIET),
    )


def say_sweep(screen: Screen, swept: Swept) -> None:
    """Every operation that was due, the summary, and what a person has to do."""
    report = swept.report
    grid = sweep_grid(report)
    if grid.rows:
        screen.table(grid)
    screen.say(summary_line(report))
    if swept.orphans is not None:
        screen.say(f"{counted(swept.orphans.removed, 'orphan')} removed")
    if swept.reported:
        screen.say(f"{counted(swept.reported, 'materialisation')} reported to Dagster that the dead never did")


def say_trouble(screen: Screen, swept: Swept) -> None:
    """What is wrong and what to do, on stderr, also where a program reads the result."""
    report = swept.report
    if report.alarm is not None:
        screen.alarm(report.alarm, TOO_MANY)
    for operation in report.late:
        screen.alarm(_late(operation), ROLL_BACK)
    if report.stuck:
        screen.alarm(
            f"{counted(len(report.stuck), 'operation')} could not be settled: {report.stuck[0].reason}", ASK_AGAIN
        )
    if swept.orphans is not None:
        for path in swept.orphans.kept:
            screen.warn(f"{path} is left: a snapshot refers to it although its operation was aborted")
        for failed in swept.orphans.failed:
            screen.warn(f"orphans of {failed}")


def _late(operation: Operation) -> str:
    return f"{operation.dataset.coordinate}: operation {operation.id} was aborted, and the lake shows it all the same"


def summary_line(report: SweepReport) -> str:
    """`2 settled (1 landed, 1 fenced), 1 left alone`."""
    verdict = Verdict.WOULD_SETTLE if report.dry_run else Verdict.SETTLED
    verdicts = Counter(case.verdict for case in report.cases)
    rulings = Counter(str(case.ruling) for case in report.cases if case.verdict is verdict)
    which = ", ".join(f"{number:,} {ruling}" for ruling, number in sorted(rulings.items()))
    parts = [f"{verdicts[verdict]:,} {verdict.value}" + (f" ({which})" if which else "")]
    parts.append(f"{verdicts[Verdict.LEFT]:,} left alone")
    if verdicts[Verdict.HELD_BACK]:
        parts.append(f"{verdicts[Verdict.HELD_BACK]:,} held back")
    if report.late:
        parts.append(f"{len(report.late):,} landed late")
    return ", ".join(parts) + ("; a dry run, nothing was changed" if report.dry_run else "")


def sweep_document(swept: Swept) -> Document:
    """`carbon ratify --json`. `is_well` is what the exit code says too."""
    report, orphans = swept.report, swept.orphans
    verdicts = Counter(case.verdict for case in report.cases)
    return {
        "dry_run": report.dry_run,
        "operations": [_case(case) for case in report.cases],
        "late": [{"operation": str(each.id), "dataset": each.dataset.coordinate} for each in report.late],
        "alarm": report.alarm,
        "settled": verdicts[Verdict.SETTLED] + verdicts[Verdict.WOULD_SETTLE],
        "left_alone": verdicts[Verdict.LEFT],
        "held_back": verdicts[Verdict.HELD_BACK],
        "stuck": len(report.stuck),
        "orphans": None
        if orphans is None
        else {"removed": orphans.removed, "kept": list(orphans.kept), "failed": list(orphans.failed)},
        "reported_to_dagster": swept.reported,
        "is_well": swept.is_well,
    }


def _case(case: Case) -> Document:
    return {
        "operation": str(case.operation.id),
        "workspace": case.operation.dataset.workspace,
        "dataset": case.operation.dataset.coordinate,
        "seq": case.operation.seq,
        "was": case.operation.status.value,
        "verdict": case.verdict.value,
        "ruling": case.ruling and case.ruling.value,
        "reason": case.reason,
        "is_due": not case.waits,
    }
