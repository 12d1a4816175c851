"""Mistakes planted on purpose, each one that somebody could make, and the hunt for them.

A torture that stays green over one of these is too weak. Each replaces a function or a method, of the core or of a
twin's use of the protocol, for the length of one hunt.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from carbon_pipeline import sync
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.gate.verdict import Actor
from carbon_pipeline.lake.outcome import Landed, Outcome, Refused, SnapshotFacts, Unknown
from carbon_pipeline.lake.port import Lake, Staged
from carbon_pipeline.ledger import states
from carbon_pipeline.ledger.operation import Entry, Intent, OpenRequest, Operation, Permit, Settlement
from carbon_pipeline.ledger.port import Claim, Ledger
from carbon_pipeline.ledger.states import RULINGS, OperationStatus, Ruling
from carbon_pipeline.ratify import decide, settle
from carbon_pipeline.ratify import sweep as sweeping
from carbon_pipeline.ratify.evidence import Absent, Evidence, OffMain, OnMain, Unreachable
from carbon_pipeline_tests.simulation import memory_lake, world
from carbon_pipeline_tests.simulation.boundaries import Cell, NotReached, cells
from carbon_pipeline_tests.simulation.boundaries import run as run_cell
from carbon_pipeline_tests.simulation.control_plane import ControlPlane
from carbon_pipeline_tests.simulation.memory_catalog import OPERATION_ID, Conflict, NoAnswer, Request, Table
from carbon_pipeline_tests.simulation.memory_lake import MemoryLake
from carbon_pipeline_tests.simulation.memory_ledger import MemoryClaim, MemoryFileList
from carbon_pipeline_tests.simulation.report import Figures
from carbon_pipeline_tests.simulation.walk import run_seed

Patch = tuple[Any, Any, Any]
"""An object or a dictionary, the name or the key in it, and what takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One mistake."""

    name: str
    patches: tuple[Patch, ...]


def _swap(owner: Any, name: Any, value: Any) -> Any:
    """Put *value* there; what was there before."""
    if isinstance(owner, dict):
        before, owner[name] = owner[name], value
    else:
        before = owner.__dict__[name]
        setattr(owner, name, value)
    return before


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The mistake is made, until this ends."""
    before = [(owner, name, _swap(owner, name, value)) for owner, name, value in bug.patches]
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            _swap(owner, name, value)


def _from_anywhere(ruling: Ruling) -> Patch:
    row = RULINGS[ruling]
    return RULINGS, ruling, replace(row, comes_from=frozenset(OperationStatus))


# A commit's answer misread.

_classify = MemoryLake._classify
_send = MemoryLake.commit
_plan = MemoryLake._plan
_fence = MemoryLake.fence


def _conflict_is_refusal(lake: MemoryLake, operation: Operation, answer: BaseException) -> Outcome:
    return Refused(reason="409") if isinstance(answer, Conflict) else _classify(lake, operation, answer)


def _silence_is_refusal(lake: MemoryLake, operation: Operation, answer: BaseException) -> Outcome:
    return Refused(reason="it timed out") if isinstance(answer, NoAnswer) else _classify(lake, operation, answer)


def _answer_is_landing(lake: MemoryLake, operation: Operation, answer: BaseException) -> Outcome:
    if not isinstance(answer, NoAnswer):
        return _classify(lake, operation, answer)
    base, snapshot_id = operation.base_snapshot_id, operation.snapshot_id or 0
    return Landed(
        facts=SnapshotFacts(
            snapshot_id=snapshot_id, parent_snapshot_id=base, rows=0, size_bytes=0, data_files=0, has_identity=True
        )
    )


def _sent_again(lake: MemoryLake, _operation: Operation, plan: Request) -> Outcome:
    try:
        table = lake._catalog.request(lake._process, plan)
    except NoAnswer:
        number = lake._catalog.new_id()
        again = replace(plan, asserts_main=False, snapshot=replace(plan.snapshot, id=number))
        table = lake._catalog.request(lake._process, again)
    assert table.head is not None
    return Landed(facts=memory_lake.facts_of(table.head))


def _unknown_is_cleaned_up(lake: MemoryLake, permit: Permit, staged: Staged) -> Outcome:
    outcome = _send(lake, permit, staged)
    if isinstance(outcome, Unknown):
        for path in staged.files:
            with suppress(Exception):
                lake._catalog.delete(lake._process, path)
    return outcome


