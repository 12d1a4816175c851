"""Where Dagster's records are, for every way to come to them, and that no secret goes with them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from carbon_pipeline.dagster_storage import instance_for_reporting, storage_url
from carbon_pipeline.deployment import open_deployment
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_running, stop
from carbon_pipeline.errors import ControlPlaneError
from carbon_pipeline.orchestration.report import report_runless
from carbon_pipeline.orchestration.translator import facts_of
from carbon_pipeline.settings import read_settings
from carbon_pipeline_tests.conftest import admin_connection
from carbon_pipeline_tests.orchestration.conftest import OwnHome
from carbon_pipeline_tests.orchestration.dagster_dev import ROOT, dagster, environment

MODULE = ("-m", "carbon_pipeline.definitions")


def use(home: Path, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    """Make this process one with that home."""
    for name in ("DAGSTER_HOME", "CARBON_CONTROL_PLANE_URL", "CARBON_DAGSTER_URL", "CARBON_ENCRYPTION_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARBON_HOME", str(home))
    monkeypatch.setenv("CARBON_USER", "tester")
    for name, value in more.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
def test_plain_commands_work_from_the_repositorys_root(own_home: OwnHome) -> None:
    """With nothing set but the home, the definitions load, validate, list and run."""
    validated = dagster(own_home.path, "definitions", "validate")
    assert validated.returncode == 0, validated.stderr[-2000:]
    assert "Validation successful for code location carbon_pipeline" in validated.stdout + validated.stderr
    listed = dagster(own_home.path, "asset", "list", *MODULE)
    assert listed.returncode == 0, listed.stderr[-2000:]
    assert "main/shop" in listed.stdout.split()
    jobs = dagster(own_home.path, "job", "list")
    assert {"Job: discover", "Job: sync_main__shop"} <= set(jobs.stdout.splitlines())
    found = dagster(own_home.path, "job", "execute", *MODULE, "-j", "discover")
    assert found.returncode == 0, found.stderr[-2000:]
    materialised = dagster(
        own_home.path, "asset", "materialize", *MODULE, "--select", "main/shop", "--partition", "public.orders"
    )
    assert materialised.returncode == 0, materialised.stderr[-2000:]
    for command in (validated, listed, jobs, found, materialised):
        assert own_home.password not in command.stdout + command.stderr


def test_commands_that_ask_for_a_dagster_home_take_the_root(own_home: OwnHome) -> None:
    """`DAGSTER_HOME` set to the root leads to the same records, and leaves no file of Dagster's there."""
    before = {path.name for path in ROOT.iterdir()}
    told = dagster(own_home.path, "instance", "info", DAGSTER_HOME=str(ROOT))
    assert told.returncode == 0, told.stderr[-2000:]
    assert "carbon_pipeline.dagster_storage" in told.stdout + told.stderr
    assert own_home.password not in told.stdout + told.stderr
    assert {name for name in {path.name for path in ROOT.iterdir()} - before if not name.startswith(".")} == set()


def test_a_fresh_home_without_a_server_or_a_credential_validates() -> None:
    """The first command on a new machine starts what it needs and shows empty definitions."""
    home = Path(tempfile.mkdtemp(prefix="carbon-fresh-"))
    home.chmod(0o711)
    try:
        validated = dagster(home, "definitions", "validate")
        assert validated.returncode == 0, validated.stderr[-2000:]
        listed = dagster(home, "asset", "list", *MODULE)
        assert (listed.returncode, listed.stdout.strip()) == (0, "")
    finally:
        stop(home)
        shutil.rmtree(home, ignore_errors=True)


