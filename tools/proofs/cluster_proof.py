"""Proof on a real cluster: a mirror and a stream stay exact while hosts, processes and the object store fail.

In: minutes, a seed, a server version. Out: a summary, or an AssertionError with the command that repeats the run. A
driver on one node runs a mirror (native writes or those of Spark, by turns) and a stream into a Delta table; targets,
sink and checkpoints are in S3. Beside sysbench and writers with DDL, one of these things happens every few seconds: an
executor or all of them are killed, a worker or a whole node leaves and comes back, a node loses its network, the store
refuses requests or restarts, the driver or its whole node dies and the other node goes on. At the end, the audit must
find every table equal, and the sink must have every change once.

The seed determines the actions and their order, but not their timing.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deltalake import DeltaTable

from replica.errors import PrerequisiteError
from tests.fixtures.s3_faults import FaultyStore, random_faults
from tools.cluster.cluster import BUCKET, NODES, Cluster
from tools.cluster.mirrors import BucketPlace, MirrorOnCluster
from tools.proofs import repeat
from tools.proofs.soak.mirror.judge import tables_of
from tools.proofs.soak.mirror.load import MirrorLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WRITERS: Final = ("native", "spark")
TABLES: Final = ("plain", "pairs", "altered", "emptied", "parents")
"""Of the load, beside sysbench's."""
FAULTY_SHARE: Final = 0.1
"""Of the requests, while the store has faults."""
PAUSE_S: Final = (5.0, 25.0)
LAST_S: Final = 900.0
TRIGGER: Final = {"processingTime": "1 second"}
SINK: Final = f"s3a://{BUCKET}/stream"
_STREAM: Final = """
from pyspark.sql import functions as f
rows = spark.readStream.format("mariadb-binlog").options(**{options!r}).load()
found = rows.select("op", f.coalesce("after.id", "before.id").alias("id"), f.col("after.v").alias("v"),
                    f.col("transaction.gtid").alias("gtid"), f.col("transaction.ordinal").alias("ordinal"))
stream = found.writeStream.format("delta").option("checkpointLocation", "{sink}-checkpoint").trigger(**{trigger!r})
stream = stream.start({sink!r})
"""
_ENDED: Final = "result = None if stream.isActive else str(stream.exception())"
_WAIT: Final = "stream.awaitTermination()"


