"""What Dagster is given: every key, partition set, job and sensor, and how it fares without a control plane."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.definitions import DeployedPipeline, load_definitions
from carbon_pipeline.deployment import Deployment
from carbon_pipeline.errors import ControlPlaneError
from carbon_pipeline.orchestration.build import build_definitions
from carbon_pipeline.orchestration.port import Pipeline, Ratifier, Survey
from carbon_pipeline.orchestration.state import CredentialsLoader
from carbon_pipeline.orchestration.translator import CredentialFacts, facts_from_state


class NoPipeline(Pipeline):
    """Definitions are made without asking anything; this one would say so otherwise."""

    def credentials(self) -> tuple[CredentialFacts, ...]:
        """Never asked."""
        raise AssertionError("asked for the credentials")

    def survey(self, facts: CredentialFacts) -> Survey:
        """Never asked."""
        raise AssertionError(f"asked for {facts.label}")

    def ratifier(self) -> Ratifier:
        """Never asked."""
        raise AssertionError("asked for the ratifier")


def facts(workspace: str, name: str, *, created_by: str = "ada") -> CredentialFacts:
    """A credential that nobody connected."""
    return CredentialFacts(
        id="00000000-0000-4000-8000-000000000001",
        workspace=workspace,
        name=name,
        destination="main.default",
        destination_origin="defaulted",
        created_by=created_by,
    )


EXAMPLES = [
    facts("main", "flights"),
    facts("acme", "shop", created_by="ada@acme.example"),
    facts("Äpfel & Co", "class"),
]


def settings_of(job: dg.JobDefinition) -> list[str]:
    """What a job of one op runs with unless it is told otherwise."""
    (node,) = job.nodes
    assert isinstance(node.definition, dg.OpDefinition)
    config = node.definition.config_schema.config_type
    assert isinstance(config, dg.Shape)
    tags = ", ".join(f"{name}={value}" for name, value in sorted(job.tags.items()))
    return [
        f"  pool {node.definition.pool}, tags {tags}",
        *(f"  {name}: {field.default_value}" for name, field in sorted(config.fields.items())),
    ]


def described(definitions: dg.Definitions) -> str:
    """The definitions as a person reads them."""
    lines = []
    for spec in sorted(definitions.resolve_all_asset_specs(), key=lambda spec: spec.key):
        asset = definitions.resolve_assets_def(spec.key)
        partitions = spec.partitions_def
        assert isinstance(partitions, dg.DynamicPartitionsDefinition)
        lines += [
            f"asset {spec.key.to_user_string()}",
            f"  group {spec.group_name}, kinds {', '.join(sorted(spec.kinds))}, owners {', '.join(spec.owners)}",
            f"  partitions {partitions.name}, backfill policy {asset.backfill_policy}",
            f"  pool {', '.join(sorted(asset.op.pools))}, code version {spec.code_version}",
            *(f"  {key}: {value}" for key, value in sorted(spec.metadata.items()) if key.startswith("carbon/")),
            f"  {spec.description}",
        ]
    for job in sorted(definitions.jobs or [], key=lambda job: job.name):
        lines += [f"job {job.name}", f"  {job.description}"]
        if job.name == "ratify":
            assert isinstance(job, dg.JobDefinition)
            lines += settings_of(job)
    for sensor in definitions.sensors or []:
        assert isinstance(sensor, dg.SensorDefinition)
        lines += [
            f"sensor {sensor.name}: {sensor.default_status.value}, every {sensor.minimum_interval_seconds} s",
            f"  {sensor.description}",
        ]
    for schedule in definitions.schedules or []:
        assert isinstance(schedule, dg.ScheduleDefinition)
        lines += [
            f"schedule {schedule.name}: {schedule.default_status.value}, {schedule.cron_schedule}",
            f"  {schedule.description}",
        ]
    assert isinstance(definitions.executor, dg.ExecutorDefinition)
    lines.append(f"executor: {definitions.executor.name}")
    return "\n".join(lines) + "\n"


@pytest.mark.golden
def test_the_definitions_are_as_they_were(golden: Callable[[str, str], None]) -> None:
    """Every key, name, status and limit of the definitions stands in a file that a person can read."""
    definitions = build_definitions(EXAMPLES, pipeline=NoPipeline(), code_version="1.2.3")
    dg.Definitions.validate_loadable(definitions)
    golden("dagster_definitions.txt", described(definitions))


def test_without_a_credential_there_are_still_jobs_and_sensors() -> None:
    """An empty control plane gives valid definitions, so the UI opens before anything is connected."""
    definitions = build_definitions([], pipeline=NoPipeline(), code_version="1")
    dg.Definitions.validate_loadable(definitions)
    assert [job.name for job in definitions.jobs or []] == ["discover", "ratify"]
    assert [sensor.name for sensor in definitions.sensors or []] == ["discover_new_tables", "ratify_unsettled"]


def test_every_sensor_and_schedule_ships_running() -> None:
    """What matters is on without a person's doing: discovery, the ratify sensor, and the schedule that backs it up."""
    definitions = build_definitions(EXAMPLES, pipeline=NoPipeline(), code_version="1")
    repository = definitions.get_repository_def()
    assert {sensor.name: sensor.default_status for sensor in repository.sensor_defs} == {
        "discover_new_tables": dg.DefaultSensorStatus.RUNNING,
        "ratify_unsettled": dg.DefaultSensorStatus.RUNNING,
    }
    assert {(each.name, each.default_status, each.cron_schedule) for each in repository.schedule_defs} == {
        ("ratify_every_quarter_hour", dg.DefaultScheduleStatus.RUNNING, "*/15 * * * *")
    }
    sensor = repository.get_sensor_def("ratify_unsettled")
    assert sensor.minimum_interval_seconds is not None
    assert sensor.minimum_interval_seconds <= 60


