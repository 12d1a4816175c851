"""Many tables of one source: several at a time, and one that fails never stops the others."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Event

from carbon_pipeline.errors import CarbonError, Reaction, reaction_to
from carbon_pipeline.source.relation import Relation
from carbon_pipeline.sync import Order, Ports, Receipt, prepare, publish


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """What became of one table: a receipt or an error, never both."""

    relation: Relation
    receipt: Receipt | None
    error: CarbonError | None
    seconds: float


class Listener:
    """Told about progress, from several threads at once. This one says nothing."""

    def planned(self, relations: Sequence[Relation]) -> None:
        """These are to be synced; said once, before anything begins."""

    def started(self, relation: Relation) -> None:
        """Reading of a table begins."""

    def progressed(self, relation: Relation, rows: int, size_bytes: int) -> None:
        """So many rows and Arrow bytes of it were read."""

    def finished(self, result: TableResult) -> None:
        """It is published, or failed."""


class _Stopped(BaseException):
    """Raised inside a worker to end its write; not an `Exception`, so nothing on the way takes it for a failure."""


def sync_all(
    ports: Ports, orders: Sequence[Order], *, workers: int, listener: Listener
) -> Generator[TableResult, None, None]:
    """Sync *orders*, *workers* at a time, and yield each result as it comes.

    When the caller stops listening (Ctrl-C included), the tables under way are stopped at their next batch and close
    their operations. An error whose reaction is `halt` would meet every table alike, so it stops the rest.
    """
    stop = Event()
    listener.planned([order.relation for order in orders])
    with ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="carbon-sync") as pool:
        pending = [pool.submit(_sync_one, ports, order, listener, stop) for order in orders]
        try:
            for future in as_completed(pending):
                result = future.result()
                if result is not None:
                    yield result
        finally:
            stop.set()
            for future in pending:
                future.cancel()


def _sync_one(ports: Ports, order: Order, listener: Listener, stop: Event) -> TableResult | None:
    if stop.is_set():
        return None
    begun = time.monotonic()
    listener.started(order.relation)
    try:
        receipt, error = _publish_watched(ports, order, listener, stop), None
    except CarbonError as failure:
        receipt, error = None, failure
        if reaction_to(failure) is Reaction.HALT:
            stop.set()
    except _Stopped:
        return None
    result = TableResult(relation=order.relation, receipt=receipt, error=error, seconds=time.monotonic() - begun)
    listener.finished(result)
    return result


def _publish_watched(ports: Ports, order: Order, listener: Listener, stop: Event) -> Receipt:
    def progress(rows: int, size_bytes: int) -> None:
        if stop.is_set():
            raise _Stopped
        listener.progressed(order.relation, rows, size_bytes)

    with prepare(ports, order) as prepared:
        return publish(prepared, progress)
