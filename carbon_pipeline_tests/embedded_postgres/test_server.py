"""The embedded server starts once, comes back after every fault, and lets in nobody without the password."""

from __future__ import annotations

import errno
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from carbon_pipeline.embedded_postgres import binaries
from carbon_pipeline.embedded_postgres.failures import explained
from carbon_pipeline.embedded_postgres.file_lock import held
from carbon_pipeline.embedded_postgres.server import (
    EmbeddedServer,
    ensure_database,
    ensure_role,
    ensure_running,
    find_running,
    stop,
)
from carbon_pipeline.errors import EmbeddedServerError
from carbon_pipeline_tests.embedded_postgres.conftest import temporary_home

_ROOT = Path(binaries.__file__).parents[2]
_START = """
import json, sys
from pathlib import Path
from carbon_pipeline.embedded_postgres.server import ensure_running
server = ensure_running(Path(sys.argv[1]))
print(json.dumps([server.port, server.password]), flush=True)
"""
_NAMELESS = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be in the place of root")


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*more.values(), str(_ROOT), *sys.path])}


def _starter(home: Path, **more: str) -> subprocess.Popen[str]:
    """A process that asks for the server, prints it and ends."""
    return subprocess.Popen(
        [sys.executable, "-c", _START, str(home)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(**more),
    )  # fmt: skip


def _query(server: EmbeddedServer, statement: str, **login: str) -> object:
    login = {"user": server.user, "password": server.password, "dbname": "postgres", **login}
    conninfo = make_conninfo(host=server.host, port=server.port, connect_timeout=5, **login)
    with psycopg.connect(conninfo) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def _port(home: Path) -> int | None:
    server = find_running(home)
    return None if server is None else server.port


def _postmaster(server: EmbeddedServer) -> int:
    return int((server.data_directory / "postmaster.pid").read_text().splitlines()[0])


def _kill(server: EmbeddedServer) -> None:
    """Ends the server the hard way and waits until its port is quiet."""
    os.kill(_postmaster(server), signal.SIGKILL)
    deadline = time.monotonic() + 10
    with socket.socket() as probe:
        while probe.connect_ex((server.host, server.port)) == 0 and time.monotonic() < deadline:
            probe.close()
            time.sleep(0.02)


def _as_user(number: int, work: Callable[[], object]) -> object:
    """Does the work in a forked child that has become this user: the interpreter itself may be out of its reach."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(number)
            os.setuid(number)
            os.write(writing, json.dumps(work()).encode())
        except BaseException as error:
            os.write(writing, json.dumps(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def _skip_where_out_of_reach(number: int) -> None:
    """Ends the test, unproved, where this user could not even read the environment that the tests run in."""
    programs = distribution("embedded-postgres").locate_file("embedded_postgres/pginstall/bin/postgres")
    if _as_user(number, lambda: os.access(str(programs), os.X_OK)) is not True:
        pytest.skip("other users cannot reach this environment's programs")


def test_it_starts_once_for_two_processes_at_once(home: Path) -> None:
    """Two processes that ask at the same moment get the same server, and it outlives both."""
    starters = [_starter(home) for _ in range(2)]
    answers = [starter.communicate(timeout=60) for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0], answers
    first, second = (json.loads(output) for output, _ in answers)
    server = find_running(home)
    assert server is not None
    assert first == second == [server.port, server.password]
    assert os.getsid(_postmaster(server)) != os.getsid(0), "a Ctrl-C in the starter's terminal would reach it"


def test_it_does_not_hold_the_starters_output(home: Path) -> None:
    """Whoever captures the output of a short-lived starter gets its end while the server runs on."""
    with _starter(home) as starter:
        output, _ = starter.communicate(timeout=30)
    assert json.loads(output)[0] == ensure_running(home).port


def test_it_survives_the_killed_starter(home: Path) -> None:
    """A starter killed in the middle of initdb leaves nothing that the next one stumbles over."""
    starter = _starter(home)
    records = home / "postgres"
    deadline = time.monotonic() + 30
    while not list(records.glob("new-*/data/base")) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert starter.poll() is None, "it ended before it could be killed"
    starter.kill()
    starter.communicate(timeout=10)
    assert not (records / "data").exists()
    assert _query(ensure_running(home), "SELECT 1") == 1
    assert not list(records.glob("new-*"))


def test_a_second_call_takes_one_login_and_no_lock(shared_home: Path, server: EmbeddedServer) -> None:
    """When it is up, asking again does not wait for whoever holds the lock."""
    with held(shared_home / "postgres" / "lock", seconds=1):
        assert ensure_running(shared_home) == server


def test_the_callers_environment_changes_nothing(
    shared_home: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PG* variables that would divert or spoil a connection are without effect."""
    diversions = {"PGHOST": "/nowhere", "PGHOSTADDR": "192.0.2.1", "PGPORT": "1", "PGSSLMODE": "verify-full",
                  "PGOPTIONS": "-c nonsense=1", "PGREQUIREAUTH": "none", "PGCHANNELBINDING": "require"}  # fmt: skip
    for name, value in diversions.items():
        monkeypatch.setenv(name, value)
    assert find_running(shared_home) == server


def test_it_works_under_a_long_path(shared_home: Path, server: EmbeddedServer) -> None:
    """A home whose path is too long for a Unix socket, with characters that a shell would act on, will do."""
    assert len(str(shared_home)) > 108
    assert _query(server, "SHOW data_directory") == str(server.data_directory)
    assert _query(server, "SHOW unix_socket_directories") == ""
    assert _query(server, "SHOW listen_addresses") == "127.0.0.1"


def test_its_databases_are_utf8_with_checksums(server: EmbeddedServer) -> None:
    """Text is UTF-8 in the same order on every machine, pages carry checksums, and fsync stays on."""
    assert _query(server, "SHOW server_encoding") == "UTF8"
    assert _query(server, "SELECT datlocale FROM pg_database WHERE datname = 'postgres'") == "C.UTF-8"
    assert [_query(server, f"SHOW {name}") for name in ("data_checksums", "fsync")] == ["on", "on"]


@pytest.mark.parametrize("password", ["wrong", ""])
def test_it_refuses_whoever_lacks_the_password(server: EmbeddedServer, password: str) -> None:
    """A wrong password and none at all are refused."""
    with pytest.raises(psycopg.OperationalError, match="password"):
        _query(server, "SELECT 1", password=password, passfile="/dev/null")


def test_no_rule_of_access_trusts_anybody(server: EmbeddedServer) -> None:
    """The rules in force demand SCRAM, and on the loopback address only."""
    rules = "SELECT string_agg(DISTINCT concat_ws(' ', type, address, auth_method), ',') FROM pg_hba_file_rules"
    assert _query(server, rules) == "host 127.0.0.1 scram-sha-256"


def test_its_secrets_are_for_the_owner_only(shared_home: Path, server: EmbeddedServer) -> None:
    """The password is in one file with mode 0600, the data are 0700, and nothing shows the password."""
    password = shared_home / "postgres" / "password"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.data_directory.stat().st_mode) == 0o700
    assert server.password not in repr(server)
    holders = subprocess.run(
        ["grep", "-rlF", server.password, shared_home], check=False, capture_output=True, text=True
    ).stdout
    assert holders.split("\n") == [str(password), ""]


