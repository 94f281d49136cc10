"""Discovery never fails; old versions of Spark get one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_mariadb_binlog
from replica.errors import ConfigError
from streaming_source.source import data_source
from streaming_source.source.data_source import MariaDbBinlogSource


def test_spark_finds_the_source_by_its_module() -> None:
    assert pyspark_mariadb_binlog.DefaultSource is MariaDbBinlogSource
    assert MariaDbBinlogSource.name() == "mariadb-binlog"


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
