"""Named moments inside a sync and inside ratify, planted from outside by wrapping methods of the edges.

The letters are those of the fault matrix that the protocol was designed against: C0 before the operation is on record,
C9 after everything is; C10 is ratify itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Connection, Engine, event

from carbon_pipeline.control_plane.sql.claim import SqlClaim
from carbon_pipeline.lake.iceberg.files import RollingWriter
from carbon_pipeline.lake.iceberg.lake import IcebergLake
from carbon_pipeline.ledger.states import Ruling

Act = Callable[[], None]
ActOn = Callable[[Connection], None]


class Moment(StrEnum):
    """Where in the call."""

    BEFORE = "before"
    AT_COMMIT = "at its commit"
    """Everything was said to the database but COMMIT."""
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One moment of one call."""

    name: str
    owner: type
    method: str
    moment: Moment
    nth: int = 1
    with_files: bool | None = None
    """For heartbeats: only those that announce files, or only those that do not."""
    rulings: frozenset[Ruling | None] = frozenset()
    """What may become of an operation whose writer died here; None when there is no operation, or it is settled."""

    def __str__(self) -> str:
        return self.name

    def counts(self, arguments: tuple[Any, ...]) -> bool:
        """Whether this call is one of those that are counted."""
        return self.with_files is None or self.with_files == (len(arguments) > 4 and bool(arguments[4]))


def _point(name: str, call: Callable[..., Any], moment: Moment, ruling: Ruling | None = None, **more: Any) -> Point:
    owners = {each.__name__: each for each in (SqlClaim, SqlCatalog, IcebergLake, RollingWriter)}
    owner, _, method = call.__qualname__.partition(".")
    return Point(name=name, owner=owners[owner], method=method, moment=moment, rulings=frozenset({ruling}), **more)


_BEFORE, _AT_COMMIT, _AFTER = Moment.BEFORE, Moment.AT_COMMIT, Moment.AFTER
_NEVER, _FENCED, _LANDED = Ruling.NEVER_LANDED, Ruling.FENCED, Ruling.LANDED

SYNC_POINTS = (
    _point("C0 before open commits", SqlClaim.open, _AT_COMMIT),
    _point("C1 after open", SqlClaim.open, _AFTER, _NEVER),
    _point("C2 in the third batch", SqlClaim.beat, _BEFORE, _NEVER, nth=3, with_files=False),
    _point("C2 before the second file is on record", SqlClaim.beat, _AT_COMMIT, _NEVER, nth=2, with_files=True),
    _point("C2 second file on record, not written", SqlClaim.beat, _AFTER, _NEVER, nth=2, with_files=True),
    _point("C3 after the data files", RollingWriter.write, _AFTER, _NEVER),
    _point("C4 after the manifests", IcebergLake.stage, _AFTER, _NEVER),
    _point("C4 before the advance commits", SqlClaim.advance, _AT_COMMIT, _NEVER),
    _point("C4 after the advance", SqlClaim.advance, _AFTER, _FENCED),
    _point("C5 before the request", SqlCatalog.commit_table, _BEFORE, _FENCED),
    _point("C5 in the request, before its commit", SqlCatalog.commit_table, _AT_COMMIT, _FENCED),
    _point("C6 after the request", SqlCatalog.commit_table, _AFTER, _LANDED),
    _point("C7 before settle", SqlClaim.settle, _BEFORE, _LANDED),
    _point("C8 before settle commits", SqlClaim.settle, _AT_COMMIT, _LANDED),
    _point("C9 after settle", SqlClaim.settle, _AFTER),
)

RATIFY_POINTS = (
    _point("C10 after the look", IcebergLake.observe, _AFTER),
    _point("C10 before the fence", IcebergLake.fence, _BEFORE),
    _point("C10 before the fence's request", SqlCatalog.commit_table, _BEFORE),
    _point("C10 in the fence's request, before its commit", SqlCatalog.commit_table, _AT_COMMIT),
    _point("C10 after the fence's request", SqlCatalog.commit_table, _AFTER),
    _point("C10 after the fence", IcebergLake.fence, _AFTER),
    _point("C10 before ratify settles", SqlClaim.settle, _BEFORE),
    _point("C10 before ratify's settle commits", SqlClaim.settle, _AT_COMMIT),
    _point("C10 after ratify settled", SqlClaim.settle, _AFTER),
)

POINTS = {point.name: point for point in (*SYNC_POINTS, *RATIFY_POINTS)}


def named(text: str) -> Point:
    """The point of that name."""
    return POINTS[text]


@contextmanager
def planted(point: Point, act: Act, at_commit: ActOn | None = None) -> Iterator[None]:
    """Do *act* at *point*, once, until the block ends; where the point is a commit, do *at_commit* if it is given."""
    original: Callable[..., Any] = getattr(point.owner, point.method)
    calls, is_inside = 0, False

    # functools.wraps would set __wrapped__, by which the product reaches past PyIceberg's own repetition.
    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal calls, is_inside
        calls += point.counts(arguments)
        is_due = point.counts(arguments) and calls == point.nth
        if is_due and point.moment is Moment.BEFORE:
            act()
        is_inside = is_due
        try:
            result = original(*arguments, **options)
        finally:
            is_inside = False
        if is_due and point.moment is Moment.AFTER:
            act()
        return result

    def before_commit(connection: Connection) -> None:
        if is_inside and point.moment is Moment.AT_COMMIT:
            (at_commit or (lambda _: act()))(connection)

    setattr(point.owner, point.method, wrapped)
    event.listen(Engine, "commit", before_commit)
    try:
        yield
    finally:
        event.remove(Engine, "commit", before_commit)
        setattr(point.owner, point.method, original)
