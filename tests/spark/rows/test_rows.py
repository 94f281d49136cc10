"""Rows of both shapes and of VARIANT, end to end: what the server did is what the query sees, on every version."""

from __future__ import annotations

import datetime as dt
import json
import time
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from tests.fixtures.mariadb import MariaDb
from tests.spark.queries import Shop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server]

UTC = dt.UTC
TYPES = """
    id INT PRIMARY KEY, u8 TINYINT UNSIGNED, u64 BIGINT UNSIGNED, i24 MEDIUMINT, f FLOAT, d DOUBLE, price DECIMAL(12,3),
    huge DECIMAL(65,30), c CHAR(5), v VARCHAR(40) CHARACTER SET utf8mb4, l VARCHAR(20) CHARACTER SET latin1, t TEXT,
    b BINARY(4), vb VARBINARY(9), bl BLOB, j JSON, da DATE, ti TIME(3), dt DATETIME(6), ts TIMESTAMP(2) NULL, y YEAR,
    e ENUM('small','large'), s SET('a','b','c'), bits BIT(12)
"""
VALUES = """
    (1, 255, 18446744073709551615, -8388608, 1.5, -2.25e100, -123456789.125,
     -12345678901234567890123456789012345.123456789012345678901234567890, 'abc', 'grüße 🎈', 'grüße', 'text', 'ab',
     'raw', 'blob', '{"k": [1, 2]}', '2024-02-29', '-838:59:59.125', '9999-12-31 23:59:59.999999',
     '2038-01-19 03:14:07.25', 2155, 'large', 'a,c', b'101000000001')
"""
EXPECTED = {
    "id": 1,
    "u8": 255,
    "u64": Decimal(18446744073709551615),
    "i24": -8388608,
    "f": 1.5,
    "d": -2.25e100,
    "price": Decimal("-123456789.125"),
    "huge": "-12345678901234567890123456789012345.123456789012345678901234567890",
    "c": "abc",
    "v": "grüße 🎈",
    "l": "grüße",
    "t": "text",
    "b": b"ab\0\0",
    "vb": b"raw",
    "bl": b"blob",
    "j": '{"k": [1, 2]}',
    "da": dt.date(2024, 2, 29),
    "ti": -dt.timedelta(hours=838, minutes=59, seconds=59, milliseconds=125),
    "dt": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001  (DATETIME has no zone)
    "y": 2155,
    "e": "large",
    "s": "a,c",
    "bits": 0b101000000001,
}


def _write_orders(shop: Shop) -> None:
    shop.sql(
        f"INSERT INTO {shop.orders} VALUES (1, 'one', 1.50), (2, 'two', NULL)",
        f"UPDATE {shop.orders} SET price = 3 WHERE id = 1",
        f"DELETE FROM {shop.orders} WHERE id = 2",
    )


