"""What the operating system says, turned into what a person can do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from carbon_pipeline.errors import EmbeddedServerError

NO_SPACE = "No space left on device"
"""PostgreSQL's words for a full disk, whatever the locale: its messages are in English because we start it so."""

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def explained(home: Path) -> Iterator[None]:
    """Raises an `EmbeddedServerError` with a remedy in place of a bare `OSError`."""
    try:
        yield
    except OSError as error:
        what = f"{error.strerror or error}: {error.filename or home}"
        message = f"the embedded PostgreSQL cannot use its files ({what})"
        raise EmbeddedServerError(message, remedy=_remedy(error, home)) from error


def _remedy(error: OSError, home: Path) -> str:
    if error.errno in _FULL:
        return disk_remedy(home)
    if error.errno in _DENIED:
        return f"Make {home} belong to the user who runs this and be writable, or set CARBON_HOME to a folder that is."
    return f"Check that {home} can be a folder on a local disk, or set CARBON_HOME to another one."


def disk_remedy(folder: Path) -> str:
    """What to do when the disk under this folder is full."""
    return f"Free some space on the disk that holds {folder}, then run the command again."
