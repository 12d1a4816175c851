"""Who runs the server: oneself, or, when that is root, a number that nobody else uses.

PostgreSQL refuses to run as root. `nobody` would do, but other daemons share it and could read our data or end our
server; `postgres` exists on few machines, and there a real PostgreSQL shares it; creating an account would change the
machine. So the server runs under a number without a name. Only `initdb` insists on a name: it runs as `nobody`,
is told no secret, and what it made is then given to the number.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from carbon_pipeline.errors import EmbeddedServerError

_UNUSED_NUMBERS = range(65520, 65532)
"""Free by the convention that systemd and Debian follow, and still inside the 65536 ids that containers map."""

_ROOT = Path("/")
_ORDINARY = "Run as an ordinary user."

_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""All that the server sees of the caller's environment: nothing, so that no PG* variable reaches it."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group to run programs as; `None` is whoever we are."""

    uid: int | None
    gid: int | None

    def run(
        self, command: Sequence[str | Path], *, cwd: Path = _ROOT, seconds: float = 120, keep: tuple[int, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end, in a session of its own so that our terminal's Ctrl-C does not reach it.

        The server must not keep the caller's own input and output open, or whoever reads those waits for ever.
        """
        try:
            return subprocess.run(  # noqa: S603 - our own programs, by full path, without a shell
                command,
                check=False,
                cwd=cwd,
                env=_ENVIRONMENT,
                timeout=seconds,
                pass_fds=keep,
                start_new_session=True,
                umask=0o077,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                user=self.uid,
                group=self.gid,
                extra_groups=None if self.uid is None else [],
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedServerError(f"{Path(command[0]).name} did not end within {seconds:.0f} seconds") from error
        except OSError as error:
            raise EmbeddedServerError(
                f"cannot run {command[0]}{self._as()}: {error.strerror}",
                remedy="Run as an ordinary user, or allow root to switch users (capabilities SETUID and SETGID).",
            ) from error

    def can_enter(self, folder: Path) -> bool:
        """Tried rather than worked out from modes: access lists and mount options have their say too."""
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder]).returncode == 0

    def _as(self) -> str:
        return "" if self.uid is None else f" as user {self.uid}"


OURSELVES = Account(None, None)


def for_new_server() -> Account:
    """The account that a new server will run as."""
    if os.geteuid() != 0:
        return OURSELVES
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    free = next((number for number in _UNUSED_NUMBERS if number not in taken), None)
    if free is None:
        raise EmbeddedServerError("PostgreSQL cannot run as root, and no user id is unused", remedy=_ORDINARY)
    return Account(free, free)


def owner_of(path: Path) -> Account:
    """The account that existing data belong to, which their server must run as."""
    if os.geteuid() != 0:
        return OURSELVES
    status = path.lstat()
    return Account(status.st_uid, status.st_gid)


def for_initdb() -> Account:
    """An account with a name, which `initdb` demands and nothing else does."""
    is_root = os.geteuid() == 0
    try:
        entry = pwd.getpwnam("nobody") if is_root else pwd.getpwuid(os.geteuid())
    except KeyError:
        missing = "there is no user `nobody`" if is_root else f"user {os.geteuid()} has no name"
        raise EmbeddedServerError(
            f"PostgreSQL's initdb refuses, because {missing} on this machine",
            remedy="Add it to /etc/passwd, or set CARBON_CONTROL_PLANE_URL to a PostgreSQL of your own.",
        ) from None
    return Account(entry.pw_uid, entry.pw_gid) if is_root else OURSELVES


def give(folder: Path, account: Account) -> None:
    """Makes a folder that we created, with all it holds, the account's. Follows no link on the way."""
    if account.uid is None or account.gid is None:
        return
    os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    for _, folders, files, descriptor in os.fwalk(folder):
        for name in [*folders, *files]:
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)
