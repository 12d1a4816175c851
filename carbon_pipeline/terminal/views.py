"""The tables that commands print, made of what the control plane and the source say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Lookup
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from carbon_pipeline.control_plane.records import (
    Alarm,
    Connection,
    Credential,
    DatasetStatus,
    LastOperation,
    OperationLine,
    OrphanCount,
    SweepRecord,
    TickRecord,
    Workspace,
)
from carbon_pipeline.destination.coordinate import Dataset, DestinationOrigin
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.ledger.states import UNSETTLED, OperationStatus
from carbon_pipeline.schema.mapping import ColumnMapping, Mapping
from carbon_pipeline.schema.type_map import Fidelity
from carbon_pipeline.source.relation import ForeignKey, Relation
from carbon_pipeline.terminal.grid import Column, Grid, cell
from carbon_pipeline.terminal.spelling import UNKNOWN, age, count, instant, size
from carbon_pipeline.verify.digest import Comparison, Equality

GOOD, BAD, DOUBTFUL, QUIET = "green", "bold red", "yellow", "dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A credential and, where its secret could be opened, where it leads."""

    credential: Credential
    connection: Connection | None

    @property
    def address(self) -> str:
        """`host:port/database`, without user or password."""
        found = self.connection
        return UNKNOWN if found is None else f"{found.host}:{found.port}/{found.database}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One dataset held against its source: a comparison or an error, never both."""

    table: str
    dataset: Dataset
    comparison: Comparison | None
    error: CarbonError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPlace:
    """A catalog and where it is, without its secrets."""

    name: str
    kind: str
    uri: str
    warehouse: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures over everything."""

    open_operations: int
    credentials: int
    defaulted_destinations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Whether anybody settles what writers leave behind, and what that has come to."""

    last_sweep: SweepRecord | None
    last_tick: TickRecord | None
    """The sensor's."""
    deadline_seconds: float
    overdue: bool
    """There has been a write, and nobody has swept, nor looked and found nothing to do, within the deadline."""
    unsettled: tuple[OperationLine, ...]
    orphans: OrphanCount
    alarms: tuple[Alarm, ...]
    """Of the last day."""

    @property
    def is_well(self) -> bool:
        """Nobody has to look."""
        return not self.overdue and not self.alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Where a deployment stands. Without a summary where its embedded server is down."""

    home: Path
    control_plane: str
    embedded: bool
    server: str | None
    """The embedded server's address while it is up."""
    catalogs: tuple[CatalogPlace, ...] = ()
    summary: Summary | None = None
    watch: Watch | None = None
    statuses: tuple[DatasetStatus, ...] = ()

    @property
    def is_well(self) -> bool:
        """Nobody has to look. While the embedded server is down nothing is known, and nothing written either."""
        return self.watch is None or self.watch.is_well


def workspaces_grid(workspaces: Iterable[Workspace]) -> Grid:
    """The tenants."""
    rows = tuple((cell(workspace.name), cell(str(workspace.id), QUIET)) for workspace in workspaces)
    return Grid(columns=(Column(title="workspace"), Column(title="id", spare=1)), rows=rows)


def credentials_grid(sources: Iterable[Source]) -> Grid:
    """The sources, where each lands and whether somebody chose that."""
    columns = (
        Column(title="credential"),
        Column(title="destination"),
        Column(title="origin"),
        Column(title="source"),
        Column(title="workspace", spare=3),
        Column(title="created by", spare=2),
        Column(title="created", spare=4),
    )
    return Grid(columns=columns, rows=tuple(_credential_row(source) for source in sources))


def _credential_row(source: Source) -> tuple[Text, ...]:
    credential = source.credential
    origin = credential.destination.origin
    return (
        cell(credential.name, "bold"),
        cell(str(credential.destination)),
        cell(origin, DOUBTFUL if origin is DestinationOrigin.DEFAULTED else ""),
        cell(source.address),
        cell(credential.workspace.name),
        cell(credential.created_by),
        cell(instant(credential.created_at), QUIET),
    )


def relations_grid(
    relations: Sequence[Relation], statuses: Lookup[int, DatasetStatus], homes: Lookup[int, Dataset]
) -> Grid:
    """What the source has, where each table lands, and when it last did."""
    columns = (
        Column(title="table"),
        Column(title="kind", spare=3),
        Column(title="columns", right=True, spare=2),
        Column(title="rows (est.)", right=True),
        Column(title="size", right=True, spare=1),
        Column(title="dataset"),
        Column(title="last sync"),
    )
    rows = (_relation_row(relation, homes.get(relation.oid), statuses.get(relation.oid)) for relation in relations)
    return Grid(columns=columns, rows=tuple(rows))


