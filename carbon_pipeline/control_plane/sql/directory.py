"""Who and what the control plane knows: workspaces, members, catalogs, credentials, and where datasets stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from uuid import uuid4

from psycopg.errors import UniqueViolation
from sqlalchemy import Connection, Engine, func, select, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from carbon_pipeline.control_plane.records import (
    Alarm,
    Catalog,
    Credential,
    DatasetStatus,
    Governance,
    LastOperation,
    OperationFilter,
    OperationLine,
    OperationStory,
    OrphanCount,
    SweepRecord,
    SweepTrigger,
    TickDecision,
    TickRecord,
    Workspace,
)
from carbon_pipeline.control_plane.sql.engine import control_plane_errors
from carbon_pipeline.control_plane.sql.models import (
    CatalogRow,
    CredentialRow,
    DatasetRow,
    MemberRow,
    OperationRow,
    SweepRow,
    TickRow,
    WorkspaceRow,
)
from carbon_pipeline.control_plane.sql.operations import line_of, select_lines, tell_story
from carbon_pipeline.control_plane.sql.rows import (
    Found,
    Query,
    credential_of,
    dataset_of,
    destination_document,
    select_credentials,
    select_datasets,
)
from carbon_pipeline.control_plane.sql.sweeps import (
    alarm_of,
    record_sweep,
    record_tick,
    select_alarms,
    select_orphan_count,
    select_overdue,
    select_sweeps,
    select_ticks,
    sweep_of,
    tick_of,
)
from carbon_pipeline.destination.coordinate import Destination, DestinationOrigin
from carbon_pipeline.errors import SourceReplaced, UsageError
from carbon_pipeline.gate.verdict import Role
from carbon_pipeline.identity import CredentialId, OperationId, WorkspaceId, safe_name
from carbon_pipeline.lake.writers import Mode
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline.ratify.sweep import SweepReport

Seal = Callable[[CredentialId], bytes]
"""Seals a credential's connection, once its id is known: the id is part of what the seal is bound to."""


