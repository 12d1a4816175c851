"""A digest of a table: its row count and a checksum that ignores the order of rows.

The checksum is the sum, modulo 2⁶⁴, over all rows, of the first 64 bits (big-endian) of the MD5 of the row's canonical
text. A sum and not an exclusive or, because two equal rows must not cancel each other out.

The canonical text of a row is the concatenation, in the mapping's column order, of one piece per column: `n;` for null,
otherwise `<length>:<text>;` with the length of the text in UTF-8 bytes. The text of a value, by base type:

    boolean              `t` or `f`
    integer, bigint      decimal digits
    decimal(p,s)         the unscaled integer, decimal digits
    real, double         the IEEE bits as lower-case hexadecimal, every NaN as PostgreSQL's own
    text                 the value; for a type kept as text, PostgreSQL's own output of it
    date                 days since 1970-01-01, decimal digits
    time                 microseconds since midnight, decimal digits
    timestamp(tz)        microseconds since 1970-01-01 00:00 (UTC), decimal digits
    uuid, binary         lower-case hexadecimal

Source and lake compute it each in its own way, so an error in one is not repeated in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Row count and checksum of one table at one moment."""

    rows: int
    checksum: int

    @property
    def checksum_hex(self) -> str:
        """The checksum as sixteen hexadecimal digits."""
        return f"{self.checksum:016x}"


class Equality(StrEnum):
    """What comparing two digests says."""

    EQUAL = "equal"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Source against lake, one table."""

    source: Digest
    lake: Digest

    @property
    def verdict(self) -> Equality:
        """Equal only when both the count and the checksum are."""
        return Equality.EQUAL if self.source == self.lake else Equality.DIFFERENT
