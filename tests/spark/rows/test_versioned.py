"""The recipes of docs/spark.md for system-versioned tables: filters on `history` give what the server keeps itself."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, Row

    from tests.spark.queries import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

UTC = dt.UTC


def _workload(shop: Shop) -> str:
    """Changes of every kind to a versioned table, beside one that is not."""
    table = f"{shop.database}.prices"
    shop.sql(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, price DECIMAL(8,2)) WITH SYSTEM VERSIONING",
        f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)",
    )
    for statement in (
        "UPDATE {} SET price = 10 WHERE id = 1",
        "UPDATE {} SET price = price + 1",
        "DELETE FROM {} WHERE id = 2",
        "INSERT INTO {} VALUES (2, 22)",
        "REPLACE INTO {} VALUES (3, 33)",
        "UPDATE {} SET id = 9 WHERE id = 1",
        "DELETE FROM {} WHERE id = 9",
        "INSERT INTO {} VALUES (4, 4)",
    ):
        time.sleep(0.001)  # versions begin at different microseconds, as anybody's do
        shop.sql(statement.format(table))
    shop.insert(1)
    return table


def _read(shop: Shop, **options: str) -> DataFrame:
    """All of the server's binlog: rows of files are those of a stream (test_batch_files.py)."""
    files = shop.spark.read.format("mariadb-binlog").option("path", f"{shop.primary.datadir}/bin.*")
    return files.options(**options).load()


def _versions(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    """Rows with their periods, as the server has them: Spark collects TIMESTAMP in local time."""
    return sorted(
        (row.id, row.price, *(at.astimezone(UTC).replace(tzinfo=None) for at in (row.row_start, row.row_end)))
        for row in rows
    )


def _server(shop: Shop, table: str, condition: str) -> list[tuple[object, ...]]:
    rows = shop.sql(
        "SET time_zone = '+00:00'",
        f"SELECT id, price, row_start, row_end FROM {table} FOR SYSTEM_TIME ALL WHERE {condition}",
    )
    return sorted(rows)


def test_closed_versions_current_rows_and_all_versions_are_the_servers(shop: Shop) -> None:
    table = _workload(shop)
    now = "row_end > NOW() + INTERVAL 1 DAY"
    changes = _read(shop, table=table).cache()

    closed = changes.where("history AND op <> 'delete'").select("after.*")
    assert _versions(closed.collect()) == _server(shop, table, f"NOT {now}")

    order = f.struct("transaction.sequence_number", "transaction.ordinal")
    live = changes.where("NOT history").select("after.*", order.alias("at"))
    gone = changes.where("history AND op = 'update'").select("after.id", order.alias("at"))
    moved = changes.where("NOT history AND op = 'update' AND before.id <> after.id").select(
        "before.id", order.alias("at")
    )
    upserted = live.groupBy("id").agg(f.max_by(f.struct("*"), "at").alias("row"), f.max("at").alias("at"))
    taken = gone.union(moved).groupBy("id").agg(f.max("at").alias("taken"))
    current = upserted.join(taken, "id", "left").where("taken IS NULL OR taken < at").select("row.*")
    assert _versions(current.collect()) == _server(shop, table, now)

    versions = changes.where("after IS NOT NULL").select("after.*", order.alias("at"))
    merged = versions.groupBy("id", "row_start").agg(f.max_by(f.struct("*"), "at").alias("row")).select("row.*")
    assert _versions(merged.collect()) == _server(shop, table, "TRUE")
    changes.unpersist()


def test_history_is_in_every_shape_and_null_for_other_tables(shop: Shop) -> None:
    table = _workload(shop)
    shop.sql(f"DELETE HISTORY FROM {table}")
    envelope = _read(shop, tables=f"{shop.database}.*")
    counts = {tuple(row) for row in envelope.groupBy("`table`", "op", "history").count().collect()}
    assert counts == {
        ("orders", "insert", None, 1),
        ("prices", "insert", False, 6),
        ("prices", "insert", True, 5),
        ("prices", "update", False, 5),
        ("prices", "update", True, 3),
        ("prices", "delete", True, 8),
    }
    flat = _read(shop, table=table, rowShape="flat")
    closed = flat.where("_history AND _change_type IN ('insert', 'update_postimage')")
    assert closed.count() == 8
    assert flat.where("_change_type = 'update_preimage' AND _history").count() == 0
