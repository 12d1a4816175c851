"""What must never happen, as functions of the world: the numbers are those of DESIGN.md, section 14.

`violations` holds at every moment, in the middle of everything. `healed` lets the world recover, runs everything again
and then demands more.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.states import TRANSITIONS, UNSETTLED, OperationStatus, Ruling, SyncStatus
from carbon_pipeline.ratify.sweep import WATCH_HOURS, SweepReport
from carbon_pipeline_tests.simulation.control_plane import OperationRow
from carbon_pipeline_tests.simulation.faults import Fault
from carbon_pipeline_tests.simulation.memory_catalog import FENCE, OPERATION_ID, Landing, Snapshot, paths_of
from carbon_pipeline_tests.simulation.memory_source import CANARY, Rows
from carbon_pipeline_tests.simulation.process import Process
from carbon_pipeline_tests.simulation.world import World, impatient


def violations(world: World) -> list[str]:
    """Everything that is wrong now, one line each."""
    found = list(world.findings)
    for tenant in world.tenants:
        dataset = world.dataset_of(tenant)
        if dataset is not None:
            found += _data(world, tenant, dataset)
            found += _freshness(world, dataset)
    found += _evidence(world)
    found += _log(world)
    found += _transitions(world)
    found += _places(world)
    found += _secrets(world)
    found += _files(world)
    return found


def main_rows(world: World, dataset: Dataset) -> Rows | None:
    """Main's rows; none when the table is not there or cannot be read."""
    try:
        return world.catalog.rows(dataset.identifier)
    except KeyError:
        return None


def shown_operation(world: World, dataset: Dataset) -> OperationRow | None:
    """The operation whose rows main shows, found by everything that ever was in the catalog."""
    table = world.catalog.tables.get(dataset.identifier)
    at = None if table is None or table.head is None else world.catalog.ever[table.head.id]
    while at is not None:
        marker = at.summary.get(OPERATION_ID)
        if marker is not None:
            return next((row for row in world.plane.operations.values() if str(row.id) == marker), None)
        at = None if at.parent is None else world.catalog.ever.get(at.parent)
    return None


def _data(world: World, tenant: str, dataset: Dataset) -> Iterator[str]:
    """1, 2, 6: main can be read, and shows its operation's rows as the source had them at one moment."""
    table = world.catalog.tables.get(dataset.identifier)
    if table is None:
        return
    lost = [path for path in paths_of(table.snapshots.values()) if path not in world.catalog.store]
    if lost:
        yield f"6: {tenant}'s table has snapshots that cannot be read: {lost[0]} is gone"
        return
    rows = main_rows(world, dataset) or ()
    if len({key for key, _ in rows}) < len(rows):
        yield f"2: {tenant}'s table has a key twice"
    shown = shown_operation(world, dataset)
    versions = world.tenants[tenant].database.versions
    expected = versions[shown.operation.moment.lsn] if shown is not None else ()
    if sorted(rows) != sorted(expected):
        yield f"1: {tenant}'s table shows no moment of the source"


def _freshness(world: World, dataset: Dataset) -> Iterator[str]:
    """5: what the ledger says is never newer than what main shows.

    When a person moved main back after it was said, nobody knows yet; whatever is said by a process that began later
    has to be right.
    """
    committed = world.plane.datasets[dataset.id]
    process = committed.committed_by
    disturbed = max(world.catalog.disturbed.get(dataset.identifier, [0]))
    excused = process is None or process.started_at < disturbed or read_stale(process)
    if dataset.committed_moment is None or excused:
        return
    shown = shown_operation(world, dataset)
    if shown is None or shown.operation.moment.is_before(dataset.committed_moment):
        yield f"5: {dataset.coordinate} is said to be fresher than its data"


def read_stale(process: Process) -> bool:
    """Whether the catalog ever lied to it."""
    return any(fault is Fault.STALE for _, fault in process.plan.fired)


def landings_of(world: World, operation_id: OperationId) -> list[Landing]:
    """When the operation's snapshot landed; more than once is wrong."""
    marker = str(operation_id)
    return [landing for landing in world.catalog.landings if landing.snapshot.summary.get(OPERATION_ID) == marker]


