"""What the Spark tests share: a small database on a real primary, and queries that keep the rows of every batch.

A `Run` keeps rows by batch id, as an idempotent sink would: a batch that Spark replays replaces its own rows, so the
union of all batches over any number of restarts is what exactly-once promises.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from streaming_source.driver.deployment import is_free

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.fixtures.mariadb import MariaDb

PATIENCE_S = 90.0
"""Two cores may be shared with a compiling neighbour; nothing waits this long that works."""
IDLE_PROGRESS = "spark.sql.streaming.noDataProgressEventInterval"
COLUMNS = "id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2)"


class Run:
    """A checkpoint and the rows of its batches, over any number of starts."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder
        self.batches: dict[int, list[Row]] = {}
        self.attempts: list[int] = []
        self._lock = threading.Lock()

    def start(
        self, changes: DataFrame, *, available_now: bool = False, once: bool = False, **options: str
    ) -> StreamingQuery:
        writer = changes.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self.checkpoint))
        for key, value in options.items():
            writer = writer.option(key, value)
        if once:
            writer = writer.trigger(once=True)
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def drain(self, changes: DataFrame, *, once: bool = False) -> list[Row]:
        """Read what is there now (Trigger.AvailableNow, or Once) and give all rows of the checkpoint so far."""
        query = self.start(changes, available_now=not once, once=once)
        try:
            assert query.awaitTermination(PATIENCE_S), query.status
        finally:
            query.stop()
        return self.rows

    def _keep(self, batch: DataFrame, batch_id: int) -> None:
        rows = batch.collect()
        with self._lock:
            self.batches[batch_id] = rows
            self.attempts.append(batch_id)

    @property
    def rows(self) -> list[Row]:
        with self._lock:
            return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def offsets(self) -> list[dict[str, Any]]:
        """The end offset of each batch, as the checkpoint holds it: Spark may remove an old one meanwhile."""
        files = sorted(
            (f for f in (self.checkpoint / "offsets").iterdir() if f.name.isdigit()), key=lambda f: int(f.name)
        )
        texts = []
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                texts.append(file.read_text(encoding="utf-8"))
        return [json.loads(text.splitlines()[-1]) for text in texts]

    def forget_commit(self, batch_id: int) -> None:
        """Leave the checkpoint as a crash in the middle of a batch leaves it: planned, not committed."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)


class Shop:
    """One database on the primary; `orders` is there from the start."""

    def __init__(self, spark: SparkSession, primary: MariaDb, database: str, folder: Path) -> None:
        self.spark = spark
        self.primary = primary
        self.database = database
        self.folder = folder
        self.orders = f"{database}.orders"

    def __enter__(self) -> Self:
        self.sql(f"CREATE DATABASE {self.database}", f"CREATE TABLE {self.orders} ({COLUMNS})")
        self.start = self.primary.gtid_binlog_pos()
        return self

    def __exit__(self, *_: object) -> None:
        for query in self.spark.streams.active:
            query.stop()
        if self.primary.running:
            self.sql(f"DROP DATABASE {self.database}")

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.primary.sql(*statements)

    def insert(self, first: int, count: int = 1) -> None:
        """`count` orders, one transaction each."""
        rows = (f"INSERT INTO {self.orders} VALUES ({i}, 'order {i}', {i}.25)" for i in range(first, first + count))
        self.sql(*rows)

    def changes(self, **options: object) -> DataFrame:
        """The source over `orders` unless other tables are named, from where this test began unless told otherwise."""
        server: dict[str, object] = {
            "host": self.primary.host,
            "port": self.primary.port,
            "user": "repl",
            "password": "replica-secret",
            "startingPosition": self.start,
            "relayDir": self.folder / "relay",
        }
        if "tables" not in options:
            server["table"] = self.orders
        reader = self.spark.readStream.format("mariadb-binlog")
        for key, value in (server | options).items():
            if value is not None:
                reader = reader.option(key, str(value))
        return reader.load()

    def lose_relay(self) -> None:
        """Take the relay log away, once the query that wrote it has gone."""
        folder = self.folder / "relay"
        wait(lambda: is_free(folder), "the last query's replica lets its folder go")
        if folder.exists():  # a query that was stopped at once has none
            shutil.rmtree(folder)

    def run(self, name: str = "checkpoint") -> Run:
        return Run(self.folder / name)


@contextlib.contextmanager
def frequent_progress(spark: SparkSession) -> Iterator[None]:
    """Queries started inside report every tenth of a second also while they are idle; Spark's default is 10 s."""
    spark.conf.set(IDLE_PROGRESS, "100ms")
    try:
        yield
    finally:
        spark.conf.unset(IDLE_PROGRESS)


def ids(rows: list[Row]) -> list[int]:
    """The orders of envelope rows: of the after image, or of the before image of a delete."""
    return [(row.after or row.before).id for row in rows]


def wait(condition: Callable[[], object], what: str, query: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        failure = query.exception() if query is not None else None
        if failure is not None:
            raise failure
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.05)
