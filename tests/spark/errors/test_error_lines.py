"""Thirty mistakes: class, sentence and remedy stand in the first lines of what Spark prints, without a traceback.

And a query that is stopped inside of foreachBatch: what our function raises then is short enough for Spark.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import functions as f

from streaming_source import upsert_into
from streaming_source.sinks.queries import LONGEST_TEXT
from tests.fixtures.spark_home import spark_python
from tests.spark.conftest import CONFIGURATION, ROOT
from tests.spark.queries import PATIENCE_S, Shop, wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server]

FIRST_LINES = 3
"""In these the whole of our message stands."""
SENTENCE_CHARS = 40


@pytest.fixture(scope="module")
def shop(spark: SparkSession, primary: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One for all mistakes: none of them changes anything."""
    with Shop(spark, primary, "mistakes", tmp_path_factory.mktemp("mistakes")) as shop:
        shop.sql(
            "CREATE TABLE mistakes.days (id INT PRIMARY KEY, day DATE)",
            "SET SESSION sql_mode = ''",
            "INSERT INTO mistakes.days VALUES (1, '0000-00-00')",
        )
        primary.sql(
            "SET SESSION sql_log_bin = 0",
            "CREATE OR REPLACE USER 'weak'@'%' IDENTIFIED BY 'weak-secret'",
            f"GRANT SELECT ON {shop.database}.* TO 'weak'@'%'",
        )
        yield shop


def _said(error: Exception) -> list[str]:
    """What a person sees before the stack of the JVM."""
    return str(error).partition("JVM stacktrace:")[0].strip().splitlines()


def judge(error: Exception, kind: str) -> str:
    """Our message, which has to begin in the first two lines, and nothing of Python's stack before or behind it."""
    lines = _said(error)
    text = "\n".join(lines[:FIRST_LINES])
    assert "Traceback" not in "\n".join(lines), "\n".join(lines)
    assert f"replica.errors.{kind}: " in "\n".join(lines[:2]), "\n".join(lines)
    message = text.partition(f"replica.errors.{kind}: ")[2]
    assert len(message) > SENTENCE_CHARS
    return message


AT_LOAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "wrong password": ({"password": "wrong"}, "AuthenticationError", "Check user, password"),
    "no grants": ({"user": "weak", "password": "weak-secret"}, "AuthenticationError", "Fix: GRANT REPLICATION SLAVE"),
    "no server": ({"port": 1, "connectRetry": "0.1s"}, "DisconnectedError", "127.0.0.1:1"),
    "unknown host": ({"host": "nowhere.invalid", "connectRetry": "0.1s"}, "DisconnectedError", "nowhere.invalid"),
    "no such table": ({"table": "mistakes.order"}, "SchemaError", "Did you mean mistakes.orders"),
    "table without database": ({"table": "orders"}, "ConfigError", "table"),
    "no table": ({"table": None}, "ConfigError", "table"),
    "flat files": ({"table": "a.b", "path": "/nowhere/binlogs"}, "ConfigError", "path"),
    "unknown column": ({"columns": "id,prise"}, "SchemaError", "price"),
    "misspelt option": ({"tabel": "a.b"}, "ConfigError", "Did you mean table?"),
    "a size that is none": ({"maxBytesPerTrigger": "lots"}, "ConfigError", "maxBytesPerTrigger"),
    "rows below one": ({"maxRowsPerTrigger": "-1"}, "ConfigError", "maxRowsPerTrigger"),
    "a time that is none": ({"heartbeat": "often"}, "ConfigError", "heartbeat"),
    "a truth that is none": ({"semiSync": "perhaps"}, "ConfigError", "option semiSync: "),
    "port": ({"port": "99999"}, "ConfigError", "port"),
    "half a GTID": ({"startingPosition": "0-1"}, "ConfigError", "startingPosition"),
    "flat with tables": ({"rowShape": "flat", "table": None, "tables": "a.*"}, "ConfigError", "rowShape=flat"),
    "unknown shape": ({"rowShape": "nested"}, "ConfigError", "rowShape"),
    "unknown operation": ({"operations": "upsert"}, "ConfigError", "operations"),
    "ddl in the flat shape": ({"rowShape": "flat", "includeDdl": "true"}, "ConfigError", "includeDdl"),
    "unknown policy": ({"invalidDates": "zero"}, "ConfigError", "invalidDates"),
    "unknown transport": ({"transport": "pigeon"}, "ConfigError", "transport"),
    "unknown schema change": ({"onSchemaChange": "explode"}, "ConfigError", "onSchemaChange"),
    "unknown tls": ({"tls": "maybe"}, "ConfigError", "tls"),
    "no certificate": ({"tls": "verify-ca", "tlsCa": "/nowhere/ca.pem"}, "ConfigError", "/nowhere/ca.pem"),
    "no password file": ({"password": None, "passwordFile": "/nowhere/secret"}, "ConfigError", "/nowhere/secret"),
}


SLOW = {
    *("table without database", "flat files", "a size that is none", "rows below one", "a time that is none"),
    *("half a GTID", "flat with tables", "unknown shape", "unknown operation", "ddl in the flat shape"),
    *("unknown policy", "unknown transport", "unknown schema change", "unknown tls", "no password file"),
}
"""A second each, like others that stay: the unit tests of the options have what is special about them."""


