"""The library's front: everything wired together, for the terminal, for Dagster and for a program of one's own.

    deployment = open_deployment(read_settings())
    credential = deployment.directory.credential("shop")
    for result in deployment.sync(credential):
        print(result.relation.qualified_name, result.error or "published")

With nothing configured it stands on the embedded server under `CARBON_HOME`; with `CARBON_CONTROL_PLANE_URL` set, on
that control plane and on the catalogs that PyIceberg's own configuration names, and nothing embedded starts.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import URL, Engine

from carbon_pipeline.control_plane.records import (
    Connection,
    Credential,
    Governance,
    SweepTrigger,
    Workspace,
)
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.engine import engine_from_fields, engine_from_url
from carbon_pipeline.control_plane.sql.file_list import SqlFileList
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.control_plane.sql.migrate import migrate
from carbon_pipeline.destination.coordinate import DEFAULT_CATALOG, Dataset, Destination
from carbon_pipeline.embedded_postgres.server import (
    EmbeddedServer,
    ensure_database,
    ensure_running,
    find_running,
)
from carbon_pipeline.errors import (
    CarbonError,
    LakeError,
    RelationNotFound,
    SetupError,
    SourceError,
    SourceReplaced,
    UsageError,
    VaultError,
)
from carbon_pipeline.gate.verdict import Actor
from carbon_pipeline.identity import CredentialId
from carbon_pipeline.lake.iceberg.catalog import CatalogConfig, Catalogs, configured_catalogs
from carbon_pipeline.lake.iceberg.janitor import IcebergJanitor
from carbon_pipeline.lake.iceberg.lake import IcebergLake
from carbon_pipeline.lake.iceberg.reader import IcebergReader
from carbon_pipeline.query.catalogue import NamedTable
from carbon_pipeline.query.duckdb.lakehouse import Lakehouse
from carbon_pipeline.ratify.orphans import SAFE_AGE_HOURS, OrphanReport, remove_orphans
from carbon_pipeline.ratify.sweep import SweepReport, Terms, sweep
from carbon_pipeline.schema.mapping import map_relation
from carbon_pipeline.settings import Settings
from carbon_pipeline.source.postgres.source import PostgresSource, SourceProbe, probe
from carbon_pipeline.source.relation import Introspection, Relation
from carbon_pipeline.sync import Order, Ports
from carbon_pipeline.sync_all import Listener, TableResult, sync_all
from carbon_pipeline.vault.aes_gcm import (
    decode_connection,
    encode_connection,
    load_or_create_keys,
    open_sealed,
    seal,
)
from carbon_pipeline.vault.keyring import Keyring, parse_keyring
from carbon_pipeline.verify.digest import Comparison

CONTROL_DATABASE = "carbon"
CATALOG_DATABASE = "lakehouse"
DAGSTER_DATABASE = "dagster"

EMBEDDED_WORKSPACE = "main"
"""The one workspace that the embedded default makes for its user."""

SEALED_FIELD = "connection"
"""What a sealed secret is bound to, beside its workspace and credential."""

CODE_VERSION = version("carbon-pipeline")
WORKERS = 4
"""Tables of one credential that are synced at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One dataset held against its source: a comparison or an error, never both."""

    dataset: Dataset
    comparison: Comparison | None
    error: CarbonError | None


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One control plane, its catalogs and its keys, as this process uses them."""

    settings: Settings
    engine: Engine
    catalogs: Catalogs

    @cached_property
    def directory(self) -> Directory:
        """Workspaces, credentials and where each dataset stands."""
        return Directory(self.engine)

    @cached_property
    def ledger(self) -> SqlLedger:
        """The ledger of this control plane."""
        return SqlLedger(self.engine, code_version=CODE_VERSION, warehouses=self.catalogs.warehouses)

    @cached_property
    def lake(self) -> IcebergLake:
        """The registered catalogs, for writing."""
        return IcebergLake(self.catalogs)

    @cached_property
    def reader(self) -> IcebergReader:
        """The registered catalogs, for reading."""
        return IcebergReader(self.catalogs)

    @cached_property
    def keyring(self) -> Keyring:
        """The keys that seal this deployment's secrets."""
        if self.settings.encryption_keys is not None:
            return parse_keyring(self.settings.encryption_keys)
        if not self.settings.embedded:
            raise SetupError(
                "CARBON_ENCRYPTION_KEYS is not set",
                remedy="Set it to id:key, the key being 32 random bytes in base64 (`openssl rand -base64 32`).",
            )
        return parse_keyring(load_or_create_keys(self.settings.home))

    @property
    def actor(self) -> Actor:
        """Who acts in this process."""
        return Actor(user=self.settings.user)

    def workspace(self, name: str | None) -> Workspace:
        """The workspace called *name*, or the one that the user owns."""
        if name is not None:
            return self.directory.workspace(name)
        return self.directory.workspace_owned_by(self.settings.user)

    def connect(
        self, name: str, connection: Connection, *, destination: Destination, workspace: Workspace
    ) -> tuple[Credential, SourceProbe]:
        """Test *connection*, seal it, and save it as a credential with its destination, all or nothing."""
        found = probe(connection)
        credential = self.directory.add_credential(
            workspace=workspace,
            name=name,
            destination=destination,
            system_identifier=found.system_identifier,
            created_by=self.settings.user,
            seal=lambda credential_id: self._sealed(connection, workspace, credential_id),
        )
        return credential, found

    def reconnect(self, credential: Credential, connection: Connection) -> SourceProbe:
        """Test *connection*, and store it in the place of the credential's own.

        `SourceReplaced` when it leads to another server, or to another database of the same one.
        """
        found = probe(connection)
        known = self._known_database(credential)
        if known is not None and known != found.database:
            raise SourceReplaced(
                f"credential {credential.name} stands for database {known}, this connection leads to {found.database}"
            )
        sealed = self._sealed(connection, credential.workspace, credential.id)
        self.directory.update_connection(credential.id, sealed, system_identifier=found.system_identifier)
        return found

    def _known_database(self, credential: Credential) -> str | None:
        try:
            return self.connection(credential).database
        except VaultError:  # a lost key is one of the reasons to connect again
            return None

    def _sealed(self, connection: Connection, workspace: Workspace, credential_id: CredentialId) -> bytes:
        return seal(
            self.keyring,
            encode_connection(connection),
            workspace=workspace.id,
            credential=credential_id,
            field=SEALED_FIELD,
        )

    def connection(self, credential: Credential) -> Connection:
        """The opened secret of a credential. Keep it in this process."""
        opened = open_sealed(
            self.keyring,
            self.directory.sealed_connection(credential.id),
            workspace=credential.workspace.id,
            credential=credential.id,
            field=SEALED_FIELD,
        )
        return decode_connection(opened)

    def ports(self, credential: Credential) -> Ports:
        """The outer world of one credential's writes."""
        source = PostgresSource(self.connection(credential), application_name=f"carbon_pipeline {credential.name}")
        return Ports(source=source, lake=self.lake, ledger=self.ledger)

    def discover(self, credential: Credential, ports: Ports) -> tuple[Introspection, dict[int, Dataset]]:
        """What the source has now, and each relation's dataset by oid, minted where it is new."""
        found = ports.source.introspect()
        return found, {r.oid: self.ledger.coordinate(credential.id, r, found) for r in found.relations}

    def sync(
        self,
        credential: Credential,
        names: Sequence[str] = (),
        *,
        workers: int = WORKERS,
        listener: Listener | None = None,
        run_id: str | None = None,
    ) -> Generator[TableResult, None, None]:
        """Sync the named tables of a credential, or all of them, and yield each result as it comes."""
        ports = self.ports(credential)
        found = ports.source.introspect()
        orders = [
            Order(credential_id=credential.id, relation=relation, found=found, actor=self.actor, run_id=run_id)
            for relation in select(found, names)
        ]
        return sync_all(ports, orders, workers=workers, listener=listener or Listener())

    def verify(self, credential: Credential, names: Sequence[str] = ()) -> Iterator[Verified]:
        """Hold the published datasets of a credential, or the named tables', against their source, one after the other.

        A table that cannot be compared, because it is gone from its source for one, is an error among the others.
        """
        ports = self.ports(credential)
        found = ports.source.introspect()
        if names:
            for relation in select(found, names):
                yield self._compare(ports, self.ledger.coordinate(credential.id, relation, found), relation)
            return
        present = {relation.qualified_name: relation for relation in found.relations}
        for status in self.directory.datasets(credential=credential):
            if status.snapshot_id is not None:
                yield self._compare(ports, status.dataset, present.get(status.dataset.relation))

    def _compare(self, ports: Ports, dataset: Dataset, relation: Relation | None) -> Verified:
        try:
            if relation is None:
                raise RelationNotFound(
                    f"{dataset.relation} is gone from its source; {dataset.coordinate} stays as it was",
                    remedy="If it was renamed, `carbon sync` follows it.",
                )
            mapping = map_relation(relation)
            comparison = Comparison(source=ports.source.digest(mapping), lake=self.reader.digest(dataset, mapping))
        except (SourceError, LakeError) as error:
            return Verified(dataset=dataset, comparison=None, error=error)
        return Verified(dataset=dataset, comparison=comparison, error=None)

    def ratify(self, trigger: SweepTrigger, terms: Terms | None = None) -> SweepReport:
        """Settle every operation whose writer did not, and put the sweep on record."""
        begun = time.monotonic()
        report = sweep(self.ledger, self.lake, self.actor, terms or Terms())
        self.directory.record_sweep(trigger, report, seconds=time.monotonic() - begun)
        return report

    def remove_orphans(self, min_age_hours: float = SAFE_AGE_HOURS) -> OrphanReport:
        """Delete the files that writes which never landed left behind, once they are old enough."""
        return remove_orphans(SqlFileList(self.engine), IcebergJanitor(self.catalogs), min_age_hours)

    def lakehouse(
        self, workspace: Workspace, *, credential: Credential | None = None, identity: bool = False
    ) -> Lakehouse:
        """The workspace's published datasets, or only those of a credential, ready for SQL. Close it after use.

        One that cannot be read stops only the queries that name it.
        """
        tables, unreadable = [], {}
        for status in self.directory.datasets(credential=credential, workspace=workspace):
            try:
                files = self.reader.files(status.dataset) if status.snapshot_id is not None else None
            except LakeError as error:
                unreadable[status.dataset.coordinate] = error.message
                continue
            if files is not None:
                tables.append(NamedTable(schema=status.dataset.schema, name=status.dataset.name, files=files))
        return Lakehouse(tables, identity=identity, unreadable=unreadable)


