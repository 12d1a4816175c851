"""What a command does between the deployment, which it asks, and the screen, to which it hands what it was told."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from carbon_pipeline.control_plane.records import Connection, Credential, OperationFilter, SweepTrigger, Workspace
from carbon_pipeline.deployment import Deployment, open_deployment, running_server, select
from carbon_pipeline.destination.coordinate import Destination, DestinationOrigin
from carbon_pipeline.errors import CarbonError, UsageError, VaultError
from carbon_pipeline.identity import WorkspaceId
from carbon_pipeline.ledger.states import UNSETTLED
from carbon_pipeline.ratify.sweep import RATIFY_DEADLINE_SECONDS
from carbon_pipeline.schema.mapping import map_relation
from carbon_pipeline.settings import Settings
from carbon_pipeline.sync import Receipt
from carbon_pipeline.sync_all import Listener, TableResult
from carbon_pipeline.terminal import documents, views
from carbon_pipeline.terminal.connecting import Connected, say_table
from carbon_pipeline.terminal.ending import say_traceback
from carbon_pipeline.terminal.runs import SyncOutcome, VerifyOutcome, run_sync, watched
from carbon_pipeline.terminal.screen import Screen

ALARM_HOURS = 24.0
UNSETTLED_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One command's deployment and screen. `as_json` keeps stdout for one document."""

    deployment: Deployment
    screen: Screen
    as_json: bool = False

    def scope(self, workspace: str | None) -> Workspace | None:
        """The workspace of that name; none for all of them."""
        return None if workspace is None else self.deployment.directory.workspace(workspace)

    def credential(self, name: str, workspace: str | None) -> Credential:
        """The one credential of that name."""
        return self.deployment.directory.credential(name, self.scope(workspace))

    def chosen(self, name: str | None, workspace: str | None, *, every: bool) -> Sequence[Credential]:
        """The credentials that a command is about: the named one, all of them, or the only one."""
        if name is not None and every:
            raise UsageError("a credential and --all are both given", remedy="Give one of them.")
        if name is not None:
            return [self.credential(name, workspace)]
        known = self.deployment.directory.credentials(self.scope(workspace))
        if not known:
            raise UsageError("there is no source yet", remedy="`carbon connect postgres` takes one on.")
        if len(known) > 1 and not every:
            names = ", ".join(each.name for each in known)
            raise UsageError(f"there are several credentials: {names}", remedy="Name one, or give --all.")
        return known

    def sources(self, workspace: str | None) -> list[views.Source]:
        """The credentials, with their addresses where the secret opens."""
        return [self._source(each) for each in self.deployment.directory.credentials(self.scope(workspace))]

    def _source(self, credential: Credential) -> views.Source:
        try:
            connection = self.deployment.connection(credential)
        except VaultError:
            connection = None
        return views.Source(credential=credential, connection=connection)

    def replaceable(self, home: WorkspaceId, name: str, *, update: bool, destination: str | None) -> Credential | None:
        """The credential that `--update` is about; none for a new one. Refuses what would not be either."""
        known = next((each for each in self.deployment.directory.credentials() if _is(each, home, name)), None)
        if known is None and update:
            raise UsageError(f"there is no credential {name} to update", remedy="Leave --update out.")
        if known is not None and not update:
            raise UsageError(
                f"workspace {known.workspace.name} has a credential {name} already",
                remedy="Choose another name, or add --update to give this one a new connection.",
            )
        if known is not None and destination is not None:
            raise UsageError(f"{name} lands in {known.destination}, and stays there", remedy="Leave --destination out.")
        return known

    def connect(self, name: str, connection: Connection, destination: Destination, home: Workspace) -> Connected:
        """A new credential, tested before it is saved, and what its source has."""
        credential, found = self.deployment.connect(name, connection, destination=destination, workspace=home)
        return self._introduced(credential, found.warnings, updated=False)

    def reconnect(self, known: Credential, connection: Connection) -> Connected:
        """A credential with another connection, tested before it is saved."""
        return self._introduced(known, self.deployment.reconnect(known, connection).warnings, updated=True)

    def _introduced(self, credential: Credential, warnings: tuple[str, ...], *, updated: bool) -> Connected:
        found = self.deployment.ports(credential).source.introspect()
        return Connected(credential=credential, updated=updated, found=found, warnings=warnings)

    def show_tables(self, credential: Credential) -> None:
        """What the source has, each table's dataset, and when that was last synced."""
        found, homes = self.deployment.discover(credential, self.deployment.ports(credential))
        by_id = {status.dataset.id: status for status in self.deployment.directory.datasets(credential=credential)}
        statuses = {oid: by_id[home.id] for oid, home in homes.items() if home.id in by_id}
        if self.as_json:
            rows = [(each, homes.get(each.oid), statuses.get(each.oid)) for each in found.relations]
            self.screen.document([documents.relation_document(*row) for row in rows])
            return
        self.screen.table(views.relations_grid(found.relations, statuses, homes))
        for relation in found.relations:
            if relation.keys.failed is not None:
                self.screen.warn(f"{relation.qualified_name}: reading the keys failed: {relation.keys.failed}")

    def show_table(self, credential: Credential, table: str) -> None:
        """One table's columns and keys."""
        found, homes = self.deployment.discover(credential, self.deployment.ports(credential))
        relation = select(found, [table])[0]
        mapping, home = map_relation(relation), homes[relation.oid]
        if self.as_json:
            status = next((s for s in self.deployment.directory.datasets(credential) if s.dataset.id == home.id), None)
            document = documents.relation_document(relation, home, status)
            self.screen.document({**document, "columns": documents.columns_document(mapping)})
        else:
            say_table(self.screen, mapping, home.coordinate)

    def sync(
        self, credential: Credential, names: Sequence[str], *, workers: int, say_results: bool = True
    ) -> SyncOutcome:
        """Sync a credential's tables and tell Dagster. A source that cannot be looked at is an outcome too."""

        def start(listener: Listener) -> Generator[TableResult, None, None]:
            return self.deployment.sync(credential, names, workers=workers, listener=listener)

        try:
            outcome = run_sync(
                self.screen, credential.name, start, say_results=say_results, results_are_data=self.as_json
            )
        except UsageError:
            raise
        except CarbonError as error:
            self.screen.error(error, about=credential.name)
            return SyncOutcome(credential=credential.name, error=error)
        self._report(credential, outcome.receipts)
        return outcome

    def _report(self, credential: Credential, receipts: Sequence[Receipt]) -> None:
        """Tell Dagster, so that its UI tells the whole story. The data are published: its failure is a warning only."""
        if not receipts:
            return
        try:
            from carbon_pipeline.dagster_storage import instance_for_reporting  # noqa: PLC0415 - late: takes a second
            from carbon_pipeline.orchestration.report import report_runless  # noqa: PLC0415 - as above

            with instance_for_reporting() as instance:
                report_runless(
                    instance, credential, receipts, lambda found: self.deployment.directory.operation(str(found))
                )
        except Exception as error:
            say_traceback()
            said = error.message if isinstance(error, CarbonError) else type(error).__name__
            self.screen.warn(f"Dagster was not told of this sync ({said}); the data are published all the same")

    def verify(self, credential: Credential, names: Sequence[str]) -> VerifyOutcome:
        """Hold a credential's datasets against their source. A source that cannot be looked at is an outcome too."""
        held = (
            views.Held(table=one.dataset.relation, dataset=one.dataset, comparison=one.comparison, error=one.error)
            for one in self.deployment.verify(credential, names)
        )
        try:
            found = watched(self.screen, held, results_are_data=self.as_json)
        except UsageError:
            raise
        except CarbonError as error:
            self.screen.error(error, about=credential.name)
            return VerifyOutcome(credential=credential.name, error=error)
        return VerifyOutcome(credential=credential.name, held=found)

    def overview(self, server: str | None, workspace: str | None) -> views.Overview:
        """Where everything stands; *server* is the embedded server's address."""
        directory, scope = self.deployment.directory, self.scope(workspace)
        counts, known = directory.operation_counts(scope), directory.credentials(scope)
        defaulted = sum(each.destination.origin is DestinationOrigin.DEFAULTED for each in known)
        url = self.deployment.engine.url
        return views.Overview(
            home=self.deployment.settings.home,
            control_plane=f"{url.host or 'local'}:{url.port or 5432}/{url.database}",
            embedded=self.deployment.settings.embedded,
            server=server,
            catalogs=tuple(self._places()),
            summary=views.Summary(
                open_operations=sum(counts[state] for state in UNSETTLED),
                credentials=len(known),
                defaulted_destinations=defaulted,
            ),
            watch=self._watch(scope, written=any(counts.values())),
            statuses=directory.datasets(workspace=scope),
        )

    def _watch(self, scope: Workspace | None, *, written: bool) -> views.Watch:
        """Sweeps are of the whole control plane. Where nothing was ever written there is nothing to be late with."""
        directory = self.deployment.directory
        return views.Watch(
            last_sweep=directory.last_sweep(),
            last_tick=directory.last_tick(SweepTrigger.SENSOR),
            deadline_seconds=RATIFY_DEADLINE_SECONDS,
            overdue=written and directory.ratify_is_overdue(RATIFY_DEADLINE_SECONDS),
            unsettled=directory.operations(OperationFilter.OPEN, workspace=scope, limit=UNSETTLED_SHOWN),
            orphans=directory.orphan_count(),
            alarms=directory.alarms(ALARM_HOURS),
        )

    def _places(self) -> Iterator[views.CatalogPlace]:
        for name in self.deployment.catalogs.names:
            config = self.deployment.catalogs.config(name)
            yield views.CatalogPlace(name=name, kind=config.kind, uri=config.uri, warehouse=config.warehouse)


def _is(credential: Credential, home: WorkspaceId, name: str) -> bool:
    return credential.workspace.id == home and credential.name == name


def open_session(settings: Settings, *, as_json: bool = False) -> Session:
    """A session on the deployment that the settings name."""
    return Session(deployment=open_deployment(settings), screen=Screen.of_process(), as_json=as_json)


def overview(settings: Settings, workspace: str | None) -> views.Overview:
    """Where everything stands, without starting an embedded server that is down."""
    server = running_server(settings) if settings.embedded else None
    if settings.embedded and server is None:
        return views.Overview(home=settings.home, control_plane="embedded", embedded=True, server=None)
    address = None if server is None else f"{server.host}:{server.port}"
    return open_session(settings).overview(address, workspace)