@pytest.mark.parametrize(
    ("options", "kind", "part"),
    [pytest.param(*told, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, told in AT_LOAD.items()],
)
def test_a_mistake_that_load_sees(shop: Shop, options: dict[str, Any], kind: str, part: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        shop.changes(**options)
    message = judge(caught.value, kind)
    assert part in message
    assert "secret" not in str(caught.value).replace("/nowhere/secret", "")


def _files(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("mariadb-binlog").option("table", "a.b").load(path)


def test_files_that_are_none(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException) as caught:
        _files(spark, "/nowhere/binlogs")
    assert "/nowhere/binlogs" in judge(caught.value, "ConfigError")
    (tmp_path / "note.txt").write_text("no binlog")
    with pytest.raises(AnalysisException) as caught:
        _files(spark, str(tmp_path / "note.txt"))
    assert "note.txt" in str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("options", "kind", "part"),
    [
        ({"endingPosition": "latest"}, "ConfigError", "Remove it. trigger(availableNow=True)"),
        ({"pushFilters": "true"}, "ConfigError", "pushFilters is for spark.read"),
        ({"startingPosition": "0-1-987654"}, "PositionLostError", "0-1-987654"),
        ({"table": "mistakes.days", "invalidDates": "error"}, "ProtocolError", "Set invalidDates to 'null' or 'text'"),
    ],
    ids=["an end", "filters", "a position of another server", "a date, in a task"],
)
def test_a_mistake_that_ends_a_stream(
    shop: Shop, tmp_path: Path, options: dict[str, Any], kind: str, part: str
) -> None:
    changes = shop.changes(**options, relayDir=tmp_path / "relay")
    query = changes.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    started = query.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException) as caught:
        started.awaitTermination(PATIENCE_S)
    assert part in judge(caught.value, kind)


def test_a_mistake_that_a_task_of_a_batch_read_sees(shop: Shop) -> None:
    reader = shop.spark.read.format("mariadb-binlog").option("port", shop.primary.port).option("user", "repl")
    reader = reader.option("password", "replica-secret").option("startingPosition", shop.start)
    with pytest.raises(PythonException) as caught:
        reader.option("table", "mistakes.days").option("invalidDates", "error").load().collect()
    assert "Set invalidDates to 'null' or 'text'" in judge(caught.value, "ProtocolError")


HIDDEN = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
try:
    spark.readStream.format("mariadb-binlog").load()
except Exception as error:
    print("SAID", error)
"""


@pytest.mark.slow
def test_a_project_with_a_replica_of_its_own_is_told_what_hides_the_source(tmp_path: Path) -> None:
    """What Spark's lookup cannot import is not there for it: it said DATA_SOURCE_NOT_FOUND, and no more."""
    (tmp_path / "replica.py").write_text("raise SystemExit('a script of the project')", encoding="utf-8")
    settings = (f"--conf {name}='{value}'" for name, value in CONFIGURATION.items())
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": spark_python(),
        "PYSPARK_SUBMIT_ARGS": " ".join([*settings, "pyspark-shell"]),
    }
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    said = done.stdout.partition("SAID ")[2].splitlines()
    assert said, done.stderr
    assert "ImportError: mariadb-binlog cannot be loaded: its package replica" in said[0]
    assert f"is hidden: Python finds {tmp_path / 'replica.py'} first. Give that file or folder another name" in said[0]


@pytest.mark.slow
def test_a_query_that_is_stopped_in_upsert_into_says_so_in_few_words(shop: Shop, tmp_path: Path) -> None:
    """Spark looks through the whole of it with a regular expression that overflows its stack on longer ones."""

    @f.udf("string", useArrow=False)
    def slow(text: str) -> str:
        time.sleep(PATIENCE_S)
        return text

    raised: list[str] = []
    upsert = upsert_into("nothing_yet", ["id"])

    def apply(batch: DataFrame, number: int) -> None:
        with contextlib.suppress(IndexError):  # the first batch of a query is empty
            try:
                upsert(batch, number)
            except BaseException:
                raised.append(traceback.format_exc())
                raise

    shop.spark.createDataFrame([], "id int, name string, price decimal(10,2)").createOrReplaceTempView("nothing_yet")
    shop.insert(1)
    changes = shop.changes(relayDir=tmp_path / "relay").withColumn("op", slow("op"))
    query = changes.writeStream.foreachBatch(apply).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    tracker = shop.spark.sparkContext.statusTracker()

    def task_runs() -> bool:
        jobs = (tracker.getJobInfo(job) for job in tracker.getActiveJobsIds())
        stages = (tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds)
        return any(stage.numActiveTasks for stage in stages if stage)

    wait(task_runs, "the batch is being looked at", query)
    query.stop()
    wait(lambda: raised, "the function was broken off")
    assert query.exception() is None
    (text,) = raised
    behind = text.rpartition("An error occurred while calling")[2]
    assert 0 < len(behind) <= LONGEST_TEXT
    # What Spark does with the text.
    jvm: Any = shop.spark.sparkContext._jvm
    thrown = jvm.py4j.Py4JException(text)
    streams = jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    assert streams.isInterruptionException(thrown, shop.spark.sparkContext._jsc.sc())
