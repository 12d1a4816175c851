"""Locks that the operating system lets go of when their holder dies.

`flock` and not a file's existence: after a crash nothing is left to clean up. `flock` and not `lockf`: it also keeps
the threads of one process apart, and it goes with the descriptor to a child that is meant to hold it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from carbon_pipeline.errors import EmbeddedServerError

_PAUSE = 0.02


@contextmanager
def held(path: Path, *, seconds: float) -> Iterator[None]:
    """Holds the lock for the length of the block; says which file it is when the wait is too long."""
    descriptor = _open(path)
    try:
        deadline = time.monotonic() + seconds
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"another process has held {path} for more than {seconds:.0f} seconds",
                    remedy=f"Wait for it to finish or end it (`fuser {path}` names it), then run the command again.",
                )
            time.sleep(_PAUSE)
        yield
    finally:
        # Said aloud, because a child forked by another thread may still have a copy of the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@contextmanager
def lent(path: Path) -> Iterator[int]:
    """Takes a free lock and yields its descriptor, for a child that will hold it as long as it lives."""
    descriptor = _open(path)
    try:
        if not _taken(descriptor):
            raise EmbeddedServerError(f"{path} is held by a server that is still running")
        yield descriptor
    finally:
        # Closed without unlocking: unlocking would take the lock from the child as well.
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock. Ask only while holding the lock that guards this one."""
    if not path.exists():
        return False
    descriptor = _open(path)
    try:
        return not _taken(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
