"""The `carbon` command as a person and as a program use it, on an embedded server of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer

from carbon_pipeline import cli
from carbon_pipeline.embedded_postgres.server import (
    EmbeddedServer,
    ensure_database,
    ensure_role,
    ensure_running,
    find_running,
    stop,
)
from carbon_pipeline.terminal.ending import run
from carbon_pipeline_tests.conftest import admin_connection

CARBON = Path(sys.executable).with_name("carbon")
CANARY = "c4n4ry-S3cret-\u00fc"
OURS = ("PG", "CARBON_", "DAGSTER_", "PYICEBERG_")
LAST_LINE = "5 tables, 367,687 rows, all equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its stdout, which is one JSON document."""
        return json.loads(self.out)


Run = Callable[..., Ran]


@contextlib.contextmanager
def temporary_home() -> Iterator[Path]:
    """A `CARBON_HOME` where an unprivileged server can reach it, stopped and removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="carbon-cli-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """The home of this file's tests."""
    with temporary_home() as folder:
        yield folder


@pytest.fixture(scope="module")
def server(home: Path) -> EmbeddedServer:
    """Its server, with a shop whose password is the canary."""
    server = ensure_running(home)
    ensure_database(server, "shop")
    ensure_role(server, "reader", CANARY)
    with admin_connection(server, "shop") as connection:
        connection.execute(
            """
            CREATE TABLE customers (id integer PRIMARY KEY, name text NOT NULL);
            CREATE TABLE orders
                (id bigint PRIMARY KEY, customer integer REFERENCES customers, note text, paid numeric(9,2));
            CREATE TABLE secrets (id integer);
            INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace');
            INSERT INTO orders VALUES (1, 1, NULL, 9.90), (2, 2, '', 0), (3, 2, 'a "b"', NULL);
            GRANT SELECT ON customers, orders TO reader;
            ANALYZE;
            """
        )
    return server


@pytest.fixture
def carbon(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process; asserts by the way that the canary is in no output."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CARBON_HOME", str(home))
    monkeypatch.setenv("CARBON_USER", "ada")
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(cli.app, arguments)
        said = capsys.readouterr()
        ran = Ran(code=code, out=said.out, err=said.err)
        assert CANARY not in ran.out + ran.err
        assert "Traceback" not in ran.err
        return ran

    return command


def connect_arguments(server: EmbeddedServer, name: str = "shop", *more: str, user: str = "reader") -> list[str]:
    """`connect postgres` to the shop."""
    address = ["--host", server.host, "--port", str(server.port), "--database", "shop", "--user", user]
    return ["connect", "postgres", name, *address, "--tls", "disable", *more]


@pytest.fixture
def shop(server: EmbeddedServer, carbon: Run) -> str:
    """The shop as a credential, connected once for the file."""
    if not any(each["name"] == "shop" for each in carbon("credentials", "--json").document):
        ran = carbon(
            *connect_arguments(server, "shop", "--password-env", "SHOP_PASSWORD", "--destination", "main.sales")
        )
        assert ran.code == 0, ran.err
    return "shop"


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a command in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, "CARBON_HOME": str(home), "CARBON_USER": "ada", "NO_COLOR": "1", **more}


def subcommands(command: Any, path: Sequence[str] = ()) -> Iterator[tuple[Sequence[str], Any]]:
    """Every command with the words that lead to it."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from subcommands(child, (*path, name))


@pytest.mark.golden
def test_help(golden: Callable[[str, str], None], carbon: Run) -> None:
    """Every command's help, as a person reads it on a terminal of 80 columns."""
    pages = []
    for path, _ in subcommands(typer.main.get_command(cli.app)):
        ran = carbon(*path, "--help")
        assert (ran.code, ran.err) == (0, "")
        pages.append(f"$ {' '.join(('carbon', *path, '--help'))}\n\n{ran.out}")
    golden("cli_help.txt", f"\n{'-' * 80}\n\n".join(pages))


