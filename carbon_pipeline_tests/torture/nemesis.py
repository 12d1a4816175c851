"""Does harm at random, by a seed, and keeps a record of what the ledger is not to blame for."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from carbon_pipeline.errors import CarbonError
from carbon_pipeline_tests.torture.ground import Arena, Field
from carbon_pipeline_tests.torture.invariants import Disturbance, ancestry, stamp_of, table_of
from carbon_pipeline_tests.torture.statement_proxy import StatementProxy

Pids = Callable[[], Sequence[int]]


class Nemesis:
    """One act after the other, each of them undone or survivable."""

    def __init__(
        self, arena: Arena, fields: Sequence[Field], proxy: StatementProxy, pids: Pids, chance: random.Random
    ) -> None:
        self._arena = arena
        self._fields = fields
        self._proxy = proxy
        self._pids = pids
        self._chance = chance
        self._stopped: dict[int, float] = {}
        self.done: Counter[str] = Counter()
        self.disturbed: defaultdict[str, Disturbance] = defaultdict(Disturbance)

    def act(self) -> None:
        """One act, chosen at random; and whoever has been stopped long enough goes on."""
        self._wake(time.monotonic())
        deed = self._chance.choices(
            [self._kill, self._stop, self._end_claims, self._end_catalog, self._end_source, self._cut, self._expire,
             self._roll_back],
            weights=[4, 4, 3, 1, 2, 4, 1, 1],
        )[0]  # fmt: skip
        # What it does may meet what it did before: a session that it ended, a table that moved on.
        with suppress(CommitFailedException, CarbonError, SQLAlchemyError, ValueError):
            if not deed():
                return
            self.done[deed.__name__.removeprefix("_").replace("_", " ")] += 1

    def rest(self) -> None:
        """Stop doing harm, and let everybody go on."""
        self._wake(float("inf"))
        self._proxy.back()

    def _wake(self, now: float) -> None:
        for pid in [pid for pid, until in self._stopped.items() if until <= now]:
            del self._stopped[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _signal(self, number: int) -> int | None:
        pids = self._pids()
        if not pids:
            return None
        pid = self._chance.choice(pids)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return pid
        return None

    def _kill(self) -> bool:
        return self._signal(signal.SIGKILL) is not None

    def _stop(self) -> bool:
        pid = self._signal(signal.SIGSTOP)
        if pid is not None:
            self._stopped[pid] = time.monotonic() + self._chance.uniform(0.2, 3)
        return pid is not None

    def _end(self, database: str, like: str = "%") -> bool:
        """End sessions of a database, but for those of this process."""
        with self._arena.admin() as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = %s AND application_name LIKE %s AND random() < 0.5",
                (database, like),
            ).fetchall()
        return bool(ended)

    def _end_claims(self) -> bool:
        return self._end(self._arena.control_database, "carbon pid %")

    def _end_catalog(self) -> bool:
        return self._end(self._arena.catalog_database)

    def _end_source(self) -> bool:
        return self._end(self._arena.source_database)

    def _cut(self) -> bool:
        if self._chance.random() < 0.5:
            return bool(self._proxy.cut_all())
        self._proxy.cut = self._chance.choice([*type(self._proxy.cut)])
        self._proxy.cut_at = self._proxy.statements + self._chance.randint(1, 30)
        return True

    def _table(self) -> tuple[Field, Table] | None:
        target = self._chance.choice(self._fields)
        table = table_of(target) if target.dataset is not None else None
        return None if table is None else (target, table)

    def _expire(self) -> bool:
        """Another engine's maintenance: everything but main's head goes."""
        found = self._table()
        if found is None:
            return False
        target, table = found
        if self._chance.random() < 0.5:
            commit_nothing(table)
        head = table.metadata.current_snapshot_id
        old = {snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != head}
        if not old:
            return False
        try:
            table.maintenance.expire_snapshots().by_ids(sorted(old)).commit()
        finally:
            kept = {snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots}
            self.disturbed[target.table].expired |= old - kept
        return True

    def _roll_back(self) -> bool:
        """Another engine moves main one snapshot back; not from behind a fence, which is a test of its own."""
        found = self._table()
        if found is None:
            return False
        target, table = found
        chain = ancestry(table)
        if len(chain) < 2 or stamp_of(chain[0]) is None:
            return False
        self.disturbed[target.table].rolled_back = True
        roll_back(table, chain[1].snapshot_id)
        return True


def roll_back(table: Table, snapshot_id: int) -> None:
    """Move main to an earlier snapshot, as another engine would."""
    table.manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def commit_nothing(table: Table) -> None:
    """Another engine's commit that changes no row: a snapshot on top that says nothing of us."""
    table.append(table.schema().as_arrow().empty_table())
