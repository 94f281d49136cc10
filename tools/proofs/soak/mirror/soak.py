"""Soak of the mirror: a server under load and DDL, drivers that are killed inside batches, and faults in targets.

In: a seed, minutes, kills, a server version. Out: a summary, or an AssertionError with the command that repeats the
run. Each round runs the mirror beside sysbench, TPC-C and writers of this project, and ends in one of three ways:
* The driver is killed at one of the points of a batch.
* The mirror is audited while it runs, and killed.
* The mirror ends by itself and is audited. Then faults are planted in targets. The next audit has to name these faults
  and nothing else, and their tables are re-snapshotted.
After the given minutes, only rounds that are still missing run: kills, an audited round, a kind of fault. At the end,
the load stops, and every target must equal its table, by the audit and by a comparison of all rows.

The seed determines the actions and their order, but not their timing.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit.tree import files
from tools.proofs import repeat
from tools.proofs.soak.mirror.driver import MirrorDriver, MirrorPlace
from tools.proofs.soak.mirror.family import FAMILY
from tools.proofs.soak.mirror.faults import SHOWN, check_found, plant
from tools.proofs.soak.mirror.judge import judged_rows, tables_of
from tools.proofs.soak.mirror.load import BENCH, FIXED, SHOP, TABLES, MirrorLoad
from tools.proofs.soak.mirror.points import AIMS, LakeFiles, Merging, point_hit, reach

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tools.proofs.soak.mirror.driver import AuditOfAll
from tools.proofs.soak.mirror.faults import Planted

METADATA = ("NO_LOG", "FULL")
KILLED, AUDITED, WHOLE = "killed", "audited while it runs, then killed", "whole, with faults"
ROUNDS = (KILLED, WHOLE, KILLED, AUDITED, KILLED, WHOLE)
FAULTS_AT_ONCE = 2
SKIPS = 4
"""Up to so many writes or commits go by before the one that is hit."""
SMALL, LARGE = ("500k", "4m"), ("16m", "64m")
"""Bytes of binlog a batch: a few batches before a kill, and few where all there is has to be brought in."""
LONGEST_RANDOM_S = 10.0
KILLED_AS_A_WHOLE = 0.6
LAST_S = 900.0
"""For all tables to be current behind the load: one that was altered while it was read waits for up to ten minutes."""
CURRENT, GONE = "current", "dropped"
NEVER_STILL = "was changed each of the"
"""Said of a table without a key that was written to whenever it was read: it is set aside, and asked for again."""


class MirrorSoak:
    """One run: `run()` once."""

    def __init__(
        self,
        version: str | None,
        metadata: str | None,
        tables: Collection[str],
        *,
        minutes: float,
        kills: int,
        warehouses: int,
        seed: int,
        folder: Path,
        say: bool,
    ) -> None:
        self._chance = random.Random(f"{seed} mirror")
        self.metadata = metadata or self._chance.choice(METADATA)
        metadata = f"--binlog-row-metadata={self.metadata}"
        self.load = MirrorLoad(version, seed, metadata, tables=tables, warehouses=warehouses)
        self.done: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._minutes = minutes
        self._kills = kills
        self._folder = folder
        self._files = LakeFiles(folder / "lake")
        self._merging = Merging(folder / "checkpoint", replaced=self.load.replaced())
        self._say: Callable[..., None] = (lambda *words: print(*words, flush=True)) if say else (lambda *_: None)
        self._damaged: set[str] = set()
        self._loose: frozenset[str] = frozenset()
        self._drivers = ExitStack()
        self._driver: MirrorDriver | None = None

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        with self.load, self._drivers:
            tables = [f"{database}.*" for database in self.load.databases]
            self._place = MirrorPlace(self.load.primary, tables, self._folder, {"snapshotUnkeyed": "whole"})
            rounds = {KILLED: self._killed, AUDITED: self._audited_alive, WHOLE: self._whole}
            deck: list[str] = []
            try:
                while due := ROUNDS if time.monotonic() - began < 60 * self._minutes else self._missing():
                    deck = [one for one in deck if one in due] or self._shuffled(due)
                    rounds[deck.pop()]()
                    self.load.check()
                self.load.stop()
                rows = self._last()
            except AssertionError:
                self._keep_server()
                raise
            self._leave()
        return {
            "version": self.load.primary.version,
            "metadata": self.metadata,
            **self.done,
            "kills": dict(self.hits),
            "faults found": dict(self.faults),
            "statements": dict(sorted(self.load.statements.items())),
            "transactions": self.load.transactions,
            "rows": rows,
            "seconds": round(time.monotonic() - began, 1),
        }

    def _keep_server(self) -> None:
        """Keep the server's binlogs and the rows of the family: they show which side of a difference is wrong."""
        kept = self._folder / "server"
        kept.mkdir()
        for file in files(self.load.primary.datadir, "bin.*"):
            shutil.copy2(file, kept)
        for table in FAMILY:
            rows = self.load.primary.sql(f"SELECT * FROM {SHOP}.{table} ORDER BY id")
            (kept / f"{table}.json").write_text(json.dumps(rows, default=str), encoding="utf-8")

    def _missing(self) -> Sequence[str]:
        """Return the rounds that bring what every run has to show, and was not there yet."""
        lacking = {
            KILLED: self.hits.total() < self._kills,
            AUDITED: not self.done[AUDITED],
            WHOLE: self.faults.keys() != SHOWN.keys(),
        }
        return [kind for kind, lacks in lacking.items() if lacks]

    def _shuffled(self, some: Sequence[str]) -> list[str]:
        return self._chance.sample(some, len(some))

    def _living(self) -> MirrorDriver:
        """Return the driver of the last round, or a new one if that was killed."""
        if self._driver is None:
            self._driver = self._drivers.enter_context(MirrorDriver(self._place))
            self.done["drivers"] += 1
        return self._driver

    def _leave(self) -> None:
        if self._driver is not None:
            self.done["Spark found the machine too slow"] += self._driver.too_slow
            self._driver = None
        self._drivers.close()

    def _options(self, sizes: Sequence[str]) -> dict[str, object]:
        return {
            "snapshotChunkRows": self._chance.choice((1000, 10000)),
            "maxBytesPerTrigger": self._chance.choice(sizes),
            "parallel": self._chance.choice((2, 4)),
        }

    # -- rounds that are killed ------------------------------------------------------------------------------------

    def _killed(self) -> None:
        aim, skip = self._chance.choice(AIMS), self._chance.randrange(SKIPS)
        wait_s = self._chance.uniform(0, LONGEST_RANDOM_S)
        driver = self._living()
        driver.start(**self._options(SMALL))
        reach(aim, self._files, self._merging, skip=skip, wait_s=wait_s, check=driver.check)
        self._kill(driver, aim)

    def _audited_alive(self) -> None:
        """Audit the mirror while it goes on: what it has at its last control row has to be equal."""
        driver = self._living()
        driver.start(trigger={"processingTime": "1 second"}, **self._options(LARGE))
        while self._files.done() < 0:  # the control table is made with the first batch
            driver.check()
            time.sleep(1)
        self._check_equal(driver.audit(), but=self._damaged)
        driver.check()
        self.done[AUDITED] += 1
        self._kill(driver, "behind an audit")

    def _kill(self, driver: MirrorDriver, aim: str) -> None:
        whole = self._chance.random() < KILLED_AS_A_WHOLE
        driver.kill(whole=whole)
        hit = point_hit(self._files, self._loose, self._merging)
        self._loose = self._files.loose()
        self._leave()
        self.hits[hit] += 1
        self._say(
            f"kill {self.hits.total()}: {hit}; aimed at: {aim}; {'all processes' if whole else 'JVM and driver alone'}"
        )

    # -- rounds that end well --------------------------------------------------------------------------------------

    def _whole(self) -> None:
        with self.load.without_cascades():
            self._whole_and_audited()

    def _whole_and_audited(self) -> None:
        driver = self._living()
        self._bring_in(driver)
        found = driver.audit()
        self._check_equal(found)
        assert set(self.load.fixed()) <= found.tables.keys(), f"left out of an audit: {found.left_out}"
        planted = self._plant(driver)
        check_found(planted, driver.audit())
        for one in planted:
            self.faults[one.kind] += 1
            self._say(f"fault {self.faults.total()}: {one.kind} in {one.table}, {dict(one.key)}: found")
        if planted:
            driver.read_again([one.table for one in planted])

    def _plant(self, driver: MirrorDriver) -> list[Planted]:
        """Plant some faults, each in a table of its own; first of the kinds that were not there yet."""
        planted: list[Planted] = []
        kinds = sorted(self._shuffled(list(SHOWN)), key=self.faults.__getitem__)
        for kind, table in zip(kinds, self._shuffled(self.load.fixed())[:FAULTS_AT_ONCE], strict=False):
            value = "k" if table.startswith(BENCH) else "v"
            one = plant(driver, self._chance, kind, table, FIXED[table], value)
            if one is None:
                self._say(f"no {kind} row could be planted in {table}")
            else:
                planted.append(one)
                self._damaged.add(table)
        return planted

    def _bring_in(self, driver: MirrorDriver) -> bool:
        """Bring in what there is now; tell whether all tables are current."""
        states = driver.run_whole(**self._options(LARGE))
        self._damaged.clear()
        self.done["whole runs"] += 1
        failed = {name: one.error or "" for name, one in states.items() if one.state == "failed" and not one.waits_for}
        restless = [name for name, error in failed.items() if NEVER_STILL in error]
        assert len(restless) == len(failed), f"set aside: {failed}"
        if restless:
            self._say(f"set aside while the load goes on, and asked for again: {', '.join(restless)}")
            self.done["never still"] += len(restless)
            driver.read_again(restless)
        waiting = {name: one.error for name, one in states.items() if one.state not in {CURRENT, GONE}}
        for name, error in waiting.items():
            self._say(f"waits: {name}: {(error or '').splitlines()[:1]}")
        return not waiting

    def _check_equal(self, found: AuditOfAll, *, but: set[str] | None = None) -> None:
        wrong = {table: one for table, one in found.tables.items() if not one.equal and table not in (but or ())}
        assert not wrong, f"the audit at {found.position} says of targets that no one touched: {wrong}"
        self.done["audits"] += 1
        self.done["tables audited equal"] += sum(one.equal for one in found.tables.values())
        self.done["tables left out of audits"] += len(found.left_out)
        for table, reason in found.left_out.items():
            self._say(f"left out: {table}: {reason[:150]}")

    def _last(self) -> dict[str, int]:
        """Bring in the rest; return the rows of each table, all of them compared by both judges."""
        driver, end = self._living(), time.monotonic() + LAST_S
        while not self._bring_in(driver):
            assert time.monotonic() < end, f"not current {LAST_S:.0f} s behind the load: {driver.states()}"
            time.sleep(5)
        return judged_rows(driver, self.load.primary, tables_of(self.load.primary, self.load.databases))


def soak_mirror(
    version: str | None,
    *,
    minutes: float,
    kills: int,
    warehouses: int,
    seed: int,
    metadata: str | None = None,
    tables: Collection[str] = tuple(TABLES),
    say: bool = False,
) -> dict[str, Any]:
    """Run it once; the folder is kept if it fails."""
    folder = Path(tempfile.mkdtemp(prefix="soak-mirror-"))
    sizes: dict[str, Any] = {"minutes": minutes, "kills": kills, "warehouses": warehouses, "seed": seed}
    one = MirrorSoak(version, metadata, tables, **sizes, folder=folder, say=say)
    try:
        summary = one.run()
    except BaseException as error:
        some = None if tuple(tables) == tuple(TABLES) else ",".join(tables)
        at = {"version": one.load.primary.version, "metadata": one.metadata, "tables": some}
        again = repeat.command("scripts/soak mirror", **sizes, **at)
        told = json.dumps([one.done, one.hits, one.faults, one.load.statements])
        error.add_note(f"repeat: {again}\nkept: {folder}\ndone: {told}")
        raise
    shutil.rmtree(folder)
    return {"seed": seed, **summary}
