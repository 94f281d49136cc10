"""What a mirror is measured on: tables, changes, runs of it, of the recipe for many tables and of Spark's JDBC source.

In: a session, a server, how many tables of how many rows. Out: seconds, CPU seconds of JVM and Python processes, rows.
Targets are Delta tables in folders of their own; what was made for a run is removed behind it.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from deltalake import DeltaTable
from pyspark.sql import functions as f

from streaming_source import mirror, upsert_into
from streaming_source.mirroring.apply.parallel_applier import (
    COMPILED,
    MARKED_ROWS,
    PARTS,
    SNAPSHOT_PARTS,
    ParallelApplier,
    TargetSize,
)
from streaming_source.mirroring.settings import PARALLEL
from streaming_source.sinks.queries import side_by_side
from streaming_source.sinks.upserts import merge_statement
from tools.bench.kit.spark_runs import SAMPLE_S, CpuMeter, Peak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.fixtures.mariadb import MariaDb

DATABASE = "bench"
COLUMNS = (
    "id INT PRIMARY KEY, k INT NOT NULL, c VARCHAR(120) NOT NULL, pad VARCHAR(60), amount DECIMAL(10,2), at DATETIME(3)"
)
TYPES = "id INT, k INT, c STRING, pad STRING, amount DECIMAL(10,2), at TIMESTAMP_NTZ"
FILLED = "seq, seq MOD 5000, REPEAT(MD5(seq), 3), MD5(seq), seq MOD 100000 / 100, '2026-01-01' + INTERVAL seq SECOND"
ROWS_A_TRANSACTION = 10
CHANGES = f"""
BEGIN NOT ATOMIC
  DECLARE made INT DEFAULT 0;
  DECLARE one, other INT;
  WHILE made < @changes DO
    START TRANSACTION;
    FOR i IN 1..{ROWS_A_TRANSACTION // 5} DO
      SET one = 1 + FLOOR(RAND() * @rows), other = 1 + FLOOR(RAND() * @rows);
      UPDATE {{table}} SET k = k + 1, amount = amount + 1 WHERE id = one;
      UPDATE {{table}} SET c = REVERSE(c), amount = amount + 1, at = NOW(3) WHERE id = other;
      UPDATE {{table}} SET pad = MD5(RAND()) WHERE id = 1 + one MOD @rows;
      DELETE FROM {{table}} WHERE id = one;
      INSERT INTO {{table}} VALUES (one, made, REPEAT('c', 96), NULL, 1, NOW(3));
    END FOR;
    COMMIT;
    SET made = made + {ROWS_A_TRANSACTION};
  END WHILE;
END"""
"""Small transactions on random rows, as sysbench makes them, in the server itself: no client's speed is in it."""


class Measured(NamedTuple):
    """What a run took: seconds, CPU seconds of all processes of the client, and the memory of its largest ones."""

    rows: int
    seconds: float
    cpu: float
    peak: Peak = Peak()

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU microseconds a row."""
        return 1e6 * self.cpu / self.rows


def measured(rows: int, action: Callable[[], None]) -> Measured:
    """Measure from the call of an action to its return."""
    with CpuMeter() as meter:
        time.sleep(2 * SAMPLE_S)
        start = time.time()
        action()
        end = time.time()
        time.sleep(2 * SAMPLE_S)
    return Measured(rows, end - start, sum(meter.between(start, end)), meter.peak)


class Bench:
    """Tables of one server, and a folder for their targets."""

    def __init__(self, spark: SparkSession, server: MariaDb, folder: Path) -> None:
        self.spark = spark
        self.server = server
        self._folder = folder
        self._runs = 0
        self.changed = 0
        """Row changes in the binlog."""
        user, password = server.add_user(grants="SELECT, REPLICATION SLAVE, BINLOG MONITOR")
        self.login = {"user": user, "password": password}
        server.sql(f"CREATE DATABASE {DATABASE}")

    def fill(self, tables: int, rows: int) -> list[str]:
        """Make tables with rows, in the place of those that are there."""
        self.server.sql(f"DROP DATABASE {DATABASE}", f"CREATE DATABASE {DATABASE}")
        names = [f"t{number}" for number in range(tables)]
        for name in names:
            self.server.sql(
                f"USE {DATABASE}",
                f"CREATE TABLE {name} ({COLUMNS})",
                "SET sql_log_bin = 0",  # whoever begins with the tables does not read it there
                f"INSERT INTO {name} SELECT {FILLED} FROM seq_1_to_{rows}",
            )
        return names

    def change(self, names: list[str], rows: int, changes: int) -> int:
        """Change rows of the tables, some in each; return how many row changes that are in the binlog."""
        each = max(ROWS_A_TRANSACTION, changes // len(names) // ROWS_A_TRANSACTION * ROWS_A_TRANSACTION)
        for name in names:
            given = f"SET @changes = {each}, @rows = {rows}"
            self.server.sql(f"USE {DATABASE}", given, CHANGES.format(table=name))
        self.changed += each * len(names)
        return each * len(names)

    # -- who brings them into Delta tables --------------------------------------------------------------------------

    def folder(self) -> Path:
        """Return a new folder for a run's targets and checkpoint."""
        self._runs += 1
        return self._folder / f"run{self._runs}"

    def _options(self, folder: Path) -> dict[str, Any]:
        at = {"host": self.server.host, "port": self.server.port, **self.login}
        return {"tables": f"{DATABASE}.*", "relayDir": str(folder / "relay"), **at}

    def remove_all(self) -> None:
        """Remove what the runs so far have written."""
        for folder in self._folder.iterdir():
            shutil.rmtree(folder)

    def mirror(self, folder: Path, **more: Any) -> StreamingQuery:
        """Start a mirror of the tables; with `availableNow` unless another trigger is given."""
        given: dict[str, Any] = {"trigger": {"availableNow": True}, **self._options(folder), **more}
        into = f"{folder}/lake/{{table}}"
        return mirror(self.spark, into=into, checkpointLocation=str(folder / "checkpoint"), **given)

    def recipe(self, folder: Path, names: list[str]) -> StreamingQuery:
        """Start the recipe for many tables of docs/recipes.md."""
        targets = {name: _delta(folder, name) for name in names}
        for target in targets.values():
            self.spark.sql(f"CREATE TABLE IF NOT EXISTS {target} ({TYPES}) USING delta")
        upserts = {name: upsert_into(target, keys=["id"]) for name, target in targets.items()}

        def upsert_each(batch: DataFrame, number: int) -> None:
            batch.persist()
            for name, upsert in upserts.items():
                upsert(batch.where(f"table = '{name}'"), number)
            batch.unpersist()

        options = self._options(folder) | {"startingPosition": "initial"}
        changes = self.spark.readStream.format("mariadb-binlog").options(**options).load()
        writer = changes.writeStream.foreachBatch(upsert_each).option("checkpointLocation", str(folder / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def jdbc(self, folder: Path, name: str, rows: int, connections: int) -> None:
        """Write one table into a Delta table by Spark's JDBC source, in parts of its key."""
        self._by_jdbc(name, rows, connections).write.format("delta").save(f"{folder}/lake/{name}")

    def held(self, folder: Path, name: str, rows: int, connections: int) -> Measured:
        """Measure the same write where the rows are in Spark's memory already: what no way into Delta goes below."""
        table = self._by_jdbc(name, rows, connections).persist()
        table.count()
        try:
            return measured(rows, lambda: table.write.format("delta").save(f"{folder}/lake/{name}"))
        finally:
            table.unpersist()

    def copied(self, folder: Path) -> Path:
        """Copy the targets of a run, as they are, into a new folder."""
        copy = self.folder()
        shutil.copytree(folder / "lake", copy / "lake")
        return copy

    def held_changes(self, before: Path, after: Path, names: list[str], changes: int) -> Measured:
        """Measure the MERGEs of the mirror, side by side, where the last change of each key is in Spark's memory
        already, as it brought one folder's targets to those of the other: what no MERGE a table goes below.
        """
        with self.as_the_mirror(before, names, changes):
            rows = {name: self._between(before, after, name).persist() for name in names}
            for changed in rows.values():
                changed.count()
            return measured(changes, lambda: self.merge_all(before, rows))

    @contextmanager
    def as_the_mirror(self, lake: Path, names: list[str], changes: int) -> Iterator[None]:
        """Give the session what a mirror sets for MERGEs into these targets, and clear its cache behind them."""
        old = self.spark.table(_delta(lake, names[0])).count()
        given = {name: self.spark.conf.get(name, None) for name in (*COMPILED, *MARKED_ROWS, PARTS, SNAPSHOT_PARTS)}
        try:
            ParallelApplier(PARALLEL).fit(self.spark, TargetSize(old + changes // len(names), changes // len(names)))
            yield
        finally:
            self.spark.catalog.clearCache()
            for setting, value in given.items():  # the others are measured with what the session came with
                self.spark.conf.unset(setting) if value is None else self.spark.conf.set(setting, value)

    def merge_all(self, lake: Path, rows: Mapping[str, DataFrame]) -> None:
        """Bring the last changes of each key into their targets, side by side, by the MERGE that a mirror takes."""

        def merge(name: str) -> None:
            columns = [column for column in rows[name].columns if column != "_op"]
            self.spark.sql(merge_statement(_delta(lake, name), ["id"], columns, partial=False), changes=rows[name])

        side_by_side(self.spark, merge, list(rows), at_once=PARALLEL, name="held")

    def limit(self, before: Path, after: Path, names: list[str], changes: int) -> Measured:
        """Measure delta-rs alone, which merges the last change of each key from memory, a table at a time."""
        rows = {name: self._between(before, after, name).toArrow() for name in names}
        columns = [part.split()[0] for part in TYPES.split(", ")]

        def merge_all() -> None:
            for name, changed in rows.items():
                merger = DeltaTable(before / "lake" / name).merge(
                    changed, predicate="target.id = source.id", source_alias="source", target_alias="target"
                )
                values = {column: f"source.{column}" for column in columns}
                merger = merger.when_matched_delete("source._op = 'delete'").when_matched_update(values)
                merger.when_not_matched_insert(values, "source._op <> 'delete'").execute()

        return measured(changes, merge_all)

    def differences(self, one: Path, other: Path, names: list[str]) -> int:
        """Count the rows that the targets of one folder have and those of another have not, and the other way round."""
        found = 0
        for name in names:
            ours, theirs = self.spark.table(_delta(one, name)), self.spark.table(_delta(other, name))
            found += ours.exceptAll(theirs).count() + theirs.exceptAll(ours).count()
        return found

    def _between(self, before: Path, after: Path, name: str) -> DataFrame:
        old, new = self.spark.table(_delta(before, name)), self.spark.table(_delta(after, name))
        gone = old.join(new, "id", "left_anti").withColumn("_op", f.lit("delete"))
        changed = new.exceptAll(old).withColumn("_op", f.lit("upsert")).unionByName(gone)
        return self.spark.createDataFrame(changed.toArrow())  # a plan on the targets would be run again behind a MERGE

    def _by_jdbc(self, name: str, rows: int, connections: int) -> DataFrame:
        options = {
            "url": f"jdbc:mysql://127.0.0.1:{self.server.port}/{DATABASE}?permitMysqlScheme=true&sslMode=disable",
            "driver": "org.mariadb.jdbc.Driver",
            "dbtable": name,
            "partitionColumn": "id",
            "lowerBound": "1",
            "upperBound": str(rows),
            "numPartitions": str(connections),
            "fetchsize": "10000",
            **self.login,
        }
        return self.spark.read.format("jdbc").options(**options).load()


def _delta(folder: Path, name: str) -> str:
    return f"delta.`{folder}/lake/{name}`"


def triggers(query: StreamingQuery, rows: int) -> Measured:
    """Measure a query that ends by itself, from the start of its first batch with rows to the end of its last one."""
    with CpuMeter() as meter:
        query.awaitTermination()
        time.sleep(2 * SAMPLE_S)
    done = [each for each in query.recentProgress if each["numInputRows"]]
    if not done:
        raise SystemExit("the query had no rows")
    first, last = (datetime.fromisoformat(done[number]["timestamp"]).timestamp() for number in (0, -1))
    end = last + done[-1]["durationMs"]["triggerExecution"] / 1000
    return Measured(rows, end - first, sum(meter.between(first, end)), meter.peak)


def commits(target: Path) -> list[tuple[float, str]]:
    """Return for each commit of a target when its file was there, and the GTID position that it says of itself."""
    found = []
    for file in sorted((target / "_delta_log").glob("*[0-9].json")):
        about = next(
            (line["commitInfo"] for line in map(json.loads, file.read_text().splitlines()) if "commitInfo" in line), {}
        )
        told = json.loads(about.get("userMetadata") or "{}")
        if "position" in told:
            found.append((file.stat().st_mtime, str(told["position"])))
    return found


def numbers(words: str) -> list[int]:
    """Return the numbers of an argument with commas."""
    return [int(word) for word in words.split(",")]
