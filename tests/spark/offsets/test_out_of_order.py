"""Sequence numbers that go back, in a real query: it stops before them, or reads each transaction once from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.spark.queries import Run, Shop, ids

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.mark.slow
def test_each_row_comes_once_over_restarts_in_the_middle(spark: SparkSession, tmp_path: Path) -> None:
    with MariaDb(None, "--binlog-row-metadata=FULL") as primary:
        primary.add_user()
        with Shop(spark, primary, "o", tmp_path) as shop:

            def insert(number: int, order: int) -> None:
                shop.sql(f"SET gtid_seq_no = {number}", f"INSERT INTO {shop.orders} VALUES ({order}, 'o', 1)")

            insert(50, 1)
            insert(20, 2)
            insert(21, 3)
            run = Run(tmp_path / "checkpoint")
            with pytest.raises(Exception, match=r"OutOfOrderGtidError.*0-1-20.*gtidStrictMode=false"):
                run.drain(shop.changes())
            assert ids(run.rows) == [1], "what was before is delivered"
            loose = {"gtidStrictMode": "false", "maxTransactionsPerTrigger": 1}
            assert ids(run.drain(shop.changes(**loose))) == [1, 2, 3]
            run.forget_commit(max(run.batches))
            insert(20, 4)
            insert(50, 5)
            assert ids(run.drain(shop.changes(**loose))) == [1, 2, 3, 4, 5]
            assert all(len(rows) <= 1 for rows in run.batches.values())
