"""How each base type travels: what COPY sends, how pyarrow.csv reads it, and how that becomes the Arrow type.

One row per base type. PostgreSQL does the translation wherever it is exact, so that parsing has nothing to decide: what
the Arrow type cannot hold arrives as a word that does not parse (`infinity`, `NaN`, `24:00:00`), and is refused.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from psycopg import sql

from carbon_pipeline.schema.mapping import arrow_type
from carbon_pipeline.schema.type_map import BaseKind, BaseType

UUID_BYTES = 16

_AS_IT_IS = sql.SQL("{column}")
# Days since 1970. An infinite date has no distance to anything, so it is sent as its own text.
_DAYS = sql.SQL(
    "CASE WHEN isfinite({column}) THEN ({column} - DATE '1970-01-01')::text ELSE {column}::text END"
)  # fmt: skip
# From PostgreSQL 14 on, the epoch is a numeric with six decimals and ±Infinity: exact for every timestamp there is.
_MICROSECONDS = sql.SQL("trunc(extract(epoch FROM {column}) * 1000000)")
_HEX = sql.SQL("encode({column}, 'hex')")
_UUID_HEX = sql.SQL("encode(uuid_send({column}), 'hex')")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The way of one base type. No `csv`: the CSV reader makes the Arrow type itself."""

    expression: sql.SQL
    """What COPY selects, for `{column}`."""
    csv: pa.DataType | None = None
    """What the CSV reader makes of it."""
    finish: Callable[[pa.Array], pa.Array] | None = None
    """What is left to do."""


def _seen_as(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return partial(_view, kind)


def _view(kind: pa.DataType, array: pa.Array) -> pa.Array:
    return array.view(kind)


def unhex(array: pa.Array) -> pa.Array:
    """Hexadecimal digits → the bytes, all values in one go: two digits a byte, so every offset is halved."""
    if array.offset:
        array = pa.concat_arrays([array])
    validity, offsets, digits = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32, count=len(array) + 1)
    octets = binascii.unhexlify(memoryview(digits)[: ends[-1]]) if digits is not None else b""
    return pa.Array.from_buffers(
        pa.binary(), len(array), [validity, pa.py_buffer(ends // 2), pa.py_buffer(octets)], array.null_count
    )


def unhex_uuid(array: pa.Array) -> pa.Array:
    """Thirty-two digits → a UUID. A null takes no digits in the text but sixteen bytes in the result."""
    validity, _, octets = unhex(array).buffers()
    filled = np.zeros((len(array), UUID_BYTES), dtype=np.uint8)
    present = array.is_valid().to_numpy(zero_copy_only=False)
    filled[present] = np.frombuffer(octets, dtype=np.uint8).reshape(-1, UUID_BYTES)
    storage = pa.Array.from_buffers(
        pa.binary(UUID_BYTES), len(array), [validity, pa.py_buffer(filled)], array.null_count
    )
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


WIRE: dict[BaseKind, Wire] = {
    BaseKind.BOOLEAN: Wire(expression=_AS_IT_IS),
    BaseKind.INTEGER: Wire(expression=_AS_IT_IS),
    BaseKind.BIGINT: Wire(expression=_AS_IT_IS),
    BaseKind.DECIMAL: Wire(expression=_AS_IT_IS),
    BaseKind.REAL: Wire(expression=_AS_IT_IS),
    BaseKind.DOUBLE: Wire(expression=_AS_IT_IS),
    BaseKind.TEXT: Wire(expression=_AS_IT_IS),  # the type's own output; a cast to text would strip char(n) padding
    BaseKind.DATE: Wire(expression=_DAYS, csv=pa.int32(), finish=_seen_as(pa.date32())),
    BaseKind.TIME: Wire(expression=_AS_IT_IS),
    BaseKind.TIMESTAMP: Wire(expression=_MICROSECONDS, csv=pa.int64(), finish=_seen_as(pa.timestamp("us"))),
    BaseKind.TIMESTAMPTZ: Wire(expression=_MICROSECONDS, csv=pa.int64(), finish=_seen_as(pa.timestamp("us", tz="UTC"))),
    BaseKind.UUID: Wire(expression=_UUID_HEX, csv=pa.binary(), finish=unhex_uuid),
    BaseKind.BINARY: Wire(expression=_HEX, csv=pa.binary(), finish=unhex),
}
"""Every base type's way. A test says that none is missing."""


def csv_type(base: BaseType) -> pa.DataType:
    """What the CSV reader makes of a column of this type."""
    return WIRE[base.kind].csv or arrow_type(base)


def finished(base: BaseType, array: pa.Array) -> pa.Array:
    """What the CSV reader made, as the Arrow type of the mapping."""
    finish = WIRE[base.kind].finish
    return array if finish is None else finish(array)
