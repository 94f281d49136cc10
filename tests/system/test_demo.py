"""The demo as a user runs it, shorter: without a terminal, to its verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.installation import installations

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.server
@pytest.mark.spark
def test_the_demo_proves_itself() -> None:
    # On the version it starts by default; the older ones have the same stream under test in tests/spark.
    server_version = list(installations())[-1]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--seconds", "3", "--server", server_version],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EQUAL: every row of every table" in done.stdout
    assert "17.8 MB" in done.stdout
    assert f"MariaDB {server_version}." in done.stdout
    assert done.stderr == ""
