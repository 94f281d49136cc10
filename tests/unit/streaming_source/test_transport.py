"""Where tasks run is read from the driver's command line; when in doubt, they run elsewhere."""

from __future__ import annotations

import pytest

from streaming_source.transport import names_local_master, tasks_are_local

JAVA = "/usr/bin/java -cp /jars/* -Xmx1g org.apache.spark.deploy.SparkSubmit "


@pytest.mark.parametrize(
    ("command_line", "local"),
    [
        (JAVA + "--conf spark.master=local[2] --conf spark.app.name=x pyspark-shell", True),
        (JAVA + "--master local[*] app.py", True),
        (JAVA + "--master=local app.py", True),
        (JAVA + "--conf spark.master=local-cluster[2,1,1024] pyspark-shell", True),
        (JAVA + "--master spark://head:7077 app.py", False),
        (JAVA + "--master k8s://https://api app.py", False),
        (JAVA + "--master yarn --conf spark.app.name=local[2] app.py", False),
        (JAVA + "app.py", False),
        ("", False),
    ],
)
def test_the_master_on_the_command_line_decides(command_line: str, *, local: bool) -> None:
    assert names_local_master(command_line) is local


def test_a_process_not_started_by_spark_is_not_local() -> None:
    assert tasks_are_local() is False
