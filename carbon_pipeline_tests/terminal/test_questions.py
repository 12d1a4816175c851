"""Where a password may come from, and a destination."""

from __future__ import annotations

from pathlib import Path

import pytest

from carbon_pipeline.destination.coordinate import DEFAULTED, DestinationOrigin
from carbon_pipeline.errors import UsageError
from carbon_pipeline.terminal import questions
from carbon_pipeline.terminal.questions import PasswordSource, choose_destination, read_password
from carbon_pipeline_tests.terminal.samples import screen

CANARY = "c4n4ry-s3cret"


def read(variable: str | None = None, file: Path | None = None) -> tuple[str, str]:
    """The password, and what was said on stderr."""
    made, _, err = screen()
    source = PasswordSource(variable=variable, file=file)
    return read_password(source, {"SHOP": CANARY}.get, made, whose="reader at shop"), err.getvalue()


def written(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    """A password file."""
    path = folder / "password"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_from_a_variable() -> None:
    """The option names the variable; its value is taken as it is."""
    assert read(variable="SHOP") == (CANARY, "")


def test_a_variable_that_is_not_set_is_not_repeated() -> None:
    """Somebody may have put the password itself there, so the error does not say the name."""
    with pytest.raises(UsageError) as caught:
        read(variable=CANARY)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_from_a_file_without_the_line_end(tmp_path: Path, end: bytes) -> None:
    """One line end, which an editor adds, is not part of the password."""
    assert read(file=written(tmp_path, CANARY.encode() + end)) == (CANARY, "")


def test_only_one_line_end_is_taken_away(tmp_path: Path) -> None:
    """Spaces and further line ends belong to the password."""
    assert read(file=written(tmp_path, b" p \n\n"))[0] == " p \n"


def test_a_file_that_others_can_read_is_warned_about(tmp_path: Path) -> None:
    """It is used all the same; that it is open is said."""
    path = written(tmp_path, CANARY.encode(), 0o644)
    assert read(file=path) == (CANARY, f"warning: others can read {path}; chmod 600 keeps the password to you\n")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 5000])
def test_a_file_that_holds_no_password_is_refused(tmp_path: Path, content: bytes) -> None:
    """Bytes that are not text, or far too many, are a wrong path rather than a password."""
    with pytest.raises(UsageError, match="--password-file is"):
        read(file=written(tmp_path, content))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With the reason, and no traceback."""
    with pytest.raises(UsageError, match="No such file"):
        read(file=tmp_path / "nowhere")


def test_two_sources_at_once_are_refused(tmp_path: Path) -> None:
    """Which one would win is a question nobody should have to ask."""
    with pytest.raises(UsageError):
        read(variable="SHOP", file=tmp_path)


def test_without_a_terminal_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that forgot the password gets an error with the two ways to give it, not a prompt that hangs."""
    monkeypatch.setattr(questions, "stdin_is_terminal", lambda: False)
    with pytest.raises(UsageError) as caught:
        read()
    assert "--password-env" in caught.value.remedy
    assert choose_destination(None, screen()[0]) == DEFAULTED


def test_a_destination_is_asked_for_until_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip is explained and asked again; Enter takes the default, and it is on record which of both it was."""
    monkeypatch.setattr(questions, "stdin_is_terminal", lambda: True)
    answers = iter(["Main/Sales", "main.sales"])
    made, _, err = screen()
    chosen = choose_destination(None, made, lambda _prompt: next(answers))
    assert (str(chosen), chosen.origin) == ("main.sales", DestinationOrigin.CHOSEN)
    assert "is not a destination" in err.getvalue()
    assert choose_destination(None, made, lambda _prompt: "") == DEFAULTED
