"""The other half, on in-memory twins of the ports: a process of its own, beside this one, whose figures are added."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from carbon_pipeline_tests.torture.figures import Figures
from carbon_pipeline_tests.torture.invariants import Kind, Violation

MODULE = "carbon_pipeline_tests.simulation"
_COUNTED = {
    "lost": Kind.LOST,
    "duplicated": Kind.DUPLICATED,
    "aborted_visible": Kind.ABORTED_VISIBLE,
    "open_for_ever": Kind.OPEN_FOR_EVER,
    "other_violations": Kind.OTHER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FastHalf:
    """The process, and where it prints."""

    process: subprocess.Popen[bytes]
    output: Path
    command: tuple[str, ...]

    def add_to(self, figures: Figures, seconds: float) -> str:
        """Wait for its end, so long at most, and add what it counted; says what it said to people."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            figures.note("the fast half", [Violation(kind=Kind.OTHER, text=f"it did not end in {seconds:.0f} s")])
            return ""
        said = self.output.read_text().splitlines()
        counted = _last_json(said)
        _add(figures, counted)
        wrong = [
            Violation(kind=kind, text=f"{counted[name]} of them")
            for name, kind in _COUNTED.items()
            if counted.get(name)
        ]
        if code != 0 and not wrong:
            wrong = [Violation(kind=Kind.OTHER, text=f"it ended with {code}: {said[-3:]}")]
        figures.note(" ".join(self.command[1:]), wrong)
        return "\n".join(line for line in said[-20:] if not line.startswith("{"))

    def stop(self) -> None:
        """End it now."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def begin(folder: Path, *, minutes: float, seed: int, quick: bool) -> FastHalf | None:
    """Start it; none where there is no such half."""
    if find_spec(MODULE) is None or find_spec(f"{MODULE}.__main__") is None:
        return None
    command: tuple[str, ...] = (sys.executable, "-m", MODULE, "--minutes", f"{minutes:.2f}", "--seed", str(seed))
    command += ("--quick",) if quick else ()
    output = folder / "fast_half.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    return FastHalf(process=process, output=output, command=command)


def _last_json(lines: list[str]) -> dict[str, Any]:
    found = [line for line in lines if line.startswith("{") and line.endswith("}")]
    figures: dict[str, Any] = json.loads(found[-1]) if found else {}
    return figures


def _add(figures: Figures, counted: dict[str, Any]) -> None:
    """Its kills are of no process, so they count as faults alone."""
    figures.faults += counted.get("faults", 0)
    figures.seeds += counted.get("seeds", 0)
    figures.operations += counted.get("operations", 0)
    figures.planted += counted.get("planted", 0)
    figures.planted_found += counted.get("planted_found", 0)
