"""Where torture happens: a deployment that other processes can open again, and the one table each round works on."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

from carbon_pipeline.control_plane.records import Connection, Credential, Governance, SweepTrigger, TlsMode
from carbon_pipeline.control_plane.sql.engine import engine_from_fields
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.control_plane.sql.migrate import migrate
from carbon_pipeline.deployment import CODE_VERSION, Deployment, server_url
from carbon_pipeline.destination.coordinate import DEFAULTED, Dataset
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_database
from carbon_pipeline.lake.iceberg.catalog import CatalogConfig, Catalogs
from carbon_pipeline.ratify.sweep import SweepReport, Terms
from carbon_pipeline.settings import read_settings
from carbon_pipeline.source.postgres.session import Options
from carbon_pipeline.source.postgres.source import PostgresSource
from carbon_pipeline.sync import Ports
from carbon_pipeline.sync_all import TableResult

CANARY = "c4n4ry-%40-p@ss/w0rd?"
"""The source's password. It must turn up nowhere."""
SMALL_BATCHES = Options(chunk_rows=100)
AT_ONCE = Terms(min_age_seconds=0, aborts_max=100_000)
"""A sweep that waits for nothing but leases."""
ROWS = 500

_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a writer's lease lives, how often it says that it lives, and how long it waits for a dataset."""

    lease_seconds: float = 0.05
    beat_seconds: float = 0
    wait_seconds: float = 10


