"""Several writers, two reconcilers and a nemesis, on a few tables at once; afterwards everything is counted.

Each write brings one row with a mark that no other has. Once its process has said that it published, the mark must be
there, once, whatever the nemesis did.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

from carbon_pipeline.control_plane.records import SweepTrigger
from carbon_pipeline.errors import CarbonError
from carbon_pipeline_tests.torture.figures import Deadline, Figures
from carbon_pipeline_tests.torture.ground import AT_ONCE, Arena, Field, Ground, Patience, through
from carbon_pipeline_tests.torture.invariants import Kind, Violation, data_files, table_of, violations
from carbon_pipeline_tests.torture.nemesis import Nemesis
from carbon_pipeline_tests.torture.statement_proxy import statement_proxy
from carbon_pipeline_tests.torture.worker import forked, printing_to, small_files

WRITERS, RECONCILERS, TABLES = 3, 2, 3
PATIENCE = Patience(lease_seconds=1, beat_seconds=0.2, wait_seconds=1)
ENDS_SECONDS = 60
"""With the nemesis at rest every process ends, and everything is settled, within this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What one process of the soak does, and with what."""

    ground: Ground
    folder: str
    name: str
    seed: int
    credential: str
    tables: tuple[str, ...]
    source: str = field(repr=False)
    """Where marks are put into the source: libpq's words for it."""

    @property
    def acknowledged(self) -> Path:
        """One line per write that its process said it published: table and mark."""
        return Path(self.folder) / f"{self.name}.acknowledged"

    @property
    def is_over(self) -> bool:
        """Whether the soak has ended."""
        return (Path(self.folder) / "over").exists()


def write_on(post: Post) -> None:
    """Mark, sync, say so; again and again."""
    small_files()
    chance = random.Random(post.seed)
    with printing_to(f"{post.folder}/{post.name}.txt"), post.acknowledged.open("a") as acknowledged:
        deployment = post.ground.deployment()
        for number in count():
            if post.is_over:
                return
            table, mark = chance.choice(post.tables), f"{post.name}-{number}"
            try:
                with psycopg.connect(post.source, autocommit=True) as connection:
                    connection.execute(f"INSERT INTO {table} (mark, version) VALUES (%s, 0)".encode(), (mark,))
                [result] = deployment.sync(deployment.directory.credential(post.credential), (table,))
            except (CarbonError, psycopg.Error) as error:
                print(f"{mark}: {error}", flush=True)
                continue
            print(f"{mark}: {result.error or 'published'}", flush=True)
            if result.error is None:
                acknowledged.write(f"{table} {mark}\n")
                acknowledged.flush()


def reconcile_on(post: Post) -> None:
    """Sweep; again and again."""
    with printing_to(f"{post.folder}/{post.name}.txt"):
        deployment = post.ground.deployment()
        while not post.is_over:
            try:
                report = deployment.ratify(SweepTrigger.LIBRARY, AT_ONCE)
                print(Counter(str(case.ruling or case.reason) for case in report.cases), flush=True)
            except CarbonError as error:
                print(f"{error}", flush=True)
            time.sleep(0.2)


@dataclass(slots=True)
class _Place:
    """A writer's or a reconciler's place, filled again when its process dies."""

    work: Callable[[Post], None]
    post: Post
    process: ForkServerProcess | None = None
    begun: int = 0
    broke: list[str] = field(default_factory=list)

    def fill(self) -> None:
        """Start the next process here if there is none. One that ended of itself had a failure nobody foresaw."""
        if self.process is not None:
            if self.process.exitcode is None:
                return
            self._note(self.process.exitcode)
        self.begun += 1
        seed = self.post.seed * 1000 + self.begun
        name = f"{self.post.name.partition('.')[0]}.{self.begun}"
        self.post = replace(self.post, seed=seed, name=name)
        self.process = forked(self.work, self.post)

    def end(self, deadline: Deadline) -> None:
        """Wait for its end."""
        if self.process is None:
            return
        self.process.join(deadline.left)
        if self.process.exitcode is None:
            self.broke.append(f"{self.post.name} did not end")
            self.process.kill()
            self.process.join()
        else:
            self._note(self.process.exitcode)

    def _note(self, code: int) -> None:
        """Put on record that a process ended of itself; killed ones have a code below zero."""
        if code > 0:
            self.broke.append(f"{self.post.name} ended with {code}")


