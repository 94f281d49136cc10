"""The Spark side of the demo, written as a user would: two queries over the public source, rows handed to the replay.

In: where the server is and the GTID position to start after. Out: `Arrived`, which grows as batches come in: counts,
delays, the newest changes for the screen, and the tables rebuilt from the stream. The shop's small tables come as one
stream with VARIANT images; the product images as a second, typed one (17 MB in one value).
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import json
import os
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from demo.replay import Change, Rebuilt
from demo.shop import DATABASE, KEYS
from streaming_source import started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming import StreamingQuery

    from demo.shop import Written
    from tests.fixtures.mariadb import MariaDb

SCREEN_CHANGES = 40  # newest changes kept for the screen, which shows fewer
IMAGES = "product_images"
GOODBYE_S = 20.0  # a replica that is told to stop needs well under one


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Send this process's output, and that of children started meanwhile for good, to a file: Spark talks a lot."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for number, copy in enumerate(kept, start=1):
            os.dup2(copy, number)
            os.close(copy)


def session(log: Path) -> SparkSession:
    """Make a local Spark session with the settings that the README recommends."""
    with output_to(log):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("mariadb-binlog demo")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@dataclass
class Arrived:
    """All that has come out of Spark so far. Batches of both queries are added one at a time."""

    rebuilt: Rebuilt = field(default_factory=lambda: Rebuilt(KEYS))
    rows: int = 0
    batches: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    newest: deque[Change] = field(default_factory=lambda: deque(maxlen=SCREEN_CHANGES))
    delays: list[float] = field(default_factory=list)
    """Seconds from commit to arrival of the oldest transaction of each batch (domain 0)."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, changes: list[Change], written: Written) -> None:
        now = time.time()
        with self.lock:
            self.batches += 1
            self.rows += len(changes)
            self.operations.update(change.op for change in changes)
            self.rebuilt.apply(changes)
            self.newest.extend(sorted(changes, key=lambda change: change.identity)[-SCREEN_CHANGES:])
            sequences = [change.identity[2] for change in changes if change.identity[0] == 0]
            if sequences and written.sent_at:  # not the first rows: they wait for Spark's workers to start
                self.delays.append(now - written.sent_at[bisect.bisect_left(written.sent_at, (min(sequences), 0.0))][1])


def shop_changes(rows: list[Row]) -> list[Change]:
    """Read rows of the `envelope` shape, images as VARIANT."""
    return [
        Change(
            (row.domain_id, row.server_id, row.sequence_number, row.ordinal),
            row.table,
            row.op,
            row.before.toPython() if row.before else None,
            row.after.toPython() if row.after else None,
        )
        for row in rows
    ]


def image_changes(rows: list[Row]) -> list[Change]:
    """Read rows of the `flat` shape: an update is two rows with the same sequence, its image before and after."""
    images: dict[tuple[int, int, int, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        domain, server, sequence = map(int, row._gtid.split("-"))  # noqa: SLF001  (a column's name)
        identity = (domain, server, sequence, int(row._sequence.split(".")[1]))  # noqa: SLF001
        image = {name: value for name, value in row.asDict().items() if not name.startswith("_")}
        images.setdefault(identity, {})[row._change_type] = image  # noqa: SLF001
    return [
        Change(
            identity,
            IMAGES,
            "update" if "update_postimage" in parts else next(iter(parts)),
            parts.get("update_preimage") or parts.get("delete"),
            parts.get("update_postimage") or parts.get("insert"),
        )
        for identity, parts in images.items()
    ]


def let_go(folder: Path) -> bool:
    """Tell whether no replica writes a relay log there: it holds `relay.lock` for as long."""
    try:
        with (folder / "relay.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


class Stream:
    """`start()` both queries; `position()` says how far both have come; `stop()` ends them."""

    def __init__(self, spark: SparkSession, server: MariaDb, position: str, folder: Path, written: Written) -> None:
        self.arrived = Arrived()
        self._spark = spark
        self._written = written
        self._folder = folder
        self._queries: list[StreamingQuery] = []
        user, password = server.add_user("shop_stream", "not-a-secret", grants="REPLICATION SLAVE, SELECT")
        secret = folder / "password"
        secret.write_text(password)
        self._options = {
            "host": server.host,
            "port": str(server.port),
            "user": user,
            "passwordFile": str(secret),
            "startingPosition": position,
        }

    def start(self) -> None:
        small = ",".join(f"{DATABASE}.{table}" for table in KEYS if table != IMAGES)
        shop = self._read("shop", tables=small).selectExpr(
            "op", "`table`", "before", "after",
            "transaction.domain_id", "transaction.server_id", "transaction.sequence_number", "transaction.ordinal",
        )  # fmt: skip
        images = self._read("images", table=f"{DATABASE}.{IMAGES}", rowShape="flat")
        self._write("shop", shop, shop_changes)
        self._write("images", images, image_changes)

    def _read(self, name: str, **options: str) -> DataFrame:
        reader = self._spark.readStream.format("mariadb-binlog").options(**self._options, **options)
        return reader.option("relayDir", str(self._folder / f"relay-{name}")).load()

    def _write(self, name: str, frame: DataFrame, changes_of: Any) -> None:
        def arrived(batch: DataFrame, _: int) -> None:
            rows = batch.collect()
            if rows:
                self.arrived.add(changes_of(rows), self._written)

        writer = frame.writeStream.foreachBatch(arrived).queryName(name)
        writer = writer.option("checkpointLocation", str(self._folder / f"checkpoint-{name}"))
        self._queries.append(started(writer.start()))

    def check(self) -> None:
        """Raise what a query died of."""
        for query in self._queries:
            if failure := query.exception():
                raise failure

    def positions(self) -> list[str]:
        """Return the GTID position behind the last finished batch, of each query; "" before the first."""
        found = []
        for query in self._queries:
            progress = query.lastProgress
            offset = json.loads(progress["sources"][0]["endOffset"] or "{}") if progress else {}
            found.append(offset.get("gtid", ""))
        return found

    def stop(self) -> None:
        """End both queries, and return when their replicas have let go of the relay folders.

        Spark only sends SIGTERM and waits for nothing: a caller that then removes the folder races with the last write.
        """
        for query in self._queries:
            query.stop()
        patience = time.monotonic() + GOODBYE_S
        while not all(map(let_go, self._folder.glob("relay-*"))) and time.monotonic() < patience:
            time.sleep(0.05)
