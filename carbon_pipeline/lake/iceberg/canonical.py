"""The canonical text of Arrow rows, and its checksum: `verify.digest`'s definition, a batch at a time.

Every column becomes two string arrays, the piece's head (`;5:`, or `;n` for a null) and its text; one join then makes
the rows' texts. A piece's `;` stands at the head of the next one, so that the join needs no third array. A column of
few different integers becomes one array instead, taken from a table of all its pieces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from carbon_pipeline.schema.type_map import BaseKind, BaseType

_TABLED_LENGTHS: Final = 1024
_TABLE_PAYS_OFF: Final = 16
"""Rows per possible value from which on a table of all pieces is cheaper."""
_INT64_DIGITS: Final = 18
"""A decimal of so many digits fits the lower of its two 64-bit words."""

_HEX_PAIRS: Final = np.array([int.from_bytes(f"{byte:02x}".encode(), "little") for byte in range(256)], dtype="<u2")
_NAN: Final[dict[str, int]] = {"<u4": 0x7FC0_0000, "<u8": 0x7FF8_0000_0000_0000}
"""What PostgreSQL's `float4send` and `float8send` give for NaN."""


def canonical_texts(columns: Sequence[pa.Array], types: Sequence[BaseType], rows: int) -> pa.Array:
    """The canonical text of every row; *columns* are of the types that the base types travel in."""
    if not columns:
        return pa.repeat("", rows)
    pieces: list[pa.Array] = []
    for column, base in zip(columns, types, strict=True):
        pieces += _pieces(column, base, first=not pieces)
    return _joined([*pieces, ";"])


def _joined(pieces: Sequence[object]) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "", null_handling="replace", null_replacement="")


def _pieces(column: pa.Array, base: BaseType, *, first: bool) -> list[pa.Array]:
    if base.kind is BaseKind.DECIMAL and (base.precision or 0) > _INT64_DIGITS:
        return _texts_pieces(_long_decimal(column), first=first)
    if base.kind in _INTEGERS:
        return _integer_pieces(_INTEGERS[base.kind](column), first=first)
    return _texts_pieces(_TEXTS[base.kind](column), first=first)


def _integer_pieces(integers: pa.Array, *, first: bool) -> list[pa.Array]:
    extremes = pc.min_max(integers)
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    if low is None or high - low > len(integers) / _TABLE_PAYS_OFF:
        return _texts_pieces(_digits(integers), first=first)
    # The table's first place is the null's.
    known = pa.concat_arrays([pa.nulls(1, pa.int64()), pa.array(np.arange(high - low + 1) + low)])
    table = _joined(_texts_pieces(_digits(known), first=first))
    return [table.take(pc.fill_null(pc.add(pc.subtract(integers, low), 1), 0))]


def _texts_pieces(texts: pa.Array, *, first: bool) -> list[pa.Array]:
    return [_heads(texts, first=first), texts]


def checksum(texts: pa.Array) -> int:
    """The sum, modulo 2⁶⁴, of the first 64 bits of every text's MD5."""
    _, offset_buffer, data_buffer = texts.buffers()
    if len(texts) == 0 or offset_buffer is None:
        return 0
    offsets = np.frombuffer(offset_buffer, dtype="<i4", count=len(texts) + 1, offset=4 * texts.offset).tolist()
    data, md5 = memoryview(data_buffer or b""), hashlib.md5
    digests = b"".join([md5(data[start:end], usedforsecurity=False).digest() for start, end in pairwise(offsets)])
    return int(np.frombuffer(digests, dtype=">u8")[::2].sum(dtype=np.uint64))


def _head_table(*, first: bool) -> pa.Array:
    before = "" if first else ";"
    return pa.array([f"{before}n", *(f"{before}{length}:" for length in range(_TABLED_LENGTHS))])


_FIRST_HEADS: Final = _head_table(first=True)
_NEXT_HEADS: Final = _head_table(first=False)