def _base_not_asserted(lake: MemoryLake, operation: Operation, snapshot: Any) -> Request:
    return replace(_plan(lake, operation, snapshot), asserts_main=False)


# Evidence misread.

_evidence_in = memory_lake.evidence_in
_from_evidence = decide._from_evidence


def _absence_without_ancestry(table: Table, _chain: Any, _missing: Any, _operation: Operation) -> Absent:
    return Absent(head_snapshot_id=table.main, seen=table)


def _marker_in_head_only(table: Table, log: Sequence[Table], operation: Operation) -> Evidence:
    evidence = _evidence_in(table, log, operation)
    head = table.head
    if isinstance(evidence, OnMain) and head is not None and head.summary.get(OPERATION_ID) != str(operation.id):
        return Absent(head_snapshot_id=table.main, seen=table)
    return evidence


def _off_main_is_absent(table: Table, log: Sequence[Table], operation: Operation) -> Evidence:
    evidence = _evidence_in(table, log, operation)
    return Absent(head_snapshot_id=table.main, seen=table) if isinstance(evidence, OffMain) else evidence


def _silence_is_absence(evidence: Evidence) -> decide.Action:
    if isinstance(evidence, Unreachable):
        return decide._settle(Ruling.FENCED, evidence.reason)
    return _from_evidence(evidence)


def _rolled_back_is_fresh(evidence: Evidence) -> decide.Action:
    if isinstance(evidence, OffMain):
        return decide._settle(Ruling.LANDED, "its snapshot exists", evidence.facts)
    return _from_evidence(evidence)


def _watermark_believed(witnesses: frozenset[Any]) -> decide.Settle:
    return decide._settle(Ruling.EVIDENCE_EXPIRED, f"somebody says so: {len(witnesses)}")


def _committing_is_like_open(status: OperationStatus, _evidence: Evidence | None) -> decide.Action:
    return decide._settle(Ruling.NEVER_LANDED, f"it is {status}, and its writer is gone")


# A fence that is none.


def _no_fence(_lake: MemoryLake, _operation: Operation, _absence: Absent) -> bool:
    return True


def _fence_on_any_head(lake: MemoryLake, operation: Operation, absence: Absent) -> bool:
    with suppress(Exception):
        seen = lake._catalog.load(lake._process, operation.dataset.identifier)
        return _fence(lake, operation, replace(absence, seen=seen))
    return False


def _lost_fence_is_a_fence(lake: MemoryLake, operation: Operation, absence: Absent) -> bool:
    _fence(lake, operation, absence)
    return True


# The writer's path in another order.


def _settled_before_write(claim: Claim, prepared: sync.Prepared, intent: Intent, progress: sync.Progress) -> Outcome:
    lake = prepared.ports.lake
    watch = sync._Watch(claim, intent, progress)
    staged = lake.stage(intent, prepared.mapping, watch.counted(prepared.reading.batches), watch.announce)
    permit = claim.advance(intent, staged.snapshot_id)
    facts = SnapshotFacts(
        snapshot_id=staged.snapshot_id,
        parent_snapshot_id=intent.operation.base_snapshot_id,
        rows=staged.rows,
        size_bytes=staged.size_bytes,
        data_files=len(staged.files),
        has_identity=True,
    )
    claim.settle(intent.operation, Settlement(ruling=Ruling.LANDED, reason="about to land", facts=facts))
    return lake.commit(permit, staged)


def _advanced_after_request(claim: Claim, prepared: sync.Prepared, intent: Intent, progress: sync.Progress) -> Outcome:
    lake = prepared.ports.lake
    watch = sync._Watch(claim, intent, progress)
    try:
        staged = lake.stage(intent, prepared.mapping, watch.counted(prepared.reading.batches), watch.announce)
    except BaseException as error:
        sync._abort(claim, intent, error)
        raise
    outcome = lake.commit(Permit(intent=intent), staged)
    claim.advance(intent, staged.snapshot_id)
    return outcome


_write = sync._write


def _failed_after_advance(claim: Claim, prepared: sync.Prepared, intent: Intent, progress: sync.Progress) -> Outcome:
    outcome = _write(claim, prepared, intent, progress)
    if isinstance(outcome, Unknown):
        sync._abort(claim, intent, outcome.cause or RuntimeError("no cause"))
    return outcome


