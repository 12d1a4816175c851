"""The embedded PostgreSQL: started by whoever needs it first, stopped only by `stop`.

Alive means that a login with our password succeeds and that the server has our data; a pid file proves nothing. While
it lives, the server holds the lock on the file `running`, which it inherits at its start: this tells, also across
containers and whatever becomes of process numbers, whether data without an answering server are free to be started.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import time
from pathlib import Path

from carbon_pipeline.embedded_postgres import account as accounts
from carbon_pipeline.embedded_postgres import binaries as programs
from carbon_pipeline.embedded_postgres import cluster
from carbon_pipeline.embedded_postgres.account import Account
from carbon_pipeline.embedded_postgres.binaries import Binaries
from carbon_pipeline.embedded_postgres.failures import explained
from carbon_pipeline.embedded_postgres.file_lock import held, is_held, lent
from carbon_pipeline.embedded_postgres.login import HOST, SUPERUSER, EmbeddedServer, refusal
from carbon_pipeline.embedded_postgres.places import Place, Records
from carbon_pipeline.embedded_postgres.roles import ensure_database, ensure_role
from carbon_pipeline.errors import EmbeddedServerError

__all__ = ["EmbeddedServer", "ensure_database", "ensure_role", "ensure_running", "find_running", "stop"]

_START_SECONDS = 60
_LOCK_SECONDS = 2 * _START_SECONDS  # a holder may first wait for a server and then start one
_PORTS = range(20000, 32768)  # below the range from which systems take ports for outgoing connections
_PORT_ATTEMPTS = 3


def ensure_running(home: Path) -> EmbeddedServer:
    """The server of this home, started if it is not up. Any number of processes may ask at once."""
    with explained(home):
        records = Records.of(home)
        server = _find(records)
        if server is None or server.port != records.port():
            records.create()
            with held(records.lock, seconds=_LOCK_SECONDS):
                server = _awaited(records, records.place()) or _bring_up(records)
                records.keep_port(server.port)
        return server


def find_running(home: Path) -> EmbeddedServer | None:
    """The server of this home if it is up. Only looks."""
    with explained(home):
        return _find(Records.of(home))


def stop(home: Path) -> bool:
    """Stops the server of this home and waits for its end. False if none ran."""
    with explained(home):
        records = Records.of(home)
        place = records.place()
        if not place.data.is_dir():
            return False
        with held(records.lock, seconds=_LOCK_SECONDS):
            if not is_held(place.running) and _find(records) is None:
                return False
            _stop(place)
            return True


def _find(records: Records) -> EmbeddedServer | None:
    """Asks at the kept port, and else at the one that the pid file tells of."""
    password = records.password()
    if password is None:
        return None
    place = records.place()
    kept = records.port()
    if kept is not None and refusal(server := _described(place, kept, password)) is None:
        return server
    told = cluster.postmaster(place.data)
    if told is not None and told[1] not in (None, kept):
        server = _described(place, told[1] or 0, password)
        return server if refusal(server) is None else None
    return None


def _described(place: Place, port: int, password: str) -> EmbeddedServer:
    return EmbeddedServer(
        host=HOST, port=port, user=SUPERUSER, password=password, data_directory=place.data, log_file=place.log
    )


def _bring_up(records: Records) -> EmbeddedServer:
    """Starts the server, of which nothing lives, after making whatever it lacks."""
    known = records.place().data
    account = accounts.owner_of(known) if known.is_dir() else accounts.for_new_server()
    place = records.settled_place(account)
    binaries = programs.usable_by(account, place.folder)
    password = _password(records, place)
    if not place.data.is_dir():
        cluster.create(place, binaries, account, password)
    cluster.check_version(place, binaries)
    cluster.disown_pid_file(place.data)
    cluster.write_settings(place)
    return _start(records, place, binaries, account)


def _password(records: Records, place: Place) -> str:
    """The kept password; a new one only while there are no data that would want the old one."""
    password = records.password()
    if password is None and place.data.is_dir():
        raise EmbeddedServerError(
            f"the password of the data in {place.data} is lost",
            remedy=f"Put {records.folder / 'password'} back from a backup, or move {place.data} away to start anew.",
        )
    if password is None:
        password = secrets.token_urlsafe(32)
        records.keep_password(password)
    return password


def _awaited(records: Records, place: Place) -> EmbeddedServer | None:
    """Waits for a server that lives but does not answer yet; nothing if none lives."""
    deadline = time.monotonic() + _START_SECONDS
    while is_held(place.running):
        password = _password(records, place)
        if (server := _find(records)) is not None:
            return server
        if time.monotonic() > deadline:
            reason = refusal(_described(place, records.port() or 0, password))
            raise EmbeddedServerError(
                f"the embedded PostgreSQL runs but has let nobody in for {_START_SECONDS} seconds: {reason}",
                remedy=f"It may be recovering from a crash ({place.log} tells). Wait, then run the command again.",
            )
        time.sleep(0.1)
    return None


def _start(records: Records, place: Place, binaries: Binaries, account: Account) -> EmbeddedServer:
    for _ in range(_PORT_ATTEMPTS):
        port = _free_port(records.port())
        complaint = _pg_ctl_start(place, binaries, account, port)
        server = _described(place, port, records.password() or "")
        if not complaint and (complaint := refusal(server) or "") == "":
            return server
        if (awaited := _awaited(records, place)) is not None:
            return awaited
        if _is_free(port):
            break
    raise cluster.failed("the embedded PostgreSQL did not start", complaint, place.folder, look=place.log)


def _pg_ctl_start(place: Place, binaries: Binaries, account: Account, port: int) -> str:
    """Starts the server and waits until it is ready. Answers with what was wrong; with nothing if it went well.

    Names are relative where they can be, because pg_ctl pastes them into a shell command without quoting them.
    """
    log_start = _prepared_log(place, account)
    ours = {"config_file": place.settings, "hba_file": place.access}
    options = " ".join([f"-p {port}", *(f"-c {name}={shlex.quote(str(path))}" for name, path in ours.items())])
    command = ["start", "-w", "-t", str(_START_SECONDS), "-D", place.data.name, "-l", place.log.name, "-o", options]
    with lent(place.running) as lock:
        outcome = account.run(
            [str(binaries.pg_ctl), *command], cwd=place.folder, seconds=2 * _START_SECONDS, keep=(lock,)
        )
    if outcome.returncode == 0:
        return ""
    with place.log.open(errors="replace") as log:
        log.seek(log_start)
        return outcome.stderr + log.read()


def _prepared_log(place: Place, account: Account) -> int:
    """Makes the log file, which the server's account could not make in our folder. Answers with its length."""
    descriptor = os.open(place.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        if account.uid is not None and account.gid is not None:
            os.fchown(descriptor, account.uid, account.gid)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _stop(place: Place) -> None:
    account = accounts.owner_of(place.data)
    told = cluster.postmaster(place.data)
    if told is None or not _is_postmaster(told[0], place, account):
        raise EmbeddedServerError(
            f"a server uses {place.data}, but none of the processes seen here is it",
            remedy="If it runs in another container, stop it there; if it has just crashed, try again in a moment.",
        )
    binaries = programs.usable_by(account, place.folder)
    command = ["stop", "-m", "fast", "-w", "-t", str(_START_SECONDS), "-D", place.data.name]
    outcome = account.run([str(binaries.pg_ctl), *command], cwd=place.folder, seconds=2 * _START_SECONDS)
    if outcome.returncode != 0:
        raise cluster.failed("the embedded PostgreSQL did not stop", outcome.stderr, place.folder, look=place.log)


def _is_postmaster(pid: int, place: Place, account: Account) -> bool:
    """Whether this pid is our server as far as the system can tell, before pg_ctl sends it a signal.

    The server works in its data directory. Asked as the server's account: root without SYS_PTRACE may not look.
    """
    if not Path("/proc/self/cwd").exists():
        return True
    script = '[ "/proc/$1/cwd" -ef "$2" ]'
    return account.run(["/bin/sh", "-c", script, "sh", str(pid), place.data]).returncode == 0


def _free_port(kept: int | None) -> int:
    """The kept port while nobody else has it, else another one."""
    if kept is not None and _is_free(kept):
        return kept
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        if _is_free(port):
            return port
    raise EmbeddedServerError(f"no free port between {_PORTS.start} and {_PORTS.stop} on {HOST}",
                              remedy="End programs that hold ports there.")  # fmt: skip


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As PostgreSQL itself does it: connections that have just ended do not count as somebody else.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
