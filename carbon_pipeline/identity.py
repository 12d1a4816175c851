"""Ids and names that are valid by construction.

A source's names can be anything; the lake's are `[a-z0-9]+(_[a-z0-9]+)*`. `safe_name` maps the first to the second
injectively: a name that is safe already keeps its spelling, every other one is spelt as near as can be and gets a hash
of the original behind it. A safe name that ends like such a hash is hashed as well, so the two kinds cannot meet.
"""

from __future__ import annotations

import hashlib
import re
from typing import NewType
from uuid import UUID

WorkspaceId = NewType("WorkspaceId", UUID)
CredentialId = NewType("CredentialId", UUID)
DatasetId = NewType("DatasetId", UUID)
OperationId = NewType("OperationId", UUID)

NAME_LENGTH_MAX = 63
"""Letters in a safe name; the limit of a PostgreSQL identifier, which every catalog accepts too."""

_HASH_LENGTH = 10
_SAFE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_LOOKS_HASHED = re.compile(rf"_[0-9a-f]{{{_HASH_LENGTH}}}$")


def short_hash(text: str) -> str:
    """Ten hexadecimal digits of the SHA-256 of *text*."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]


def _near(original: str, length_max: int) -> str:
    spelt = re.sub(r"[^a-z0-9]+", "_", original.lower()).strip("_")[:length_max].strip("_")
    return spelt or "x"


def with_hash(name: str, source: str) -> str:
    """*name*, shortened where it must be, with a hash of *source* behind it."""
    return f"{_near(name, NAME_LENGTH_MAX - _HASH_LENGTH - 1)}_{short_hash(source)}"


def safe_name(original: str) -> str:
    """The lake's spelling of one source name."""
    if _SAFE.fullmatch(original) and len(original) <= NAME_LENGTH_MAX and not _LOOKS_HASHED.search(original):
        return original
    return with_hash(original, original)


def relation_name(schema: str, table: str) -> str:
    """A relation's name in the lake: `public.t` → `t`, `s.t` → `s__t`."""
    if schema == "public":
        return safe_name(table)
    joined = f"{safe_name(schema)}__{safe_name(table)}"
    return joined if len(joined) <= NAME_LENGTH_MAX else with_hash(joined, f"{schema}\0{table}")


def partition_key(schema: str, table: str) -> str:
    """A relation's Dagster partition key, `schema.table` with both halves safe."""
    return f"{safe_name(schema)}.{safe_name(table)}"
