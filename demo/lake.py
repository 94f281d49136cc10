"""Spark side of the demo, as a user would write it: one call of `mirror()`, its progress, one call of `audit()`.

`Lake` knows the GTID position of the Delta tables, and the delay of the oldest transaction of each micro-batch. On a
busy machine, Spark may end a query because a Python process took more than ten seconds to start. Then the query is
started again. If the mirror suspends a table, the table is re-snapshotted. Both are shown.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from demo.shop import DATABASE
from pyspark_mariadb_binlog import audit, mirror
from streaming_source.mirroring.apply.parallel_applier import INTERPRETED
from streaming_source.sinks.queries import TOO_SLOW, TRIES
from tests.fixtures.jars import delta_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql.streaming import StreamingQuery

    from demo.written import Written
    from streaming_source.auditing.result import AuditResult
    from tests.fixtures.mariadb import MariaDb

CONTROL: Final = "lake.mirror_control"
GOODBYE_S: Final = 20.0
"""Seconds to wait for processes to end. A replica stops in well under a second, and so does a killed JVM."""
FOR_A_MINUTE: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss16m",
    **INTERPRETED,
}
"""Settings of a session that lives for a minute or two, in which optimizing code takes longer than running it. The
remaining compiler has 48 MB for code by default. Spark's plans fill these 48 MB, and code would be discarded and
compiled again. A query that is stopped inside of foreachBatch needs a large stack (docs/spark.md).
"""
Result = TypeVar("Result")


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Redirect the output of this process, and of children that it starts meanwhile, to a file, because Spark prints a
    lot.
    """
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


@contextlib.contextmanager
def whole_or_gone() -> Iterator[None]:
    """Kill the processes that were started in this block if the block fails. Java ignores Ctrl-C, and would continue to
    write files.
    """
    before = set(psutil.Process().children())
    try:
        yield
    except BaseException:
        begun = [child for top in set(psutil.Process().children()) - before for child in (top, *top.children(True))]
        for child in begun:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(begun, GOODBYE_S)
        raise