def test_the_terminal_reports_into_the_same_records(own_home: OwnHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sync outside Dagster tells is found by whoever opens the records next, without `DAGSTER_HOME`."""
    use(own_home.path, monkeypatch)
    deployment = open_deployment(read_settings())
    receipts = [r.receipt for r in deployment.sync(own_home.credential, ["customers"]) if r.receipt is not None]
    with instance_for_reporting() as instance:
        assert report_runless(instance, own_home.credential, receipts) == 1
    with instance_for_reporting() as instance:
        facts = facts_of(own_home.credential)
        assert "public.customers" in instance.get_dynamic_partitions(facts.joined)
        newest = instance.fetch_materializations(facts.asset_key, limit=1).records[0].asset_materialization
        assert newest is not None
        assert newest.metadata["carbon/operation_id"].value == str(receipts[0].entry.operation_id)


def test_no_secret_is_in_what_processes_hand_each_other(own_home: OwnHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance's reference, its description and its whole event log hold no password."""
    use(own_home.path, monkeypatch)
    with instance_for_reporting() as instance:
        reference = repr(instance.get_ref()) + str(instance.get_ref().to_dict()) + instance.info_str()
    assert own_home.password not in reference
    assert "config_yaml='{}" in reference
    server = ensure_running(own_home.path)
    with admin_connection(server, "dagster") as connection:
        tables = [
            str(row[0]) for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname='public'")
        ]
        assert "event_logs" in tables
        for table in tables:
            found = connection.execute(
                f"SELECT count(*) FROM {table} t WHERE strpos(t::text, %s) > 0".encode(), [own_home.password]
            ).fetchone()
            assert found == (0,), f"{table} holds the password"


OPEN = """
from carbon_pipeline.dagster_storage import instance_for_reporting
with instance_for_reporting() as instance:
    instance.add_dynamic_partitions("p", ["k"])
    assert instance.get_runs_count() == 0 and instance.all_instigator_state() == []
"""


def test_two_processes_may_create_the_records_at_once(
    server: EmbeddedServer, home: Path, make_database: Callable[[str], str]
) -> None:
    """Whoever comes second waits until all tables are there."""
    url = postgres_url(server, make_database("records"))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN],
            env=environment(home, CARBON_DAGSTER_URL=url),
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors


def postgres_url(server: EmbeddedServer, database: str) -> str:
    """An address as a person writes it."""
    return f"postgresql://{server.user}:{server.password}@{server.host}:{server.port}/{database}"


def test_with_a_control_plane_of_ones_own_the_records_have_a_schema_there(
    server: EmbeddedServer, home: Path, make_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing embedded is used: Dagster's tables are in the schema `dagster` of the control plane's database."""
    database = make_database("plane")
    use(home, monkeypatch, CARBON_CONTROL_PLANE_URL=postgres_url(server, database))
    with instance_for_reporting() as instance:
        instance.add_dynamic_partitions("p", ["k"])
    with admin_connection(server, database) as connection:
        schemas = connection.execute("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'runs'").fetchall()
    assert schemas == [("dagster",)]


def test_a_database_for_dagster_may_be_named(tmp_path: Path) -> None:
    """`CARBON_DAGSTER_URL` wins over everything, and is read for the driver that dagster-postgres can use."""
    settings = read_settings(
        {
            "CARBON_HOME": str(tmp_path),
            "CARBON_CONTROL_PLANE_URL": "postgresql://c:c@plane/c",
            "CARBON_DAGSTER_URL": "postgres://d:p%40ss@records:5433/d?sslmode=require",
        }
    )
    url = storage_url(settings)
    assert (url.drivername, url.host, url.port, url.database) == ("postgresql+psycopg2", "records", 5433, "d")
    assert (url.password, dict(url.query)) == ("p@ss", {"sslmode": "require"})
    derived = storage_url(replace(settings, dagster_url=None))
    assert (derived.host, derived.query["options"]) == ("plane", "-csearch_path=dagster")
    assert "p@ss" not in repr(settings)


def test_an_address_that_leads_nowhere_is_said_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the setting, not what is in it."""
    use(tmp_path, monkeypatch, CARBON_DAGSTER_URL="postgresql://d:hunter2@127.0.0.1:1/d")
    with pytest.raises(Exception, match="does not answer") as caught, instance_for_reporting():
        pass
    shown = repr(caught.value) + str(caught.value.__cause__)
    assert "hunter2" not in shown
    assert isinstance(caught.value, ControlPlaneError)
