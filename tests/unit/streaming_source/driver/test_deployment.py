"""What can be told of the cluster from the driver's command line and its files of settings, and what cannot."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from streaming_source.driver.deployment import UNKNOWN_CORES, SparkSetup, settings_of, spark_setup

if TYPE_CHECKING:
    from pathlib import Path

SUBMIT = "java -cp /opt/jars/* -Xmx1g org.apache.spark.deploy.SparkSubmit"


def setup(command_line: str, **environment: str) -> SparkSetup:
    return SparkSetup(settings_of(command_line.split(), environment))


@pytest.mark.parametrize(
    ("command_line", "local"),
    [
        (f"{SUBMIT} --conf spark.master=local[2] --conf spark.app.name=shop pyspark-shell", True),
        (f"{SUBMIT} --master local[*] shop.py", True),
        (f"{SUBMIT} --master=local shop.py", True),
        (f"{SUBMIT} --master local[4,2] shop.py", True),
        (f"{SUBMIT} --master spark://main:7077 --conf spark.app.name=local shop.py", False),
        (f"{SUBMIT} --conf spark.master=local-cluster[2,1,1024] pyspark-shell", False),
        (f"{SUBMIT} --conf spark.master=local[2] --conf spark.master=yarn pyspark-shell", False),
        (f"{SUBMIT} pyspark-shell", False),
        ("", False),
    ],
)
def test_only_a_master_that_says_so_is_local(command_line: str, *, local: bool) -> None:
    assert setup(command_line).tasks_are_local is local


@pytest.mark.parametrize(
    ("command_line", "cores"),
    [
        (f"{SUBMIT} --conf spark.master=local[3] pyspark-shell", 3),
        (f"{SUBMIT} --master local[*] shop.py", os.cpu_count()),
        (f"{SUBMIT} --master local shop.py", 1),
        (f"{SUBMIT} --conf spark.master=local-cluster[2,3,1024] pyspark-shell", 6),
        (f"{SUBMIT} --master yarn --num-executors 4 --executor-cores 5 shop.py", 20),
        (f"{SUBMIT} --master k8s://x --conf spark.executor.instances=3 --conf spark.executor.cores=2 x.py", 6),
        (f"{SUBMIT} --master spark://main:7077 --total-executor-cores 12 shop.py", 12),
        (f"{SUBMIT} --master yarn --conf spark.dynamicAllocation.maxExecutors=7 shop.py", 7),
        (f"{SUBMIT} --master yarn --conf spark.default.parallelism=30 shop.py", 30),
        (f"{SUBMIT} --master yarn --conf spark.cores.max=many shop.py", UNKNOWN_CORES),
        (f"{SUBMIT} pyspark-shell", UNKNOWN_CORES),
    ],
)
def test_cores_are_counted_where_they_are_told(command_line: str, cores: int) -> None:
    assert setup(command_line).cores == cores


def test_files_of_settings_are_read_and_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.write_text("# ours\n\nspark.master   local[5]\nspark.executor.cores=2\n", encoding="utf-8")
    assert setup(f"{SUBMIT} pyspark-shell", SPARK_HOME=str(tmp_path)).cores == 5
    assert setup(f"{SUBMIT} pyspark-shell", SPARK_CONF_DIR=str(tmp_path / "conf")).tasks_are_local
    assert setup(f"{SUBMIT} --master yarn x.py", SPARK_HOME=str(tmp_path)).cores == UNKNOWN_CORES
    other = tmp_path / "spark.properties"
    other.write_text("spark.master=k8s://x\nspark.executor.instances 9\n", encoding="utf-8")
    found = setup(f"{SUBMIT} --properties-file {other} x.py", SPARK_HOME=str(tmp_path))
    assert (found.cores, found.tasks_are_local) == (9, False)


def test_this_process_is_no_child_of_a_local_spark() -> None:
    assert spark_setup().tasks_are_local is False
