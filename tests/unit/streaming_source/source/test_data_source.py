"""Discovery costs nothing and never fails; old versions of Spark get one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_mariadb_binlog
from replica.errors import ConfigError
from streaming_source.source import data_source
from streaming_source.source.data_source import MariaDbBinlogSource

HEAVY = ("numba", "numpy", "pyarrow", "aiomysql", "pymysql", "asyncio", "pydantic", "pandas")


def _imports(statement: str, environment: dict[str, str] | None = None) -> set[str]:
    before = "import sys; import pyspark.sql.datasource; known = set(sys.modules)"
    script = f"{before}; {statement}; print(*set(sys.modules) - known)"
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True, env=environment
    )
    return set(done.stdout.split())


def test_spark_finds_the_source_by_its_module() -> None:
    assert pyspark_mariadb_binlog.DefaultSource is MariaDbBinlogSource
    assert MariaDbBinlogSource.name() == "mariadb-binlog"


@pytest.mark.parametrize(
    "statement",
    [
        "import pyspark_mariadb_binlog",
        "import streaming_source.source.stream",
        "import streaming_source.source.batch.reader",
    ],
)
def test_what_every_worker_imports_is_light(statement: str) -> None:
    loaded = _imports(statement)
    assert "replica.errors" in loaded
    assert not loaded & set(HEAVY)


def test_what_load_asks_a_server_with_brings_no_compiler() -> None:
    # Each load() starts an interpreter that imports this: a quarter of a second for numba alone.
    loaded = _imports("import streaming_source.source.load, streaming_source.source.batch.server")
    assert "asyncio" in loaded
    assert not loaded & {"numba", "pandas", "streaming_source.planning.planner"}


def test_what_plans_a_query_does_not_load_what_only_tasks_and_attached_queries_need() -> None:
    # Each query starts an interpreter that imports this; pyarrow.compute and an array made of a list load pandas.
    loaded = _imports("import streaming_source.planning.planner, streaming_source.planning.feed")
    assert "llvmlite.binding" in loaded
    assert not loaded & {"numba", "pandas", "pyarrow.compute", "streaming_source.attached.feed"}


def test_without_pyspark_the_discovery_module_is_harmless() -> None:
    script = "import sys; sys.modules['pyspark'] = None; import pyspark_mariadb_binlog as m; print(m.DefaultSource)"
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "None"


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4"])
def test_an_older_spark_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(data_source, "spark_version", version)
    with pytest.raises(ConfigError, match=f"needs Spark 4.2 or newer, this is {version}"):
        MariaDbBinlogSource({"user": "u", "table": "a.b"}).schema()
