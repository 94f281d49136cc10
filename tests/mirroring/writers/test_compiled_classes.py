"""The classes that a mirror's session keeps: many, unless it was told how many, or has compiled something before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streaming_source.mirroring.apply.parallel_applier import CLASSES, SETTING

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

MORE_THAN_SPARKS = 120
_ASK = f"""
from pyspark.sql import SparkSession
from streaming_source.mirroring.apply.parallel_applier import keep_compiled_classes

spark = SparkSession.builder.getOrCreate()
compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount

def compiled_of(number):
    before = compiled()
    # A literal makes another class, and each part of a union is a stage of its own.
    spark.sql(" UNION ALL ".join(f"SELECT id + {{n}} FROM range(3)" for n in range(number))).collect()
    return compiled() - before

if EARLY:
    compiled_of(1)
keep_compiled_classes(spark)
keep_compiled_classes(spark)
first, second = compiled_of({MORE_THAN_SPARKS}), compiled_of({MORE_THAN_SPARKS})
print(spark.conf.get("{SETTING}"), first >= {MORE_THAN_SPARKS}, second)
"""


@pytest.mark.parametrize(
    ("told", "early", "kept", "again"),
    [
        pytest.param("", False, str(CLASSES), False, id="nothing told"),
        pytest.param("77", False, "77", True, id="told"),
        pytest.param("", True, "100", True, id="too late"),
    ],
)
def test_plans_are_compiled_once(told: str, kept: str, *, early: bool, again: bool) -> None:
    given = f"--conf {SETTING}={told} " if told else ""
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{given}--master local[1] pyspark-shell"}
    done = subprocess.run(
        [sys.executable, "-c", _ASK.replace("EARLY", str(early))],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    value, all_compiled, second = done.stdout.split()
    assert (value, all_compiled, int(second) > 0) == (kept, "True", again)
    assert ("keeps few compiled classes" in done.stderr) is early
