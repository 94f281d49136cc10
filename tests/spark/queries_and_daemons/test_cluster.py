"""On a cluster without shared storage rows travel inside the tasks, large transactions in parts.

A killed worker and a lost executor cost retries and no row.

The executors' file systems are told apart by a path that means another folder in each process; `transport` is not set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.spark_home import spark_python
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

# A driver, a master and three executors: a minute that the quick suite has not.
pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(420)]

SMALL, LARGE = 40, 40_000
PAD = 180


def _run(primary: MariaDb, start: str, folder: Path) -> dict[str, Any]:
    server = {
        "host": primary.host,
        "port": str(primary.port),
        "user": "repl",
        "password": "replica-secret",
        "startingPosition": start,
        "minPartitions": "6",
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parents[1] / "cluster.py"), json.dumps(server), "cluster", str(folder)],
        env=os.environ | {"PYSPARK_PYTHON": spark_python(), "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _sum(batches: dict[str, Any], field: str) -> int:
    return sum(batch[field] or 0 for batch in batches.values())


def test_a_cluster_without_shared_storage_reads_everything_once(primary: MariaDb, tmp_path: Path) -> None:
    primary.sql(
        "CREATE DATABASE cluster",
        f"CREATE TABLE cluster.orders (id INT PRIMARY KEY, pad CHAR({PAD}))",
        "CREATE TABLE cluster.log (id INT PRIMARY KEY)",
    )
    try:
        start = primary.gtid_binlog_pos()
        primary.sql(
            "USE cluster",
            *(f"INSERT INTO cluster.orders VALUES ({i}, 'x')" for i in range(SMALL)),
            f"INSERT INTO cluster.orders SELECT seq, REPEAT('p', {PAD}) FROM seq_{SMALL}_to_{LARGE - 1}",
            "INSERT INTO cluster.log VALUES (1000000)",
        )
        found = _run(primary, start, tmp_path)
    finally:
        primary.sql("DROP DATABASE cluster")
    for shape, log_rows in (("variant", 1), ("typed", 0)):
        batches = found[shape]["batches"]
        assert _sum(batches, "rows") == _sum(batches, "identities") == LARGE + log_rows
        assert _sum(batches, "ids") == LARGE * (LARGE - 1) // 2 + 1_000_000 * log_rows
        assert _sum(batches, "transactions") == SMALL + 1 + log_rows
        assert max(batch["partitions"] for batch in batches.values()) >= 5, "one transaction, many tasks"
    assert found["variant"]["killed"] == ["worker", "executor"]
    folders = {folder for folder, _ in found["executors"]}
    assert found["driver"] == [str(tmp_path), True]
    assert str(tmp_path) not in folders
    assert not any(visible for _, visible in found["executors"]), "or the relay log could have been opened there"
