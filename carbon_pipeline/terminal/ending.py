"""How a command ends: its exit code, and one line with a remedy for whatever went wrong."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

from carbon_pipeline.errors import CarbonError, UsageError
from carbon_pipeline.settings import debugging
from carbon_pipeline.terminal.screen import Screen

DONE, FAILED, MISUSED = 0, 1, 2
INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


class Interrupted(Exception):
    """Somebody pressed Ctrl-C. The message says what will happen next."""


@contextmanager
def promising(what_happens_next: str) -> Iterator[None]:
    """Turn a Ctrl-C inside into `Interrupted` with that promise."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted. {what_happens_next}") from None


def run(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run one command and give its exit code."""
    screen = Screen.of_process()
    try:
        code = app(list(arguments), prog_name="carbon", standalone_mode=False)
    except typer.TyperException as error:
        return _say_misuse(screen, error)
    except Interrupted as error:
        screen.note(str(error))
        return INTERRUPTED
    except typer.Abort:
        screen.error(UsageError("nothing was answered"))
        return MISUSED
    except CarbonError as error:
        say_traceback()
        screen.error(error)
        return MISUSED if isinstance(error, UsageError) else FAILED
    except Exception as error:
        # The last resort. Its message may hold anything, a secret too, so only its name is said.
        say_traceback()
        screen.error(CarbonError(f"unexpected {type(error).__name__}", remedy=_UNEXPECTED_REMEDY))
        return FAILED
    if code == INTERRUPTED:  # what Typer makes of a Ctrl-C that nobody promised anything about
        screen.note("Interrupted.")
    return code if isinstance(code, int) else DONE


_UNEXPECTED_REMEDY = "Run the command again with CARBON_DEBUG=1 to see the traceback."


def _say_misuse(screen: Screen, error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if context is not None and message == context.get_help():  # a group without a command shows what there is
        screen.out.file.write(f"{message}\n")
    else:
        command = "carbon" if context is None else context.command_path
        screen.error(UsageError(message.rstrip("."), remedy=f"`{command} --help` says what there is."))
    return error.exit_code


def say_traceback() -> None:
    """The traceback of the error at hand, where it was asked for."""
    if debugging():
        traceback.print_exc()
