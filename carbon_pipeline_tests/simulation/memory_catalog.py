"""A catalog and its store in memory: tables as chains of snapshots, commits by compare-and-set, and what people do to
tables behind a writer's back. It remembers everything that ever happened, for the invariants only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from carbon_pipeline_tests.simulation.clock import ManualClock
from carbon_pipeline_tests.simulation.faults import Fault
from carbon_pipeline_tests.simulation.memory_source import CANARY, Rows
from carbon_pipeline_tests.simulation.process import Process

OPERATION_ID = "operation"
FENCE = "fence"
WATERMARK = "watermark"
DATASET = "dataset"

Identifier = tuple[str, str]


class NoAnswer(Exception):
    """A time-out, a broken connection, a 5xx: it proves nothing."""


class Conflict(Exception):
    """The catalog says 409."""


class NoSuchTable(Exception):
    """The catalog says 404."""


def no_answer() -> BaseException:
    """What a client gets that loses its answer, with everything in it that a client should keep to itself."""
    return NoAnswer(f"POST https://catalog/?token={CANARY}: read timed out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot. Its files are those that its manifests name, each with the snapshot that added it."""

    id: int
    parent: int | None
    summary: Mapping[str, str]
    files: tuple[tuple[str, int], ...]
    rows: int
    sequence: int = 0
    """Given by the catalog: the table's first snapshot has 1, every later one of the table one more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One state of a table: what a metadata file holds."""

    uuid: str
    main: int | None = None
    snapshots: Mapping[int, Snapshot] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    last_sequence: int = 0

    @property
    def head(self) -> Snapshot | None:
        """Main's snapshot."""
        return None if self.main is None else self.snapshots[self.main]

    def ancestry(self) -> tuple[list[Snapshot], int | None]:
        """Main's snapshots from its head back, and the parent at which the chain leaves the metadata, if it does."""
        chain: list[Snapshot] = []
        at = self.main
        while at is not None and at in self.snapshots:
            chain.append(self.snapshots[at])
            at = self.snapshots[at].parent
        return chain, at


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One commit: what it asserts and what it adds."""

    identifier: Identifier
    uuid: str
    asserts_main: bool
    snapshot: Snapshot
    properties: Mapping[str, str]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A request that was applied, and when."""

    request: Request
    snapshot: Snapshot
    tick: int