class Directory:
    """The control plane's records."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create_workspace(self, name: str, owner: str) -> Workspace:
        """A new workspace with its first owner."""
        _refuse_blank("workspace", name)
        with self._transaction(f"there is a workspace called {name} already") as connection:
            workspace_id = WorkspaceId(uuid4())
            connection.execute(insert(WorkspaceRow).values(id=workspace_id, name=name, slug=safe_name(name)))
            connection.execute(
                insert(MemberRow).values(
                    workspace_id=workspace_id, user_id=owner, role=Role.OWNER, joined_at=func.clock_timestamp()
                )
            )
        return Workspace(id=workspace_id, name=name)

    def workspaces(self) -> tuple[Workspace, ...]:
        """All of them, by name."""
        return self._workspaces(select(WorkspaceRow.id, WorkspaceRow.name))

    def workspace(self, name: str) -> Workspace:
        """The workspace of that name."""
        found = self._workspaces(select(WorkspaceRow.id, WorkspaceRow.name).where(WorkspaceRow.name == name))
        if not found:
            known = [workspace.name for workspace in self.workspaces()]
            raise _unknown("workspace", name, known, "`carbon workspace create` makes one.")
        return found[0]

    def workspace_owned_by(self, user: str) -> Workspace:
        """The one workspace that the user owns, by `workspace_members`."""
        owned = self._workspaces(
            select(WorkspaceRow.id, WorkspaceRow.name)
            .join(MemberRow, MemberRow.workspace_id == WorkspaceRow.id)
            .where(MemberRow.user_id == user, MemberRow.role == Role.OWNER)
        )
        if not owned:
            raise UsageError(f"{user} owns no workspace", remedy="`carbon workspace create` makes one.")
        if len(owned) > 1:
            names = ", ".join(workspace.name for workspace in owned)
            raise UsageError(f"{user} owns several workspaces: {names}", remedy="Say which one.")
        return owned[0]

    def add_member(self, workspace_id: WorkspaceId, user_id: str, role: Role, *, invited_by: str) -> None:
        """Give a person a role in a workspace, or another one than before."""
        member = insert(MemberRow).values(
            workspace_id=workspace_id,
            user_id=user_id,
            role=role,
            invited_by=invited_by,
            joined_at=func.clock_timestamp(),
        )
        with self._transaction() as connection:
            connection.execute(
                member.on_conflict_do_update(
                    index_elements=[MemberRow.workspace_id, MemberRow.user_id],
                    set_={"role": member.excluded.role, "invited_by": member.excluded.invited_by},
                )
            )

    def register_catalog(self, name: str, *, kind: str, uri_host: str, governance: Governance) -> Catalog:
        """Put a catalog on record. The same again changes nothing; something else under its name is refused."""
        wanted = Catalog(name=name, kind=kind, uri_host=uri_host, governance=governance)
        with self._transaction() as connection:
            connection.execute(
                insert(CatalogRow)
                .values(name=name, kind=kind, uri_host=uri_host, governance=governance)
                .on_conflict_do_nothing()
            )
            known = {catalog.name: catalog for catalog in _catalogs(connection)}[name]
        if known != wanted:
            raise UsageError(
                f"catalog {name} is registered as {_described(known)}, not as {_described(wanted)}",
                remedy="Register the other catalog under a name of its own: datasets stay where they were minted.",
            )
        return known

    def catalogs(self) -> tuple[Catalog, ...]:
        """All registered catalogs, by name."""
        with control_plane_errors(), self._engine.connect() as connection:
            return _catalogs(connection)

    def add_credential(
        self,
        *,
        workspace: Workspace,
        name: str,
        destination: Destination,
        system_identifier: int,
        created_by: str,
        seal: Seal,
    ) -> Credential:
        """A new source of a workspace: credential, sealed connection and destination in one transaction, or nothing."""
        _refuse_blank("credential", name)
        credential_id = CredentialId(uuid4())
        sealed = seal(credential_id)
        with self._transaction(f"{workspace.name} has a credential called {name} already") as connection:
            _refuse_unknown_catalog(connection, destination)
            connection.execute(
                insert(CredentialRow).values(
                    id=credential_id,
                    workspace_id=workspace.id,
                    name=name,
                    slug=safe_name(name),
                    kind="postgres",
                    sealed_connection=sealed,
                    system_identifier=system_identifier,
                    metadata_=destination_document(destination),
                    created_by=created_by,
                )
            )
            row = connection.execute(select_credentials().where(CredentialRow.id == credential_id)).one()
        return credential_of(row)

    def credentials(self, workspace: Workspace | None = None) -> tuple[Credential, ...]:
        """All credentials, or one workspace's, by workspace and name."""
        query = select_credentials().order_by(WorkspaceRow.name, CredentialRow.name)
        if workspace is not None:
            query = query.where(CredentialRow.workspace_id == workspace.id)
        return tuple(credential_of(row) for row in self._rows(query))

    def credential(self, name: str, workspace: Workspace | None = None) -> Credential:
        """The credential of that name; it may leave the workspace out where one workspace only has such a one."""
        every = self.credentials(workspace)
        found = [credential for credential in every if credential.name == name]
        if not found:
            raise _unknown("credential", name, [each.name for each in every], "`carbon credentials` lists them.")
        if len(found) > 1:
            names = ", ".join(credential.workspace.name for credential in found)
            raise UsageError(f"several workspaces have a credential called {name}: {names}", remedy="Say which one.")
        return found[0]

    def sealed_connection(self, credential_id: CredentialId) -> bytes:
        """The credential's connection as it is stored."""
        rows = self._rows(select(CredentialRow.sealed_connection).where(CredentialRow.id == credential_id))
        if not rows:
            raise _no_such(credential_id)
        return bytes(rows[0].sealed_connection)

    def update_connection(self, credential_id: CredentialId, sealed: bytes, *, system_identifier: int) -> None:
        """Store another connection to the same database; `SourceReplaced` when it leads to another one."""
        with self._transaction() as connection:
            row = connection.execute(
                select(CredentialRow.name, CredentialRow.system_identifier)
                .where(CredentialRow.id == credential_id)
                .with_for_update()
            ).one_or_none()
            if row is None:
                raise _no_such(credential_id)
            if row.system_identifier != system_identifier:
                raise SourceReplaced(
                    f"credential {row.name} stands for database system {row.system_identifier}, "
                    f"and this connection leads to system {system_identifier}"
                )
            connection.execute(
                update(CredentialRow).where(CredentialRow.id == credential_id).values(sealed_connection=sealed)
            )

    def defaulted_credentials(self) -> int:
        """How many credentials have a destination that nobody chose."""
        origin = CredentialRow.metadata_["warehouse_destination"]["origin"].as_string()
        query = select(func.count().label("n")).select_from(CredentialRow)
        return int(self._rows(query.where(origin == DestinationOrigin.DEFAULTED.value))[0].n)

    def datasets(
        self, credential: Credential | None = None, workspace: Workspace | None = None
    ) -> tuple[DatasetStatus, ...]:
        """Where every dataset stands, in one query, by workspace and coordinate."""
        query = _select_statuses().order_by(WorkspaceRow.name, DatasetRow.schema_name, DatasetRow.name)
        if credential is not None:
            query = query.where(DatasetRow.credential_id == credential.id)
        if workspace is not None:
            query = query.where(DatasetRow.workspace_id == workspace.id)
        return tuple(_status_of(row) for row in self._rows(query))

    def dataset(self, name: str, workspace: Workspace | None = None) -> DatasetStatus:
        """The dataset that *name* can only mean: its coordinate, its name, or its source's `schema.table`.

        A coordinate wins over a name, and a name over a source's.
        """
        every = self.datasets(workspace=workspace)
        for key in (_coordinate, _name, _source):
            found = [status for status in every if key(status) == name]
            if len(found) == 1:
                return found[0]
            if found:
                which = ", ".join(f"{each.dataset.workspace}: {each.dataset.coordinate}" for each in found)
                raise UsageError(f"{name} is the name of several datasets: {which}", remedy="Say which one.")
        raise _unknown("dataset", name, [_coordinate(each) for each in every], "`carbon tables` lists them.")

    def operation_counts(self, workspace: Workspace | None = None) -> dict[OperationStatus, int]:
        """How many operations stand where; every status has its count."""
        query = select(OperationRow.status, func.count().label("n")).group_by(OperationRow.status)
        if workspace is not None:
            query = query.join(DatasetRow, DatasetRow.id == OperationRow.dataset_id)
            query = query.where(DatasetRow.workspace_id == workspace.id)
        counted = {row.status: int(row.n) for row in self._rows(query)}
        return {status: counted.get(status, 0) for status in OperationStatus}

    def operations(
        self,
        which: OperationFilter = OperationFilter.ALL,
        *,
        dataset: str | None = None,
        workspace: Workspace | None = None,
        limit: int = 50,
    ) -> tuple[OperationLine, ...]:
        """Operations, the newest first. *dataset* is any name that `dataset` understands."""
        wanted = None if dataset is None else self.dataset(dataset, workspace).dataset.id
        rows = self._rows(select_lines(which, dataset_id=wanted, workspace=workspace, limit=limit))
        return tuple(line_of(row) for row in rows)

    def operation(self, text: str) -> OperationStory:
        """Everything about one operation, by its id or by the first eight or more digits of it.

        `UsageError` when there is none, or more than one.
        """
        # One snapshot for all of its parts, so that the story does not contradict itself while the operation moves.
        engine = self._engine.execution_options(isolation_level="REPEATABLE READ")
        with control_plane_errors(), engine.connect() as connection:
            return tell_story(connection, text)

    def record_sweep(self, trigger: SweepTrigger, report: SweepReport, *, seconds: float) -> SweepRecord:
        """Put a sweep that took *seconds* and has just ended on record, and every late landing that it found once."""
        with self._transaction() as connection:
            return record_sweep(connection, trigger, report, seconds)

    def record_tick(self, trigger: SweepTrigger, decision: TickDecision) -> None:
        """Put on record that a trigger looked whether a sweep is due."""
        with self._transaction() as connection:
            record_tick(connection, trigger, decision)

    def last_sweep(self) -> SweepRecord | None:
        """The last sweep that was no dry run."""
        rows = self._rows(select_sweeps().where(SweepRow.dry_run.is_(False)).limit(1))
        return sweep_of(rows[0]) if rows else None

    def last_tick(self, trigger: SweepTrigger) -> TickRecord | None:
        """The last time that this trigger looked."""
        rows = self._rows(select_ticks().where(TickRow.trigger == trigger))
        return tick_of(rows[0]) if rows else None

    def ratify_is_overdue(self, deadline_seconds: float) -> bool:
        """Whether nobody has swept, nor looked and found nothing to do, in these last seconds."""
        return bool(self._rows(select_overdue(deadline_seconds))[0].overdue)

    def orphan_count(self) -> OrphanCount:
        """How much aborted operations have left behind, as far as nobody has removed it."""
        row = self._rows(select_orphan_count())[0]
        return OrphanCount(files=int(row.files), operations=int(row.operations))

    def alarms(self, hours: float) -> tuple[Alarm, ...]:
        """What sweeps found in these last hours that a person has to look at, the newest first."""
        return tuple(alarm_of(row) for row in self._rows(select_alarms(hours)))

    def _workspaces(self, query: Query) -> tuple[Workspace, ...]:
        rows = self._rows(query.order_by(WorkspaceRow.name))
        return tuple(Workspace(id=WorkspaceId(row.id), name=row.name) for row in rows)

    def _rows(self, query: Query) -> Sequence[Found]:
        with control_plane_errors(), self._engine.connect() as connection:
            return connection.execute(query).all()

    @contextmanager
    def _transaction(self, when_taken: str | None = None) -> Iterator[Connection]:
        """One transaction; a name that is taken becomes a `UsageError` saying *when_taken*."""
        with control_plane_errors():
            try:
                with self._engine.begin() as connection:
                    yield connection
            except IntegrityError as error:
                if when_taken is None or not isinstance(error.orig, UniqueViolation):
                    raise
                raise UsageError(when_taken, remedy="Choose another name.") from None


