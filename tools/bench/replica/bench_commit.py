"""What a client's COMMIT costs with our daemon as the only semi-sync replica, against a real mariadbd replica.

    ours     mariadb-replica run, as its users start it
    real     mariadbd of the same version; its I/O thread only, unless --apply: it gets the processor to itself
    none     no replica and no semi-sync: the floor

Each with an fsync before the acknowledgement (ack_policy=fsync; sync_relay_log=1) and without (receive; 0). One run,
one primary, one disk, the arms in turn; p50 and p99 are of all rounds together, the ratios medians over the rounds.
Wanted: with fsync ours/real at most 0.7 at p50 and 1.0 at p99, without at most 1.15 at both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fixtures.mariadb import MariaDb, wait_until
from tools.bench.kit.workloads import CACHE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WANTED = {"fsync": (0.7, 1.0), "receive": (1.15, 1.15)}
DURABLE = ("--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")
PRIMARY = ("--rpl-semi-sync-master-timeout=60000", "--binlog-row-metadata=FULL")
DISCARDED = 100  # commits at the start of a round: caches and the server's threads are warm then


class Arms:
    """Brings one replica at a time to a primary and takes it away again."""

    def __init__(self, primary: MariaDb, folder: Path, *, apply: bool) -> None:
        self._primary = primary
        self._folder = folder
        self._threads = "" if apply else "IO_THREAD"
        self._user, self._password = primary.add_user()
        self._stack = ExitStack()
        self._real = self._stack.enter_context(
            MariaDb(
                *(primary.version, "--skip-log-bin", "--rpl-semi-sync-slave-enabled=ON", "--sync-relay-log=0"),
                server_id=2,
                base=folder,
            )
        )
        self._real.sql(
            f"CHANGE MASTER TO MASTER_HOST='{primary.host}', MASTER_PORT={primary.port}, MASTER_USER='{self._user}', "
            f"MASTER_PASSWORD='{self._password}', MASTER_SSL=0, MASTER_USE_GTID=slave_pos"
        )
        self._daemons = 0

    def close(self) -> None:
        self._stack.close()

    @contextmanager
    def none(self, _policy: str) -> Iterator[None]:
        yield

    @contextmanager
    def real(self, policy: str) -> Iterator[None]:
        # Sync of the relay log's own position file stays as it is: GTID mode does not need it.
        self._real.sql(f"SET GLOBAL sync_relay_log = {int(policy == 'fsync')}")
        position = self._primary.gtid_binlog_pos()
        self._real.sql("STOP SLAVE", f"SET GLOBAL gtid_slave_pos = '{position}'", f"START SLAVE {self._threads}")
        try:
            with self._semi_sync():
                yield
        finally:
            self._real.sql("STOP SLAVE")
            self._clients(0)

    @contextmanager
    def ours(self, policy: str) -> Iterator[None]:
        self._daemons += 1
        command = [sys.executable, "-m", "replica", "run", "--semi-sync", "--ack-policy", policy]
        command += ["--host", f"{self._primary.host}:{self._primary.port}", "--user", self._user]
        command += ["--relay-dir", str(self._folder / f"relay-{self._daemons}"), "--server-id", "77"]
        environment = os.environ | {"MARIADB_REPLICA_PASSWORD": self._password}
        with (self._folder / "daemon.log").open("ab") as log:
            daemon = subprocess.Popen(command, env=environment, stderr=log)
        try:
            with self._semi_sync():
                yield
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)
            self._clients(0)

    @contextmanager
    def _semi_sync(self) -> Iterator[None]:
        """Every commit in here was acknowledged, or nothing was measured."""
        self._clients(1)
        self._primary.sql("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        before = _not_acknowledged(self._primary)
        try:
            yield
            lost = _not_acknowledged(self._primary) - before
        finally:
            self._primary.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        if lost:
            raise SystemExit(f"{lost} commits were not acknowledged: nothing was measured")

    def _clients(self, clients: int) -> None:
        status = "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'"
        wait_until(lambda: int(self._primary.sql(status)[0][1]) == clients, f"{clients} semi-sync clients")


def commits(primary: MariaDb, count: int) -> list[int]:
    """Nanoseconds of each of `count` commits, the first DISCARDED ones left out."""
    environment = os.environ | {"BENCH_USER": primary.user, "BENCH_PASSWORD": primary.password}
    command = [sys.executable, "-m", "tools.bench.replica.commit_client", str(primary.port), str(count + DISCARDED)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    taken: list[int] = json.loads(done.stdout)
    return taken[DISCARDED:]


def quantile(taken: list[int], share: float) -> float:
    """Microseconds."""
    return sorted(taken)[min(len(taken) - 1, int(share * len(taken)))] / 1000


def measure(arms: Arms, primary: MariaDb, policy: str, rounds: int, count: int) -> dict[str, Any]:
    runs: dict[str, list[list[int]]] = {"ours": [], "real": [], "none": []}
    for number in range(rounds):
        order = ["ours", "real"] if number % 2 else ["real", "ours"]
        for name in [*order, "none"]:
            with getattr(arms, name)(policy):
                runs[name].append(commits(primary, count))
    result: dict[str, Any] = {"policy": policy, "wanted": WANTED[policy]}
    for name, each in runs.items():
        everything = [one for run in each for one in run]
        result[name] = {"p50_us": quantile(everything, 0.5), "p99_us": quantile(everything, 0.99)}
    for share, key in ((0.5, "p50"), (0.99, "p99")):
        pairs = zip(runs["ours"], runs["real"], strict=True)
        result[f"{key}_ratio"] = statistics.median(quantile(a, share) / quantile(b, share) for a, b in pairs)
    return result


def _not_acknowledged(primary: MariaDb) -> int:
    return int(primary.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_no_tx'")[0][1])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench commit", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--commits", type=int, default=2000, help="a round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    parser.add_argument("--wait-point", choices=["AFTER_COMMIT", "AFTER_SYNC"], default="AFTER_COMMIT")
    parser.add_argument("--durable", action="store_true", help="the primary, too, syncs at each commit")
    parser.add_argument("--apply", action="store_true", help="the real replica applies what it receives")
    parser.add_argument("--policy", action="append", choices=list(WANTED), help="repeatable; default both")
    options = parser.parse_args(argv)
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="commit-", dir=CACHE))
    settings = [*PRIMARY, f"--rpl-semi-sync-master-wait-point={options.wait_point}", *(DURABLE * options.durable)]
    try:
        with MariaDb(options.server, *settings, base=folder) as primary:
            primary.sql(
                "CREATE DATABASE bench", "CREATE TABLE bench.commits (id INT AUTO_INCREMENT PRIMARY KEY, note TEXT)"
            )
            arms = Arms(primary, folder, apply=options.apply)
            try:
                results = []
                for policy in options.policy or WANTED:
                    results.append(measure(arms, primary, policy, options.rounds, options.commits))
                    print(_line(results[-1]), flush=True)
            finally:
                arms.close()
            version = primary.version
    finally:
        shutil.rmtree(folder)
    met = all(r["p50_ratio"] <= r["wanted"][0] and r["p99_ratio"] <= r["wanted"][1] for r in results)
    print(f"MariaDB {version}, {options.wait_point}; wanted ratios {'reached' if met else 'NOT reached'}")
    if options.json:
        print(json.dumps({"benchmark": "commit", "server": version, "met": met, "results": results}))
    return 0


def _line(result: dict[str, Any]) -> str:
    parts = [f"{result['policy']:7}"]
    parts += [f"{n} p50 {result[n]['p50_us']:6.0f} p99 {result[n]['p99_us']:6.0f} us" for n in ("ours", "real", "none")]
    for number, key in enumerate(("p50", "p99")):
        parts.append(f"{key} ours/real {result[f'{key}_ratio']:.2f} (wanted {result['wanted'][number]})")
    return "  ".join(parts)


if __name__ == "__main__":
    raise SystemExit(main())