class Ledger:
    """A table whose changes are all known: what the sink of the stream must have, once each."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.written: Counter[tuple[str, int, int | None]] = Counter()
        self._cluster = cluster
        self._chance = random.Random(f"{seed} ledger")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        cluster.primary.sql("CREATE DATABASE ledger", "CREATE TABLE ledger.t (id INT PRIMARY KEY, v INT)")
        self.start = cluster.primary.gtid_binlog_pos()
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(30)

    def _write(self) -> None:
        rows: dict[int, int] = {}
        number = 0
        with self._cluster.primary.connect(database="ledger") as connection, connection.cursor() as cursor:
            while not self._ended.wait(0.2):
                changes: Counter[tuple[str, int, int | None]] = Counter()
                new = {number + each: 0 for each in range(self._chance.randrange(1, 40))}
                number += len(new)
                cursor.execute("BEGIN")
                cursor.execute(f"INSERT INTO t VALUES {', '.join(map(str, new.items()))}")
                changes.update(("insert", *each) for each in new.items())
                rows |= new
                for key in self._chance.sample(sorted(rows)[-500:], 1):
                    rows[key] += 1
                    cursor.execute(f"UPDATE t SET v = v + 1 WHERE id = {key}")
                    changes["update", key, rows[key]] += 1
                cursor.execute("COMMIT")
                self.written += changes


class ClusterProof:
    """One run: `run()` once."""

    def __init__(self, cluster: Cluster, folder: Path, *, minutes: float, seed: int) -> None:
        self.cluster = cluster
        self.done: Counter[str] = Counter()
        self._chance = random.Random(f"{seed} cluster")
        self._minutes = minutes
        self._folder = folder
        self._seed = seed
        self._store = FaultyStore(
            cluster.store.address,
            cluster.store.port,
            random_faults(seed, FAULTY_SHARE),
            address=cluster.network.gateway,
        )
        self._place: BucketPlace | None = None
        self._driver: MirrorOnCluster | None = None
        self._at = NODES[0]
        self._stream: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Run the load and the failures, and then judge."""
        began = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(self._store)
            self._store.set_active(False)
            load = stack.enter_context(MirrorLoad(None, self._seed, tables=TABLES, primary=self.cluster.primary))
            ledger = Ledger(self.cluster, self._seed)
            stack.callback(ledger.stop)
            databases = [*load.databases, "ledger"]
            tables = ",".join(f"{database}.*" for database in databases)
            self._place = BucketPlace(self.cluster, tables, "mirror", {"maxBytesPerTrigger": "4m"})
            self._stream = {**self.cluster.server, "table": "ledger.t", "startingPosition": ledger.start}
            stack.callback(self._leave)
            self._begin()
            deck: list[Callable[[], None]] = []
            while time.monotonic() - began < 60 * self._minutes:
                deck = deck or self._chance.sample(self._events(), len(self._events()))
                self._happens(deck.pop())
                load.check()
            load.stop()
            ledger.stop()
            self._leave()
            rows = self._judge(tables_of(self.cluster.primary, databases), ledger)
            return {
                "version": self.cluster.primary.version,
                "events": dict(self.done),
                "transactions": load.transactions,
                "changes in the sink": ledger.written.total(),
                "rows": rows,
                "seconds": round(time.monotonic() - began, 1),
            }

    # -- what happens ------------------------------------------------------------------------------------------------

    def _events(self) -> list[Callable[[], None]]:
        return [
            self._executor_killed,
            self._executors_killed,
            self._worker_leaves,
            self._node_crashes,
            self._network_cut,
            self._store_faulty,
            self._store_restarts,
            self._driver_killed,
            self._host_of_the_driver_crashes,
        ]

    def _happens(self, event: Callable[[], None]) -> None:
        self._pause()
        name = event.__name__.strip("_").replace("_", " ")
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        event()
        self.done[name] += 1
        self._pause()
        self._supervise()

    def _pause(self) -> None:
        time.sleep(self._chance.uniform(*PAUSE_S))

    def _other(self) -> str:
        """Return the node that has no driver."""
        return next(name for name in NODES if name != self._at)

    def _executor_killed(self) -> None:
        found = [one for worker in self.cluster.workers.values() for one in worker.executors()]
        if found:
            self._chance.choice(found).kill()

    def _executors_killed(self) -> None:
        for worker in self.cluster.workers.values():
            for one in worker.executors():
                one.kill()

    def _worker_leaves(self) -> None:
        worker = self.cluster.workers[self._chance.choice(NODES)]
        worker.kill()
        self._pause()
        worker.start()

    def _node_crashes(self) -> None:
        name = self._other()
        self._crash(name)
        self._pause()
        self._boot(name)

    def _crash(self, name: str) -> None:
        self.cluster.host(name).crash()
        self.cluster.workers[name].kill()

    def _boot(self, name: str) -> None:
        self.cluster.network.boot(self.cluster.host(name))
        self.cluster.workers[name].start()

    def _network_cut(self) -> None:
        host = self.cluster.host(self._chance.choice(NODES))
        host.cut()
        self._pause()
        host.join()

    def _store_faulty(self) -> None:
        self._store.set_active(True)
        self._pause()
        self._store.set_active(False)

    def _store_restarts(self) -> None:
        self.cluster.store.stop()
        self._pause()
        self.cluster.store.start()

    def _driver_killed(self) -> None:
        assert self._driver is not None
        self._driver.kill()
        self._leave()
        self._at = self._other()
        self._begin()

    def _host_of_the_driver_crashes(self) -> None:
        crashed = self._at
        self._crash(crashed)
        self._leave()
        self._at = self._other()
        self._begin()
        self._boot(crashed)

    # -- the application ---------------------------------------------------------------------------------------------

    def _open(self, endpoint: str | None) -> MirrorOnCluster:
        assert self._place is not None
        self._driver = MirrorOnCluster(self._place, self._at, endpoint=endpoint)
        self._driver.__enter__()
        self.done["drivers"] += 1
        return self._driver

    def _begin(self) -> None:
        """Start a driver with both queries."""
        driver = self._open(self._store.endpoint)
        writer = WRITERS[self.done["drivers"] % 2]
        self._again(lambda: driver.start(writer=writer, trigger=TRIGGER))
        self._again(lambda: driver.run(self._stream_code(TRIGGER)))

    def _stream_code(self, trigger: Mapping[str, object]) -> str:
        return _STREAM.format(options=self._stream, sink=SINK, trigger=trigger)

    def _again(self, start: Callable[[], object]) -> None:
        """Start a query, and once more if that fails, as a supervisor does."""
        try:
            start()
        except AssertionError as error:
            self._ended(str(error))
            start()

    def _ended(self, error: str) -> None:
        """Count a query that ended: an event was the reason, or the judge at the end will find what is wrong."""
        line = next((one for one in reversed(error.splitlines()) if "rror" in one or "xception" in one), error)
        print(f"           a query ended, and is started again: {line[:200]}", flush=True)
        self.done["queries started again"] += 1

    def _supervise(self) -> None:
        """Start queries again that ended; after a driver that ended, a new one."""
        driver = self._driver
        assert driver is not None
        if not driver.processes:
            self._leave()
            self._begin()
            return
        try:
            driver.check()
        except AssertionError as error:
            self._ended(str(error))
            self._again(driver.start_again)
        if (ended := driver.run(_ENDED)) is not None:
            self._ended(ended)
            self._again(lambda: driver.run(self._stream_code(TRIGGER)))

    def _leave(self) -> None:
        if self._driver is not None:
            driver, self._driver = self._driver, None
            driver.kill()
            driver.__exit__()

    # -- the judge ---------------------------------------------------------------------------------------------------

    def _judge(self, tables: list[str], ledger: Ledger) -> int:
        """Apply the remaining changes without failures, and return the number of rows. All of them have to be equal."""
        driver, end = self._open(None), time.monotonic() + LAST_S
        while True:
            states = driver.run_whole()
            waiting = {name: one for name, one in states.items() if one.state not in {"current", "dropped"}}
            if not waiting:
                break
            assert time.monotonic() < end, f"not current {LAST_S:.0f} s after the load: {waiting}"
            if failed := [name for name, one in waiting.items() if one.state == "failed" and not one.waits_for]:
                raise AssertionError(f"suspended: {[states[name].error for name in failed]}")
            time.sleep(5)
        driver.run(self._stream_code({"availableNow": True}) + _WAIT)
        found = driver.audit()
        assert not found.left_out, f"left out of the audit: {found.left_out}"
        assert sorted(found.tables) == sorted(tables), f"{sorted(found.tables)} were audited, {tables} are there"
        differing = {table: one for table, one in found.tables.items() if not one.equal}
        assert not differing, f"the audit at {found.position} says: {differing}"
        self._check_sink(ledger)
        return sum(one.rows for one in found.tables.values())

    def _check_sink(self, ledger: Ledger) -> None:
        options = self.cluster.store.options()
        found = DeltaTable(SINK.replace("s3a", "s3"), storage_options=options).to_pyarrow_table()
        places = Counter(zip(found["gtid"].to_pylist(), found["ordinal"].to_pylist(), strict=True))
        twice = [place for place, count in places.items() if count > 1]
        assert not twice, f"{len(twice)} changes are in the sink more than once, first {twice[:3]}"
        rows = Counter(zip(*(found[name].to_pylist() for name in ("op", "id", "v")), strict=True))
        missing, strange = ledger.written - rows, rows - ledger.written
        assert not missing, f"{missing.total()} changes are not in the sink, first {list(missing)[:3]}"
        assert not strange, f"{strange.total()} changes in the sink were never written, first {list(strange)[:3]}"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="scripts/prove cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--minutes", type=float, default=60.0, help="of load and failures (default 60)")
    found.add_argument("--seed", type=int, default=random.randrange(10**6))
    found.add_argument("--version", help="server version; 10.11 or else the newest if not given")
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    print(f"seed {arguments.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="prove-cluster-"))
    try:
        with Cluster(folder / "hosts", arguments.version) as cluster:
            proof = ClusterProof(cluster, folder, minutes=arguments.minutes, seed=arguments.seed)
            try:
                summary = proof.run()
            except BaseException as error:
                given = {"minutes": arguments.minutes, "seed": arguments.seed, "version": cluster.primary.version}
                again = repeat.command("scripts/prove cluster", **given)
                error.add_note(f"repeat: {again}\nkept: {folder}\nevents: {json.dumps(proof.done)}")
                raise
    except PrerequisiteError as error:
        print(f"prove cluster: {error}", file=sys.stderr)
        return error.exit_code
    shutil.rmtree(folder)
    print(json.dumps(summary), flush=True)
    print(f"{summary['rows']} rows: every table is equal, and the sink has each change once.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
