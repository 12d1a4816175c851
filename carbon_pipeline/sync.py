"""The path of one table, as two functions.

`prepare` goes from a relation to an admitted, open stream; `publish` takes it through the ledger into the lake. The
Dagster asset calls the first and its IO manager the second; the terminal calls both. Each stage hands on the type
that the next one demands: Relation → Mapping → Dataset → Admitted → Reading → Intent → Staged → Permit → Outcome →
Entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CommitRefused, OutcomeUnknown, Superseded
from carbon_pipeline.gate.verdict import Actor, Admitted, admit
from carbon_pipeline.identity import CredentialId
from carbon_pipeline.lake.outcome import Landed, Outcome, Refused, Unknown
from carbon_pipeline.lake.port import Lake
from carbon_pipeline.lake.writers import Mode, Writer, check_mode
from carbon_pipeline.ledger.operation import Entry, Intent, OpenRequest, Settlement
from carbon_pipeline.ledger.port import Claim, Ledger
from carbon_pipeline.ledger.states import Ruling
from carbon_pipeline.ratify.settle import settle_unsettled
from carbon_pipeline.schema.mapping import Mapping, map_relation
from carbon_pipeline.source.port import Source
from carbon_pipeline.source.reading import Reading
from carbon_pipeline.source.relation import Introspection, Relation

Progress = Callable[[int, int], None]
"""Called for every batch, with the rows and the Arrow bytes read so far. What it raises stops the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outer world of one credential's writes."""

    source: Source
    lake: Lake
    ledger: Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be synced, by whom."""

    credential_id: CredentialId
    relation: Relation
    found: Introspection
    actor: Actor
    run_id: str | None = None
    writer: Writer = Writer.SYNC_FULL
    mode: Mode = Mode.REPLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An admitted write with its rows at hand; valid inside `prepare`'s context only."""

    ports: Ports
    order: Order
    mapping: Mapping
    admitted: Admitted
    reading: Reading

    @property
    def dataset(self) -> Dataset:
        """Where the rows go."""
        return self.admitted.dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one publication did."""

    dataset: Dataset
    mapping: Mapping
    entry: Entry
    settled_before: Entry | None
    """An earlier operation of the dataset that this write had to settle first."""
    reading: Reading


def _silent(_rows: int, _size_bytes: int) -> None:
    """Nobody is watching."""


@contextmanager
def prepare(ports: Ports, order: Order) -> Iterator[Prepared]:
    """Map, coordinate, ask the gate, and open the reading. Nothing is written yet."""
    check_mode(order.writer, order.mode)
    mapping = map_relation(order.relation)
    dataset = ports.ledger.coordinate(order.credential_id, order.relation, order.found)
    admitted = admit(dataset, order.actor, ports.ledger.role_of(order.actor, dataset.workspace_id))
    with ports.source.read(mapping) as reading:
        yield Prepared(ports=ports, order=order, mapping=mapping, admitted=admitted, reading=reading)


def publish(prepared: Prepared, progress: Progress = _silent) -> Receipt:
    """Settle what is unsettled, then open → write → settle. Raises a `WriteError`, `SourceError` or `LakeError`."""
    ports, order = prepared.ports, prepared.order
    check_mode(order.writer, order.mode)
    with ports.ledger.claim(prepared.dataset, order.actor) as claim:
        settled_before = settle_unsettled(claim, ports.lake)
        _refuse_superseded(prepared, ports.ledger.coordinate(order.credential_id, order.relation, order.found))
        intent = claim.open(_request(prepared))
        outcome = _write(claim, prepared, intent, progress)
        entry = _settle(claim, intent, outcome)
    return Receipt(
        dataset=prepared.dataset,
        mapping=prepared.mapping,
        entry=entry,
        settled_before=settled_before,
        reading=prepared.reading,
    )


def _refuse_superseded(prepared: Prepared, dataset: Dataset) -> None:
    committed = dataset.committed_moment
    if committed is not None and prepared.reading.moment.is_before(committed):
        raise Superseded(
            f"{dataset.coordinate} already shows the source as of {committed.time.isoformat()}, "
            f"this reading is of {prepared.reading.moment.time.isoformat()}"
        )


def _request(prepared: Prepared) -> OpenRequest:
    return OpenRequest(
        admitted=prepared.admitted,
        mapping=prepared.mapping,
        writer=prepared.order.writer,
        mode=prepared.order.mode,
        moment=prepared.reading.moment,
        head=prepared.ports.lake.ensure_table(prepared.dataset, prepared.mapping),
        run_id=prepared.order.run_id,
    )


def _write(claim: Claim, prepared: Prepared, intent: Intent, progress: Progress) -> Outcome:
    lake = prepared.ports.lake
    watch = _Watch(claim, intent, progress)
    try:
        staged = lake.stage(intent, prepared.mapping, watch.counted(prepared.reading.batches), watch.announce)
        permit = claim.advance(intent, staged.snapshot_id)
    except BaseException as error:
        _abort(claim, intent, error)
        raise
    # From here on an interruption proves nothing: the operation is `committing`, and only evidence may end it.
    return lake.commit(permit, staged)


class _Watch:
    """Follows a stream. The operation's lease lives on its progress alone, so a writer that hangs loses it."""

    def __init__(self, claim: Claim, intent: Intent, progress: Progress) -> None:
        self._claim = claim
        self._intent = intent
        self._progress = progress
        self._rows = 0
        self._size_bytes = 0

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """*batches* as they are."""
        for batch in batches:
            yield batch
            self._rows += batch.num_rows
            self._size_bytes += batch.nbytes
            self._claim.beat(self._intent, self._rows, self._size_bytes)
            self._progress(self._rows, self._size_bytes)

    def announce(self, files: Sequence[str]) -> None:
        """Put files on record before they are written."""
        self._claim.beat(self._intent, self._rows, self._size_bytes, files)


def _abort(claim: Claim, intent: Intent, error: BaseException) -> None:
    """Nothing was sent, so the operation ends here.

    Where that cannot be recorded, because the control plane is away or the operation is `committing` by now, the next
    write of the dataset settles it on evidence.
    """
    reason = f"{type(error).__name__} before the request was sent"
    try:
        claim.settle(intent.operation, Settlement(ruling=Ruling.FAILED, reason=reason))
    except Exception as second:
        error.add_note(f"The operation {intent.operation.id} could not be closed ({type(second).__name__}).")


def _settle(claim: Claim, intent: Intent, outcome: Outcome) -> Entry:
    operation = intent.operation
    match outcome:
        case Landed(facts=facts):
            return claim.settle(operation, Settlement(ruling=Ruling.LANDED, reason="the catalog shows it", facts=facts))
        case Refused(reason=reason):
            claim.settle(operation, Settlement(ruling=Ruling.REFUSED, reason=reason))
            raise CommitRefused(f"{operation.dataset.coordinate}: the catalog refused the commit: {reason}")
        case Unknown(reason=reason, cause=cause):
            if cause is not None and not isinstance(cause, Exception):
                raise cause
            raise OutcomeUnknown(
                f"{operation.dataset.coordinate}: the outcome of operation {operation.id} is unknown: {reason}"
            ) from cause
        case _:
            assert_never(outcome)