def run(arena: Arena, seed: int, figures: Figures, *, seconds: float) -> Counter[str]:
    """The whole soak; says what the nemesis did."""
    chance = random.Random(seed)
    fields = [arena.field(rows=50) for _ in range(TABLES)]
    folder = arena.new_output().with_suffix("")
    folder.mkdir()
    with statement_proxy(arena.ground.host, arena.ground.port) as proxy:
        places = _places(arena, fields, folder, proxy.port, seed)
        nemesis = Nemesis(arena, fields, proxy, lambda: _pids(places), chance)
        try:
            _rage(places, nemesis, chance, Deadline(seconds))
        finally:
            nemesis.rest()
            (folder / "over").touch()
            ends = Deadline(ENDS_SECONDS)
            for place in places:
                place.end(ends)
    figures.faults += nemesis.done.total()
    figures.kills += nemesis.done["kill"]
    figures.note(f"soak, seed {seed}", _checked(arena, fields, places, folder, nemesis))
    return nemesis.done


def _places(arena: Arena, fields: Sequence[Field], folder: Path, port: int, seed: int) -> list[_Place]:
    server = arena.server
    post = Post(
        ground=replace(through(arena.ground, port), patience=PATIENCE),
        folder=str(folder),
        name="",
        seed=seed,
        credential=arena.credential.name,
        tables=tuple(target.table for target in fields),
        source=psycopg.conninfo.make_conninfo(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            dbname=arena.source_database,
        ),
    )
    writers = [_Place(write_on, replace(post, name=f"writer{n}", seed=seed + n)) for n in range(WRITERS)]
    reconcilers = [_Place(reconcile_on, replace(post, name=f"reconciler{n}")) for n in range(RECONCILERS)]
    return [*writers, *reconcilers]


def _pids(places: Sequence[_Place]) -> list[int]:
    processes = [place.process for place in places]
    return [each.pid for each in processes if each is not None and each.exitcode is None and each.pid is not None]


def _rage(places: Sequence[_Place], nemesis: Nemesis, chance: random.Random, deadline: Deadline) -> None:
    while not deadline.is_over:
        for place in places:
            place.fill()
        time.sleep(chance.uniform(0.05, 0.6))
        nemesis.act()


def _checked(
    arena: Arena, fields: Sequence[Field], places: Sequence[_Place], folder: Path, nemesis: Nemesis
) -> list[Violation]:
    acknowledged = _acknowledged(folder)
    found = [Violation(kind=Kind.OTHER, text=text) for place in places for text in place.broke]
    for target in fields:
        disturbed = nemesis.disturbed[target.table]
        target.sweep(ENDS_SECONDS)
        if target.dataset is not None:
            found += violations(target, disturbed=disturbed, rerun=False)
        if not disturbed.rolled_back:
            found += missing_marks(target, acknowledged[target.table])
        error = target.sync().error
        if error is not None:
            found.append(Violation(kind=Kind.OTHER, text=f"the sync after the soak failed: {error}"))
            continue
        found += violations(target, disturbed=disturbed)
        found += missing_marks(target, acknowledged[target.table])
    return found + _landed_late(arena, fields)


def _acknowledged(folder: Path) -> defaultdict[str, set[str]]:
    marks: defaultdict[str, set[str]] = defaultdict(set)
    for path in folder.glob("*.acknowledged"):
        for line in path.read_text().splitlines():
            table, _, mark = line.partition(" ")
            marks[table].add(mark)
    return marks


def missing_marks(target: Field, acknowledged: set[str]) -> list[Violation]:
    """Every mark whose writer said that it published is there, once."""
    table = table_of(target) if target.dataset is not None else None
    files = [] if table is None else data_files(table)
    there = Counter(mark for path in files for mark in pq.read_table(path, columns=["mark"])["mark"].to_pylist())
    lost, twice = acknowledged - set(there), [mark for mark, times in there.items() if times > 1]
    found = []
    if lost:
        found.append(Violation(kind=Kind.LOST, text=f"{len(lost)} acknowledged marks are gone: {sorted(lost)[:5]}"))
    if twice:
        found.append(Violation(kind=Kind.DUPLICATED, text=f"{len(twice)} marks are there twice: {twice[:5]}"))
    return found


def _landed_late(arena: Arena, fields: Sequence[Field]) -> list[Violation]:
    with arena.control() as connection:
        rows = connection.execute(
            "SELECT e.operation_id FROM carbon.dataset_transaction_events e"
            " JOIN carbon.dataset_transactions t ON t.id = e.operation_id JOIN carbon.datasets d ON d.id = t.dataset_id"
            " WHERE e.kind = 'late_landing' AND d.source_name = ANY (%s)",
            ([target.table for target in fields],),
        ).fetchall()
    return [Violation(kind=Kind.ABORTED_VISIBLE, text=f"operation {row.operation_id} landed late") for row in rows]
