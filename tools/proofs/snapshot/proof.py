"""Proof of the snapshot: tables and their changes are delivered under load and kills, without a lost or doubled row.

In: a seed, a version, numbers of rows and of kills. Out: a summary, or an error that names the first wrong row and the
command that repeats the run. A Spark application has two queries of the same tables, with a plain append sink and a
MERGE sink. It is killed -9 again and again, at every point of a micro-batch and at random moments. In between, its
relay log or its spool is deleted. All committed rows are judged before the application continues (judge.py).

The seed determines the actions and their order, but not their timing.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql

from tests.integration.snapshot.kit.query import SPOOL
from tools.proofs import repeat
from tools.proofs.snapshot.frontier import delivered, reading_tables
from tools.proofs.snapshot.judge import Judge, shown
from tools.proofs.snapshot.sinks import MergedTable, MergeFolders, appended_rows, commits, offset_of
from tools.proofs.snapshot.source import Source, binlogs
from tools.proofs.snapshot.tables import DATABASE
from tools.proofs.snapshot.truth import Truth
from tools.proofs.soak.daemon.inotify import Watch
from tools.proofs.soak.spark.driver import Driver
from tools.proofs.soak.spark.points import (
    AT_RANDOM,
    BEFORE_PLANNING,
    MOMENT_TIMEOUT_S,
    POINTS,
    RANDOM_KILL_S,
    STALLED_S,
    WHOLE,
    Progress,
    QueryFolders,
    point_hit,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

APPEND, MERGE = "parquet", "delta"
SKIPS = 3
"""Up to so many batches go by before the one that is hit."""
MAX_BACKLOG = 4 << 20
"""Of binlog that the slower sink has not committed; the writers rest until half of it is left."""
PAUSE_S = 0.02
LOST_RELAY, LOST_SPOOL = 0.25, 0.25
BATCHES = 24
"""About so many that the tables take, so that a kill hits them in the middle."""
LEAST_BATCH_ROWS = 200
LAST_SHARE, LAST_BYTES = 3, "64m"
"""Of the application that is not killed: each MERGE writes most of the table again, so a few large ones end it."""
MORE_BATCHES = 4
"""Of the stream alone, after the tables, before the load ends."""
# A file for each batch, and all of them: the judge reads what each one brought.
SETTINGS = {
    "spark.sql.streaming.fileSink.log.compactInterval": "1000000",
    "spark.sql.streaming.fileSink.log.deletion": "false",
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.databricks.delta.properties.defaults.checkpointInterval": "1000000",
}


@dataclass(frozen=True)
class Wanted:
    """What a run is to be. `start` is the source's `startingPosition`: `earliest` proves the harness, without tables
    to read. `mutation` damages the append sink, which has to be found.
    """

    version: str | None
    rows: int
    kills: int
    seed: int
    kinds: tuple[str, ...] = (APPEND, MERGE)
    start: str = "initial"
    mutation: str | None = None

    @property
    def command(self) -> str:
        sink = self.kinds[0] if len(self.kinds) == 1 else None
        start = None if self.start == "initial" else self.start
        given = {"version": self.version, "sink": sink, "start": start, "mutate": self.mutation}
        return repeat.command("scripts/prove snapshot", seed=self.seed, rows=self.rows, kills=self.kills, **given)


class SnapshotDriver(Driver):
    """A life of the application with both queries."""

    application = "tools.proofs.snapshot.app"

    def _configuration(self) -> list[str]:
        return [*super()._configuration(), *(f"--conf {key}={value}" for key, value in SETTINGS.items())]


class SnapshotProof:
    """One run: `run()` once."""

    def __init__(self, wanted: Wanted, folder: Path, *, say: Callable[[str], object]) -> None:
        self.wanted = wanted
        self.folder = folder
        self.say = say
        self.source = Source(wanted.version, rows=wanted.rows, seed=wanted.seed, folder=folder, pause_s=PAUSE_S)
        kinds = {APPEND: QueryFolders, MERGE: MergeFolders}
        self.queries = [
            kinds[kind](kind, folder / f"checkpoint-{kind}", folder / f"output-{kind}") for kind in wanted.kinds
        ]
        self.hits: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.while_reading = 0
        self._chance = random.Random(f"{wanted.seed} snapshot kills")
        self._over = threading.Event()
        self._pacing = threading.Thread(target=self._pace, name="pace", daemon=True)
        self._drivers = 0
        self._judged = dict.fromkeys(wanted.kinds, -1)
        self._version = 0
        self._failures: Counter[str] = Counter()

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        for query in self.queries:
            query.make()
        with ExitStack() as stack:
            stack.enter_context(self.source)
            self._prepare()
            driver = self._new_driver()
            stack.callback(lambda: self._driver.kill())  # noqa: PLW0108  (another one by then)
            self._driver = driver
            self.source.start()
            self.source.pace("go")
            self._pacing.start()
            stack.callback(self._pacing.join)
            stack.callback(self._over.set)
            deck: list[str] = []
            while sum(self.hits.values()) < self.wanted.kills:
                deck = deck or self._deck()
                self._round(deck.pop())
                self.source.check()
            done = self._finish()
            self._compare_at_rest()
            return self._summary(done) | {"seconds": round(time.monotonic() - began, 1)}

    def _prepare(self) -> None:
        initial = self.wanted.start == "initial"
        self.source.fill(logged=not initial)
        begin = contents(self.source) if initial else {}
        tables = {table.name: table for table in self.source.tables}
        self._tables = tables
        self._truth = Truth(self.source.primary, self.source.tables)
        self._judges = {query.kind: Judge(query.kind, self.source.tables, self._truth, begin) for query in self.queries}
        self._merged = {q.kind: MergedTable(q, tables) for q in self.queries if q.kind == MERGE}
        sizes = shown(self.source.sizes)
        self.say(f"MariaDB {self.source.primary.version}: {sum(self.source.sizes.values()):,} rows: {sizes}")

    def _options(self, kind: str) -> dict[str, str]:
        primary = self.source.primary
        rows = max(LEAST_BATCH_ROWS, sum(self.source.sizes.values()) // BATCHES)
        options = {
            "host": primary.host,
            "port": str(primary.port),
            "user": "repl",
            "password": "replica-secret",
            "tables": f"{DATABASE}.*",
            "startingPosition": self.wanted.start,
            "relayDir": str(self.folder / f"relay-{kind}"),
            "relayMaxFileBytes": self._chance.choice(("1m", "16m")),
            "maxBytesPerTrigger": self._chance.choice(("1m", "4m")),
            "transport": self._chance.choice(("path", "auto", "inline")),
        }
        if self.wanted.start == "initial":
            options |= {"maxRowsPerTrigger": str(int(rows * self._chance.uniform(0.5, 2)))}
            if sum(self.hits.values()) + 1 >= self.wanted.kills:
                options |= {"maxRowsPerTrigger": str(rows * LAST_SHARE), "maxBytesPerTrigger": LAST_BYTES}
        return options

    def _new_driver(self) -> Driver:
        """With options of its own; it begins to warm up."""
        self._drivers += 1
        queries = [
            {
                "kind": query.kind,
                "checkpoint": str(query.checkpoint),
                "output": str(query.output),
                "options": self._options(query.kind),
                "mutation": self.wanted.mutation,
            }
            for query in self.queries
        ]
        driver = SnapshotDriver(self.folder, self._drivers, queries)
        driver.start()
        return driver

    def _pace(self) -> None:
        """Writers rest while a sink is too far behind."""
        while not self._over.wait(0.2):
            with suppress(FileNotFoundError, json.JSONDecodeError):  # a checkpoint's files come and go
                if all(query.committed_offset() for query in self.queries):
                    self.source.leave_open()
                backlog = max(map(self._backlog, self.queries))
                self.source.pace("rest" if backlog > MAX_BACKLOG else "go")

    def _backlog(self, query: QueryFolders) -> int:
        server: dict[str, Any] = query.committed_offset().get("server") or {}  # type: ignore[assignment]
        file, position = str(server.get("file", "")), int(server.get("position", 0))
        files = [path for path in binlogs(self.source.primary) if path.name >= file]
        return sum(path.stat().st_size for path in files) - (position if file else 0)

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _deck(self) -> list[str]:
        points = [*POINTS, AT_RANDOM]
        self._chance.shuffle(points)
        return points

    def _round(self, point: str) -> None:
        query = self._chance.choice(self.queries)
        driver, before = self._driver, query.progress()
        driver.wait_warm()
        with Watch(*query.watched) as watch:
            began, started_ns = time.monotonic(), time.time_ns()
            driver.go()
            self._driver = self._new_driver()
            try:
                self._wait_for(point, query, driver, watch, before)
            finally:
                driver.kill(whole=self._chance.random() < WHOLE)
        self._count_failures(driver)
        hit = point_hit(query, before, started_ns)
        self.hits[hit] += 1
        reading = self._still_reading()
        self.while_reading += bool(reading)
        self._judge()
        held = " and ".join(f"{judge.count:,}" for judge in self._judges.values())
        self.say(
            f"kill {sum(self.hits.values())}: {query.kind} {hit} of batch {query.progress().planned} "
            f"({'reading tables' if reading else 'stream'}), {time.monotonic() - began:.1f} s; sinks hold {held} rows, "
            "as the server"
        )
        self._lose()

    def _wait_for(self, point: str, query: QueryFolders, driver: Driver, watch: Watch, before: Progress) -> None:
        if point == AT_RANDOM:
            time.sleep(self._chance.uniform(*RANDOM_KILL_S))
        elif point == BEFORE_PLANNING:
            deadline = time.monotonic() + MOMENT_TIMEOUT_S
            while len(driver.runners()) < len(self.queries) and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(self._chance.uniform(0, 0.3))
        else:
            skip = self._chance.randrange(SKIPS) if before.planned >= 0 else 0
            reached = wait_for(point, query, watch, skip=skip, timeout_s=MOMENT_TIMEOUT_S)
            assert reached, f"{query.kind} did not come to {point} in {MOMENT_TIMEOUT_S:.0f} s:\n{driver.log}"

    def _count_failures(self, driver: Driver) -> None:
        _, too_slow = driver.check_failures()
        self._failures["Spark found the machine too slow"] += too_slow

    def _still_reading(self) -> list[str]:
        """The queries that have not delivered all tables."""
        if self.wanted.start != "initial":
            return []
        return [query.kind for query in self.queries if reading_tables(query.committed_offset())]

    def _lose(self) -> None:
        for query in self.queries:
            folder = self.folder / f"relay-{query.kind}"
            fate = self._chance.random()
            if not folder.exists():
                continue
            if fate < LOST_RELAY:
                shutil.rmtree(folder)
                self.lost["relay logs with their spools"] += 1
            elif fate < LOST_RELAY + LOST_SPOOL and (spools := list(folder.glob(SPOOL))):
                for spool in spools:
                    shutil.rmtree(spool)
                self.lost["spools"] += 1

    # -- judging ---------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Look at every batch that was committed since the last time."""
        for query in self.queries:
            committed = query.progress().committed
            for batch in range(self._judged[query.kind] + 1, committed + 1):
                self._judge_batch(query, batch)
                self._judged[query.kind] = batch

    def _judge_batch(self, query: QueryFolders, batch: int) -> None:
        offset = offset_of(query, batch)
        judge, position = self._judges[query.kind], position_of(offset)
        extent = functools.partial(delivered, offset, self._truth.key_of)
        if query.kind == APPEND:
            judge.append(batch, appended_rows(query, batch, self._tables), position, extent)
            return
        found = [commit for commit in commits(query.sink_log, self._version) if commit.batch <= batch]
        for commit in found:
            gone, come = self._merged[query.kind].difference(commit)
            judge.merged(batch, gone, come, position, extent)
            self._version = commit.version + 1
        if not found:
            judge.merged(batch, (), (), position, extent)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> dict[str, int]:
        """A last application reads the tables to their end, some batches of changes more, and what is left."""
        driver = self._driver
        driver.go()
        self._until(driver, lambda: not self._still_reading(), "all tables are delivered")
        then = {query.kind: query.progress().committed + MORE_BATCHES for query in self.queries}
        self._until(driver, lambda: all(q.progress().committed >= then[q.kind] for q in self.queries), "the stream")
        self._over.set()
        self._pacing.join()  # it writes to those that end now
        done = self.source.finish()
        goal = set(self.source.primary.gtid_binlog_pos().split(","))
        self.say(f"the load has ended at {','.join(sorted(goal))}")
        self._until(driver, lambda: not self._missing(goal), "the end of the load")
        self._count_failures(driver)
        driver.kill()
        self._judge()
        return done

    def _missing(self, goal: set[str]) -> list[str]:
        return [q.kind for q in self.queries if goal - set(str(q.committed_offset().get("gtid", "")).split(","))]

    def _until(self, driver: Driver, reached: Callable[[], bool], what: str) -> None:
        seen: Sequence[Progress] = ()
        since = time.monotonic()
        while not reached():
            driver.check_alive()
            driver.check_failures()
            if not self._over.is_set():
                self.source.check()
            progress = [query.progress() for query in self.queries]
            if progress != seen:
                seen, since = progress, time.monotonic()
                self._judge()
            assert time.monotonic() - since < STALLED_S, f"no progress, waited for: {what}\n{driver.log}"
            time.sleep(0.1)

    def _compare_at_rest(self) -> None:
        server = contents(self.source)
        for judge in self._judges.values():
            judge.at_rest(server)

    def _summary(self, done: dict[str, int]) -> dict[str, Any]:
        return {
            "version": self.source.primary.version,
            "seed": self.wanted.seed,
            "rows at the end": {kind: judge.count for kind, judge in self._judges.items()},
            "delivered": {kind: judge.rows for kind, judge in self._judges.items() if kind == APPEND},
            "batches": {kind: judge.batches for kind, judge in self._judges.items()},
            "kills": dict(self.hits),
            "kills while tables were read": self.while_reading,
            "deleted": dict(self.lost),
            "queries started again because": dict(self._failures),
            "the load did": done,
            "changes on the server": len(self._truth.changes),
            "binlog files": len(binlogs(self.source.primary)),
            "commits hung": f"{self.source.hangs} times",
        }


