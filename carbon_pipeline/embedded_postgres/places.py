"""Which files there are, where, and who may read them.

    <home>/postgres/    lock       held while the server is being started or stopped
                        password   of the superuser, mode 0600
                        port       the port kept for the server
                        place      only if the server lives elsewhere: where
    <place>/            data/            the data directory, the server account's, mode 0700
                        server.log
                        postgresql.conf  and pg_hba.conf: ours, written at each start
                        running          locked by the server as long as it lives
                        programs-*/      a copy of the programs, if the account cannot reach the package's

The place is `<home>/postgres` itself unless root starts the server and the account that runs it cannot enter there
(a home under /root, say). Nothing that we did not create ever changes its mode or owner.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from carbon_pipeline.embedded_postgres.account import OURSELVES, Account
from carbon_pipeline.errors import EmbeddedServerError

_SHELTERS = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108 - ownership is checked before anything is put there


@dataclass(frozen=True, slots=True)
class Place:
    """The folder that the server lives in."""

    folder: Path

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "server.log"

    @property
    def settings(self) -> Path:
        """`postgresql.conf`, outside the data so that the server's account cannot change it."""
        return self.folder / "postgresql.conf"

    @property
    def access(self) -> Path:
        """`pg_hba.conf`, kept beside it for the same reason."""
        return self.folder / "pg_hba.conf"

    @property
    def running(self) -> Path:
        """Locked by the server and its children as long as one of them lives."""
        return self.folder / "running"


@dataclass(frozen=True, slots=True)
class Records:
    """What the home remembers of its server."""

    folder: Path

    @classmethod
    def of(cls, home: Path) -> Records:
        """The records of a home, which need not exist yet."""
        return cls(home.expanduser().resolve() / "postgres")

    @property
    def lock(self) -> Path:
        """Held while the server is being started or stopped."""
        return self.folder / "lock"

    def create(self) -> None:
        """Makes the home if it is missing, and our folder in it. As root both can be entered, not listed."""
        mode = 0o711 if os.geteuid() == 0 else 0o700
        for folder in (self.folder.parent, self.folder):
            _make(folder, mode)
        _assure_ours(self.folder)

    def password(self) -> str | None:
        """The superuser's password, if there is one."""
        return _read(self.folder / "password")

    def keep_password(self, password: str) -> None:
        """Keeps it for us alone to read."""
        write(self.folder / "password", password, mode=0o600)

    def port(self) -> int | None:
        """The port kept for the server; a file that holds no port counts as none."""
        text = _read(self.folder / "port") or ""
        return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65536 else None

    def keep_port(self, port: int) -> None:
        """Keeps the port for the next start."""
        if self.port() != port:
            write(self.folder / "port", f"{port}\n", mode=0o644)

    def place(self) -> Place:
        """Where the server lives, as far as is known."""
        elsewhere = _read(self.folder / "place")
        return Place(Path(elsewhere) if elsewhere else self.folder)

    def settled_place(self, account: Account) -> Place:
        """The place for this account, found once and then kept."""
        known = self.place()
        if known.folder == self.folder and not account.can_enter(self.folder):
            if known.data.exists() or account == OURSELVES:
                raise EmbeddedServerError(
                    f"the user that the server runs as ({account.uid or os.geteuid()}) cannot enter {self.folder}",
                    remedy=f"Let this user pass (chmod o+x) through the folders above {self.folder}.",
                )
            known = Place(shelter(self.folder, account))
            write(self.folder / "place", f"{known.folder}\n", mode=0o644)
        if not known.folder.exists():
            raise EmbeddedServerError(
                f"the server's data lived in {known.folder}, which is gone",
                remedy=f"Put it back from a backup, or remove {self.folder / 'place'} to start with an empty server.",
            )
        _assure_ours(known.folder)
        return known


def write(path: Path, text: str, *, mode: int) -> None:
    """Writes a file whole or not at all, with this very mode, and follows no link."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _make(folder: Path, mode: int) -> bool:
    """Makes a folder with this very mode; one that is there already stays as it is."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return False
    folder.chmod(mode)
    return True


def shelter(records: Path, account: Account) -> Path:
    """A folder outside the home that the account can enter, that only root can have made, and of a plain name."""
    name = hashlib.sha256(os.fsencode(records)).hexdigest()[:16]
    for parent in _SHELTERS:
        folder = parent / "carbon_pipeline" / name
        try:
            for made in (folder.parent, folder):
                _make(made, 0o711)
                _assure_ours(made)
        except OSError:
            continue
        if account.can_enter(folder):
            return folder
    raise EmbeddedServerError(
        f"no folder was found for the server's data that its user ({account.uid}) can enter",
        remedy="Set CARBON_HOME to a folder that every user can pass through, or run as an ordinary user.",
    )


def _assure_ours(folder: Path) -> None:
    """Refuses a folder that somebody else may have laid in our way."""
    status = folder.lstat()
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    if not ours:
        raise EmbeddedServerError(
            f"{folder} is not a folder that belongs to user {os.geteuid()} and that only this user can write",
            remedy=f"Run as the user who owns {folder}, or move it out of the way after a look at what it holds.",
        )
