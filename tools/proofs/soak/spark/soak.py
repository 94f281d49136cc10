"""Soak of the Spark source: a primary under load, queries with Spark's exactly-once sinks, and drivers that are killed
-9.

In: a seed, a number of kills, sinks, a server version. Out: a summary, or an AssertionError with the command that
repeats the run. Each round starts the queries of a warm Spark application with new random options and feeds (an
embedded replica, or a daemon's relay log). It waits for a point of a micro-batch in one query, and kills the
application there. Meanwhile, workers, source processes, the daemon or the primary die too, and between two rounds relay
folders are deleted. At the end, every sink must have each row change of the primary's binlogs once. Its replay must
give the primary's tables (judge.py).

The seed determines the actions and their order, but not their timing. The files on disk show which point a kill hit.
Rounds continue until every point was hit as often as requested.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.daemons import Daemon
from tools.proofs import repeat
from tools.proofs.soak.daemon.inotify import Watch
from tools.proofs.soak.spark import judge
from tools.proofs.soak.spark.driver import Driver
from tools.proofs.soak.spark.faults import SideFaults
from tools.proofs.soak.spark.load import Load
from tools.proofs.soak.spark.options import daemon_options, draw_options
from tools.proofs.soak.spark.oracle import written
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
    from collections.abc import Callable

SKIPS = 4
"""Up to so many batches go by before the one that is hit."""
MAX_BACKLOG = 16 << 20
"""Of binlog that the slower sink has not committed: a batch of the smallest kind a second or two catches up with it."""
LOST_RELAY = 0.3


class SparkSoak:
    """One run: `run()` once."""

    def __init__(
        self,
        version: str | None,
        *,
        kills: int,
        seed: int,
        kinds: tuple[str, ...],
        folder: Path,
        max_backlog: int,
        skips: int,
        faults: bool,
        say: bool,
        points: tuple[str, ...],
    ) -> None:
        self.seed = seed
        self.folder = folder
        self.load = Load(version, seed, max_backlog=max_backlog)
        self.queries = [QueryFolders(kind, folder / f"checkpoint-{kind}", folder / f"output-{kind}") for kind in kinds]
        self.hits: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()
        self.feeds: Counter[str] = Counter()
        self.say: Callable[..., None] = (lambda *words: print(*words, flush=True)) if say else (lambda *_: None)
        self._kills = kills
        self._points = points
        self._skips = skips
        self._with_faults = faults
        self._chance = random.Random(f"{seed} spark")
        self._drivers = 0
        self._relays_lost = 0
        self._ended: Counter[str] = Counter()
        self._over = threading.Event()

    @property
    def done(self) -> int:
        return sum(self.hits.values())

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        for query in self.queries:
            query.make()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.load)
            pacing = threading.Thread(target=self._pace, name="pace", daemon=True)
            pacing.start()
            stack.callback(pacing.join)
            stack.callback(self._over.set)
            self.daemon = stack.enter_context(Daemon(self.load.primary, self.folder / "daemon", *daemon_options()))
            self.daemon.catch_up()
            self._driver = self._new_driver()
            stack.callback(lambda: self._driver.kill())  # noqa: PLW0108  (another one by then)
            deck: list[str] = []
            while not self._enough():
                deck = deck or self._deck()
                self._round(deck.pop())
                self.load.check()
            self._finish()
            return self._judge() | {"seconds": round(time.monotonic() - began, 1)}

    def _pace(self) -> None:
        while not self._over.wait(0.1):
            with contextlib.suppress(FileNotFoundError):  # a checkpoint's files come and go
                self.load.pace(max(self.load.backlog(query.committed_offset()) for query in self.queries))

    def _enough(self) -> bool:
        if self.done < self._kills:
            return False
        least = max(min(self._kills, 1), self._kills // 12)
        return all(sum(self.hits[kind.kind, point] for kind in self.queries) >= least for point in self._points)

    def _deck(self) -> list[str]:
        """Each point once, and now and then a moment without a name; only what is still missing at the end."""
        points = list(self._points)
        if self.done >= self._kills:
            points = [point for point in points if not any(self.hits[query.kind, point] for query in self.queries)]
        elif self._kills > len(points):
            points.append(AT_RANDOM)
        self._chance.shuffle(points)
        return points or list(self._points)

    def _new_driver(self) -> Driver:
        """With options of its own; it begins to warm up."""
        self._drivers += 1
        wanted = []
        for query in self.queries:
            options, feed = draw_options(self._chance, self.load.primary, self.folder, query.kind)
            self.feeds[feed] += 1
            wanted.append(
                {"kind": query.kind, "checkpoint": str(query.checkpoint), "output": str(query.output), "feed": feed}
                | {"options": options}
            )
        driver = Driver(self.folder, self._drivers, wanted)
        driver.start()
        return driver

    def _round(self, point: str) -> None:
        query = self._chance.choice(self.queries)
        driver, before = self._driver, query.progress()
        driver.wait_warm()
        with Watch(*query.watched) as watch, SideFaults(self, driver, on=self._with_faults):
            began = time.monotonic()
            started_ns = time.time_ns()
            driver.go()
            self._driver = self._new_driver()
            try:
                self._wait_for(point, query, driver, watch, before)
            except BaseException:
                driver.kill()
                raise
            whole = self._chance.random() < WHOLE
            driver.kill(whole=whole)
        hit = point_hit(query, before, started_ns)
        self.hits[query.kind, hit] += 1
        self._count_failures(driver)
        progress = query.progress()
        feed = next(q["feed"] for q in driver.queries if q["kind"] == query.kind)
        self.say(
            f"kill {self.done}: {query.kind} ({feed}) {hit}, batch {progress.planned}, "
            f"{'all processes' if whole else 'the JVM alone'}; aimed at: {point}; "
            f"{time.monotonic() - began:.1f} s"
        )
        self._lose_relays()

    def _wait_for(self, point: str, query: QueryFolders, driver: Driver, watch: Watch, before: Progress) -> None:
        if point == AT_RANDOM:
            time.sleep(self._chance.uniform(*RANDOM_KILL_S))
        elif point == BEFORE_PLANNING:
            deadline = time.monotonic() + MOMENT_TIMEOUT_S
            while len(driver.runners()) < len(self.queries) and time.monotonic() < deadline:
                time.sleep(0.05)  # it looks through all processes of the machine
            time.sleep(self._chance.uniform(0, 0.3))
        else:
            skip = self._chance.randrange(self._skips) if before.planned >= 0 else 0
            reached = wait_for(point, query, watch, skip=skip, timeout_s=MOMENT_TIMEOUT_S)
            assert reached, f"{query.kind} did not come to {point} in {MOMENT_TIMEOUT_S:.0f} s:\n{driver.log}"
        # Nothing may stand between the moment and the kill.

    def _count_failures(self, driver: Driver) -> None:
        killed, too_slow = driver.check_failures()
        self._ended["their source was killed"] += killed
        self._ended["Spark found the machine too slow"] += too_slow

    def _lose_relays(self) -> None:
        for query in self.queries:
            folder = self.folder / f"relay-{query.kind}"
            if folder.exists() and self._chance.random() < LOST_RELAY:
                shutil.rmtree(folder)
                self._relays_lost += 1

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """The load ends, a last application catches up with it."""
        self._over.set()
        self.load.open.set()
        target = set(self.load.finish().split(","))
        self.say(f"catching up to {','.join(sorted(target))}")
        self._driver.go()
        seen, since = None, time.monotonic()
        while missing := [q.kind for q in self.queries if target - set(self._position(q).split(","))]:
            self._driver.check_alive()
            progress = [query.progress() for query in self.queries]
            if progress != seen:
                seen, since = progress, time.monotonic()
            stuck = time.monotonic() - since > STALLED_S
            assert not stuck, f"no progress of {missing}, the primary is at {target}:\n{self._driver.log}"
            time.sleep(0.1)
        self._count_failures(self._driver)
        self._driver.kill()

    @staticmethod
    def _position(query: QueryFolders) -> str:
        return str(query.committed_offset().get("gtid", ""))

    def _judge(self) -> dict[str, Any]:
        wanted = written(self.load.primary, self.load.binlogs(), self.load.crashed_logs)
        rows = {query.kind: judge.check(query, wanted, self.load) for query in self.queries}
        return {
            "seed": self.seed,
            "version": self.load.primary.version,
            "kills": self.done,
            "points": {query.kind: {point: self.hits[query.kind, point] for point in POINTS} for query in self.queries},
            "also": dict(self.faults) | {"relay folders deleted": self._relays_lost},
            "feeds": dict(self.feeds),
            "queries started again because": dict(self._ended),
            "batches": {query.kind: query.progress().committed + 1 for query in self.queries},
            "groups": wanted.groups,
            "rows": rows,
        }


def soak_spark(
    version: str | None,
    *,
    kills: int,
    seed: int,
    kinds: tuple[str, ...],
    max_backlog: int = MAX_BACKLOG,
    skips: int = SKIPS,
    faults: bool = True,
    say: bool = False,
    points: tuple[str, ...] = POINTS,
) -> dict[str, Any]:
    """Run it once, with each of `points` hit at least once; the folder is kept if it fails."""
    folder = Path(tempfile.mkdtemp(prefix="soak-spark-"))
    one = SparkSoak(
        version,
        kills=kills,
        seed=seed,
        kinds=kinds,
        folder=folder,
        max_backlog=max_backlog,
        skips=skips,
        faults=faults,
        say=say,
        points=points,
    )
    try:
        summary = one.run()
    except BaseException as error:
        sink = "both" if len(kinds) > 1 else kinds[0]
        at = {"sink": sink, "version": one.load.primary.version}
        again = repeat.command("scripts/soak spark", seed=seed, kills=kills, **at)
        done = {f"{kind}, {point}": count for (kind, point), count in one.hits.items()}
        error.add_note(f"repeat: {again}\nkept: {folder}\nkills: {json.dumps(done)}\nalso: {json.dumps(one.faults)}")
        raise
    shutil.rmtree(folder)
    return summary
