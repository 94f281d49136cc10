"""A session's Delta is looked at before a query begins: the right one, none, and one for another Spark."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from streaming_source import mirror, upsert_into
from streaming_source.sinks.delta import check_delta
from tests.fixtures.jars import delta_settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from streaming_source import mirror, upsert_into
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
session = builder.config("spark.jars", sys.argv[1]).getOrCreate()
for call in (
    lambda: upsert_into("lake.t", ["id"]),
    lambda: mirror(session, tables="shop.*", into="lake.{table}", checkpointLocation="/none", host="none", user="u"),
):
    try:
        call()
        print("SAID nothing")
    except Exception as error:
        print("SAID", type(error).__name__, str(error))
"""


def test_a_session_without_delta_cannot_mirror_and_can_write_other_tables(spark: SparkSession) -> None:
    given = {"tables": "shop.*", "checkpointLocation": "/none", "host": "none", "user": "u"}
    with pytest.raises(ConfigError, match="a mirror into tables of a catalog needs Delta's classes in Spark"):
        mirror(spark, into="lake.{table}", **given)
    check_delta(spark)
    upsert_into("lake.t", ["id"])


@pytest.mark.slow
@pytest.mark.parametrize("other", ["4.1", "9.9"])
def test_a_delta_for_another_spark_is_named_before_anything_is_written(tmp_path: Path, other: str) -> None:
    jars = []
    for jar in delta_settings()["spark.jars"].split(","):
        jars.append(str(tmp_path / re.sub(r"delta-spark_\d+\.\d+_", f"delta-spark_{other}_", jar.rpartition("/")[2])))
        shutil.copy(jar, jars[-1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, ",".join(jars)], capture_output=True, text=True, check=True, timeout=280
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("SAID")]
    assert len(said) == 2
    for line in said:
        assert re.match(rf"SAID ConfigError .* 4\.4\.0, is built for Spark {other}, and this is Spark \d", line), line
