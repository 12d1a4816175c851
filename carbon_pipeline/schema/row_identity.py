"""The three identity columns that the writer stamps on every row, and how their values are made.

`__row_index`    0-based, unique, in reading order
`__row_id`       a UUID: the high 64 bits from the operation, the low 64 from the index, so a column of them compresses
`__created_at`   when the operation opened, by the control plane's clock
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import numpy as np
import pyarrow as pa

ROW_INDEX = "__row_index"
ROW_ID = "__row_id"
CREATED_AT = "__created_at"

IDENTITY_COLUMNS = (ROW_INDEX, ROW_ID, CREATED_AT)

# RFC 9562, section 5.8: version 8 is for vendor-made UUIDs; the variant bits are 10.
_VERSION_MASK, _VERSION_8 = 0xFFFF_FFFF_FFFF_0FFF, 0x8000
_VARIANT_MASK, _VARIANT_10 = 0x3FFF_FFFF_FFFF_FFFF, 0x8000_0000_0000_0000


def row_ids(operation_id: UUID, start: int, count: int) -> pa.Array:
    """*count* row ids of one operation from index *start* on, as 16-byte values."""
    high = ((operation_id.int >> 64) & _VERSION_MASK) | _VERSION_8
    words = np.empty((count, 2), dtype=">u8")
    words[:, 0] = high
    words[:, 1] = (np.arange(start, start + count, dtype=np.uint64) & np.uint64(_VARIANT_MASK)) | np.uint64(_VARIANT_10)
    storage = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(words.tobytes())])
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def stamp(batch: pa.RecordBatch, *, operation_id: UUID, start: int, created_at: datetime) -> pa.RecordBatch:
    """*batch* with the identity columns behind its own, its first row having index *start*."""
    count = batch.num_rows
    index = pa.array(np.arange(start, start + count, dtype=np.int64))
    created = pa.repeat(pa.scalar(created_at, pa.timestamp("us", tz="UTC")), count)
    columns = [*batch.columns, index, row_ids(operation_id, start, count), created]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *IDENTITY_COLUMNS])
