"""One table into Spark's noop sink, by each of the ways there are, with the CPU seconds of JVM and Python processes.

In: a session, a server, a table, its rows, how many connections. Out: seconds. Starting what reads is a part of it, for
all alike: a table is read once.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import psutil

from streaming_source.source.data_source import MariaDbBinlogSource
from tools.bench.kit.process_times import peak_bytes
from tools.bench.kit.ready_made import NAME as READY_MADE
from tools.bench.kit.ready_made import write_partition
from tools.bench.kit.spark_runs import SAMPLE_S, CpuMeter
from tools.bench.kit.workloads import DATABASE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from tests.fixtures.mariadb import MariaDb

FETCH_ROWS = 10_000
MOST_FILES = 8
"""Partitions whose batches are kept for a ready-made read: each is some megabytes in every task's process."""
RUNNER = "python_streaming_source_runner"


class TableRun(NamedTuple):
    """The seconds that reading the table once took, `jvm` of `cpu` in the JVM, and the most memory that the source
    process ever had.
    """

    wall: float
    cpu: float
    peak_bytes: int = 0
    jvm: float = 0.0


class SourceMemory:
    """Looks, while it is open, at the peak memory of Spark's source processes."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._closed.wait(SAMPLE_S):
            for process in psutil.Process().children(recursive=True):
                try:
                    if RUNNER in " ".join(process.cmdline()):
                        self.peak_bytes = max(self.peak_bytes, peak_bytes(process.pid))
                except (psutil.Error, OSError):
                    continue


class TableInSpark:
    """A table `id`, …, with ids from 1 to `rows`."""

    def __init__(self, spark: SparkSession, server: MariaDb, name: str, rows: int, connections: int) -> None:
        self._spark = spark
        self._name = name
        self._rows = rows
        self._connections = str(connections)
        self._counted = False
        user, password = server.add_user(grants="SELECT, REPLICATION SLAVE, BINLOG MONITOR")
        self._login = {"user": user, "password": password}
        self._port = str(server.port)

    def jdbc(self) -> TableRun:
        """Spark's own JDBC source, in as many parts as connections."""
        options = {
            "url": f"jdbc:mysql://127.0.0.1:{self._port}/{DATABASE}?permitMysqlScheme=true&sslMode=disable",
            "driver": "org.mariadb.jdbc.Driver",
            "dbtable": self._name,
            "partitionColumn": "id",
            "lowerBound": "1",
            "upperBound": str(self._rows),
            "numPartitions": self._connections,
            "fetchsize": str(FETCH_ROWS),
        }

        def read() -> None:
            rows = self._spark.read.format("jdbc").options(**options, **self._login).load()
            _write(rows)

        return _measured(read)

    def _options(self, folder: str) -> dict[str, str]:
        return {
            "host": "127.0.0.1",
            "port": self._port,
            "table": f"{DATABASE}.{self._name}",
            "snapshotConnections": self._connections,
            "relayDir": f"{folder}/relay",
            "transport": "path",  # what Spark finds by itself on one machine; a sample is planned outside of it
            **self._login,
        }

    def _stream(self, folder: str) -> dict[str, str]:
        return {**self._options(folder), "rowShape": "flat", "startingPosition": "initial"}

    def _tables(self, folder: str) -> dict[str, str]:
        return {**self._options(folder), "content": "tables"}

    def source(self) -> TableRun:
        """A query that begins with the table, and ends when it is read."""
        with tempfile.TemporaryDirectory(prefix="bench-snapshot-") as folder:

            def read() -> None:
                rows = self._spark.readStream.format("mariadb-binlog").options(**self._stream(folder)).load()
                self._drain(rows, folder)

            return _measured(read)

    def tables(self) -> TableRun:
        """The table alone, as a batch, as JDBC gives it."""
        with tempfile.TemporaryDirectory(prefix="bench-snapshot-") as folder:
            made: list[DataFrame] = []

            def read() -> None:
                made.append(self._spark.read.format("mariadb-binlog").options(**self._tables(folder)).load())
                _write(made[0])

            run = _measured(read)
            if not self._counted:  # the noop sink counts nothing
                self._check(made[0].count())
                self._counted = True
            return run

    def ready_made(self) -> TableRun:
        """The batches of `source` from files in memory, in as many partitions and micro-batches."""
        with tempfile.TemporaryDirectory(prefix="bench-snapshot-", dir="/dev/shm") as folder:
            options = self._sample(folder)

            def read() -> None:
                rows = self._spark.readStream.format(READY_MADE).options(**options).load()
                self._drain(rows, folder, exact=False)

            return _measured(read)

    def ready_made_tables(self) -> TableRun:
        """The batches of `tables` from files in memory, in as many partitions."""
        with tempfile.TemporaryDirectory(prefix="bench-snapshot-", dir="/dev/shm") as folder:
            options = self._sample_tables(folder)

            def read() -> None:
                _write(self._spark.read.format(READY_MADE).options(**options).load())

            return _measured(read)

    def _sample_tables(self, folder: str) -> dict[str, str]:
        """Plan the read as Spark would; keep the batches of some partitions, and as many as make the rows."""
        source = MariaDbBinlogSource(self._tables(folder))
        schema = source.schema()
        reader = source.reader(schema)
        partitions = reader.partitions()
        batches = Path(tempfile.mkdtemp(dir=folder))
        files = min(len(partitions), MOST_FILES)
        for number in range(files):
            write_partition(reader.read(partitions[number]), batches, number)
        shutil.rmtree(f"{folder}/relay")
        return {
            "folder": str(batches),
            "schema": schema.json(),
            "partitions": str(files),
            "batch_partitions": str(len(partitions)),
        }

    def _sample(self, folder: str) -> dict[str, str]:
        """Plan the query as Spark would; keep the batches of its largest micro-batch, and as many as make the rows."""
        source = MariaDbBinlogSource(self._stream(folder))
        schema = source.schema()
        reader = source.streamReader(schema)
        kept = 0
        try:
            reader.prepareForTriggerAvailableNow()
            limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
            reader.latestOffset(start, limit)  # the anchor batch
            while (end := reader.latestOffset(start, limit)) != start:
                batch = Path(tempfile.mkdtemp(dir=folder))
                partitions = list(reader.partitions(start, end))
                rows = 0
                for number, partition in enumerate(partitions):
                    rows += write_partition(reader.read(partition), batch, number)
                if rows > kept:
                    kept, files, largest = rows, len(partitions), batch
                reader.commit(end)
                start = end
        finally:
            reader.stop()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the reader answers it as Spark's source process would
        shutil.rmtree(f"{folder}/relay")
        triggers = max(1, round(self._rows / kept))
        return {"folder": str(largest), "schema": schema.json(), "partitions": str(files), "triggers": str(triggers)}

    def _drain(self, rows: DataFrame, folder: str, *, exact: bool = True) -> None:
        checkpoint = tempfile.mkdtemp(dir=folder)
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        handle = query.start()
        handle.awaitTermination()
        found = sum(progress["numInputRows"] for progress in handle.recentProgress)
        if exact:
            self._check(found)

    def _check(self, found: int) -> None:
        if found != self._rows:
            raise SystemExit(f"{found} rows came of {self._rows}")


def _write(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _measured(action: Callable[[], None]) -> TableRun:
    with SourceMemory() as memory, CpuMeter() as meter:
        time.sleep(2 * SAMPLE_S)
        start = time.time()
        action()
        end = time.time()
        time.sleep(2 * SAMPLE_S)
    cpu = meter.between(start, end)
    return TableRun(end - start, cpu.jvm + cpu.python, memory.peak_bytes, cpu.jvm)
