"""Definitions over the test run's own deployment, and Dagster instances to run them on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import dagster as dg
import pytest

from carbon_pipeline.control_plane.records import Connection, Credential, TlsMode
from carbon_pipeline.definitions import DeployedPipeline
from carbon_pipeline.deployment import Deployment, embedded_server, open_deployment
from carbon_pipeline.destination.coordinate import DEFAULTED
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_database, stop
from carbon_pipeline.orchestration.build import build_definitions
from carbon_pipeline.orchestration.port import Pipeline, Ratifier, Survey
from carbon_pipeline.orchestration.translator import CredentialFacts, facts_of
from carbon_pipeline.settings import read_settings
from carbon_pipeline.source.port import Source
from carbon_pipeline_tests.conftest import admin_connection

TWO_TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note varchar(20) NOT NULL, amount numeric(10,2), span interval);
COMMENT ON COLUMN orders.note IS 'what the customer wrote';
INSERT INTO orders SELECT i, 'n' || i, i * 1.5, '1 day' FROM generate_series(1, 1000) i;
CREATE TABLE customers (id int PRIMARY KEY, name text);
INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace');
"""


@dataclass
class AlteredPipeline(Pipeline):
    """A real pipeline whose source is wrapped, to put faults into it."""

    real: Pipeline
    wrap: Callable[[Source], Source]
    surveys: list[Survey] = field(default_factory=list)

    def credentials(self) -> tuple[CredentialFacts, ...]:
        """As they are."""
        return self.real.credentials()

    def survey(self, facts: CredentialFacts) -> Survey:
        """As it is, but for the source."""
        survey = self.real.survey(facts)
        altered = replace(survey, ports=replace(survey.ports, source=self.wrap(survey.ports.source)))
        self.surveys.append(altered)
        return altered

    def ratifier(self) -> Ratifier:
        """As it is."""
        return self.real.ratifier()


@dataclass(frozen=True)
class Stage:
    """A credential, its definitions, and an instance to run them on."""

    credential: Credential
    facts: CredentialFacts
    pipeline: Pipeline
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    execute: Callable[[str], None]
    """Runs SQL in the source's database."""

    def materialise(self, partition: str, pipeline: Pipeline | None = None) -> dg.ExecuteInProcessResult:
        """Materialise one table, as a person does in the UI."""
        definitions = self.with_pipeline(pipeline or self.pipeline)
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, partition_key=partition, raise_on_error=False)

    def run(self, job: str, pipeline: Pipeline | None = None, **config: object) -> dg.ExecuteInProcessResult:
        """Run a job with this configuration of its one op."""
        definition = self.with_pipeline(pipeline or self.pipeline).resolve_job_def(job)
        op = definition.nodes_in_topological_order[0].name
        return definition.execute_in_process(
            instance=self.instance, run_config={"ops": {op: {"config": config}}}, raise_on_error=False
        )

    def sensor(self, name: str) -> dg.SensorDefinition:
        """One of the sensors."""
        (found,) = [sensor for sensor in self.definitions.sensors or [] if sensor.name == name]
        assert isinstance(found, dg.SensorDefinition)
        return found

    def with_pipeline(self, pipeline: Pipeline) -> dg.Definitions:
        """The same definitions over another pipeline."""
        return build_definitions([self.facts], pipeline=pipeline, code_version="test")

    def materialisations(self, partition: str) -> list[dg.AssetMaterialization]:
        """What Dagster knows of one table, newest first."""
        records = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=self.facts.asset_key, asset_partitions=[partition]), limit=10
        ).records
        return [event for record in records if (event := record.asset_materialization) is not None]


MakeStage = Callable[[str], Stage]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def pipeline(deployment: Deployment) -> Pipeline:
    """The test run's deployment as Dagster's side sees it."""
    return DeployedPipeline(deployment.settings)


@pytest.fixture
def make_stage(
    connect: Callable[[str], tuple[Credential, str]],
    pipeline: Pipeline,
    instance: dg.DagsterInstance,
    server: EmbeddedServer,
) -> MakeStage:
    """Connect a source made by this SQL, with its partitions discovered."""

    def make(statements: str) -> Stage:
        credential, database = connect(statements)

        def execute(more: str) -> None:
            with admin_connection(server, database) as connection:
                connection.execute(more.encode())

        facts = facts_of(credential)
        stage = Stage(
            credential=credential,
            facts=facts,
            pipeline=pipeline,
            definitions=build_definitions([facts], pipeline=pipeline, code_version="test"),
            instance=instance,
            execute=execute,
        )
        assert stage.run("discover").success
        return stage

    return make


@pytest.fixture
def shop(make_stage: MakeStage) -> Stage:
    """A source of two tables."""
    return make_stage(TWO_TABLES)


@dataclass(frozen=True)
class OwnHome:
    """A `CARBON_HOME` of these tests' own, with one credential, for whole processes to run on."""

    path: Path
    credential: Credential
    password: str = field(repr=False)
    """Of the embedded server, and of the source in it: what must be nowhere."""
    execute: Callable[[str], None]
    connect: Callable[[str], Credential]
    """Connects the same source once more, under another name."""


@pytest.fixture(scope="session")
def own_home() -> Iterator[OwnHome]:
    """A home whose server is stopped and whose folder is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="carbon-dagster-"))
    folder.chmod(0o711)
    try:
        settings = read_settings({"CARBON_HOME": str(folder), "CARBON_USER": "tester"})
        deployment = open_deployment(settings)
        server = embedded_server(settings)
        ensure_database(server, "shop")

        def execute(statements: str) -> None:
            with admin_connection(server, "shop") as connection:
                connection.execute(statements.encode())

        execute(TWO_TABLES)
        source = Connection(
            host=server.host,
            port=server.port,
            database="shop",
            user=server.user,
            password=server.password,
            tls=TlsMode.DISABLE,
        )

        def connect(name: str) -> Credential:
            workspace = deployment.workspace("main")
            return deployment.connect(name, source, destination=DEFAULTED, workspace=workspace)[0]

        yield OwnHome(
            path=folder, credential=connect("shop"), password=server.password, execute=execute, connect=connect
        )
    finally:
        stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