def _reason_says_all(claim: Claim, intent: Intent, error: BaseException) -> None:
    with suppress(Exception):
        claim.settle(intent.operation, Settlement(ruling=Ruling.FAILED, reason=f"failed: {error}"))


# The ledger's rules forgotten.

_insert = MemoryClaim._insert
_advance = MemoryClaim.advance
_call = MemoryClaim._call


def _overwriting(claim: MemoryClaim, request: OpenRequest) -> Intent:
    for row in list(claim._plane.unsettled()):
        if row.operation.dataset.id == claim._dataset.id:
            claim._plane.move(row, OperationStatus.ABORTED, Ruling.FAILED, claim._process)
            claim._plane.sync_log[row.id][0].status = states.SyncStatus.FAILED
    return _insert(claim, request)


def _fresh_before_settled(claim: MemoryClaim, intent: Intent, snapshot_id: int) -> Permit:
    permit = _advance(claim, intent, snapshot_id)
    claim._show(intent.operation.id)
    return permit


def _in_two_transactions(claim: MemoryClaim, operation: Operation, settlement: Settlement) -> Entry:
    def close() -> Entry:
        row = claim._row(operation)
        claim._guard(row, settlement)
        row.reason, row.facts = settlement.reason, settlement.facts
        claim._plane.move(row, RULINGS[settlement.ruling].status, settlement.ruling, claim._process)
        return Entry(
            operation_id=row.id,
            dataset_id=claim._dataset.id,
            seq=row.operation.seq,
            ruling=settlement.ruling,
            status=row.status,
            facts=settlement.facts,
            seconds=0,
        )

    entry = _call(claim, "settle", close)
    _call(claim, "settle", lambda: claim._complete(claim._row(operation), settlement))
    return entry


# The sweep's manners forgotten.

_act = sweeping._act
_sweep = sweeping.sweep
_may_be_swept = decide.may_be_swept


def _lease_ignored(standing: decide.Standing, min_age_seconds: float) -> decide.Leave | None:
    return _may_be_swept(replace(standing, lease_is_live=False), min_age_seconds)


def _age_ignored(standing: decide.Standing, _min_age_seconds: float) -> decide.Leave | None:
    return _may_be_swept(standing, 0)


def _dry_run_acts(
    ledger: Ledger, lake: Lake, actor: Actor, plan: Any, terms: sweeping.Terms, *, hold_aborts: bool
) -> sweeping.Case:
    return _act(ledger, lake, actor, plan, replace(terms, dry_run=False), hold_aborts=hold_aborts)


def _late_is_ruled_again(ledger: Ledger, lake: Lake, actor: Actor, terms: sweeping.Terms) -> sweeping.SweepReport:
    report = _sweep(ledger, lake, actor, terms)
    for operation in report.late:
        evidence = lake.observe(operation)
        if not isinstance(evidence, OnMain | OffMain):
            continue
        with suppress(CarbonError), ledger.claim(operation.dataset, actor, wait_seconds=0) as claim:
            claim.settle(operation, Settlement(ruling=Ruling.LANDED, reason="late", facts=evidence.facts))
    return report


def _nothing(*_: Any, **__: Any) -> None:
    """What should have been done is not."""


def _always(*_: Any) -> bool:
    return True


def _bug(name: str, *patches: Patch) -> Bug:
    return Bug(name=name, patches=patches)


