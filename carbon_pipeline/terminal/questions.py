"""What `carbon connect` has to be told and must not see in its arguments: a password, and a destination by choice."""

from __future__ import annotations

import getpass
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from carbon_pipeline.destination.coordinate import DEFAULTED, Destination, parse_destination
from carbon_pipeline.errors import UsageError
from carbon_pipeline.terminal.screen import Screen

_PASSWORD_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordSource:
    """Where the password is to come from; both none: from the person at the terminal."""

    variable: str | None
    file: Path | None


def stdin_is_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


Lookup = Callable[[str], str | None]
"""An environment variable's value; none when it is not set."""


def read_password(source: PasswordSource, look_up: Lookup, screen: Screen, *, whose: str) -> str:
    """The password, from the one place that was named, or asked for without echo."""
    if source.variable is not None and source.file is not None:
        raise UsageError("--password-env and --password-file are both given", remedy="Give one of them.")
    if source.variable is not None:
        return _from_environment(source.variable, look_up)
    if source.file is not None:
        return _from_file(source.file, screen)
    if not stdin_is_terminal():
        raise UsageError(
            "no password is given, and there is no terminal to ask at",
            remedy="Use --password-env VARIABLE or --password-file PATH (an empty one where none is needed).",
        )
    return getpass.getpass(f"Password of {whose}: ")


def _from_environment(variable: str, look_up: Lookup) -> str:
    value = look_up(variable)
    if value is None:
        # The name is not repeated: somebody may have put the password itself there.
        raise UsageError(
            "the environment variable that --password-env names is not set",
            remedy="Export it first; --password-env takes a variable's name, never the password.",
        )
    return value


def _from_file(path: Path, screen: Screen) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_PASSWORD_BYTES_MAX + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise UsageError(f"--password-file cannot be read: {error.strerror}", remedy=_FILE_REMEDY) from None
    except UnicodeDecodeError:
        raise UsageError("--password-file is not UTF-8 text", remedy=_FILE_REMEDY) from None
    if stat.S_ISREG(mode) and stat.S_IMODE(mode) & 0o077:
        screen.warn(f"others can read {path}; chmod 600 keeps the password to you")
    if len(content) > _PASSWORD_BYTES_MAX:
        raise UsageError(f"--password-file is longer than {_PASSWORD_BYTES_MAX} bytes", remedy=_FILE_REMEDY)
    # An editor ends the last line; that end is not part of the password. Nothing else is taken away.
    return text.removesuffix("\n").removesuffix("\r")


_FILE_REMEDY = "Name a file that holds the password and nothing else."


def choose_destination(given: str | None, screen: Screen, ask: Callable[[str], str] = input) -> Destination:
    """The destination given, or asked for at a terminal, or the default, on record as such."""
    if given is not None:
        return parse_destination(given)
    if not stdin_is_terminal():
        return DEFAULTED
    while True:
        screen.err.print(f"Destination, as catalog.schema [{DEFAULTED}]: ", end="")
        answer = ask("").strip()
        if not answer:
            return DEFAULTED
        try:
            return parse_destination(answer)
        except UsageError as error:
            screen.error(error)