@pytest.mark.quick_on("newest")
def test_envelope_rows_on_every_server(spark: SparkSession, server_version: str, tmp_path: Path) -> None:
    # NO_LOG is the default of every version: names, signs and labels come from the catalog.
    with MariaDb(server_version) as primary:
        primary.add_user()
        with Shop(spark, primary, "shop", tmp_path) as shop:
            _write_orders(shop)
            envelope = shop.run().drain(shop.changes())

    assert [(r.op, r.database, r.table) for r in envelope] == [
        (op, "shop", "orders") for op in ("insert", "insert", "update", "delete")
    ]
    images = [(r.before and tuple(r.before), r.after and tuple(r.after)) for r in envelope]
    one, two, changed = (1, "one", Decimal("1.50")), (2, "two", None), (1, "one", Decimal("3.00"))
    assert images == [(None, one), (None, two), (one, changed), (two, None)]
    assert [(r.transaction.ordinal, r.transaction.is_last) for r in envelope] == [
        (0, False),
        (1, True),
        (0, True),
        (0, True),
    ]
    numbers = [r.transaction.sequence_number for r in envelope]
    assert numbers == [numbers[0], numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert [r.transaction.gtid for r in envelope] == [f"0-1-{n}" for n in numbers]
    assert all(r.transaction.xid > 0 and r.source.file == "bin.000001" and r.source.position > 4 for r in envelope)


@pytest.mark.slow
def test_flat_rows_and_variant_where_names_are_not_logged(
    spark: SparkSession, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    primary = make_server()
    primary.add_user()
    with Shop(spark, primary, "shop", tmp_path) as shop:
        first = int(shop.start.rpartition("-")[2]) + 1
        _write_orders(shop)
        changes = shop.changes(rowShape="flat", transport="inline", relayDir=None)
        # As a number: collect() gives local time, in which an hour may come twice.
        flat = shop.run("flat").drain(changes.withColumn("_commit_timestamp", f.unix_seconds("_commit_timestamp")))
        changes = shop.changes(tables=f"{shop.database}.*", relayDir=None)
        variant = shop.run("variant").drain(
            changes.selectExpr("op", "to_json(before) AS before", "to_json(after) AS after")
        )

    assert [(r._change_type, r.id, r.price) for r in flat] == [
        ("insert", 1, Decimal("1.50")),
        ("insert", 2, None),
        ("update_preimage", 1, Decimal("1.50")),
        ("update_postimage", 1, Decimal("3.00")),
        ("delete", 2, None),
    ]
    assert [r._commit_version - first for r in flat] == [0, 0, 1, 1, 2]
    assert [r._gtid for r in flat] == [f"0-1-{r._commit_version}" for r in flat]
    assert flat[0]._sequence == f"{first:020d}.000000000000"
    assert [r._sequence for r in flat] == sorted(r._sequence for r in flat)
    assert all(abs(r._commit_timestamp - time.time()) < 3600 for r in flat)

    assert [(r.op, json.loads(r.after or "null")) for r in variant] == [
        ("insert", {"id": 1, "name": "one", "price": 1.5}),
        ("insert", {"id": 2, "name": "two", "price": None}),
        ("update", {"id": 1, "name": "one", "price": 3}),
        ("delete", None),
    ]
    assert json.loads(variant[2].before) == {"id": 1, "name": "one", "price": 1.5}


def test_every_type_arrives_as_the_server_has_it(shop: Shop) -> None:
    shop.sql(f"CREATE TABLE {shop.database}.types ({TYPES})", f"INSERT INTO {shop.database}.types VALUES {VALUES}")
    changes = shop.changes(table=f"{shop.database}.types")
    (row,) = shop.run().drain(changes)
    after = row.after.asDict()
    seconds = after.pop("ts")  # collect() gives local time
    assert after == EXPECTED
    assert seconds.astimezone(UTC) == dt.datetime(2038, 1, 19, 3, 14, 7, 250_000, UTC)


def test_only_the_selected_tables_arrive_but_ordinals_count_all(shop: Shop) -> None:
    other = f"{shop.database}.other"
    shop.sql(f"CREATE TABLE {other} (id INT PRIMARY KEY)")
    with shop.primary.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {other} VALUES (1), (2)")
        cursor.execute(f"INSERT INTO {shop.orders} VALUES (1, 'a', 1)")
        cursor.execute(f"INSERT INTO {other} VALUES (3)")
        cursor.execute(f"INSERT INTO {shop.orders} VALUES (2, 'b', 2)")
        cursor.execute(f"INSERT INTO {other} VALUES (4)")
        connection.commit()
    rows = shop.run("typed").drain(shop.changes())
    assert [(r.after.id, r.transaction.ordinal, r.transaction.is_last) for r in rows] == [(1, 2, False), (2, 4, True)]
    rows = shop.run("two").drain(shop.changes(tables=f"{shop.database}.o*", relayDir=shop.folder / "relay2"))
    assert [r.table for r in rows] == ["other", "other", "orders", "other", "orders", "other"]


def test_sql_text_and_a_schema_of_the_users_own(shop: Shop) -> None:
    statement = f"INSERT INTO {shop.orders} VALUES (7, 'seven', 7)"
    shop.sql(statement)
    full = shop.changes(includeSql=True)
    wanted = full.select("source", "op").schema
    reader = shop.spark.readStream.format("mariadb-binlog").schema(wanted)
    for key, value in {
        "host": shop.primary.host,
        "port": str(shop.primary.port),
        "user": "repl",
        "password": "replica-secret",
        "table": shop.orders,
        "includeSql": "true",
        "startingPosition": shop.start,
    }.items():
        reader = reader.option(key, value)
    (row,) = shop.run().drain(reader.load())
    assert row.asDict().keys() == {"source", "op"}
    assert row.source.sql == statement
    assert row.source.server == f"127.0.0.1:{shop.primary.port}"


def test_rows_keep_their_order_and_identity_by_path_and_inline(shop: Shop) -> None:
    shop.sql(
        f"USE {shop.database}",  # the sequence engine's tables live in the current database
        f"CREATE TABLE {shop.database}.pages (id INT PRIMARY KEY, text VARCHAR(1000))",
        f"INSERT INTO {shop.database}.pages SELECT seq, REPEAT('x', 800) FROM seq_1_to_2400",
        f"UPDATE {shop.database}.pages SET text = CONCAT(id, text) WHERE id <= 2000",
    )

    def read(transport: str) -> tuple[list[tuple[int, int]], list[object]]:
        changes = shop.changes(
            table=f"{shop.database}.pages", transport=transport, minPartitions=3, maxBytesPerTrigger="2400k"
        )
        columns = ("after.id", "transaction.ordinal", f.xxhash64(*changes.columns), f.spark_partition_id())
        run = shop.run(transport)
        rows = run.drain(changes.select(*columns))
        # One transaction a batch, and each in several partitions.
        parts = [[row[3] for row in batch] for _, batch in sorted(run.batches.items()) if batch]
        assert [sorted(set(part)) for part in parts] == [[0, 1, 2]] * 2
        return [(row[0], row[1]) for row in rows], [row[2] for row in rows]

    by_path, hashes = read("path")
    inserts, updates = [(i + 1, i) for i in range(2400)], [(i + 1, i) for i in range(2000)]
    assert by_path == inserts + updates
    assert len(set(hashes)) == 4400
    assert read("inline") == (by_path, hashes)