def test_every_command_has_an_example() -> None:
    """Help without an example leaves the reader to guess."""
    for path, command in subcommands(typer.main.get_command(cli.app)):
        if path and not hasattr(command, "commands"):
            assert re.search(r"\n  carbon ", command.help or ""), path


def test_help_waits_for_nothing_heavy() -> None:
    """`carbon --help` imports neither PyIceberg nor Dagster nor a database driver."""
    heavy = ("pyiceberg", "dagster", "sqlalchemy", "psycopg", "duckdb", "cryptography")
    program = f"import sys, carbon_pipeline.cli; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_version(carbon: Run) -> None:
    """`--version` says which."""
    ran = carbon("--version")
    assert ran.code == 0
    assert re.fullmatch(r"carbon_pipeline \d+\.\d+\.\d+\n", ran.out)


@pytest.mark.parametrize(
    "arguments",
    [
        ["sync", "--no-such-option"],
        ["snc"],
        ["tables"],
        ["sync", "--workers", "0"],
        ["sync", "--workers", "many"],
        ["connect", "postgres", "shop"],
        ["connect", "postgres", "shop", "--database", "d", "--user", "u", "--tls", "perhaps"],
        ["query", "SELECT 1", "--json", "--csv"],
    ],
)
def test_wrong_usage_is_an_error_with_a_remedy(carbon: Run, arguments: list[str]) -> None:
    """Exit code 2, the error and what to do on stderr, nothing on stdout."""
    ran = carbon(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"error: .+\n  .+\n", ran.err)


def test_nothing_asked_is_help(carbon: Run) -> None:
    """`carbon` and `carbon workspace` alone show what there is, as wrong usage."""
    for arguments in ([], ["workspace"]):
        ran = carbon(*arguments)
        assert (ran.code, ran.err) == (2, "")
        assert ran.out.startswith("Usage: carbon")