def select(found: Introspection, names: Sequence[str]) -> tuple[Relation, ...]:
    """The named relations, or all; `RelationNotFound` listing what is near when one is not there."""
    if not names:
        return found.relations
    chosen = {name: found.find(name) for name in names}
    missing = [name for name, relation in chosen.items() if relation is None]
    if missing:
        known = ", ".join(sorted(r.qualified_name for r in found.relations)[:10]) or "no tables at all"
        raise RelationNotFound(
            f"no table called {', '.join(missing)} in database {found.database}",
            remedy=f"`carbon tables` lists all; the first are: {known}.",
        )
    return tuple(dict.fromkeys(relation for relation in chosen.values() if relation is not None))


def open_deployment(settings: Settings) -> Deployment:
    """A deployment ready for use: server up, schema current, catalogs registered."""
    deployment = _on_embedded(settings) if settings.embedded else _on_configured(settings)
    migrate(deployment.engine)
    for name in deployment.catalogs.names:
        config = deployment.catalogs.config(name)
        deployment.directory.register_catalog(
            name, kind=config.kind, uri_host=config.uri_host, governance=Governance.OWN
        )
    if settings.embedded and not deployment.directory.workspaces():
        with suppress(UsageError):  # another process was first
            deployment.directory.create_workspace(EMBEDDED_WORKSPACE, owner=settings.user)
    return deployment


