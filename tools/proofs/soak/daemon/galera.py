"""Soak of the daemon with a Galera cluster: sysbench on three nodes, nodes that are killed, and every committed row
once.

In: a seed, a number of faults, a server version. Out: a summary, or an AssertionError with the fault and the daemon's
log. The daemon reads from one node, and moves to the next node if that one dies. Half of the faults hit the node in
use. After each fault the cluster is whole again and the daemon has caught up. At the end, the relay log must contain
each transaction of the cluster's domain once and in order. A replay must give the tables of every node.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql

from replica.relay_log.directory.head import read_head
from tests.fixtures.logs.listing import relay_files, relay_gtids
from tests.fixtures.mariadb import wait_until
from tests.fixtures.other_servers.galera import GTID_DOMAIN, GaleraCluster, GaleraNode
from tests.fixtures.ports import reserved_port
from tools.proofs import repeat
from tools.proofs.soak.daemon import judge
from tools.proofs.soak.daemon.pair import DATABASE
from tools.proofs.soak.load.sysbench import check_sysbench, sysbench
from tools.proofs.soak.process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAULTS = 10
"""Beside those of the pair: each takes some seconds, until the cluster is whole again."""
KINDS = ("node killed", "node in use killed", "node in use stopped", "daemon killed", "node in use frozen")
CATCH_UP_S = 180.0
FROZEN_S = 5.0
"""Longer than the other nodes wait for one that is silent: they go on without it."""
_TABLES = 3
_ROWS = 500


class ClusterDaemon(DaemonProcess):
    """Of a cluster: without semi-sync, which Galera does not need, and everything is kept for the judge."""

    def _options(self) -> dict[str, object]:
        left_out = ("retain_bytes", "semi_sync")
        return {name: value for name, value in super()._options().items() if name not in left_out}


class Marker(threading.Thread):
    """Commits one row after the other on any node that takes it, and remembers which were acknowledged."""

    def __init__(self, cluster: GaleraCluster, seed: int) -> None:
        super().__init__(name="marker", daemon=True)
        self.acknowledged: set[int] = set()
        self.ending = threading.Event()
        self._cluster, self._random = cluster, random.Random(f"{seed} marker")

    def run(self) -> None:
        number = 0
        while not self.ending.wait(0.02):
            number += 1
            node = self._random.choice(self._cluster.nodes)
            with contextlib.suppress(pymysql.err.MySQLError, OSError):  # then nobody was promised anything
                with node.connect(connect_timeout=2, read_timeout=10) as connection, connection.cursor() as cursor:
                    cursor.execute(f"INSERT INTO {DATABASE}.mark VALUES ({number})")
                self.acknowledged.add(number)


class Load(threading.Thread):
    """sysbench on each node; one that ends with its node is started again when that takes part again."""

    def __init__(self, cluster: GaleraCluster, folder: Path) -> None:
        super().__init__(name="sysbench", daemon=True)
        self.ending = threading.Event()
        self.starts = 0
        self._cluster, self._log = cluster, folder / "sysbench.log"
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def prepare(self) -> None:
        with self._log.open("ab") as log:
            subprocess.run([*self._command(self._cluster.nodes[0]), "prepare"], stdout=log, stderr=log, check=True)

    def run(self) -> None:
        while not self.ending.wait(0.2):
            for node in self._cluster.nodes:
                old = self._running.get(node.number)
                if (old is None or old.poll() is not None) and node.running and node.ready():
                    with self._log.open("ab") as log:
                        command = [*self._command(node), "--threads=2", "--time=0", "--rate=40", "run"]
                        self._running[node.number] = subprocess.Popen(command, stdout=log, stderr=log)
                    self.starts += 1

    def end(self) -> None:
        self.ending.set()
        self.join()
        for one in self._running.values():
            one.kill()
            one.wait()

    def _command(self, node: GaleraNode) -> list[str]:
        sizes = [f"--tables={_TABLES}", f"--table-size={_ROWS}", "--db-ps-mode=disable"]
        return sysbench(node, DATABASE, "oltp_write_only", *sizes)


class ClusterSoak:
    """One run: `run()` once."""

    def __init__(
        self,
        version: str | None,
        *,
        faults: int,
        seed: int,
        folder: Path,
        programs: bool = True,
        say: Callable[..., None],
    ) -> None:
        self.cluster = GaleraCluster(version)
        self._programs = programs
        self.seed, self.faults, self.folder, self.say = seed, faults, folder, say
        self.relay = folder / "relay"
        self.injected: Counter[str] = Counter()
        self._random = random.Random(f"{seed} galera")

    def run(self) -> dict[str, Any]:
        if self._programs:
            check_sysbench()
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.cluster)
            self._begin(stack)
            for number in range(self.faults):
                self._break(number)
                self._catch_up()
            if self._programs:
                self.load.end()
            self.marker.ending.set()
            self.marker.join()
            groups = self._end()
        return {
            "seed": self.seed,
            "version": self.cluster.nodes[0].version,
            "faults": sum(self.injected.values()),
            "kinds": dict(self.injected),
            "acknowledged_marks": len(self.marker.acknowledged),
            "groups": groups,
            "sysbench_starts": self.load.starts,
            "changes_of_node": self.daemon.log.count('"goes on from another server"'),
            "daemon_starts": self.daemon.starts,
            "lost": 0,
            "doubled": 0,
            "seconds": round(time.monotonic() - began, 1),
        }

    def _begin(self, stack: contextlib.ExitStack) -> None:
        first = self.cluster.nodes[0]
        first.sql(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.mark(number INT PRIMARY KEY)")
        self.load = Load(self.cluster, self.folder)
        if self._programs:
            self.load.prepare()
        self.relay.mkdir()
        port = stack.enter_context(reserved_port())
        self.daemon = ClusterDaemon(self.folder, self.cluster.hosts, self.cluster.account, self.relay, port)
        self.daemon.start()
        stack.callback(self.daemon.kill)
        self.marker = Marker(self.cluster, self.seed)
        self.marker.start()
        stack.callback(self.marker.ending.set)
        if self._programs:
            self.load.start()
            stack.callback(self.load.end)
        self._catch_up()

    # -- faults ----------------------------------------------------------------------------------------------------

    def _break(self, number: int) -> None:
        kind = self._random.choice(KINDS) if number >= len(KINDS) else KINDS[number]
        node = self._in_use() if "in use" in kind else self._random.choice(self.cluster.nodes)
        self.injected[kind] += 1
        self.say(f"fault {number + 1}: {kind} (node {node.number})")
        time.sleep(self._random.uniform(0.5, 3))
        if kind == "daemon killed":
            self.daemon.kill()
            time.sleep(self._random.uniform(0, 2))
            self.daemon.start()
            return
        if kind == "node in use frozen":
            node.signal(signal.SIGSTOP)
            time.sleep(FROZEN_S)
            node.signal(signal.SIGCONT)
        else:
            node.stop() if kind == "node in use stopped" else node.kill()
            time.sleep(self._random.uniform(1, 5))
            node.rejoin()
        self.cluster.wait_whole()

    def _in_use(self) -> GaleraNode:
        return next((node for node in self.cluster.nodes if node.dump_threads()), self.cluster.nodes[0])

    # -- what must hold --------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        target = _reached(self.cluster.nodes[0])
        deadline = time.monotonic() + CATCH_UP_S
        while (have := self._relay_reached()) < target:
            assert self.daemon.running, f"the daemon ended itself:\n{self.daemon.log[-3000:]}"
            late = f"the daemon is at {have}, a node at {target}:\n{self.daemon.log[-3000:]}"
            assert time.monotonic() < deadline, late
            time.sleep(0.1)
        self.say(f"caught up: {len(self.marker.acknowledged)} marks acknowledged, relay log at {have}")

    def _relay_reached(self) -> int:
        head = read_head(self.relay)
        last = None if head is None else head.position.get(GTID_DOMAIN)
        return 0 if last is None else last.seq_no

    def _end(self) -> int:
        nodes = self.cluster.nodes
        wait_until(lambda: len({_reached(node) for node in nodes}) == 1, "all nodes are at one place")
        self._catch_up()
        self.daemon.stop()
        last = _reached(nodes[0])
        found = [int(gtid.split("-")[2]) for gtid in relay_gtids(nodes[0], self.relay) if gtid.startswith("7-")]
        assert found == list(range(1, last + 1)), f"the relay log has not each of 1..{last} once: {_wrong(found, last)}"
        marks = {number for (number,) in nodes[0].sql(f"SELECT number FROM {DATABASE}.mark")}
        lost = self.marker.acknowledged - marks
        assert not lost, f"{len(lost)} acknowledged transactions are not in the cluster: {sorted(lost)[:5]}"
        wanted = judge.checksums(nodes[0])
        for node in nodes[1:]:
            assert not judge.difference(wanted, judge.checksums(node)), f"node {node.number} has other tables"
        for who, replay in (("MariaDB", judge.replayed_by_the_server), ("dump --sql", judge.replayed_by_us)):
            differs = judge.difference(wanted, replay(nodes[0].version, relay_files(self.relay)))
            assert not differs, f"the relay log, replayed by {who}, gives other tables than the nodes have: {differs}"
            self.say(f"replayed by {who}: the tables of the nodes")
        return len(found)


def _reached(node: GaleraNode) -> int:
    state = dict(_by_domain(node.gtid_binlog_pos()))
    return state.get(GTID_DOMAIN, 0)


def _by_domain(position: str) -> Iterator[tuple[int, int]]:
    for gtid in filter(None, position.split(",")):
        domain, _, number = gtid.split("-")
        yield int(domain), int(number)


def _wrong(found: list[int], last: int) -> str:
    doubled = [number for number, times in Counter(found).items() if times > 1]
    missing = sorted(set(range(1, last + 1)) - set(found))
    return f"missing {missing[:5]}, doubled {doubled[:5]}"


def soak_galera(
    version: str | None, *, faults: int, seed: int, programs: bool = True, say: bool = False
) -> dict[str, Any]:
    """Run it once; the folder is kept if it fails. `programs`: sysbench writes too, and not our marks alone."""
    folder = Path(tempfile.mkdtemp(prefix="soak-galera-"))
    tell: Callable[..., None] = (lambda *words: print(*words, flush=True)) if say else (lambda *_: None)
    try:
        sizes: dict[str, Any] = {"faults": faults, "seed": seed, "programs": programs}
        summary = ClusterSoak(version, **sizes, folder=folder, say=tell).run()
    except BaseException as error:
        again = repeat.command("scripts/soak galera", faults=faults, seed=seed, version=version)
        error.add_note(f"repeat: {again}\nkept: {folder}")
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return summary