def test_databases_and_roles_are_made_once_by_many_threads(server: EmbeddedServer) -> None:
    """Of many threads that ask for the same database one makes it; asking for a role at once does no harm."""
    name, password = "raced " + secrets.token_hex(4), secrets.token_urlsafe()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: ensure_database(server, name), range(8)))
        list(pool.map(lambda _: ensure_role(server, name, password), range(8)))
    assert sorted(made) == [False] * 7 + [True]
    assert _query(server, "SELECT current_user::text", user=name, password=password, dbname=name) == name
    assert _query(server, f"SELECT rolsuper FROM pg_roles WHERE rolname = '{name}'") is False


def test_a_roles_password_can_be_changed_and_is_never_logged(server: EmbeddedServer) -> None:
    """Asking again with another password changes it. Neither password, verifier nor failed statement is logged."""
    name = "changed_" + secrets.token_hex(4)
    for password in ("first-" + secrets.token_hex(8), "second-" + secrets.token_hex(8)):
        ensure_role(server, name, password)
        assert _query(server, "SELECT 1", user=name, password=password) == 1
        with pytest.raises(psycopg.Error):
            _query(server, f"ALTER ROLE nobody_of_this_name PASSWORD '{password}'")
        log = server.log_file.read_text()
        assert password not in log
        assert "SCRAM-SHA-256$" not in log