def _heads(text: pa.Array, *, first: bool) -> pa.Array:
    lengths = pc.binary_length(text)
    longest = pc.max(lengths).as_py()
    if longest is None or longest < _TABLED_LENGTHS:
        table = _FIRST_HEADS if first else _NEXT_HEADS
        return table.take(pc.add(pc.fill_null(lengths, -1), 1))
    written = pc.binary_join_element_wise("" if first else ";", pc.cast(lengths, pa.string()), ":", "")
    return pc.fill_null(written, "n" if first else ";n")


def _nulls_of(column: pa.Array, text: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


def _words(column: pa.Array, dtype: str, words: int = 1) -> npt.NDArray[np.unsignedinteger]:
    """The column's values as they lie in memory; what stands in the place of a null means nothing."""
    size = np.dtype(dtype).itemsize * words
    return np.frombuffer(column.buffers()[1], dtype=dtype, count=len(column) * words, offset=column.offset * size)


def _hexadecimal(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> pa.Array:
    """*data* as lower-case hexadecimal; value i is between offsets i and i+1."""
    ends = pa.py_buffer((offsets * 2).astype("<i4"))
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, ends, pa.py_buffer(_HEX_PAIRS[data])])


def _digits(column: pa.Array) -> pa.Array:
    return pc.cast(column, pa.string())


def _short_decimal(column: pa.Array) -> pa.Array:
    if not len(column):
        return pa.array([], pa.int64())
    return _nulls_of(column, pa.array(_words(column, "<i8", 2)[::2]))


def _long_decimal(column: pa.Array) -> pa.Array:
    return _digits(pa.Array.from_buffers(pa.decimal128(38, 0), len(column), column.buffers(), offset=column.offset))


def _float(column: pa.Array, dtype: str) -> pa.Array:
    if not len(column):
        return pa.array([], pa.string())
    bits = _words(column, dtype)
    values = bits.view(dtype.replace("u", "f"))
    sent = np.where(np.isnan(values), np.array(_NAN[dtype], dtype=dtype), bits).astype(dtype.replace("<", ">"))
    width = sent.dtype.itemsize
    return _nulls_of(column, _hexadecimal(sent.view(np.uint8), np.arange(len(column) + 1) * width))


def _uuid(column: pa.Array) -> pa.Array:
    storage = column.storage
    if not len(storage):
        return pa.array([], pa.string())
    return _nulls_of(column, _hexadecimal(_words(storage, "u1", 16), np.arange(len(column) + 1) * 16))


def _binary(column: pa.Array) -> pa.Array:
    _, offset_buffer, data_buffer = column.buffers()
    if not len(column):
        return pa.array([], pa.string())
    offsets = np.frombuffer(offset_buffer, dtype="<i4", count=len(column) + 1, offset=4 * column.offset)
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    return _nulls_of(column, _hexadecimal(data, offsets.astype(np.int64) - offsets[0]))


def _microseconds(column: pa.Array) -> pa.Array:
    return column.view(pa.int64())


_INTEGERS: Final[dict[BaseKind, Callable[[pa.Array], pa.Array]]] = {
    BaseKind.INTEGER: lambda column: column.cast(pa.int64()),
    BaseKind.BIGINT: lambda column: column,
    BaseKind.DECIMAL: _short_decimal,
    BaseKind.DATE: lambda column: column.view(pa.int32()).cast(pa.int64()),
    BaseKind.TIME: _microseconds,
    BaseKind.TIMESTAMP: _microseconds,
    BaseKind.TIMESTAMPTZ: _microseconds,
}
"""The types whose text is the digits of a 64-bit integer, and that integer; of decimals only short ones."""

_TEXTS: Final[dict[BaseKind, Callable[[pa.Array], pa.Array]]] = {
    BaseKind.BOOLEAN: lambda column: pc.if_else(column, "t", "f"),
    BaseKind.REAL: lambda column: _float(column, "<u4"),
    BaseKind.DOUBLE: lambda column: _float(column, "<u8"),
    BaseKind.TEXT: lambda column: column,
    BaseKind.UUID: _uuid,
    BaseKind.BINARY: _binary,
}