def test_status_starts_nothing(carbon: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the embedded server is down it stays down, and figures that nobody knows are null."""
    monkeypatch.setenv("CARBON_HOME", str(tmp_path / "elsewhere"))
    ran = carbon("status", "--json")
    assert ran.code == 0
    assert ran.document["summary"] is ran.document["ratify"] is None
    assert ran.document["embedded_server"] == {"in_use": True, "running": False, "address": None}
    assert "`carbon up` starts it" in carbon("status").out
    assert not (tmp_path / "elsewhere").exists()


def test_down_where_nothing_runs(carbon: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing to stop is not a failure."""
    monkeypatch.setenv("CARBON_HOME", str(tmp_path / "elsewhere"))
    ran = carbon("down")
    assert (ran.code, ran.out) == (0, f"None runs for {tmp_path / 'elsewhere'}\n")


def test_workspaces(server: EmbeddedServer, carbon: Run) -> None:
    """A workspace is made once, with an owner; the list has it."""
    made = carbon("workspace", "create", "acme", "--owner", "grace", "--json")
    assert made.document["name"] == "acme"
    assert made.document["owner"] == "grace"
    assert {"acme", "main"} <= {each["name"] for each in carbon("workspace", "list", "--json").document}
    again = carbon("workspace", "create", "acme")
    assert again.code == 2
    assert "already" in again.err


def test_who_owns_no_workspace_has_nowhere_to_connect(
    server: EmbeddedServer, carbon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger is told so, before a password is asked for."""
    monkeypatch.setenv("CARBON_USER", "stranger")
    ran = carbon(*connect_arguments(server))
    assert ran.code == 2
    assert "stranger owns no workspace" in ran.err


def test_connecting_by_variable(server: EmbeddedServer, carbon: Run) -> None:
    """The document says what was found and where it lands; `credentials` has it, without user or password."""
    ran = carbon(*connect_arguments(server, "by_variable", "--password-env", "SHOP_PASSWORD", "--json"))
    assert ran.code == 0, ran.err
    assert ran.document["credential"]["destination"] == "main.default"
    assert ran.document["credential"]["destination_origin"] == "defaulted"
    assert ran.document["tables"] == 3
    assert ran.document["server_version"]
    listed = carbon("credentials", "--json").document
    [credential] = [each for each in listed if each["name"] == "by_variable"]
    assert credential == ran.document["credential"]
    assert set(credential) == {
        *("id", "name", "workspace", "destination", "destination_origin", "system_identifier"),
        *("host", "port", "database", "created_by", "created_at"),
    }


def test_connecting_by_file(server: EmbeddedServer, carbon: Run, tmp_path: Path) -> None:
    """A file's last line end is no part of the password; a file that others can read draws a warning."""
    path = tmp_path / "password"
    path.write_text(f"{CANARY}\n")
    path.chmod(0o644)
    ran = carbon(*connect_arguments(server, "by_file", "--password-file", str(path), "--destination", "main.files"))
    assert ran.code == 0, ran.err
    assert "others can read" in ran.err
    assert "They land in main.files (chosen), workspace main" in ran.out


def test_a_superuser_is_warned_about(server: EmbeddedServer, carbon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting with more rights than reading needs works, and is said."""
    monkeypatch.setenv("SHOP_PASSWORD", server.password)
    ran = carbon(*connect_arguments(server, "as_superuser", "--password-env", "SHOP_PASSWORD", user=server.user))
    assert ran.code == 0, ran.err
    assert "superuser" in ran.err
    assert server.password not in ran.out + ran.err


def test_a_credential_is_updated_only_when_asked(server: EmbeddedServer, carbon: Run, shop: str) -> None:
    """The same name again is refused; `--update` stores another connection to the same database, and no other one."""
    password = ["--password-env", "SHOP_PASSWORD"]
    again = carbon(*connect_arguments(server, shop, *password))
    assert again.code == 2
    assert "--update" in again.err
    updated = carbon(*connect_arguments(server, shop, *password, "--update", "--json"))
    assert updated.document["updated"] is True
    assert updated.document["credential"]["destination"] == "main.sales"
    moved = carbon(*connect_arguments(server, shop, *password, "--update", "--destination", "main.other"))
    assert moved.code == 2
    other = [word if word != "shop" else "postgres" for word in connect_arguments(server, "-", *password, "--update")]
    other[2] = shop
    replaced = carbon(*other)
    assert replaced.code == 1
    assert "stands for database shop" in replaced.err


def test_a_wrong_password_saves_nothing(server: EmbeddedServer, carbon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is tested first; the failed password is in no output."""
    monkeypatch.setenv("SHOP_PASSWORD", "wr0ng-c4n4ry")
    ran = carbon(*connect_arguments(server, "wrong", "--password-env", "SHOP_PASSWORD"))
    assert ran.code == 1
    assert re.match(r"error: .+\n  .+\n$", ran.err)
    assert "wr0ng" not in ran.out + ran.err
    assert "wrong" not in [each["name"] for each in carbon("credentials", "--json").document]


def test_an_unreachable_host(server: EmbeddedServer, carbon: Run) -> None:
    """A port where nobody listens is an error with a remedy."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        arguments = connect_arguments(server, "nobody", "--password-env", "SHOP_PASSWORD")
        arguments[arguments.index("--port") + 1] = port
        ran = carbon(*arguments)
    assert ran.code == 1
    assert "host, port" in ran.err


def test_a_catalog_that_is_not_there(server: EmbeddedServer, carbon: Run) -> None:
    """A destination in an unknown catalog is refused before a password is asked for."""
    ran = carbon(*connect_arguments(server, "elsewhere", "--destination", "nowhere.sales"))
    assert ran.code == 2
    assert "no catalog called nowhere" in ran.err


def test_at_a_terminal_it_asks(server: EmbeddedServer, carbon: Run, home: Path) -> None:
    """The destination, Enter for the default, then the password, which is not echoed."""
    command = [str(CARBON), *connect_arguments(server, "asked")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, environment(home))  # noqa: S606 - our own command, at a terminal
    said = _answer(terminal, [("Destination", ""), ("Password of reader", CANARY)])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said
    assert CANARY not in said
    assert "They land in main.default (defaulted)" in said


def _answer(terminal: int, answers: Sequence[tuple[str, str]]) -> str:
    """Types each answer once its question is there; gives all that was on the terminal."""
    said, waiting, deadline = "", list(answers), time.monotonic() + 30
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # Linux's way to say that the other end is closed
            break
        said += chunk.decode("utf-8", "replace")
        if waiting and waiting[0][0] in said:
            time.sleep(0.2)  # the question is printed before the echo is off
            os.write(terminal, f"{waiting.pop(0)[1]}\n".encode())
    os.close(terminal)
    return said


def test_no_password_and_no_terminal(server: EmbeddedServer, home: Path) -> None:
    """A program is told how to give the password instead of being asked."""
    command = [str(CARBON), *connect_arguments(server, "mute")]
    ran = subprocess.run(
        command, env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "--password-env" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["tables", "shp"], 2, "no credential shp"),
        (["sync", "shp"], 2, "Did you mean shop?"),
        (["sync", "shop", "no_such_table"], 1, "no table called no_such_table"),
        (["verify", "shop", "no_such_table"], 1, "no table called no_such_table"),
        (["tables", "shop", "no_such_table"], 1, "`carbon tables` lists all"),
        (["credentials", "--workspace", "nowhere"], 2, "no workspace nowhere"),
        (["status", "--workspace", "nowhere"], 2, "no workspace nowhere"),
        (["sync", "shop", "--all"], 2, "both given"),
        (["query", "SELECT * FROM no_such_dataset"], 2, "no dataset called no_such_dataset"),
        (["query", "DROP TABLE orders"], 2, "Give one SELECT"),
    ],
)
def test_what_is_not_there(carbon: Run, shop: str, arguments: list[str], code: int, said: str) -> None:
    """Names that mean nothing are errors that name them; only what the source lacks is a failure of the work."""
    ran = carbon(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_tables(carbon: Run, shop: str) -> None:
    """What the source has, with each table's dataset; then one table's columns, keys and receipts."""
    listed = {each["table"]: each for each in carbon("tables", shop, "--json").document}
    assert set(listed) == {"public.customers", "public.orders", "public.secrets"}
    orders = listed["public.orders"]
    assert orders["dataset"]["coordinate"] == "sales.orders"
    assert orders["estimated_rows"] == 3
    assert orders["keys"]["foreign"][0]["references"] == "public.customers"
    assert set(orders) == {
        *("table", "kind", "columns", "estimated_rows", "size_bytes", "dataset", "last_sync", "keys"),
    }
    columns = {each["name"]: each for each in carbon("tables", shop, "orders", "--json").document["columns"]}
    assert columns["paid"]["base_type"] == "decimal(9,2)"
    assert columns["paid"]["fidelity"] == "exact"
    text = carbon("tables", shop, "orders").out
    assert "primary key: id" in text
    assert "foreign key: customer → public.customers (id)" in text


def test_sync_verify_status_query(server: EmbeddedServer, carbon: Run, shop: str) -> None:
    """A table that cannot be read fails alone; what was published is equal, listed, and can be queried."""
    ran = carbon("sync", shop, "--json")
    assert ran.code == 1
    tables = {each["table"]: each for each in ran.document["tables"]}
    assert tables["public.secrets"]["error"]["kind"] == "SourceForbids"
    assert "error: public.secrets: " in ran.err
    receipt = tables["public.orders"]["receipt"]
    assert (receipt["rows"], receipt["ruling"], receipt["settled_first"]) == (3, "landed", None)
    plain = carbon("sync", shop, "orders", "customers")
    assert plain.code == 0
    assert re.search(r"^public\.orders +3 rows .* snapshot \d+$", plain.out, re.MULTILINE)
    assert plain.out.splitlines()[-1].startswith("2 tables published, 5 rows, ")
    assert plain.err == ""
    _verify_notices(server, carbon, shop)
    _status_knows(carbon)
    _query_answers(carbon)


def _verify_notices(server: EmbeddedServer, carbon: Run, shop: str) -> None:
    equal = carbon("verify", shop, "--json")
    assert (equal.code, equal.document["all_equal"], equal.document["equal"]) == (0, True, 2)
    with admin_connection(server, "shop") as connection:
        connection.execute("UPDATE orders SET note = 'changed' WHERE id = 1")
        connection.execute("REVOKE SELECT ON customers FROM reader")
        different = carbon("verify", shop)
        connection.execute("UPDATE orders SET note = NULL WHERE id = 1; GRANT SELECT ON customers TO reader")
    assert different.code == 1
    assert re.search(r"sales\.orders .* different$", different.out, re.MULTILINE)
    assert re.search(r"sales\.customers .* not verified$", different.out, re.MULTILINE)
    assert different.out.splitlines()[-1] == "0 equal, 1 different, 1 not verified"
    assert "error: public.customers: " in different.err


def _status_knows(carbon: Run) -> None:
    found = carbon("status", "--json").document
    assert set(found) == {
        *("home", "control_plane", "embedded_server", "catalogs", "summary", "datasets", "ratify", "is_well"),
    }
    assert set(found["summary"]) == {
        *("datasets", "published", "open_operations", "credentials", "defaulted_destinations"),
    }
    assert found["summary"]["open_operations"] == 0
    orders = next(each for each in found["datasets"] if each["dataset"]["coordinate"] == "sales.orders")
    assert (orders["rows"], orders["last_operation"]["ruling"]) == (3, "landed")
    text = carbon("status").out
    assert "committed (landed)" in text
    assert "embedded, up at 127.0.0.1:" in text


def _query_answers(carbon: Run) -> None:
    sql = "SELECT id, note, paid FROM sales.orders ORDER BY id"
    rows = carbon("query", sql, "--json").document
    assert rows[:2] == [{"id": 1, "note": None, "paid": "9.90"}, {"id": 2, "note": "", "paid": "0.00"}]
    assert carbon("query", sql, "--csv").out == 'id,note,paid\r\n1,,9.90\r\n2,"",0.00\r\n3,"a ""b""",\r\n'
    table = carbon("query", sql, "--limit", "1")
    assert table.out.splitlines() == ["id  note  paid", " 1        9.90"]
    assert table.err == "1 row of more\n"
    assert "__row_index" in carbon("query", "SELECT * FROM sales.orders", "--identity", "--json").document[0]


def test_a_source_that_is_away_stops_no_other(server: EmbeddedServer, carbon: Run, shop: str) -> None:
    """With `--all`, a credential that cannot log in is an error in the document; the others are synced."""
    ensure_role(server, "leaver", CANARY)
    ran = carbon(*connect_arguments(server, "leaving", "--password-env", "SHOP_PASSWORD", user="leaver"))
    assert ran.code == 0, ran.err
    with admin_connection(server) as connection:
        connection.execute("ALTER ROLE leaver NOLOGIN")
    ran = carbon("sync", "--all", "--json")
    assert ran.code == 1
    assert "leaving" in [each["credential"] for each in ran.document["errors"]]
    assert "shop" in [each["credential"] for each in ran.document["tables"]]


def test_dagster_is_told_and_its_failure_is_a_warning(carbon: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync whose report fails has published all the same: exit code 0, and a line on stderr."""
    assert carbon("sync", shop, "orders").err == ""
    monkeypatch.setenv("CARBON_DAGSTER_URL", f"postgresql://nobody:{CANARY}@127.0.0.1:1/dagster")
    ran = carbon("sync", shop, "orders")
    assert ran.code == 0
    assert ran.err.startswith("warning: Dagster was not told of this sync")


def test_a_bug_is_one_line(carbon: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An error that nobody foresaw is named, and its message, which may hold anything, is shown only when asked for."""

    def broken() -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(cli, "read_settings", broken)
    ran = carbon("status")
    assert ran.code == 1
    assert ran.err.startswith("error: unexpected RuntimeError\n")
    monkeypatch.setenv("CARBON_DEBUG", "1")
    assert run(cli.app, ["status"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_reader_that_leaves_early(carbon: Run, shop: str, home: Path) -> None:
    """`carbon query … | head` ends without a word of complaint."""
    command = f"{CARBON} query 'SELECT * FROM range(2000000)' --csv | head -n 1"
    ran = subprocess.run(["/bin/sh", "-c", command], env=environment(home), capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("range\n", "")


def test_the_demo_wants_the_embedded_server(carbon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a control plane of one's own the demo refuses; the address is not repeated."""
    monkeypatch.setenv("CARBON_CONTROL_PLANE_URL", f"postgresql://carbon:{CANARY}@db/carbon")
    ran = carbon("demo")
    assert ran.code == 1
    assert "the demo needs the embedded server" in ran.err


def demo(folder: Path) -> subprocess.Popen[str]:
    """The demo as `make demo` runs it."""
    return subprocess.Popen(
        [CARBON, "demo"],
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def test_demo(carbon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted half-way it says what comes next; run again it says what it replaces and ends with all equal.

    Its server goes down and up again by command.
    """
    with temporary_home() as folder:
        interrupted = demo(folder)
        _await_a_publication(folder)
        interrupted.send_signal(signal.SIGINT)
        _, err = interrupted.communicate(timeout=60)
        assert interrupted.returncode == 130, err
        assert err.splitlines()[-1].startswith("Interrupted. What was published stays; the next demo settles")
        again = demo(folder)
        out, err = again.communicate(timeout=120)
        assert (again.returncode, out.splitlines()[-1]) == (0, LAST_LINE), err
        assert out.count("  equal\n") == 5
        assert re.search(r"[1-5] tables? published; each is replaced by a new snapshot", out)
        assert "error" not in err
        monkeypatch.setenv("CARBON_HOME", str(folder))
        status = carbon("status", "--json")
        summary = status.document["summary"]
        assert (summary["open_operations"], summary["published"]) == (0, 5)
        assert (status.code, status.document["ratify"]["last_sweep"]["trigger"]) == (0, "terminal")
        _goes_down_and_up(carbon, folder)


def _await_a_publication(folder: Path) -> None:
    """Wait for the second version of some table's metadata: a small table is in, and the big one is under way."""
    deadline = time.monotonic() + 60
    while not list(folder.glob("warehouse/*/*/metadata/00001-*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _goes_down_and_up(carbon: Run, folder: Path) -> None:
    """`up` says where the server is, and never its password; `down` stops it; both can be repeated."""
    assert carbon("down").out == "The embedded server is stopped\n"
    assert carbon("down").out == f"None runs for {folder}\n"
    first, second = carbon("up"), carbon("up")
    running = find_running(folder)
    assert running is not None
    assert first.out == second.out == f"Up at 127.0.0.1:{running.port}, data in {running.data_directory}\n"
    assert running.password not in first.out


def test_nothing_of_it_is_in_the_home_in_plain_text(server: EmbeddedServer, home: Path, shop: str) -> None:
    """Neither files under `CARBON_HOME`, PostgreSQL's own data apart, nor the control plane's rows hold a password."""
    for path in home.rglob("*"):
        if path.is_file() and "postgres" not in path.relative_to(home).parts:
            assert CANARY.encode() not in path.read_bytes(), path
    with admin_connection(server, "carbon") as connection:
        names = [row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        for name in names:
            rows = connection.execute(
                psycopg.sql.SQL("SELECT t::text FROM {} t").format(psycopg.sql.Identifier(str(name)))
            )
            assert all(CANARY not in str(row[0]) for row in rows), name
