"""The two streams of a command: results on stdout, everything about the work itself on stderr."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from carbon_pipeline.errors import CarbonError
from carbon_pipeline.terminal.grid import Grid, cell, fit


def _console(*, stderr: bool) -> Console:
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a command prints. Nothing that comes from outside is taken for markup or reaches the terminal raw."""

    out: Console
    err: Console

    @classmethod
    def of_process(cls) -> Screen:
        """The process's own streams. Rich heeds NO_COLOR, TERM and what each stream is connected to."""
        return cls(out=_console(stderr=False), err=_console(stderr=True))

    @property
    def width(self) -> int | None:
        """Columns of the terminal that results go to; none through a pipe, where lines stay whole."""
        return self.out.width if self.out.is_terminal else None

    def bars_on(self, *, results_are_data: bool) -> Console | None:
        """The terminal that can show bars: stdout's, unless a program reads it, else stderr's, else none."""
        for console in (self.err,) if results_are_data else (self.out, self.err):
            if console.is_terminal and not console.is_dumb_terminal:
                return console
        return None

    def say(self, text: str = "", style: str = "") -> None:
        """A line of the result."""
        self.show(cell(text, style))

    def show(self, line: Text) -> None:
        """A styled line of the result."""
        self.out.print(line, soft_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """A line about the work, on stderr."""
        self.err.print(cell(text, style), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Something that a person should know and that stops nothing."""
        self._headed("warning", "yellow", text)

    def error(self, error: CarbonError, about: str | None = None) -> None:
        """What happened, and below it what to do."""
        self._headed("error", "bold red", error.message if about is None else f"{about}: {error.message}")
        self.note(f"  {error.remedy}")

    def alarm(self, text: str, remedy: str) -> None:
        """Something that a person has to look at, and below it what to do."""
        self._headed("alarm", "bold red", text)
        self.note(f"  {remedy}")

    def _headed(self, head: str, style: str, text: str) -> None:
        self.err.print(Text.assemble((f"{head}: ", style), cell(text)), soft_wrap=True)

    def table(self, grid: Grid) -> None:
        """A table, and below it the names of the columns that the terminal had no room for."""
        fitted = fit(grid, self.width)
        for line in fitted.lines:
            self.show(line)
        if fitted.left_out:
            self.say(f"No room here for: {', '.join(fitted.left_out)}. --json has all.", "dim")

    def document(self, value: object) -> None:
        """A JSON document, the only thing on stdout. No colour, whatever stdout is."""
        self.out.file.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