def _relation_row(relation: Relation, home: Dataset | None, status: DatasetStatus | None) -> tuple[Text, ...]:
    return (
        cell(relation.qualified_name, "bold"),
        cell(relation.kind),
        cell(count(len(relation.columns))),
        cell(count(relation.estimated_rows)),
        cell(size(relation.size_bytes)),
        cell(UNKNOWN if home is None else home.coordinate),
        cell("never", QUIET) if status is None or status.snapshot_id is None else cell(age(status.age_seconds)),
    )


def columns_grid(mapping: Mapping) -> Grid:
    """One relation's columns: what each is, what it becomes, and the receipt."""
    columns = (
        Column(title="column"),
        Column(title="source type"),
        Column(title="becomes"),
        Column(title="fidelity"),
        Column(title="rule"),
        Column(title="remark"),
    )
    return Grid(columns=columns, rows=tuple(_column_row(mapping.relation, column) for column in mapping.columns))


def _column_row(relation: Relation, column: ColumnMapping) -> tuple[Text, ...]:
    renamed = None if column.name == column.source_name else f"called {column.name} in the lake"
    remarks = [remark for remark in (column.receipt.reason, renamed) if remark]
    return (
        cell(column.source_name, "bold"),
        cell(column.source_type),
        cell(str(column.base)),
        cell(column.receipt.fidelity, "" if column.receipt.fidelity is not Fidelity.TEXT else DOUBTFUL),
        cell("primary key" if column.source_name in relation.keys.primary else "not null" if column.not_null else ""),
        cell("; ".join(remarks), QUIET),
    )


def foreign_key_line(key: ForeignKey) -> str:
    """`carrier → public.airlines (carrier)`."""
    target = f"{key.referenced_schema}.{key.referenced_table}"
    return f"{', '.join(key.columns)} → {target} ({', '.join(key.referenced_columns)})"


def status_grid(statuses: Iterable[DatasetStatus]) -> Grid:
    """Where every dataset stands."""
    columns = (
        Column(title="dataset"),
        Column(title="credential", spare=2),
        Column(title="mode", spare=4),
        Column(title="rows", right=True),
        Column(title="size", right=True, spare=3),
        Column(title="source time", spare=5),
        Column(title="age"),
        Column(title="last operation"),
    )
    return Grid(columns=columns, rows=tuple(_status_row(status) for status in statuses))


def _status_row(status: DatasetStatus) -> tuple[Text, ...]:
    last = status.last_operation
    return (
        cell(status.dataset.coordinate, "bold"),
        cell(status.credential),
        cell(UNKNOWN if last is None else last.mode),
        cell(count(status.rows)),
        cell(size(status.size_bytes)),
        cell(instant(status.source_time)),
        cell(age(status.age_seconds)),
        _operation_cell(last),
    )


def _operation_cell(last: LastOperation | None) -> Text:
    if last is None:
        return cell("none", QUIET)
    ended = last.status if last.ruling is None else f"{last.status} ({last.ruling})"
    if last.status in UNSETTLED:
        return cell(ended, DOUBTFUL)
    return cell(ended, GOOD if last.status is OperationStatus.COMMITTED else BAD)


def held_grid(held: Iterable[Held]) -> Grid:
    """Both sides of every dataset, and whether they are equal."""
    columns = (
        Column(title="dataset"),
        Column(title="table", spare=1),
        Column(title="source rows", right=True),
        Column(title="lake rows", right=True),
        Column(title="source checksum", spare=3),
        Column(title="lake checksum", spare=2),
        Column(title="verdict"),
    )
    return Grid(columns=columns, rows=tuple(_held_row(one) for one in held))


def _held_row(one: Held) -> tuple[Text, ...]:
    found = one.comparison
    figures: tuple[str, ...] = (UNKNOWN,) * 4
    if found is not None:
        sides = (found.source, found.lake)
        figures = (*(count(side.rows) for side in sides), *(side.checksum_hex for side in sides))
    return (cell(one.dataset.coordinate, "bold"), cell(one.table), *map(cell, figures), verdict_cell(one))


def verdict_cell(one: Held) -> Text:
    """`equal`, `different`, or `not verified` where one side could not be read."""
    if one.comparison is None:
        return cell("not verified", BAD)
    verdict = one.comparison.verdict
    return cell(verdict, GOOD if verdict is Equality.EQUAL else BAD)