def embedded_server(settings: Settings) -> EmbeddedServer:
    """The embedded server, started if need be; an error where the deployment has a control plane of its own."""
    if not settings.embedded:
        raise UsageError("CARBON_CONTROL_PLANE_URL is set, so nothing embedded runs", remedy="Unset it to use one.")
    return ensure_running(settings.home)


def running_server(settings: Settings) -> EmbeddedServer | None:
    """The embedded server if it is up."""
    return find_running(settings.home)


def server_url(server: EmbeddedServer, database: str, driver: str = "psycopg") -> URL:
    """SQLAlchemy's address of a database on the embedded server."""
    return URL.create(
        f"postgresql+{driver}",
        username=server.user,
        password=server.password,
        host=server.host,
        port=server.port,
        database=database,
    )


def _on_embedded(settings: Settings) -> Deployment:
    server = embedded_server(settings)
    for database in (CONTROL_DATABASE, CATALOG_DATABASE):
        ensure_database(server, database)
    catalog = CatalogConfig(
        name=DEFAULT_CATALOG,
        properties={
            "type": "sql",
            "uri": server_url(server, CATALOG_DATABASE).render_as_string(hide_password=False),
            "warehouse": _local_warehouse(settings.home),
        },
    )
    return Deployment(
        settings=settings,
        engine=engine_from_fields(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            database=CONTROL_DATABASE,
        ),
        catalogs=Catalogs({DEFAULT_CATALOG: catalog}),
    )


def _local_warehouse(home: Path) -> str:
    folder = home / "warehouse"
    if any(letter in str(folder) for letter in "#?%"):
        raise SetupError(
            f"the path {folder} holds one of # ? %, which a warehouse's address cannot carry",
            remedy="Set CARBON_HOME to a folder whose path has none of them.",
        )
    folder.mkdir(mode=0o700, exist_ok=True)
    return f"file://{folder}"


def _on_configured(settings: Settings) -> Deployment:
    catalogs = configured_catalogs()
    if DEFAULT_CATALOG not in catalogs:
        raise SetupError(
            f"PyIceberg's configuration names no catalog {DEFAULT_CATALOG}",
            remedy="Set PYICEBERG_CATALOG__MAIN__URI and its kin, or write a .pyiceberg.yaml with catalog.main.",
        )
    return Deployment(
        settings=settings, engine=engine_from_url(settings.control_plane_url or ""), catalogs=Catalogs(catalogs)
    )
