"""A SQL catalog whose answer to a commit can be made to fail, before or after it is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate


class FaultyCatalog(SqlCatalog):
    """`before` and `after` run around the next commit only; what they raise is what the caller gets."""

    before: ClassVar[Callable[[], None] | None] = None
    after: ClassVar[Callable[[], None] | None] = None
    requests: ClassVar[int] = 0

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """One request."""
        cls = type(self)
        cls.requests += 1
        before, after = cls.before, cls.after
        cls.before = cls.after = None
        if before:
            before()
        response = super().commit_table(table, requirements, updates)
        if after:
            after()
        return response
