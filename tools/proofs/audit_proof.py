"""Proof of the audit: the audit of a large table finds and names four damaged rows, and reports no other row.

In: a number of rows, a seed, a server version. Out: the durations of the audits, or an AssertionError with the
unexpected result. A mirror copies a table and its changes to Delta, and the first audit has to report equality. Then
four rows of the target are damaged. One gets a flipped bit, one is removed, one is duplicated, and one is reset to its
values before the changes. The next audit has to name these four rows. The server's table is written during both audits.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from streaming_source import audit
from tests.fixtures.jars import delta_settings
from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.spark_runs import PLAIN_CHECKPOINTS, UNIX_SOCKETS, open_session
from tools.bench.mirror.mirror_runs import DATABASE, Bench, Measured, measured
from tools.proofs import repeat
from tools.proofs.soak.mirror.faults import SHOWN, statement

if TYPE_CHECKING:
    from streaming_source.auditing.result import AuditResult

CHANGES = 20_000
LATER = "UPDATE {table} SET amount = amount + 1, at = NOW(3) WHERE id = {key}"
PAUSE_S = 0.05
SAMPLE_S = 2.0
MIB = 1 << 20


class PeakMemory:
    """The most memory that JVM and Python processes had at one moment; use as a context manager."""

    def __init__(self) -> None:
        self.jvm = self.python = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._ended.wait(SAMPLE_S):
            sizes = {"java": 0, "python": 0}
            for process in (own, *own.children(recursive=True)):
                try:
                    kind = "java" if "java" in process.name() else "python" if "python" in process.name() else None
                    if kind:
                        sizes[kind] += process.memory_full_info().pss
                except psutil.Error:  # it has just ended
                    continue
            self.jvm, self.python = max(self.jvm, sizes["java"]), max(self.python, sizes["python"])


class Writing:
    """A writer of the server's table for as long as it lasts."""

    def __init__(self, server: MariaDb, table: str, rows: int, chance: random.Random) -> None:
        self.transactions = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(server, table, rows, chance), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self, server: MariaDb, table: str, rows: int, chance: random.Random) -> None:
        with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
            while not self._ended.wait(PAUSE_S):
                cursor.execute(LATER.format(table=table, key=chance.randint(1, rows)))
                self.transactions += 1


class AuditProof:
    """One run of it."""

    def __init__(self, bench: Bench, rows: int, seed: int) -> None:
        self._bench = bench
        self._rows = rows
        self._chance = random.Random(f"{seed} audit")
        self._folder = bench.folder()

    def run(self) -> dict[str, Any]:
        bench, spark = self._bench, self._bench.spark
        (table,) = bench.fill(1, self._rows)
        bench.mirror(self._folder).awaitTermination()
        print(f"{self._rows:,} rows are in the target", flush=True)
        lake = f"delta.`{self._folder}/lake/{table}`"
        before = spark.sql(f"DESCRIBE HISTORY {lake}").agg({"version": "max"}).first()[0]
        keys = dict(zip(SHOWN, self._chance.sample(range(1, self._rows + 1), len(SHOWN)), strict=True))
        bench.change([table], self._rows, CHANGES)
        bench.server.sql(f"USE {DATABASE}", LATER.format(table=table, key=keys["stale"]))
        bench.mirror(self._folder).awaitTermination()
        took = {"equal": self._audited(table, {})}
        for kind, key in keys.items():
            spark.sql(statement(kind, lake, {"id": key}, "k", 1 << self._chance.randrange(20), before))
        took["with four damaged rows"] = self._audited(table, keys)
        return {"version": bench.server.version, "rows": self._rows, "damaged": keys, **took}

    def _audited(self, table: str, damaged: dict[str, int]) -> dict[str, Any]:
        """Audit while the server's table is written, and check what is found."""
        found: list[AuditResult] = []
        at = {"host": self._bench.server.host, "port": self._bench.server.port, **self._bench.login}
        control = f"{self._folder}/lake/mirror_control"

        def look() -> None:
            found.append(audit(self._bench.spark, mirror=control, record=False, **at))

        with Writing(self._bench.server, table, self._rows, self._chance) as writing, PeakMemory() as memory:
            took: Measured = measured(self._rows, look)
        print(found[0], flush=True)
        self._check(found[0], damaged)
        return {
            "seconds": round(took.seconds, 1),
            "cpu_us_a_row": round(took.cpu_us, 1),
            "jvm_mib": memory.jvm // MIB,
            "python_mib": memory.python // MIB,
            "transactions_meanwhile": writing.transactions,
        }

    @staticmethod
    def _check(found: AuditResult, damaged: dict[str, int]) -> None:
        assert not found.left_out, found
        (one,) = found.tables
        named = sorted((each.kind, dict(each.key)["id"]) for each in one.differences)
        assert named == sorted((SHOWN[kind], str(key)) for kind, key in damaged.items()), (named, damaged)
        assert sum(one.counts.values()) == len(damaged), one.counts
        assert one.equal is not bool(damaged), one


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="scripts/prove audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--rows", type=int, default=10_000_000)
    found.add_argument("--seed", type=int, default=random.randrange(10**6))
    found.add_argument("--version", help="server version; 10.11 or else the newest if not given")
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    print(f"seed {arguments.seed}", flush=True)
    began = time.monotonic()
    settings = UNIX_SOCKETS | PLAIN_CHECKPOINTS | delta_settings()
    options = ("--binlog-row-metadata=FULL", "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M")
    with tempfile.TemporaryDirectory(prefix="prove-audit-") as folder, MariaDb(arguments.version, *options) as server:
        spark = open_session(settings)
        try:
            summary = AuditProof(Bench(spark, server, Path(folder)), arguments.rows, arguments.seed).run()
        except BaseException as error:
            given = {"rows": arguments.rows, "seed": arguments.seed, "version": server.version}
            error.add_note(f"repeat: {repeat.command('scripts/prove audit', **given)}")
            raise
        spark.stop()
    print(json.dumps(summary | {"minutes": round((time.monotonic() - began) / 60, 1)}), flush=True)
    print(f"{arguments.rows:,} rows: the four damaged rows were found, and nothing else.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