BUGS: tuple[Bug, ...] = (
    _bug("a 409 is taken for a refusal without looking", (MemoryLake, "_classify", _conflict_is_refusal)),
    _bug("a time-out is taken for a refusal", (MemoryLake, "_classify", _silence_is_refusal)),
    _bug("a time-out is taken for a success", (MemoryLake, "_classify", _answer_is_landing)),
    _bug("a request without an answer is sent again, rebased", (MemoryLake, "_commit", _sent_again)),
    _bug("an unknown outcome is cleaned up", (MemoryLake, "commit", _unknown_is_cleaned_up)),
    _bug("the request does not assert main", (MemoryLake, "_plan", _base_not_asserted)),
    _bug("absence is concluded from a broken ancestry", (memory_lake, "absence_in", _absence_without_ancestry)),
    _bug("a chain that names no parent is taken for whole", (memory_lake, "is_whole", _always)),
    _bug("the marker is looked for in main's head only", (memory_lake, "evidence_in", _marker_in_head_only)),
    _bug("a snapshot off main is taken for absent", (memory_lake, "evidence_in", _off_main_is_absent)),
    _bug("a catalog that is away is taken for absence", (decide, "_from_evidence", _silence_is_absence)),
    _bug("a write that was rolled back counts as fresh", (decide, "_from_evidence", _rolled_back_is_fresh)),
    _bug("the watermark alone is believed", (decide, "_from_witnesses", _watermark_believed)),
    _bug("one stale read is believed", (settle, "UNPROVED", frozenset())),
    _bug(
        "a committing operation is aborted like an open one",
        (settle, "decide", _committing_is_like_open),
        (sweeping, "decide", _committing_is_like_open),
        _from_anywhere(Ruling.NEVER_LANDED),
    ),
    _bug("an abort has no fence", (MemoryLake, "fence", _no_fence)),
    _bug("the fence stands on whatever head is there", (MemoryLake, "fence", _fence_on_any_head)),
    _bug("a fence that failed counts", (MemoryLake, "fence", _lost_fence_is_a_fence)),
    _bug("the operation is settled before it is written", (sync, "_write", _settled_before_write)),
    _bug("the operation advances after its request", (sync, "_write", _advanced_after_request)),
    _bug(
        "a writer rules failed after it advanced",
        (sync, "_write", _failed_after_advance),
        _from_anywhere(Ruling.FAILED),
    ),
    _bug("publish does not settle first", (sync, "settle_unsettled", _nothing)),
    _bug(
        "a new operation overwrites an unsettled one",
        (sync, "settle_unsettled", _nothing),
        (MemoryClaim, "_insert", _overwriting),
    ),
    _bug("an older reading goes over a newer one", (sync, "_refuse_superseded", _nothing)),
    _bug("files are not announced", (sync._Watch, "announce", _nothing)),
    _bug("the reason repeats what a driver said", (sync, "_abort", _reason_says_all)),
    _bug("freshness moves before the settlement", (MemoryClaim, "advance", _fresh_before_settled)),
    _bug("settling takes two transactions", (MemoryClaim, "settle", _in_two_transactions)),
    _bug("the sweep ignores the lease", (sweeping, "may_be_swept", _lease_ignored)),
    _bug("the sweep ignores the minimum age", (sweeping, "may_be_swept", _age_ignored)),
    _bug("the sweep aborts without a limit", (sweeping._Plan, "aborts", property(lambda _: False))),
    _bug("a dry run acts", (sweeping, "_act", _dry_run_acts)),
    _bug(
        "a late landing is ruled again",
        (world, "sweep", _late_is_ruled_again),
        (ControlPlane, "move", ControlPlane.record),
        _from_anywhere(Ruling.LANDED),
    ),
    _bug("aborted operations are not watched", (sweeping, "late_landings", lambda *_: ())),
    _bug("the clean-up does not wait for the ruling", (MemoryFileList, "_is_left", _always)),
)


SEEDS_EVERY = 4
"""A seed takes about as long as so many cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catch:
    """Where a planted bug showed, and what was said; nothing when it did not."""

    bug: str
    where: str
    said: str | None

    @property
    def is_found(self) -> bool:
        """Whether anything went red."""
        return self.said is not None


class Hunt:
    """Looks for planted bugs: some cells, some seeds, and so on, the cells in an order of its own."""

    def __init__(self, *, cells_max: int, seeds_max: int, steps: int, seed: int = 0) -> None:
        chosen = list(cells(thorough=False))
        random.Random(seed).shuffle(chosen)
        seeds = iter(range(seed, seed + seeds_max))
        self._trials: list[Cell | int] = []
        for number, cell in enumerate(chosen[:cells_max]):
            self._trials.append(cell)
            if number % SEEDS_EVERY == 0:
                self._trials += islice(seeds, 1)
        self._trials += seeds
        self._steps = steps
        self.runs = 0

    def find(self, bug: Bug) -> Catch:
        """Plant it, and look until something is red."""
        with planted(bug):
            for trial in self._trials:
                self.runs += 1
                if said := self._look(trial):
                    return Catch(
                        bug=bug.name, where=f"seed {trial}" if isinstance(trial, int) else str(trial), said=said
                    )
        return Catch(bug=bug.name, where="nowhere", said=None)

    def _look(self, trial: Cell | int) -> str | None:
        if isinstance(trial, int):
            return next(iter(run_seed(trial, self._steps, Figures())[0]), None)
        with suppress(NotReached):
            return next(iter(run_cell(trial, Figures())), None)
        return None