def position_of(offset: dict[str, Any]) -> str:
    """The GTID position of an offset that ends at a group end, which all of these do."""
    assert "part" not in offset, f"a batch ended inside of a transaction, which the oracle cannot follow: {offset}"
    return str(offset["gtid"])


def contents(source: Source) -> dict[str, dict[str, str]]:
    """All rows of all tables, by SELECT: table -> key -> row, in plain form."""
    found: dict[str, dict[str, str]] = {}
    connection = source.primary.connect(
        cursorclass=pymysql.cursors.SSDictCursor, init_command="SET time_zone = '+00:00', sql_mode = ''"
    )
    with connection, connection.cursor() as cursor:
        for table in source.tables:
            cursor.execute(f"SELECT * FROM {DATABASE}.{table.name}")
            found[table.name] = dict(table.plain(row) for row in cursor)
    return found


def prove(wanted: Wanted, *, say: Callable[[str], object]) -> dict[str, Any]:
    """Run it once; its folder is kept if it fails."""
    folder = Path(tempfile.mkdtemp(prefix="prove-snapshot-"))
    proof = SnapshotProof(wanted, folder, say=say)
    try:
        summary = proof.run()
    except BaseException as error:
        error.add_note(f"repeat: {wanted.command}\nkept: {folder}\nkills: {dict(proof.hits)}")
        raise
    shutil.rmtree(folder)
    return summary