def _evidence(world: World) -> Iterator[str]:
    """3: committed means landed, once, with the facts on record; aborted means that nothing of it ever shows."""
    known = {str(row.id) for row in world.plane.operations.values()}
    for landing in world.catalog.landings:
        marker = landing.snapshot.summary.get(OPERATION_ID)
        if marker is not None and marker not in known:
            yield f"3: snapshot {landing.snapshot.id} names an operation that nobody opened"
    for row in world.plane.operations.values():
        landings = landings_of(world, row.id)
        if len(landings) > 1 and not was_moved_back(world, row, landings[-1]):
            yield f"3: operation {row.operation.seq} landed {len(landings)} times"
        if row.status is OperationStatus.COMMITTED:
            yield from _committed(row, landings)
        elif row.status is OperationStatus.ABORTED and landings and not is_excused(world, row, landings[-1]):
            yield f"3: operation {row.operation.seq} was aborted ({row.ruling}), and it landed"
        elif row.status is OperationStatus.UNVERIFIABLE:
            yield from _unverifiable(world, row)


def _committed(row: OperationRow, landings: list[Landing]) -> Iterator[str]:
    if not landings:
        yield f"3: operation {row.operation.seq} is committed ({row.ruling}), and nothing landed"
    elif row.facts is not None:
        snapshot = landings[0].snapshot
        if (row.facts.snapshot_id, row.facts.rows) != (snapshot.id, snapshot.rows):
            yield f"3: operation {row.operation.seq} has the facts of another snapshot"


def _unverifiable(world: World, row: OperationRow) -> Iterator[str]:
    """Not knowing takes a reason: somebody took the evidence away. One stale read is none."""
    identifier = row.operation.dataset.identifier
    if identifier in world.catalog.evidence_lost or identifier in world.catalog.disturbed:
        return
    yield f"3: operation {row.operation.seq} is unverifiable ({row.reason}), and nobody took its evidence away"


def was_moved_back(world: World, row: OperationRow, landing: Landing) -> bool:
    """Whether a person moved main between the operation's request and its landing: a fence cannot survive that."""
    moved = world.catalog.disturbed.get(row.operation.dataset.identifier, [])
    return any((row.committing_tick or 0) < tick < landing.tick for tick in moved)


def is_excused(world: World, row: OperationRow, landing: Landing) -> bool:
    """Whether people made the proof of an aborted operation's absence worthless: they moved main back while its request
    was on its way, or they moved it back afterwards and destroyed every trace of it before anybody looked."""
    identifier = row.operation.dataset.identifier
    moved = world.catalog.disturbed.get(identifier, [])
    erased = identifier in world.catalog.evidence_lost and any(tick > landing.tick for tick in moved)
    return was_moved_back(world, row, landing) or erased


def _log(world: World) -> Iterator[str]:
    """4: one row per operation, succeeded where it is committed and only there."""
    expected = {
        OperationStatus.COMMITTED: SyncStatus.SUCCEEDED,
        OperationStatus.ABORTED: SyncStatus.FAILED,
        OperationStatus.UNVERIFIABLE: SyncStatus.FAILED,
    }
    for row in world.plane.operations.values():
        logged = [log.status for log in world.plane.sync_log.get(row.id, [])]
        if logged != [expected.get(row.status, SyncStatus.PENDING)]:
            yield f"4: the sync log of operation {row.operation.seq} ({row.status}) says {logged}"


def _transitions(world: World) -> Iterator[str]:
    """What is final stays, one operation per dataset is unsettled, and nothing older is put over something newer."""
    for event in world.plane.events:
        if event.before is not None and event.after not in TRANSITIONS[event.before]:
            yield f"3: operation {event.operation_id} went from {event.before} to {event.after}"
    busy = [row.operation.dataset.id for row in world.plane.unsettled()]
    if len(busy) > len(set(busy)):
        yield "3: a dataset has two unsettled operations"
    for row in world.plane.operations.values():
        before = row.committed_before
        if row.ruling is Ruling.LANDED and before is not None and row.operation.moment.is_before(before):
            yield f"5: operation {row.operation.seq} put an older moment over a newer one"


def _places(world: World) -> Iterator[str]:
    """8: every process keeps to its own tenant's place."""
    owners = {process.name: process.tenant for process in world.processes}
    for landing in world.catalog.landings:
        owner, place = owners.get(landing.request.by), landing.request.identifier[0]
        if owner is not None and not place.startswith(f"{owner}__"):
            yield f"8: {landing.request.by} committed to {place}"
        if owner is None and FENCE not in landing.snapshot.summary:
            yield f"8: {landing.request.by} committed more than a fence"
    for path, owner in world.catalog.writers.items():
        if not path.startswith(f"memory://{owner}/"):
            yield f"8: a process of {owner} wrote {path}"