def _select_statuses() -> Query:
    last = (
        select(
            OperationRow.id.label("operation_id"),
            OperationRow.status,
            OperationRow.ruling,
            OperationRow.mode,
            OperationRow.opened_at,
            OperationRow.settled_at,
            OperationRow.reason,
        )
        .where(OperationRow.dataset_id == DatasetRow.id)
        .order_by(OperationRow.seq.desc())
        .limit(1)
        .lateral("last_operation")
    )
    age = func.extract("epoch", func.clock_timestamp() - DatasetRow.source_time)
    return (
        select_datasets()
        .add_columns(
            CredentialRow.name.label("credential"),
            DatasetRow.row_count,
            DatasetRow.size_bytes,
            DatasetRow.snapshot_id,
            age.label("age_seconds"),
            *last.c,
        )
        .join(CredentialRow, CredentialRow.id == DatasetRow.credential_id)
        .outerjoin(last, true())
    )


def _status_of(row: Found) -> DatasetStatus:
    return DatasetStatus(
        dataset=dataset_of(row),
        credential=row.credential,
        rows=row.row_count,
        size_bytes=row.size_bytes,
        snapshot_id=row.snapshot_id,
        source_time=row.source_time,
        age_seconds=None if row.age_seconds is None else float(row.age_seconds),
        last_operation=None if row.operation_id is None else _last_operation(row),
    )


