"""The `Idempotency-Key` of a REST catalog's request (Iceberg REST specification, "Idempotency-Key").

One key per body: a catalog finalises the answer to a key, a 409 included, and repeats it for whatever comes with the
same key. So the key is derived from the operation and the snapshot that its one request names. It is a UUID of version
7 (RFC 9562, section 5.7), its time being that of the operation's opening.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

from carbon_pipeline.ledger.operation import Operation

HEADER = "Idempotency-Key"

_current: ContextVar[UUID | None] = ContextVar("idempotency_key", default=None)


def idempotency_key(operation: Operation, snapshot_id: int) -> UUID:
    """The key of the operation's request for this snapshot."""
    milliseconds = int(operation.opened_at.timestamp() * 1000) & 0xFFFF_FFFF_FFFF
    digest = hashlib.sha256(operation.id.bytes + snapshot_id.to_bytes(8, "big", signed=True)).digest()
    random = int.from_bytes(digest[:10], "big")
    high = (milliseconds << 16) | 0x7000 | ((random >> 64) & 0x0FFF)
    low = (random & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000
    return UUID(int=(high << 64) | low)


@contextmanager
def sent_with(key: UUID) -> Iterator[None]:
    """Requests of this thread carry *key*, where their catalog takes one."""
    token = _current.set(key)
    try:
        yield
    finally:
        _current.reset(token)


def current_key() -> UUID | None:
    """The key that a request of this thread is to carry."""
    return _current.get()
