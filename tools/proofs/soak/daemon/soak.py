"""Soak of the daemon: a primary under load, faults at random times, and a check of the relay log after each fault.

In: a seed, a number of faults, a server version. Out: a summary, or an AssertionError with the fault, the log's last
lines and the command that repeats the run. After every fault, the relay log must contain each transaction whose COMMIT
returned under semi-sync (ledger.py). Each group must be whole, in order, and present once. After every few faults, the
daemon must have caught up and be healthy. At the end, a replay of the relay log must give the primary's tables
(judge.py).

The seed determines the faults with their order and duration, and the data of the writers. Timing differs between runs
of one seed.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql

from tests.fixtures.mariadb import wait_until
from tests.fixtures.network.hostile import HostileServer
from tests.fixtures.ports import reserved_port
from tools.proofs import repeat
from tools.proofs.soak.breaking import PAUSE_S, Breaking
from tools.proofs.soak.daemon import judge
from tools.proofs.soak.daemon.going_back import GoingBack
from tools.proofs.soak.daemon.pair import DATABASE, REPLICA, Pair
from tools.proofs.soak.daemon.relay_watch import RelayWatch
from tools.proofs.soak.disk import SmallDisk
from tools.proofs.soak.load.ledger import Ledger
from tools.proofs.soak.load.writers import KINDS, make_writers
from tools.proofs.soak.process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.proofs.soak.load.writer import Writer

CALM_TIMEOUT_S = 90.0
MAX_RSS = 300 << 20
MAX_DESCRIPTORS = 100


class Soak:
    """One run: `run()` once."""

    def __init__(
        self,
        version: str | None,
        *,
        faults: int,
        seed: int,
        folder: Path,
        minutes: float,
        pause_s: tuple[float, float],
        say: bool,
    ) -> None:
        self.seed = seed
        self.folder = folder
        self.ledger = Ledger()
        # Half of the seeds have compressed events in the log.
        compressed = random.Random(f"{seed} soak").random() < 0.5
        self.pair = Pair(version, self.ledger, *(["--log-bin-compress=ON"] if compressed else []))
        self.disk = SmallDisk(folder / "disk")
        self.relay = self.disk.path / "relay"
        self.writers: list[Writer] = []
        self.breaking = Breaking(self, count=faults, seed=seed, minutes=minutes, pause_s=pause_s)
        self.say: Callable[..., None] = (lambda *words: print(*words, flush=True)) if say else (lambda *_: None)
        self.folder_in_use = threading.Lock()
        """Held by who removes relay files: two that do would blame each other."""
        self._failure: BaseException | None = None
        self._over = threading.Event()
        self._exits_seen = 0

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.disk)
            stack.enter_context(self.pair)
            self._begin(stack)
            self.breaking.run()
            self._end()
            summary = self.summary() | {"faulty_s": round(time.monotonic() - began, 1)}
            self._judge()
        return summary | {"seconds": round(time.monotonic() - began, 1)}

    def _begin(self, stack: contextlib.ExitStack) -> None:
        self.relay.mkdir()
        archive = self.folder / "archive"
        archive.mkdir()
        self.watch = RelayWatch(self.relay, archive)
        stack.callback(self.watch.close)
        self.hostile = stack.enter_context(HostileServer(None))
        ports = (self.hostile.port, *(proxy.port for proxy in self.pair.proxies))
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        http_port = stack.enter_context(reserved_port())
        self.daemon = DaemonProcess(self.folder, hosts, REPLICA, self.relay, http_port)
        self.daemon.start()  # before the first commit, which would wait for it
        stack.callback(self.daemon.kill)
        self.writers = make_writers(self.pair, self.ledger, self.seed, (*KINDS, GoingBack))
        tending = threading.Thread(target=self._tend, name="tend", daemon=True)
        tending.start()
        stack.callback(tending.join)
        stack.callback(self._over.set)
        self.pair.open.set()
        for writer in self.writers:
            writer.start()
            stack.callback(writer.ending.set)
        self.calm("the start")

    def _tend(self) -> None:
        while not self._over.wait(0.1):
            try:
                self.daemon.tend(self.breaking.at_work)
                self.watch.poll()
            except BaseException as error:  # noqa: BLE001  (the run fails with it)
                self._failure = self._failure or error
                return

    def raise_failure(self) -> None:
        for writer in self.writers:
            if writer.failure is not None:
                raise AssertionError(f"the load failed: {writer.name}: {writer.failure!r}") from writer.failure
        failure = self.breaking.failure or self._failure
        if failure is not None:
            raise failure

    # -- what must hold --------------------------------------------------------------------------------------------

    def look(self, when: str) -> None:
        """Every promised transaction is whole in the relay log now."""
        promised = self.ledger.take()
        self.watch.poll()
        missing = self.watch.missing(promised)
        assert not missing, f"{len(missing)} acknowledged transactions are not in the relay log ({when}): {missing[:5]}"
        self.watch.check_retained()

    def calm(self, when: str) -> None:
        """No fault is at work: within a time everything is well again and nothing is behind."""
        self.breaking.join()
        self.raise_failure()
        target = self.pair.primary.gtid_binlog_pos()
        done = [writer.done for writer in self.writers]
        deadline = time.monotonic() + CALM_TIMEOUT_S
        while problem := self._problem(target, done):
            self.raise_failure()
            if time.monotonic() > deadline:
                what = f"after {when}, {CALM_TIMEOUT_S:.0f} s without faults: {problem}"
                sessions = self.pair.primary.sql("SHOW FULL PROCESSLIST")
                raise AssertionError(f"{what}\nsessions: {sessions}\nlog: {self.daemon.log[-2000:]}")
            time.sleep(0.05)
        self.look(when)
        self._check_exits()
        assert self.daemon.peak_rss < MAX_RSS, f"the daemon takes {self.daemon.peak_rss >> 20} MB"
        assert self.daemon.peak_descriptors < MAX_DESCRIPTORS, f"{self.daemon.peak_descriptors} descriptors"
        self.say(f"calm after {when}: {self.ledger.promised} promised, relay log at {self.watch.position}")

    def _problem(self, target: str, done: list[int]) -> str:
        missing = self.watch.missing([gtid for gtid in target.split(",") if gtid])
        if missing:
            return f"the relay log is at {self.watch.position}, without {missing}"
        self.pair.check_replication()
        status = self.pair.status()
        stuck = [writer.name for writer, before in zip(self.writers, done, strict=True) if writer.done == before]
        if stuck:
            return f"writers that get no further: {stuck}, {status}"
        off = int(status["Rpl_semi_sync_master_no_times"])
        assert off <= self.pair.switched_off, f"the primary switched semi-sync off by itself: {status}"
        if status["Rpl_semi_sync_master_status"] != "ON" or status["Rpl_semi_sync_master_clients"] != "1":
            return f"semi-sync is not as it should be: {status}"
        for path in ("/healthz", "/readyz", "/status", "/metrics"):
            code, text = self.daemon.answer(path)
            if code != 200:
                return f"{path} answers {code}: {text}"
        return ""

    def _check_exits(self) -> None:
        fresh, self._exits_seen = self.daemon.exits[self._exits_seen :], len(self.daemon.exits)
        for one in fresh:
            assert "bits flipped" in one.under, f"the daemon ended itself, exit code {one.code}, under: {one}"

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        for writer in self.writers:
            writer.ending.set()
        for writer in self.writers:
            writer.join(CALM_TIMEOUT_S)
            assert not writer.is_alive(), f"{writer.name} never came back from its last statement"
        self.raise_failure()
        primary = self.pair.primary
        for *_, xid in primary.sql("XA RECOVER"):
            wait_until(lambda name=xid: _ended(primary, name), f"the XA transaction {xid} can be ended")
        target = primary.gtid_binlog_pos().split(",")
        wait_until(lambda: not self.watch.missing(target), "the daemon has everything")
        self.daemon.stop()
        # Its goodbye ends the dump, and the primary then cleans up in a time of its own.
        wait_until(self._nobody_is_left, "no semi-sync client is left on the primary after a clean stop")
        self._over.set()
        self.look("the end")
        self._check_exits()
        found = ",".join(sorted(target))
        servers, ends = self.watch.server_of, self.watch.position.items()
        last = ",".join(sorted(f"{domain}-{servers[domain, number]}-{number}" for domain, number in ends))
        assert found == last, f"the relay log ends at {last}, the primary at {found}"

    def _nobody_is_left(self) -> bool:
        return self.pair.status()["Rpl_semi_sync_master_clients"] == "0"

    def _judge(self) -> None:
        """The pair is still up, at rest."""
        primary = self.pair.primary
        wanted = judge.checksums(primary)
        marks = {(int(a), int(b)) for a, b in primary.sql(f"SELECT writer, number FROM {DATABASE}.mark")}
        lost = self.ledger.marks - marks
        assert not lost, f"{len(lost)} acknowledged transactions are not in the primary's tables: {sorted(lost)[:5]}"
        counted = primary.value(f"SELECT COUNT(*) FROM {DATABASE}.counted")
        assert counted == len(self.watch.counted), f"{counted} are committed, {len(self.watch.counted)} in the log"
        files = sorted((self.folder / "archive").iterdir(), key=lambda path: int(path.suffix[1:]))
        judge.read_by_the_tool(primary, files, self.watch)
        self.say("mariadb-binlog shows the same groups")
        for who, replay in (("MariaDB", judge.replayed_by_the_server), ("dump --sql", judge.replayed_by_us)):
            differs = judge.difference(wanted, replay(primary.version, files))
            assert not differs, f"the relay log, replayed by {who}, gives other tables than the primary has: {differs}"
            self.say(f"replayed by {who}: the tables of the primary")

    def summary(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "version": self.pair.primary.version,
            "faults": sum(self.breaking.injected.values()),
            "kinds": dict(self.breaking.injected),
            "not_possible": dict(self.breaking.skipped),
            "promised": self.ledger.promised,
            "unpromised": self.ledger.unpromised,
            "unknown": self.ledger.unknown,
            "groups": self.watch.groups,
            "out_of_order": self.watch.out_of_order,
            "relay_files_removed": self.watch.removed,
            "changes_of_primary": self.pair.changes,
            "daemon_starts": self.daemon.starts,
            "daemon_exits": [(one.code, one.under) for one in self.daemon.exits],
            "slowest_stop_s": round(self.daemon.slowest_stop_s, 2),
            "peak_rss_mb": self.daemon.peak_rss >> 20,
            "descriptors": [self.daemon.first_descriptors, self.daemon.peak_descriptors],
            "peak_threads": self.daemon.peak_threads,
        }


def _ended(primary: Any, xid: Any) -> bool:
    name = xid.decode() if isinstance(xid, bytes) else xid
    try:
        primary.sql(f"XA ROLLBACK '{name}'")
    except pymysql.err.OperationalError:
        return False
    return True


def soak(
    version: str | None,
    *,
    faults: int,
    seed: int,
    minutes: float = 0.0,
    pause_s: tuple[float, float] = PAUSE_S,
    say: bool = False,
) -> dict[str, Any]:
    """Run it once; the folder is kept if it fails."""
    folder = Path(tempfile.mkdtemp(prefix="soak-daemon-"))
    one = Soak(version, faults=faults, seed=seed, folder=folder, minutes=minutes, pause_s=pause_s, say=say)
    try:
        summary = one.run()
    except BaseException as error:
        sizes = {"seed": seed, "faults": faults, "minutes": minutes}
        again = repeat.command("scripts/soak daemon", **sizes, version=one.pair.primary.version)
        error.add_note(f"repeat: {again}\nkept: {folder}\ndone: {json.dumps(dict(one.breaking.injected))}")
        raise
    shutil.rmtree(folder)
    return summary
