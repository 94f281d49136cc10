"""Proof of exactly-once delivery: a workload, connections that are reset and a Spark query that is killed at random
times.

    scripts/prove exactly-once [--version 10.11] [--transactions 100000] [--kills 8] [--seed N]

A writer commits mixed transactions over three tables and two GTID domains. Spark streams them through a proxy that
resets the connection about once a second, between packets and inside them. The whole Spark application (JVM, source
process, Python workers) gets SIGKILL at random times and restarts from its checkpoint. At the end, the union of all
batches must contain every row identity exactly once, with each image as it was written. A replay of the union must give
the server's tables.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow.parquet as pq

from tests.fixtures.installation import PROJECT, installations
from tests.fixtures.load.workload import DATABASE, Workload
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.spark_home import spark_python
from tools.proofs import repeat
from tools.proofs.changes import DeliveredChange, check

if TYPE_CHECKING:
    from collections.abc import Iterator

STALLED_S = 180.0
"""No progress of the checkpoint for this long is a failure: a cold start of Spark takes 20 s on a busy machine."""
CUT_EVERY_S = (0.5, 4.0)
CUT_WITHIN_BYTES = 1 << 20
EARLY_KILL_S = (2.0, 15.0)
"""Somewhere between the start of the JVM and the first batch."""
BATCHES_BEFORE_KILL = 4
LATE_KILL_S = 1.5
"""About the length of a batch: the kill hits planning, tasks and both logs alike."""


class Job:
    """The Spark application as a process group that can be killed whole."""

    def __init__(self, options: dict[str, str], folder: Path) -> None:
        self.folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {"PYSPARK_PYTHON": spark_python(), "PYTHONPATH": str(PROJECT)}
        command = [sys.executable, "-m", "tools.proofs.job", json.dumps(self._options), *map(str, self._paths)]
        with (self.folder / "job.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=PROJECT, env=environment)

    @property
    def _paths(self) -> tuple[Path, Path]:
        return self.folder / "checkpoint", self.folder / "output"

    @property
    def output(self) -> Path:
        return self._paths[1]

    def kill(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = psutil.Process(self._process.pid)
            for process in [tree, *tree.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
        self._process.wait()

    def check_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            tail = (self.folder / "job.log").read_text(errors="replace")[-6000:]
            raise AssertionError(f"the Spark query ended by itself:\n{tail}")

    def committed(self) -> tuple[int, str]:
        """The last batch in the commit log, and the GTID position it ends at."""
        commits = self._paths[0] / "commits"
        done = [int(path.name) for path in commits.glob("*") if path.name.isdigit()] if commits.is_dir() else []
        if not done:
            return -1, ""
        lines = (self._paths[0] / "offsets" / str(max(done))).read_text().splitlines()
        return max(done), str(json.loads(lines[-1])["gtid"])


def _cut_at_random(proxy: FaultProxy, chance: random.Random, stop: threading.Event, done: list[int]) -> None:
    while not stop.wait(chance.uniform(*CUT_EVERY_S)):
        if chance.random() < 0.5:
            proxy.reset_all()
        else:
            proxy.cut_after(chance.randrange(CUT_WITHIN_BYTES))
        done[0] += 1


@contextlib.contextmanager
def cutting(proxy: FaultProxy, chance: random.Random) -> Iterator[list[int]]:
    stop, done = threading.Event(), [0]
    thread = threading.Thread(target=_cut_at_random, args=(proxy, chance, stop, done), daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def _positions(text: str) -> dict[int, str]:
    return {int(gtid.split("-")[0]): gtid for gtid in text.split(",") if gtid}


def prove(version: str | None, *, transactions: int, kills: int, seed: int, say: bool = False) -> str:
    """Run it once; gives a sentence with the counts, or raises AssertionError."""
    chance = random.Random(f"faults {seed}")
    began = time.monotonic()
    with (
        MariaDb(version) as server,
        tempfile.TemporaryDirectory(prefix="exactly-once-") as folder,
        FaultProxy("127.0.0.1", server.port) as proxy,
    ):
        work = Workload(server, seed=seed)
        settings = {
            "host": "127.0.0.1",
            "port": str(proxy.port),
            "user": server.user,
            "password": server.password,
            "tables": f"{DATABASE}.*",
            "startingPosition": "earliest",
            "relayDir": str(Path(folder) / "relay"),
            "maxBytesPerTrigger": "1m",
        }
        job = Job(settings, Path(folder))
        work.create()
        writer = threading.Thread(target=work.run, args=(transactions,))
        writer.start()
        try:
            with cutting(proxy, chance) as cuts:
                for round_number in range(kills):
                    job.start()
                    _wait_for_moment(job, chance)
                    job.kill()
                    if say:
                        print(f"  kill {round_number + 1}: batch {job.committed()[0]}, {cuts[0]} cuts", flush=True)
                job.start()
                writer.join()
                _wait_for_end(job, work)
        finally:
            job.kill()
            writer.join()
        count = check(_delivered(job), work)
        committed = len(work.transactions)
        return (
            f"MariaDB {server.version}: {committed} transactions, {count} row changes, each exactly once; "
            f"{kills} kills, {cuts[0]} cuts, {job.committed()[0] + 1} batches, "
            f"{time.monotonic() - began:.0f} s, seed {seed}"
        )


def _wait_for_moment(job: Job, chance: random.Random) -> None:
    """When to kill: one time in four during the start, else some batches on and then at any moment."""
    if chance.random() < 0.25:
        time.sleep(chance.uniform(*EARLY_KILL_S))
    else:
        until = job.committed()[0] + chance.randint(1, BATCHES_BEFORE_KILL)
        deadline = time.monotonic() + STALLED_S
        while job.committed()[0] < until and time.monotonic() < deadline:
            job.check_alive()
            time.sleep(0.02)
        time.sleep(chance.uniform(0, LATE_KILL_S))
    job.check_alive()


def _wait_for_end(job: Job, work: Workload) -> None:
    target = _positions(work.gtid_position)
    last, since = -2, time.monotonic()
    while True:
        job.check_alive()
        batch, position = job.committed()
        reached = _positions(position)
        if all(reached.get(domain) == gtid for domain, gtid in target.items()):
            return
        if batch != last:
            last, since = batch, time.monotonic()
        if time.monotonic() - since > STALLED_S:
            tail = (job.folder / "job.log").read_text(errors="replace")[-3000:]
            raise AssertionError(f"no progress at {position}, the server is at {work.gtid_position}:\n{tail}")
        time.sleep(0.1)


def _delivered(job: Job) -> list[DeliveredChange]:
    """The sink's rows as its own log lists them: files of batches that never committed are not part of it."""
    names = set()
    for entry in sorted((job.output / "_spark_metadata").iterdir()):
        if not entry.name.startswith("."):
            names |= {json.loads(line)["path"] for line in entry.read_text().splitlines()[1:]}
    columns = list(DeliveredChange._fields)
    tables = [pq.read_table(name.removeprefix("file://"), columns=columns) for name in sorted(names)]
    return [DeliveredChange(*(row[name] for name in columns)) for table in tables for row in table.to_pylist()]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="scripts/prove exactly-once", description=__doc__.splitlines()[0])
    found.add_argument("--version", action="append", help="server version; all that are installed if not given")
    found.add_argument("--transactions", type=int, default=100_000)
    found.add_argument("--kills", type=int, default=8)
    found.add_argument("--seed", type=int, default=random.randrange(10**6))
    return found


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    print(f"seed {arguments.seed}", flush=True)
    sizes = {"transactions": arguments.transactions, "kills": arguments.kills, "seed": arguments.seed}
    for version in arguments.version or installations():
        try:
            print(prove(version, **sizes, say=True), flush=True)
        except BaseException as error:
            error.add_note(f"repeat: {repeat.command('scripts/prove exactly-once', version=version, **sizes)}")
            raise


if __name__ == "__main__":
    main()