def _last_operation(row: Found) -> LastOperation:
    return LastOperation(
        id=OperationId(row.operation_id),
        status=row.status,
        ruling=row.ruling,
        mode=Mode(row.mode),
        opened_at=row.opened_at,
        seconds=None if row.settled_at is None else (row.settled_at - row.opened_at).total_seconds(),
        reason=row.reason,
    )


def _coordinate(status: DatasetStatus) -> str:
    return status.dataset.coordinate


def _name(status: DatasetStatus) -> str:
    return status.dataset.name


def _source(status: DatasetStatus) -> str:
    return status.dataset.relation


def _catalogs(connection: Connection) -> tuple[Catalog, ...]:
    rows = connection.execute(
        select(CatalogRow.name, CatalogRow.kind, CatalogRow.uri_host, CatalogRow.governance).order_by(CatalogRow.name)
    )
    return tuple(
        Catalog(name=row.name, kind=row.kind, uri_host=row.uri_host, governance=row.governance) for row in rows
    )


def _described(catalog: Catalog) -> str:
    return f"{catalog.governance} {catalog.kind} at {catalog.uri_host}"


def _refuse_unknown_catalog(connection: Connection, destination: Destination) -> None:
    known = [catalog.name for catalog in _catalogs(connection)]
    if destination.catalog not in known:
        raise _unknown("catalog", destination.catalog, known, "Register it first, or choose a registered one.")


def _refuse_blank(what: str, name: str) -> None:
    if not name.strip() or not name.isprintable():
        raise UsageError(f"{name!r} cannot name a {what}", remedy="Write a name of printable letters.")


def _unknown(what: str, name: str, known: Sequence[str], otherwise: str) -> UsageError:
    near = get_close_matches(name, known, n=1)
    if near:
        return UsageError(f"there is no {what} {name}", remedy=f"Did you mean {near[0]}?")
    listed = f"There is {', '.join(known)}. " if 0 < len(known) <= 12 else ""
    return UsageError(f"there is no {what} {name}", remedy=listed + otherwise)


def _no_such(credential_id: CredentialId) -> UsageError:
    return UsageError(f"there is no credential {credential_id}", remedy="`carbon credentials` lists them.")
