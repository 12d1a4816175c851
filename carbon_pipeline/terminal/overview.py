"""`carbon status` for a person."""

from __future__ import annotations

from carbon_pipeline.terminal.screen import Screen
from carbon_pipeline.terminal.spelling import counted
from carbon_pipeline.terminal.views import DOUBTFUL, Overview, status_grid


def say_overview(screen: Screen, overview: Overview) -> None:
    """Every dataset, then the figures, then where things are."""
    if overview.statuses:
        screen.table(status_grid(overview.statuses))
        screen.say()
    _say_summary(screen, overview)
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