def session(log: Path, folder: Path) -> SparkSession:
    """Make a local Spark session with Delta tables in a folder.

    Raises:
        JarsMissingError: Delta's jars are missing.
    """
    settings = {
        **delta_settings(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "lake"),
        "spark.driver.memory": "1g",
        **FOR_A_MINUTE,
    }
    # Its temporary files go into the folder of the demo, which is removed as a whole.
    settings["spark.driver.extraJavaOptions"] += f' "-Djava.io.tmpdir={folder}"'
    builder = SparkSession.builder.master("local[2]").appName("mariadb-binlog demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with output_to(log), whole_or_gone():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def let_go(folder: Path) -> bool:
    """Return True if no replica writes a relay log in `folder`. A replica holds `relay.lock` while it writes."""
    try:
        with (folder / "relay.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


class Lake:
    """Mirror of the shop: `start()` it, call `look()` often, and `stop()` it.

    `say` gets messages for the viewer. `ended`: time when the last batch was in all tables, in Unix seconds. `delays`:
    seconds from the commit of the oldest transaction of each batch to that time.
    """

    def __init__(
        self, spark: SparkSession, server: MariaDb, folder: Path, written: Written, say: Callable[[str], None]
    ) -> None:
        self.position = ""
        self.batches = 0
        self.ended = 0.0
        self.delays: list[float] = []
        self.tables: list[Any] = []
        """Rows of the control table after the last batch."""
        self._spark = spark
        self._folder = folder
        self._written = written
        self._say = say
        self._slow = 0
        self._again = 0
        self._asked: dict[str, str] = {}
        self._query: StreamingQuery | None = None
        self._seen = -1
        user, password = server.add_user("shop_mirror", "not-a-secret", grants="REPLICATION SLAVE, SELECT")
        secret = folder / "password"
        secret.write_text(password)
        secret.chmod(0o600)
        self._server: dict[str, Any] = {
            "host": server.host,
            "port": server.port,
            "user": user,
            "passwordFile": str(secret),
        }

    def start(self, **more: Any) -> None:
        self._query = mirror(
            self._spark,
            tables=f"{DATABASE}.*",
            into="lake.{table}",
            checkpointLocation=str(self._folder / "checkpoint"),
            relayDir=str(self._folder / "relay"),
            **self._server,
            **more,
        )

    @property
    def loaded(self) -> int:
        """Number of rows that all batches wrote to the targets: the initial rows, and later changes."""
        return sum(row.rows for row in self.tables)

    @property
    def whole(self) -> bool:
        """Whether every table is current: all of its rows are in the target, and it is not suspended."""
        return bool(self.tables) and all(row.state == "current" for row in self.tables)

    def look(self) -> bool:
        """Return True if batches have arrived after the last call. A query that has ended and can continue is
        restarted.

        Raises:
            StreamingQueryException: the error with which the query ended.
        """
        assert self._query is not None  # noqa: S101
        if (failure := self._query.exception()) is not None:
            if TOO_SLOW not in str(failure) or self._slow >= TRIES:
                raise failure
            self._slow += 1
            self._say(
                "this machine is busy: Spark ended the query because one of its Python processes took over ten seconds "
                "to start. It continues where it stopped"
            )
            self.start()
            return False
        new = [each for each in self._query.recentProgress if each["batchId"] > self._seen]
        for progress in new:
            self._take(progress)
        if new:
            rows = self.patiently(lambda: self._spark.table(CONTROL).collect())
            self.tables = sorted(rows, key=lambda row: row.source_table)
            self._read_again()
        return bool(new)

    def _take(self, progress: Any) -> None:
        self._seen = progress["batchId"]
        self.batches += 1
        waiting = self._written.reached(self.position).waiting_since
        self.position = str(json.loads(progress["sources"][0]["endOffset"])["gtid"])
        began = dt.datetime.fromisoformat(progress["timestamp"]).timestamp()
        self.ended = ended = began + progress["durationMs"]["triggerExecution"] / 1000
        if waiting is not None and waiting < ended and waiting != self._written.reached(self.position).waiting_since:
            self.delays.append(ended - waiting)

    def _read_again(self) -> None:
        """Re-snapshot tables that the mirror has suspended and does not resume itself."""
        aside = [row for row in self.tables if row.state == "failed" and not row.asDict().get("waits_for")]
        # A batch that was planned before a re-snapshot was requested still reports the table as suspended.
        aside = [row for row in aside if row.again == self._asked.get(row.source_table)]
        if not aside:
            return
        self._again += 1
        for row in aside:
            self._say(f"suspended: {row.error.partition(': ')[2].partition('. Re-snapshot the table: ')[0]}")
        names = ",".join(f"{DATABASE}.{row.source_table}" for row in aside)
        self._say(f"so {names} is re-snapshotted, while the others continue (resnapshot={names}@again{self._again})")
        self.stop()
        self._asked |= dict.fromkeys((row.source_table for row in aside), f"again{self._again}")
        self.start(resnapshot=f"{names}@again{self._again}")

    def audited(self) -> AuditResult:
        """Compare every table with its target."""
        return self.patiently(lambda: audit(self._spark, mirror=CONTROL, **self._server))

    def with_one_cent(self, position: str) -> AuditResult:
        """Compare a table with a copy of its target that has one cent more in one row."""
        customers = self._spark.table("lake.customers")
        credit = f.expr("IF(id = 4711, credit + 0.01, credit)").cast(customers.schema["credit"].dataType)
        copy = {f"{DATABASE}.customers": customers.withColumn("credit", credit)}
        return self.patiently(lambda: audit(self._spark, tables=copy, at=position, **self._server))

    def patiently(self, asked: Callable[[], Result]) -> Result:
        """Return the result of `asked`, and repeat the call if Spark failed because a Python process started too
        slowly.
        """
        while True:
            try:
                return asked()
            except Exception as error:
                if TOO_SLOW not in str(error) or self._slow >= TRIES:
                    raise
                self._slow += 1
                self._say(
                    "this machine is busy: Spark could not start a Python process within ten seconds. Trying again"
                )

    def stop(self) -> None:
        """End the query, and return when its replica has released the relay folder.

        Spark only sends SIGTERM and does not wait, so removing the folder at once would race with the last write.
        """
        if self._query:
            self._query.stop()
        patience = time.monotonic() + GOODBYE_S
        while not let_go(self._folder / "relay") and time.monotonic() < patience:
            time.sleep(0.05)