@pytest.mark.parametrize("name", ["", "x" * 64, "carbon"])
def test_a_role_that_cannot_be_is_refused(server: EmbeddedServer, name: str) -> None:
    """A name that PostgreSQL would cut short, an empty one, and the superuser's own are refused with a reason."""
    with pytest.raises(EmbeddedServerError):
        ensure_role(server, name, "password")


def test_it_comes_back_with_its_data_after_a_kill(worn_home: Path) -> None:
    """A server ended by SIGKILL recovers what was committed and keeps its port."""
    server = ensure_running(worn_home)
    _query(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    _kill(server)
    assert find_running(worn_home) is None
    assert ensure_running(worn_home) == server
    assert _query(server, "SELECT answer FROM kept") == 42


def test_a_stale_pid_file_misleads_nobody(worn_home: Path) -> None:
    """A pid file whose number now belongs to a stranger: the server starts, and the stranger is never signalled."""
    server = ensure_running(worn_home)
    pid_file = server.data_directory / "postmaster.pid"
    _kill(server)
    owner = server.data_directory.stat()
    switch = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
    with subprocess.Popen(["sleep", "60"], cwd="/", **switch) as stranger:  # type: ignore[call-overload]
        try:
            rest = pid_file.read_text().splitlines()[1:]
            pid_file.write_text("\n".join([str(stranger.pid), *rest]) + "\n")
            assert stop(worn_home) is False
            assert ensure_running(worn_home).port == server.port
            assert stop(worn_home) is True
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("content", [None, "", "no port", "1"])
def test_a_lost_port_file_is_written_anew(shared_home: Path, server: EmbeddedServer, content: str | None) -> None:
    """Without the port file, or with nonsense in it, the running server is found and its port kept again."""
    port_file = shared_home / "postgres" / "port"
    port_file.unlink()
    if content is not None:
        port_file.write_text(content)
    assert find_running(shared_home) == server
    assert ensure_running(shared_home) == server
    assert port_file.read_text() == f"{server.port}\n"


def test_another_port_is_taken_when_a_stranger_listens(worn_home: Path) -> None:
    """A stranger that listens on the kept port, and answers nothing, costs the server its port and nothing else."""
    before = ensure_running(worn_home)
    assert stop(worn_home) is True
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind((before.host, before.port))
        stranger.listen()
        stranger.settimeout(0)
        after = ensure_running(worn_home)
    assert after.port != before.port
    assert after.password == before.password
    assert find_running(worn_home) == after


def test_another_homes_server_is_never_taken_for_ours(worn_home: Path, server: EmbeddedServer) -> None:
    """A PostgreSQL on the kept port is not ours if it refuses our login, nor if it has other data."""
    ensure_running(worn_home)
    stop(worn_home)
    records = worn_home / "postgres"
    (records / "port").write_text(f"{server.port}\n")
    assert find_running(worn_home) is None
    own = (records / "password").read_text()
    (records / "password").write_text(server.password)
    assert find_running(worn_home) is None
    assert stop(worn_home) is False
    (records / "password").write_text(own)
    started = ensure_running(worn_home)
    assert started.port != server.port
    assert _query(started, "SHOW data_directory") == str(records / "data")


def test_data_of_another_version_are_refused(worn_home: Path) -> None:
    """Data of another major version are left alone, and the error says what to do."""
    server = ensure_running(worn_home)
    stop(worn_home)
    version = server.data_directory / "PG_VERSION"
    original = version.read_text()
    version.write_text("17\n")
    with pytest.raises(EmbeddedServerError, match=r"written by PostgreSQL 17.*pg_dump"):
        ensure_running(worn_home)
    version.write_text(original)
    assert ensure_running(worn_home) == server


def test_a_lost_password_is_reported(worn_home: Path) -> None:
    """Without its password the data are not touched; the error names the file to put back."""
    server = ensure_running(worn_home)
    stop(worn_home)
    (worn_home / "postgres" / "password").unlink()
    with pytest.raises(EmbeddedServerError, match="password"):
        ensure_running(worn_home)
    (worn_home / "postgres" / "password").write_text(server.password)
    assert ensure_running(worn_home) == server


def test_stopping_twice_is_no_error(home: Path) -> None:
    """The first stop stops, the second finds nothing to stop, and so does one where nothing ever ran."""
    assert stop(home) is False
    assert not home.exists()
    server = ensure_running(home)
    assert [stop(home), stop(home)] == [True, False]
    assert find_running(home) is None
    assert ensure_running(home) == server


def test_a_held_lock_is_named(tmp_path: Path) -> None:
    """Whoever waits too long for the lock is told which file it is."""
    lock = tmp_path / "lock"
    with held(lock, seconds=1), pytest.raises(EmbeddedServerError, match=str(lock)), held(lock, seconds=0.1):
        pass


def test_a_home_that_cannot_be_is_explained(tmp_path: Path) -> None:
    """A home that is a file gives an error with a remedy, not a traceback."""
    blocked = tmp_path / "home"
    blocked.touch()
    with pytest.raises(EmbeddedServerError, match="CARBON_HOME"):
        ensure_running(blocked)


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    """A full disk gives an error that says to free some space."""
    with pytest.raises(EmbeddedServerError, match="Free some space"), explained(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")


@as_root
def test_root_leaves_a_private_home_as_it_is() -> None:
    """Under a folder with mode 0700 the data live elsewhere, and no folder that was there changes mode or owner."""
    with temporary_home(mode=0o700) as home:
        home.mkdir(mode=0o750)
        watched = [home, *home.parents, Path("/var/lib")]
        before = [(path.stat().st_mode, path.stat().st_uid) for path in watched]
        server = ensure_running(home)
        assert [(path.stat().st_mode, path.stat().st_uid) for path in watched] == before
        assert not server.data_directory.is_relative_to(home)
        assert server.data_directory.stat().st_uid not in {0, pwd.getpwnam("nobody").pw_uid}
        assert stop(home) is True
        assert ensure_running(home) == server


@as_root
def test_root_copies_programs_that_the_server_cannot_reach() -> None:
    """Programs under a folder with mode 0700 are copied to where the server's user can run but not change them."""
    with temporary_home() as home:
        private = home.parent / "private"
        private.mkdir(mode=0o700)
        site = binaries._site()
        for part in site.glob("embedded_postgres*"):
            (private / part.name).symlink_to(part)
        starter = _starter(home, programs=str(private))
        output, errors = starter.communicate(timeout=60)
        assert starter.returncode == 0, errors
        assert json.loads(output)[0] == ensure_running(home).port
        [copy] = (home / "postgres").glob("programs-*")
        assert (copy.stat().st_uid, stat.S_IMODE(copy.stat().st_mode)) == (0, 0o755)
        assert Path(f"/proc/{_postmaster(ensure_running(home))}/exe").readlink().is_relative_to(copy)


@as_root
def test_a_user_without_a_name_is_told_so(home: Path) -> None:
    """A user id that is not in /etc/passwd, as in some containers, gets the reason and a way out."""
    _skip_where_out_of_reach(_NAMELESS)
    home.mkdir(mode=0o700)
    os.chown(home, _NAMELESS, _NAMELESS)
    answer = str(_as_user(_NAMELESS, lambda: ensure_running(home / "own").port))
    assert f"user {_NAMELESS} has no name" in answer
    assert "CARBON_CONTROL_PLANE_URL" in answer


@as_root
def test_a_folder_laid_by_somebody_else_is_refused(home: Path) -> None:
    """A folder in our place that belongs to another user is not used."""
    laid = home / "postgres"
    laid.mkdir(parents=True)
    os.chown(laid, 12345, 12345)
    with pytest.raises(EmbeddedServerError, match="belongs to user 0"):
        ensure_running(home)


@as_root
def test_an_ordinary_user_runs_it_as_oneself(home: Path) -> None:
    """An ordinary user starts, finds and stops a server that runs as this user; elsewhere the error says why not."""
    nobody = pwd.getpwnam("nobody").pw_uid
    _skip_where_out_of_reach(nobody)
    home.mkdir(mode=0o700)
    os.chown(home, nobody, nobody)
    own = home / "own"
    assert _as_user(nobody, lambda: ensure_running(own).port) == _port(own)
    assert (own / "postgres" / "data" / "postmaster.pid").stat().st_uid == nobody
    assert _as_user(nobody, lambda: [stop(own), stop(own)]) == [True, False]
    assert "CARBON_HOME" in str(_as_user(nobody, lambda: ensure_running(Path("/var/not-mine")).port))
    shutil.rmtree(own)
