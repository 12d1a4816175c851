"""The digest of `verify.digest`, a third time: row by row, in plain Python, from the Arrow values that were read."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from carbon_pipeline.schema.mapping import ColumnMapping, Mapping
from carbon_pipeline.schema.type_map import BaseKind
from carbon_pipeline.verify.digest import Digest

_DIGITS = Context(prec=100)


def _real(value: float) -> str:
    return "7fc00000" if value != value else struct.pack(">f", value).hex()  # noqa: PLR0124 - only NaN differs from itself


def _double(value: float) -> str:
    return "7ff8000000000000" if value != value else struct.pack(">d", value).hex()  # noqa: PLR0124 - as above


def _text_of(column: ColumnMapping) -> Callable[[Any], str]:
    match column.base.kind:
        case BaseKind.BOOLEAN:
            return lambda value: "t" if value else "f"
        case BaseKind.DECIMAL:
            scale = column.base.scale or 0
            return lambda value: str(int(Decimal(value).scaleb(scale, _DIGITS)))
        case BaseKind.REAL:
            return _real
        case BaseKind.DOUBLE:
            return _double
        case BaseKind.UUID | BaseKind.BINARY:
            return lambda value: bytes(value).hex()
        case _:
            return str


def _plain(column: ColumnMapping, array: pa.Array) -> list[object]:
    """Values as Python can hold them: it knows no year 10000, so dates and times are taken as the integers they are."""
    match column.base.kind:
        case BaseKind.DATE:
            array = array.cast(pa.int32())
        case BaseKind.TIME | BaseKind.TIMESTAMP | BaseKind.TIMESTAMPTZ:
            array = array.cast(pa.int64())
        case BaseKind.UUID:
            array = array.storage
    values: list[object] = array.to_pylist()
    return values


def _pieces(column: ColumnMapping, array: pa.Array) -> list[bytes]:
    text_of = _text_of(column)
    texts = [None if value is None else text_of(value).encode() for value in _plain(column, array)]
    return [b"n;" if text is None else b"%d:%s;" % (len(text), text) for text in texts]


def digest_of(mapping: Mapping, batches: Iterable[pa.RecordBatch]) -> Digest:
    """The digest of what was read; checks on the way that every batch is whole and of the promised schema."""
    rows = checksum = 0
    for batch in batches:
        assert batch.schema.equals(mapping.arrow_schema)
        batch.validate(full=True)
        columns = [_pieces(column, batch.column(i)) for i, column in enumerate(mapping.columns)]
        for row in range(batch.num_rows):
            text = b"".join(column[row] for column in columns)
            checksum += int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest()[:8], "big")
        rows += batch.num_rows
    return Digest(rows=rows, checksum=checksum % 2**64)


def days(text: str) -> int:
    """Days since 1970 of an ISO date."""
    return (date.fromisoformat(text) - date(1970, 1, 1)).days


def microseconds(text: str) -> int:
    """Microseconds since 1970 of an ISO timestamp without a zone."""
    passed = datetime.fromisoformat(text) - datetime(1970, 1, 1)  # noqa: DTZ001 - meant without a zone
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
