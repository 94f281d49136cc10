"""The demo as a user runs it, shorter: without a terminal, to its verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from demo.__main__ import SERVER_OPTIONS
from demo.shop import BIG_IMAGE_BYTES, DATABASE, Shop
from tests.fixtures.installation import installations
from tests.fixtures.mariadb import wait_until
from tests.fixtures.spark_home import spark_python
from tests.spark.conftest import CONFIGURATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.mariadb import MariaDb

PROJECT = Path(__file__).resolve().parents[2]
JVM = "spark.driver.extraJavaOptions"


@pytest.mark.server
@pytest.mark.spark
def test_the_demo_proves_itself() -> None:
    # On the version it starts by default; the older ones have the same stream under test in tests/spark.
    server_version = list(installations())[-1]
    environment = os.environ | {"PYSPARK_PYTHON": spark_python(), "PYTHONPATH": str(PROJECT)}
    environment["PYSPARK_SUBMIT_ARGS"] = f"--conf '{JVM}={CONFIGURATION[JVM]}' pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--seconds", "2", "--server", server_version],
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


@pytest.mark.server
def test_a_machine_that_is_too_slow_for_the_shop_gets_its_large_image_and_its_alter_too(
    make_server: Callable[..., MariaDb],
) -> None:
    shop = Shop(make_server(None, *SERVER_OPTIONS), orders_per_second=600)
    shop.create()
    shop.open()
    shop.start(0)
    wait_until(shop.done, "the shop is done")
    assert shop.server.value(f"SELECT MAX(LENGTH(image)) FROM {DATABASE}.product_images") == BIG_IMAGE_BYTES
    assert shop.server.value(f"SELECT COUNT(points) FROM {DATABASE}.customers") > 0
