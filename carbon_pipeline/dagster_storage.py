"""Where Dagster keeps its records, and how the terminal reaches them.

`dagster.yaml` names the three classes here, each without a setting: they read this deployment's, so that plain
`dagster` commands find everything, nothing has to be in the environment, and no address or password is in what Dagster
hands from process to process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.instance import InstanceRef  # the only way to say where dagster.yaml is and where files go
from dagster._core.instance.config import is_dagster_home_set
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.root import LocalArtifactStorage
from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy import URL, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from carbon_pipeline.control_plane.sql.engine import read_url
from carbon_pipeline.deployment import DAGSTER_DATABASE, embedded_server, server_url
from carbon_pipeline.embedded_postgres.server import ensure_database
from carbon_pipeline.errors import ControlPlaneError
from carbon_pipeline.settings import Settings, project_root, read_settings

DAGSTER_SCHEMA = "dagster"
"""Its schema in a control plane's database: Dagster's tables have plain names, such as `runs`."""

_DRIVER = "psycopg2"
"""dagster-postgres binds a parameter in NOTIFY, which psycopg 3 cannot."""
_LOCK = 0x6461677374657221  # "dagster!" in ASCII
_LOCK_SECONDS = 60
_AWAY_FROM_A_CHECKOUT: dict[str, Any] = {
    "storage": {"custom": {"module": __name__, "class": "Storage", "config": {}}},
    "telemetry": {"enabled": False},
}


class Storage(DagsterPostgresStorage):
    """Runs, events and schedules, in PostgreSQL."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Nothing to configure: an instance's configuration goes from process to process in plain sight."""
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Storage:  # noqa: ARG003 - Dagster's signature
        """The storage of this deployment, started and created as need be."""
        url = storage_url(read_settings())
        try:
            with _in_turn(url):
                return cls(postgres_url=url.render_as_string(hide_password=False), inst_data=inst_data)
        except (SQLAlchemyError, DagsterPostgresException) as error:
            # Not chained: a driver's message may quote the address.
            raise ControlPlaneError(
                f"the database for Dagster's records does not answer ({type(error).__name__})",
                remedy="Check CARBON_DAGSTER_URL or CARBON_CONTROL_PLANE_URL (or `carbon up`), then try again.",
            ) from None


class Artifacts(LocalArtifactStorage):
    """Files that Dagster makes for itself, under `CARBON_HOME`."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Nothing to configure."""
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Artifacts:  # noqa: ARG003 - Dagster's signature
        """In this deployment's folder, so that they outlive the temporary one of `dagster dev`."""
        return cls(base_dir=str(dagster_folder(read_settings())), inst_data=inst_data)


class StepLogs(LocalComputeLogManager):
    """What steps print, under `CARBON_HOME`."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Nothing to configure."""
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> StepLogs:  # noqa: ARG003 - Dagster's signature
        """In this deployment's folder."""
        return cls(base_dir=str(dagster_folder(read_settings()) / "storage"), inst_data=inst_data)


def dagster_folder(settings: Settings) -> Path:
    """Where files of Dagster's own go."""
    folder = settings.home / "dagster"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def storage_url(settings: Settings) -> URL:
    """The database for Dagster's records. Starts the embedded server where that is the place."""
    if settings.dagster_url is not None:
        return _with_driver(read_url(settings.dagster_url))
    if settings.control_plane_url is not None:
        url = _with_driver(read_url(settings.control_plane_url))
        return url.update_query_dict({"options": f"-csearch_path={DAGSTER_SCHEMA}"})
    server = embedded_server(settings)
    ensure_database(server, DAGSTER_DATABASE)
    return server_url(server, DAGSTER_DATABASE, _DRIVER)


def _with_driver(url: URL) -> URL:
    return url.set(drivername=f"postgresql+{_DRIVER}")


@contextmanager
def _in_turn(url: URL) -> Iterator[None]:
    """One process at a time: Dagster creates its tables one by one, and takes the first for all of them."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 10})
    with engine.connect() as connection:
        connection.execute(text(f"SET lock_timeout = '{_LOCK_SECONDS}s'"))
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        if "options" in url.query:
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {DAGSTER_SCHEMA}"))
        yield


@contextmanager
def instance_for_reporting() -> Iterator[dg.DagsterInstance]:
    """Dagster's records, for whoever has something to add to them without being run by Dagster.

    The configuration is `DAGSTER_HOME`'s where that is set, as for Dagster's own commands; else the project's
    `dagster.yaml`; else, away from a checkout, what that file says about storage.
    """
    if is_dagster_home_set():
        opened = dg.DagsterInstance.get()
    else:
        folder, root = str(dagster_folder(read_settings())), project_root()
        reference = (
            InstanceRef.from_dir(folder, config_dir=str(root))
            if root is not None
            else InstanceRef.from_dir(folder, overrides=_AWAY_FROM_A_CHECKOUT)
        )
        opened = dg.DagsterInstance.from_ref(reference)
    with opened as instance:
        yield instance
