"""`carbon status` for a person."""

from __future__ import annotations

from carbon_pipeline.control_plane.records import SweepRecord, TickRecord
from carbon_pipeline.terminal.operations import lines_grid
from carbon_pipeline.terminal.screen import Screen
from carbon_pipeline.terminal.spelling import age, counted, duration
from carbon_pipeline.terminal.views import DOUBTFUL, Overview, Watch, status_grid

RATIFY_NOW = "`carbon ratify` sweeps now; under `make dev`, or any other Dagster daemon, a sensor does it."
LOOK_INTO_IT = (
    "`carbon ledger OPERATION` tells the story of one write; `carbon ratify` looks again and says what to do."
)


def say_overview(screen: Screen, overview: Overview) -> None:
    """Every dataset, then the figures, then where things are."""
    if overview.statuses:
        screen.table(status_grid(overview.statuses))
        screen.say()
    _say_summary(screen, overview)
    if overview.watch is not None:
        _say_watch(screen, overview.watch)
    screen.say(f"home           {overview.home}")
    if overview.embedded:
        state = f"up at {overview.server}" if overview.server else "down; `carbon up` starts it"
        screen.say(f"server         embedded, {state}")
    screen.say(f"control plane  {overview.control_plane}")
    for place in overview.catalogs:
        screen.say(f"catalog        {place.name}, {place.kind}, {place.uri}")
        screen.say(f"warehouse      {place.warehouse}")


def _say_summary(screen: Screen, overview: Overview) -> None:
    summary = overview.summary
    if summary is None:
        screen.say("Not known while the embedded server is down: datasets, operations, credentials.", DOUBTFUL)
        return
    published = sum(status.snapshot_id is not None for status in overview.statuses)
    screen.say(
        f"{counted(len(overview.statuses), 'dataset')}, {published:,} published, "
        f"{counted(summary.open_operations, 'open operation')}"
    )
    screen.say(
        f"{counted(summary.credentials, 'credential')}, {summary.defaulted_destinations:,} with a defaulted destination"
    )


def _say_watch(screen: Screen, watch: Watch) -> None:
    if watch.unsettled:
        screen.say()
        screen.table(lines_grid(watch.unsettled))
        screen.say()
    screen.say(f"ratify         {_sweep(watch.last_sweep)}")
    screen.say(f"sensor         {_tick(watch.last_tick)}")
    orphans = watch.orphans
    screen.say(
        f"orphans        {counted(orphans.files, 'file')} of {counted(orphans.operations, 'aborted operation')}"
        if orphans.files
        else "orphans        none"
    )


def _sweep(sweep: SweepRecord | None) -> str:
    if sweep is None:
        return "nobody has swept yet"
    late = f", {sweep.late:,} landed late" if sweep.late else ""
    held = f", {sweep.held_back:,} held back" if sweep.held_back else ""
    did = f"{sweep.settled:,} settled, {sweep.left_alone:,} left alone{held}{late}"
    return f"last sweep {age(sweep.age_seconds)}, by {sweep.trigger}: {did}"


def _tick(tick: TickRecord | None) -> str:
    return "has never looked" if tick is None else f"looked {age(tick.age_seconds)}: {tick.decision}"


def say_trouble(screen: Screen, overview: Overview) -> None:
    """What a person has to look at, on stderr, also where a program reads the result."""
    watch = overview.watch
    if watch is None:
        return
    if watch.overdue:
        deadline = duration(watch.deadline_seconds)
        screen.alarm(f"nobody has looked for unsettled writes within the last {deadline}", RATIFY_NOW)
    for alarm in watch.alarms:
        screen.alarm(f"{alarm.text} ({age(alarm.age_seconds)})", LOOK_INTO_IT)
