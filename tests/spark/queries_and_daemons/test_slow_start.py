"""A Python that takes longer to start than Spark waits: `started()` starts the query again, with a real Spark.

Spark reads PYSPARK_DRIVER_PYTHON when its Java begins: a driver of its own, with a script in that place which sleeps
before the first source process and never again.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.spark_home import spark_python
from tests.spark.conftest import CONFIGURATION, ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]

PATIENCE_S = 240.0
SLEEP_S = 11
"""Spark waits ten."""
SLOW_PYTHON = """\
#!/bin/sh
case "$*" in
  *python_streaming_source_runner*)
    echo start >>{folder}/starts
    if mkdir {folder}/slept 2>/dev/null; then sleep {seconds}; fi
    ;;
esac
exec {python} "$@"
"""
DRIVER = """
import json, sys
from pyspark.sql import SparkSession
from streaming_source import started

configuration, options, folder = map(json.loads, sys.argv[1:])
builder = SparkSession.builder.master("local[2]")
for key, value in configuration.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
seen = []
writer = (
    spark.readStream.format("mariadb-binlog").options(**options).load()
    .writeStream.foreachBatch(lambda batch, _: seen.extend(row.after.id for row in batch.collect()))
    .option("checkpointLocation", folder + "/checkpoint")
    .trigger(availableNow=True)
)
query = started(writer)
query.awaitTermination()
spark.stop()
print(json.dumps(sorted(seen)))
"""


def test_a_query_whose_python_started_too_slowly_is_started_again(primary: MariaDb, tmp_path: Path) -> None:
    start = primary.gtid_binlog_pos()
    primary.sql("CREATE DATABASE slowly", "CREATE TABLE slowly.t (id INT PRIMARY KEY)")
    primary.sql("INSERT INTO slowly.t VALUES (1), (2)", "INSERT INTO slowly.t VALUES (3)")
    python = tmp_path / "python"
    python.write_text(
        SLOW_PYTHON.format(folder=shlex.quote(str(tmp_path)), seconds=SLEEP_S, python=shlex.quote(spark_python()))
    )
    python.chmod(0o755)
    options = {
        "host": primary.host,
        "port": str(primary.port),
        "user": "repl",
        "password": "replica-secret",
        "table": "slowly.t",
        "startingPosition": start,
        "relayDir": str(tmp_path / "relay"),
    }
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *map(json.dumps, (CONFIGURATION, options, str(tmp_path)))],
        env=os.environ
        | {
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [1, 2, 3]
    again = done.stderr.count("the query is started again (")
    assert again >= 1  # a busy machine may add to it
    assert len((tmp_path / "starts").read_text(encoding="utf-8").splitlines()) == again + 1