class MemoryCatalog:
    """The catalog and the store that all processes share."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.tables: dict[Identifier, Table] = {}
        self.logs: dict[str, list[Table]] = {}
        """Earlier metadata files, by the table's uuid."""
        self.store: dict[str, Rows] = {}
        self.in_flight: list[Request] = []
        # Everything below is for the invariants; no twin's answer depends on it.
        self.landings: list[Landing] = []
        self.ever: dict[int, Snapshot] = {}
        self.written: set[str] = set()
        self.writers: dict[str, str | None] = {}
        """Whose process wrote a file, by its path."""
        self.disturbed: dict[Identifier, list[int]] = {}
        """When main was moved back, or the table dropped, by the table's name."""
        self.evidence_lost: set[Identifier] = set()
        self._next = 1000

    def new_id(self) -> int:
        """The next snapshot id or uuid."""
        self._next += 1
        return self._next

    # What processes do.

    def load(self, process: Process, identifier: Identifier) -> Table:
        """The table as it is now; with a stale read, as it was one metadata file ago."""
        fault = process.arrive("catalog.load", no_answer)
        if identifier not in self.tables:
            raise NoSuchTable(identifier)
        table = self.tables[identifier]
        log = self.logs[table.uuid]
        process.leave(fault, no_answer)
        return log[-1] if fault is Fault.STALE and log else table

    def create(self, process: Process, identifier: Identifier, properties: Mapping[str, str]) -> Table:
        """A new, empty table; the one that is there if somebody was faster."""
        return process.cross("catalog.create", lambda: self._create(identifier, properties), no_answer)

    def request(self, process: Process, request: Request) -> Table:
        """One commit request, which may land when it is sent, later, twice or never."""
        fault = process.arrive("catalog.request", no_answer)
        if fault in {Fault.DELAY, Fault.DELAY_AND_KILL, Fault.CONFLICT_AND_DELAY}:
            self.in_flight.append(request)
            if fault is Fault.DELAY_AND_KILL:
                process.die()
            raise Conflict if fault is Fault.CONFLICT_AND_DELAY else no_answer()
        table = self.apply(request)
        if fault is Fault.TWICE:
            self.in_flight.append(request)
        if fault is Fault.CONFLICT_AFTER:
            raise Conflict
        process.leave(fault, no_answer)
        return table

    def put(self, process: Process, path: str, rows: Rows) -> None:
        """Write a file; an error half-way leaves it there as well."""

        def write() -> None:
            self.store[path] = rows
            self.written.add(path)
            self.writers[path] = process.tenant

        process.cross("store.put", write, lambda: OSError(f"PUT s3://bucket?signature={CANARY} failed"))

    def delete(self, process: Process, path: str) -> None:
        """Remove a file."""
        process.cross("store.delete", lambda: self.store.pop(path, None), lambda: OSError(f"DELETE {CANARY}"))

    def apply(self, request: Request) -> Table:
        """The catalog's own side: all or nothing, asserting uuid and main."""
        table = self.tables.get(request.identifier)
        if table is None:
            raise NoSuchTable(request.identifier)
        snapshot = request.snapshot
        if not request.asserts_main:
            snapshot = replace(snapshot, parent=table.main)
        if table.uuid != request.uuid or table.main != snapshot.parent or snapshot.id in table.snapshots:
            raise Conflict
        changed = self._add(request.identifier, snapshot, request.properties)
        self.landings.append(Landing(request=request, snapshot=snapshot, tick=self.clock.tick()))
        return changed

    def deliver(self, index: int = 0) -> bool:
        """A request that was on its way arrives. Whether it was applied; nobody hears the answer."""
        request = self.in_flight.pop(index)
        try:
            self.apply(request)
        except (Conflict, NoSuchTable):
            return False
        return True

    def _create(self, identifier: Identifier, properties: Mapping[str, str]) -> Table:
        if identifier not in self.tables:
            table = Table(uuid=f"uuid-{self.new_id()}", properties=properties)
            self.tables[identifier] = table
            self.logs[table.uuid] = []
        return self.tables[identifier]

    def _replace(self, identifier: Identifier, table: Table) -> None:
        self.logs[table.uuid].append(self.tables[identifier])
        self.tables[identifier] = table

    def _add(self, identifier: Identifier, snapshot: Snapshot, properties: Mapping[str, str]) -> Table:
        """Main's new head."""
        table = self.tables[identifier]
        numbered = replace(snapshot, sequence=table.last_sequence + 1)
        changed = replace(
            table,
            main=snapshot.id,
            snapshots={**table.snapshots, snapshot.id: numbered},
            properties={**table.properties, **properties},
            last_sequence=numbered.sequence,
        )
        self._replace(identifier, changed)
        self.ever[snapshot.id] = numbered
        return changed

    # What people and other engines do.

    def expire(self, identifier: Identifier, keep: int = 1, *, forgets_parents: bool = True) -> None:
        """Forget all snapshots but the newest *keep* of main.

        PyIceberg forgets with a snapshot that it was somebody's parent, so that the oldest one that is left looks like
        the table's first; Iceberg's Java library leaves the parent's id where it is.
        """
        table = self.tables[identifier]
        left = table.ancestry()[0][:keep]
        kept = {snapshot.id: snapshot for snapshot in left}
        if left and forgets_parents:
            kept[left[-1].id] = replace(left[-1], parent=None)
        if len(kept) < len(table.snapshots):
            self._replace(identifier, replace(table, snapshots=kept))
            self.evidence_lost.add(identifier)

    def prune_log(self, identifier: Identifier) -> None:
        """Delete the earlier metadata files."""
        self.logs[self.tables[identifier].uuid].clear()
        self.evidence_lost.add(identifier)

    def compact(self, identifier: Identifier) -> None:
        """Another engine rewrites main's files into one: the same rows under a new snapshot."""
        table = self.tables[identifier]
        head = table.head
        if head is None:
            return
        number = self.new_id()
        path = f"compacted/{number}"
        self.store[path] = rows_in(self.store, head)
        snapshot = Snapshot(id=number, parent=head.id, summary={}, files=((path, number),), rows=head.rows)
        self._add(identifier, snapshot, {})

    def roll_back(self, identifier: Identifier, steps: int = 1) -> None:
        """Move main back to an ancestor, as far as there is one."""
        table = self.tables[identifier]
        chain, _ = table.ancestry()
        if len(chain) > steps:
            self._replace(identifier, replace(table, main=chain[steps].id))
            self.disturbed.setdefault(identifier, []).append(self.clock.tick())

    def drop(self, identifier: Identifier, *, recreate: bool) -> None:
        """Drop the table; recreated, it has its properties again and another uuid."""
        dropped = self.tables.pop(identifier)
        if recreate:
            self._create(identifier, dropped.properties)
        self.disturbed.setdefault(identifier, []).append(self.clock.tick())

    def set_property(self, identifier: Identifier, key: str, value: str) -> None:
        """Anybody may."""
        table = self.tables[identifier]
        self._replace(identifier, replace(table, properties={**table.properties, key: value}))
        self.evidence_lost.add(identifier)

    # What a reader sees.

    def rows(self, identifier: Identifier) -> Rows | None:
        """Main's rows, every file read; none when there is no table."""
        table = self.tables.get(identifier)
        if table is None:
            return None
        return () if table.head is None else rows_in(self.store, table.head)

    def referenced(self) -> set[str]:
        """Every file that a snapshot of a table refers to."""
        return {path for table in self.tables.values() for path in paths_of(table.snapshots.values())}


def rows_in(store: Mapping[str, Rows], snapshot: Snapshot) -> Rows:
    """A snapshot's rows; `KeyError` when one of its files is gone."""
    return tuple(row for path, _ in snapshot.files for row in store[path])


def paths_of(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """The files of these snapshots."""
    return (path for snapshot in snapshots for path, _ in snapshot.files)
