"""The marks that tie a table and its snapshots to the ledger."""

from __future__ import annotations

from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.operation import Intent, Operation
from carbon_pipeline.source.reading import format_lsn

OPERATION_ID = "carbon.operation-id"
SEQ = "carbon.seq"
WRITER = "carbon.writer"
WRITE_MODE = "carbon.write-mode"
SOURCE_LSN = "carbon.source-lsn"
SOURCE_TIME = "carbon.source-time"
SOURCE_SYSTEM = "carbon.source-system"
ROWS = "carbon.rows"
CURSOR = "carbon.cursor"
CODE_VERSION = "carbon.code-version"
FENCE = "carbon.fence"

WATERMARK = "carbon.watermark"
"""Table property `seq:operation` of the newest commit. A summary is lost when its snapshot expires; this is not."""

DATASET = "carbon.dataset-id"
WORKSPACE = "carbon.workspace-id"
COORDINATE = "carbon.coordinate"
RELATION = "carbon.source-relation"


def snapshot_stamp(intent: Intent, rows: int) -> dict[str, str]:
    """What the summary of an operation's snapshot carries. A full sync has no cursor to carry."""
    operation = intent.operation
    return {
        OPERATION_ID: str(operation.id),
        SEQ: str(operation.seq),
        WRITER: operation.writer,
        WRITE_MODE: operation.mode,
        SOURCE_LSN: format_lsn(operation.moment.lsn),
        SOURCE_TIME: operation.moment.time.isoformat(),
        SOURCE_SYSTEM: str(operation.moment.system_identifier),
        ROWS: str(rows),
        CURSOR: "",
        CODE_VERSION: intent.code_version,
    }


def watermark(seq: int, operation_id: OperationId) -> str:
    """The value of the watermark property after an operation's commit."""
    return f"{seq}:{operation_id}"


def watermark_of(operation: Operation) -> str:
    """The watermark that *operation* would have left."""
    return watermark(operation.seq, operation.id)
