"""The demo as a user runs it, shorter: without a terminal, to its verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from demo.__main__ import SERVER_OPTIONS
from demo.shop import BIG_IMAGE_BYTES, DATABASE, VISITS, Shop
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
@pytest.mark.slow  # a minute or two; what is new in it has its quick tests in tests/mirroring
def test_the_demo_proves_itself() -> None:
    # On the version it starts by default; the older ones have the same mirror under test in tests/mirroring.
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
    for part in (
        f"MariaDB {server_version}.",
        "ALTER TABLE customers ADD COLUMN points INT: in the lake",
        "an image of 17.8 MB: in the lake",
        "as gh-ost does it: in the lake",
        "TRUNCATE TABLE visits: in the lake",
        "EQUAL: every value of every row of every table",
        "NOT EQUAL, id=4711",
    ):
        assert part in done.stdout, f"{part}\n{done.stdout}"
    assert done.stderr == ""


@pytest.mark.server
def test_a_machine_that_is_too_slow_for_the_shop_gets_all_that_the_mirror_has_to_follow_too(
    make_server: Callable[..., MariaDb],
) -> None:
    shop = Shop(make_server(None, *SERVER_OPTIONS), transactions_per_second=300)
    rows = shop.fill()
    assert rows > VISITS
    shop.start(0)
    wait_until(shop.done, "the shop is done")
    assert [words.split()[0] for _, _, words in shop.written.told] == ["ALTER", "one", "orders", "TRUNCATE"]
    assert shop.server.value(f"SELECT MAX(LENGTH(image)) FROM {DATABASE}.product_images") == BIG_IMAGE_BYTES
    assert shop.server.value(f"SELECT COUNT(points) FROM {DATABASE}.customers") >= 0
    assert shop.server.value(f"SELECT COUNT(channel) FROM {DATABASE}.orders") >= rows // 10
    assert shop.server.value(f"SELECT COUNT(*) FROM {DATABASE}.visits") < VISITS
