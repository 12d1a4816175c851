"""How far a sync is: bars where a terminal shows them, a line every ten seconds where none does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from carbon_pipeline.source.relation import Relation
from carbon_pipeline.sync_all import Listener, TableResult
from carbon_pipeline.terminal.spelling import count, printable, rate, remaining, size

_NAME_WIDTH_MAX = 28
_LINE_EVERY_SECONDS = 10.0


class Figures(ProgressColumn):
    """Rows, bytes, rate, and the time left by the planner's estimate of the rows."""

    def render(self, task: Task) -> Text:
        """One task's figures; the overall line has none."""
        if "size_bytes" not in task.fields:
            return Text(f"{int(task.completed)} of {int(task.total or 0)}")
        parts = [f"{count(int(task.completed))} rows", size(task.fields["size_bytes"])]
        if task.speed:
            parts.append(rate(task.speed))
        if task.time_remaining:
            parts.append(f"{remaining(task.time_remaining)} left")
        return Text(" · ".join(parts), no_wrap=True, overflow="ellipsis")


def bars(console: Console) -> Progress:
    """Progress bars that leave nothing behind."""
    name = TextColumn("{task.description}", markup=False)
    return Progress(name, BarColumn(bar_width=16), Figures(), console=console, transient=True, refresh_per_second=8)


class Watching(Listener):
    """Remembers which tables are to be synced; how it shows them is its children's."""

    relations: tuple[Relation, ...] = ()

    def planned(self, relations: Sequence[Relation]) -> None:
        """Remember them."""
        self.relations = tuple(relations)


class Bars(Watching):
    """A bar per table that is being read, and one over all."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[int, TaskID] = {}
        self._overall: TaskID | None = None

    def planned(self, relations: Sequence[Relation]) -> None:
        """The bar over all of them."""
        super().planned(relations)
        self._overall = self._progress.add_task("tables", total=len(relations))

    def started(self, relation: Relation) -> None:
        """A bar of its own. An estimate of nothing is none."""
        name = printable(relation.qualified_name)
        short = name if len(name) <= _NAME_WIDTH_MAX else f"{name[: _NAME_WIDTH_MAX - 1]}…"
        self._tasks[relation.oid] = self._progress.add_task(short, total=relation.estimated_rows or None, size_bytes=0)

    def progressed(self, relation: Relation, rows: int, size_bytes: int) -> None:
        """Move it. Past the estimate the bar stays full, and nothing is promised any more."""
        total = None if not relation.estimated_rows else max(rows, relation.estimated_rows)
        self._progress.update(self._tasks[relation.oid], total=total, completed=rows, size_bytes=size_bytes)

    def finished(self, result: TableResult) -> None:
        """Its bar goes; its line in the result says the rest."""
        self._progress.remove_task(self._tasks.pop(result.relation.oid))
        if self._overall is not None:
            self._progress.advance(self._overall)


class Lines(Watching):
    """For logs: now and then a line per table that takes long."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._begun: dict[int, float] = {}
        self._said: dict[int, float] = {}
        self._lock = Lock()

    def started(self, relation: Relation) -> None:
        """Start its clock."""
        with self._lock:
            self._begun[relation.oid] = self._said[relation.oid] = self._clock()

    def progressed(self, relation: Relation, rows: int, size_bytes: int) -> None:
        """A line, unless the last one is recent."""
        now = self._clock()
        with self._lock:
            if now - self._said[relation.oid] < _LINE_EVERY_SECONDS:
                return
            self._said[relation.oid] = now
        speed = rows / max(now - self._begun[relation.oid], 0.001)
        left = ((relation.estimated_rows or 0) - rows) / speed if speed else 0.0
        tail = f", {remaining(left)} left" if left > 0 else ""
        self._say(f"{relation.qualified_name}: {count(rows)} rows, {size(size_bytes)}, {rate(speed)}{tail}")