def test_names_never_collide() -> None:
    """Names that Dagster's own rules would make alike stay apart: asset keys, op names, jobs, pools, partitions."""
    pairs = [("a", "b_c"), ("a_b", "c"), ("a-b", "c"), ("a.b", "c"), ("A_B", "c"), ("a", "b__c"), ("a b", "c")]
    every = [facts(workspace, name) for workspace, name in pairs]
    for names in (
        [f.joined for f in every],
        [f.pool for f in every],
        [f.asset_key.to_python_identifier() for f in every],
    ):
        assert len(set(names)) == len(pairs)
    dg.Definitions.validate_loadable(build_definitions(every, pipeline=NoPipeline(), code_version="1"))


def loader(fetch: Callable[[], list[CredentialFacts]], last_seen: Path) -> CredentialsLoader:
    """A loader whose definitions are only counted."""
    return CredentialsLoader(
        fetch=fetch,
        build=lambda found: build_definitions(found, pipeline=NoPipeline(), code_version="1"),
        last_seen=last_seen,
    )


def away() -> list[CredentialFacts]:
    """A control plane that does not answer."""
    raise ControlPlaneError("the control plane does not answer")


def test_a_control_plane_that_is_away_leaves_the_last_definitions(tmp_path: Path) -> None:
    """The code location loads with the credentials that were seen last."""
    kept = tmp_path / "dagster" / "credentials.json"
    loader(lambda: EXAMPLES, kept).build_defs()
    definitions = loader(away, kept).build_defs()
    assert {spec.key for spec in definitions.resolve_all_asset_specs()} == {each.asset_key for each in EXAMPLES}
    assert kept.stat().st_mode & 0o077 == 0
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


@pytest.mark.parametrize("content", [None, "not json"])
def test_without_a_last_time_the_error_says_what_to_do(tmp_path: Path, content: str | None) -> None:
    """Where nothing was ever seen, loading fails in our words."""
    kept = tmp_path / "credentials.json"
    if content is not None:
        kept.write_text(content)
    with pytest.raises(ControlPlaneError, match="does not answer — Check CARBON_CONTROL_PLANE_URL"):
        loader(away, kept).build_defs()


def test_a_state_that_cannot_be_kept_stops_nothing(tmp_path: Path) -> None:
    """A full disk or a missing right costs the fallback, not the definitions."""
    (tmp_path / "file").write_text("")
    loader(lambda: EXAMPLES, tmp_path / "file" / "credentials.json").build_defs()


def test_a_credentials_secret_is_in_no_state(
    connect: Callable[[str], tuple[Credential, str]], deployment: Deployment
) -> None:
    """Neither the file nor what Dagster carries along holds a password, a user or a host of a source."""
    credential, _ = connect("CREATE TABLE t (a int)")
    connection = deployment.connection(credential)
    definitions = load_definitions(deployment.settings)
    kept = (deployment.settings.home / "dagster" / "credentials.json").read_text()
    carried = json.dumps({key: str(value) for key, value in (definitions.metadata or {}).items()})
    assert str(credential.id) in kept
    assert str(credential.id) in carried
    for secret in (connection.password, connection.host, str(connection.port)):
        assert secret not in kept
        assert secret not in carried
    assert {facts_from_state(each).name for each in json.loads(kept)["credentials"]} >= {credential.name}


def test_a_state_from_a_newer_version_is_understood() -> None:
    """What a later version writes beside what is known here is left out."""
    state = {**EXAMPLES[0].as_state(), "later": "more"}
    assert facts_from_state(state) == EXAMPLES[0]


def test_importing_the_definitions_does_nothing(tmp_path: Path) -> None:
    """The import opens no deployment: it makes no folder and starts no server."""
    home = tmp_path / "home"
    subprocess.run(
        [sys.executable, "-c", "import carbon_pipeline.definitions"],
        check=True,
        env={**os.environ, "CARBON_HOME": str(home)},
        timeout=120,
    )
    assert not home.exists()


def test_a_gone_credential_is_said_to_be_gone(deployment: Deployment) -> None:
    """A run launched before its credential went says so."""
    with pytest.raises(Exception, match=r"credential main/flights is gone — Reload"):
        DeployedPipeline(deployment.settings).survey(facts("main", "flights"))