@dataclass(frozen=True, kw_only=True)
class TorturedDeployment(Deployment):
    """A deployment with its own patience, which reads its sources in small batches."""

    patience: Patience

    @cached_property
    def ledger(self) -> SqlLedger:
        """The ledger of this control plane."""
        return SqlLedger(
            self.engine,
            code_version=CODE_VERSION,
            warehouses=self.catalogs.warehouses,
            wait_seconds=self.patience.wait_seconds,
            lease_seconds=self.patience.lease_seconds,
            beat_seconds=self.patience.beat_seconds,
        )

    def ports(self, credential: Credential) -> Ports:
        """The outer world of one credential's writes."""
        source = PostgresSource(self.connection(credential), options=SMALL_BATCHES)
        return Ports(source=source, lake=self.lake, ledger=self.ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a process needs to open the deployment. Handed on to other processes."""

    home: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    catalog: dict[str, str] = field(repr=False)
    patience: Patience = Patience()

    def deployment(self) -> TorturedDeployment:
        """The deployment, opened by this process."""
        return TorturedDeployment(
            settings=read_settings({"CARBON_HOME": self.home, "CARBON_USER": "tester"}),
            engine=engine_from_fields(
                host=self.host, port=self.port, user=self.user, password=self.password, database=self.database
            ),
            catalogs=Catalogs({"main": CatalogConfig(name="main", properties=self.catalog)}),
            patience=self.patience,
        )


class Arena:
    """A control plane and a catalog of its own, on one server or on two, and the files that processes print to."""

    def __init__(self, home: Path, server: EmbeddedServer, *, control_server: EmbeddedServer | None = None) -> None:
        self.name = f"torture_{os.getpid()}_{next(_numbers)}"
        self.home = home
        self.server = server
        self.control_server = control_server or server
        self.outputs = home / f"{self.name}_outputs"
        self.outputs.mkdir()
        self.warehouse = home / f"{self.name}_warehouse"
        self.warehouse.mkdir()
        self.control_database, self.catalog_database = f"{self.name}_control", f"{self.name}_catalog"
        self.source_database = f"{self.name}_source"
        ensure_database(self.control_server, self.control_database)
        for database in (self.catalog_database, self.source_database):
            ensure_database(server, database)
        self.ground = self._ground()
        self.deployment = self.ground.deployment()
        migrate(self.deployment.engine)
        config = self.deployment.catalogs.config("main")
        self.deployment.directory.register_catalog(
            "main", kind=config.kind, uri_host=config.uri_host, governance=Governance.OWN
        )
        self.deployment.directory.create_workspace("main", owner="tester")
        self.role = f"{self.name}_reader"
        with self.admin() as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(self.role), sql.Literal(CANARY))
            )
        self.credential = self._connect()

    def _ground(self) -> Ground:
        server = self.control_server
        return Ground(
            home=str(self.home),
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            database=self.control_database,
            catalog={
                "type": "sql",
                "uri": server_url(self.server, self.catalog_database).render_as_string(hide_password=False),
                "warehouse": f"file://{self.warehouse}",
            },
        )

    def admin(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """A session of the superuser, autocommitting, on the server with the sources and the catalog."""
        return _admin(self.server, database)

    def control(self) -> psycopg.Connection[Any]:
        """A session of the superuser in the control plane."""
        return _admin(self.control_server, self.control_database)

    def new_output(self) -> Path:
        """The file that the next process prints to."""
        return self.outputs / f"{next(_numbers)}.txt"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must turn up nowhere."""
        return (CANARY, self.server.password, self.control_server.password)

    def field(self, rows: int = ROWS) -> Field:
        """A new table in the source."""
        table = f"marked_{next(_numbers)}"
        with self.admin(self.source_database) as connection:
            connection.execute(_SOURCE.format(table=table, rows=rows, role=self.role).encode())
        return Field(arena=self, credential=self.credential, table=table)

    def _connect(self) -> Credential:
        credential, _ = self.deployment.connect(
            "tortured",
            Connection(
                host=self.server.host,
                port=self.server.port,
                database=self.source_database,
                user=self.role,
                password=CANARY,
                tls=TlsMode.DISABLE,
            ),
            destination=DEFAULTED,
            workspace=self.deployment.workspace(None),
        )
        return credential

    def count_operations(self) -> int:
        """How many operations its ledger has."""
        with self.control() as connection:
            row = connection.execute("SELECT count(*) AS n FROM carbon.dataset_transactions").fetchone()
        return int(row.n) if row else 0

    def close(self) -> None:
        """Let go of its sessions. The databases go with their server."""
        self.deployment.engine.dispose()


_SOURCE = """
CREATE TABLE {table} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, mark text NOT NULL, version bigint NOT NULL
);
INSERT INTO {table} (mark, version) SELECT 'first-' || i, 0 FROM generate_series(1, {rows}) i;
GRANT SELECT ON {table} TO {role};
"""


def _admin(server: EmbeddedServer, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        dbname=database,
        autocommit=True,
        row_factory=namedtuple_row,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One source table and its dataset."""

    arena: Arena
    credential: Credential
    table: str

    def mark(self, text: str | None = None) -> str:
        """Change the source: one more row with a mark of its own, and a new version of all rows."""
        mark = text or f"mark-{next(_numbers)}"
        with self.arena.admin(self.arena.source_database) as connection:
            connection.execute(f"UPDATE {self.table} SET version = version + 1")
            connection.execute(f"INSERT INTO {self.table} (mark, version) VALUES (%s, 0)", (mark,))
        return mark

    def sync(self) -> TableResult:
        """Sync in this process."""
        [result] = self.arena.deployment.sync(self.credential, (self.table,))
        return result

    @property
    def dataset(self) -> Dataset | None:
        """The dataset; none before the first sync coordinates it."""
        found = self.arena.deployment.directory.datasets(credential=self.credential)
        return next((each.dataset for each in found if each.dataset.relation == f"public.{self.table}"), None)

    def operations(self) -> Sequence[Any]:
        """The dataset's operations as the ledger has them, the newest first."""
        with self.arena.control() as connection:
            return connection.execute(
                "SELECT t.id, t.seq, t.status::text, t.ruling::text, t.reason, t.snapshot_id, t.planned_snapshot_id,"
                " t.base_snapshot_id, t.lease_until FROM carbon.dataset_transactions t"
                " JOIN carbon.datasets d ON d.id = t.dataset_id"
                " WHERE d.source_name = %s ORDER BY t.seq DESC",
                (self.table,),
            ).fetchall()

    def newest(self) -> Any:
        """The newest operation; none without one."""
        return next(iter(self.operations()), None)

    def is_unsettled(self) -> bool:
        """Whether an operation of the dataset waits to be settled."""
        return any(operation.status in {"open", "committing"} for operation in self.operations())

    def sweep(self, seconds: float = 10) -> SweepReport:
        """Sweep as reconcilers do, again and again, until the dataset is settled or the time is over."""
        until = time.monotonic() + seconds
        while True:
            report = self.arena.deployment.ratify(SweepTrigger.LIBRARY, AT_ONCE)
            if not self.is_unsettled() or time.monotonic() > until:
                return report
            time.sleep(0.05)


def through(ground: Ground, port: int) -> Ground:
    """The same ground, its control plane behind a proxy at that port."""
    return replace(ground, host="127.0.0.1", port=port)