def _secrets(world: World) -> Iterator[str]:
    """9: nothing that a driver said is in the ledger."""
    for row in world.plane.operations.values():
        if CANARY in (row.reason or ""):
            yield f"9: the reason of operation {row.operation.seq} gives a secret away"


def _files(world: World) -> Iterator[str]:
    """10: whatever was written was announced before, so that it can be found."""
    announced = {path for row in world.plane.operations.values() for path in row.files}
    unannounced = world.catalog.written - announced
    if unannounced:
        yield f"10: {len(unannounced)} files were written that the ledger does not know of"


def orphans(world: World) -> set[str]:
    """Files that no snapshot refers to and that no unsettled operation may still need."""
    pending = {path for row in world.plane.unsettled() for path in row.files}
    return set(world.catalog.store) - world.catalog.referenced() - pending


def snapshots_shown(world: World, dataset: Dataset) -> set[str]:
    """The operations that a snapshot of the table names, on main or off it."""
    table = world.catalog.tables.get(dataset.identifier)
    shown: list[Snapshot] = [] if table is None else list(table.snapshots.values())
    return {marker for snapshot in shown if (marker := snapshot.summary.get(OPERATION_ID))}


def heal(world: World) -> list[str]:
    """Let everything that is under way end, let an hour pass, sweep, and run everything again; what is wrong then."""
    for process in world.held():
        process.resume()
    world.clock.advance(3600)
    found = _swept(world)
    for tenant in world.tenants:
        found += _synced_again(world, tenant)
    while world.catalog.in_flight:
        world.catalog.deliver()
    found += violations(world)
    for tenant in world.tenants:
        found += _current(world, tenant)
    return found


def _swept(world: World) -> list[str]:
    """7: after a sweep at the minimum age nothing is unsettled, and a second one has nothing to do."""
    found: list[str] = []
    process = world.sweep(terms=impatient(aborts_max=1000))
    found += [f"7: operation {row.operation.seq} is {row.status} for ever" for row in world.plane.unsettled()]
    if not isinstance(process.result, SweepReport):
        return [*found, f"7: the sweep failed: {process.error}"]
    before = world.fingerprint()
    again = world.sweep(terms=impatient(aborts_max=1000))
    if before != world.fingerprint():
        found.append("7: a second sweep changed something")
    late = {operation.id for operation in again.result.late} if isinstance(again.result, SweepReport) else set()
    return found + [
        f"3: operation {row.operation.seq} was aborted, landed late, and no sweep says so"
        for row in world.plane.operations.values()
        if row.status is OperationStatus.ABORTED
        and str(row.id) in snapshots_shown(world, row.operation.dataset)
        and row.id not in late
        and is_still_watched(world, row)
    ]


def is_still_watched(world: World, row: OperationRow) -> bool:
    """Whether a sweep has to tell of the operation: its table still stands, and it was ruled lately."""
    table = world.catalog.tables.get(row.operation.dataset.identifier)
    lately = row.settled_at is not None and world.clock.now - row.settled_at < timedelta(hours=WATCH_HOURS)
    return lately and table is not None and table.uuid == row.operation.table_uuid


def _synced_again(world: World, tenant: str) -> list[str]:
    process = world.sync(tenant)
    if process.error is None:
        return []
    said = process.error.message if isinstance(process.error, CarbonError) else repr(process.error)
    return [f"7: {tenant} cannot be synced any more: {said}"]


def _current(world: World, tenant: str) -> list[str]:
    """1: after recovery and another run the target is the source, and the ledger says so."""
    dataset = world.dataset_of(tenant)
    database = world.tenants[tenant].database
    if dataset is None:
        return [f"1: {tenant} has no dataset"]
    found = []
    if sorted(main_rows(world, dataset) or ()) != sorted(database.rows):
        found.append(f"1: {tenant}'s table is not its source")
    if dataset.committed_moment != database.moment:
        found.append(f"5: {tenant}'s table is current, and the ledger does not say so")
    found += [
        f"7: operation {row.operation.seq} is {row.status} after all"
        for row in world.plane.operations.values()
        if row.status in UNSETTLED
    ]
    return found
