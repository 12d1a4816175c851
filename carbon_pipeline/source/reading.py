"""A reading: rows of one relation inside one snapshot, and the source's moment that they show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment of a source: every transaction that it had made visible by then is in the rows, or a later one.

    `lsn` is a byte position in the write-ahead log (PostgreSQL manual, "pg_lsn Type"); `time` is the source's clock.
    """

    system_identifier: int
    lsn: int
    time: datetime

    def is_before(self, other: Moment) -> bool:
        """Whether this moment is earlier: by LSN on one system, by time across systems."""
        if self.system_identifier == other.system_identifier:
            return self.lsn < other.lsn
        return self.time < other.time


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An open stream. `batches` can be drained once, while the source's snapshot is held."""

    moment: Moment
    batches: Iterator[pa.RecordBatch]


def format_lsn(lsn: int) -> str:
    """An LSN as PostgreSQL prints it, `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """The byte position of a printed LSN."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
