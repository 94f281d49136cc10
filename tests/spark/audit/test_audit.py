"""The audit of tables on a real server against copies that were written of the stream's rows, while it goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from replica.errors import ConfigError, PositionLostError, SchemaError
from streaming_source.auditing.call import audit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.auditing.result import AuditResult
    from tests.spark.queries import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

ROWS = 500
FLAT = ("_change_type", "_commit_version", "_commit_timestamp", "_gtid", "_sequence", "_absent", "_history")


def server(shop: Shop) -> dict[str, str]:
    primary = shop.primary
    return {"host": primary.host, "port": str(primary.port), "user": "repl", "password": "replica-secret"}


def copied(spark: SparkSession, shop: Shop, table: str, folder: Path) -> tuple[str, DataFrame]:
    """The position now, and a copy on disk of the rows that the stream has for a table that was only inserted into."""
    position = shop.primary.gtid_binlog_pos()
    reader = spark.read.format("mariadb-binlog").options(**server(shop), startingPosition=shop.start)
    rows = reader.options(table=f"{shop.database}.{table}", endingPosition=position, rowShape="flat").load()
    rows.drop(*FLAT).write.parquet(str(folder / table))
    return position, spark.read.parquet(str(folder / table))


def audited(spark: SparkSession, shop: Shop, copies: dict[str, Any], **arguments: Any) -> AuditResult:
    tables = {f"{shop.database}.{table}": copy for table, copy in copies.items()}
    return audit(spark, tables=tables, **{**server(shop), **arguments})


@pytest.fixture
def filled(shop: Shop) -> Shop:
    shop.sql(
        f"USE {shop.database}",
        f"INSERT INTO {shop.orders} SELECT seq, CONCAT('order ', seq), seq / 4 FROM seq_1_to_{ROWS}",
    )
    shop.sql(
        f"USE {shop.database}",
        f"CREATE TABLE {shop.database}.parts (a INT, b VARCHAR(20), weight DOUBLE, PRIMARY KEY (a, b))",
        f"INSERT INTO {shop.database}.parts SELECT seq % 7, CONCAT('p', seq), seq / 3 FROM seq_1_to_{ROWS}",
    )
    return shop


@pytest.mark.slow
def test_copies_are_equal_at_their_position_while_the_tables_go_on(
    spark: SparkSession, filled: Shop, tmp_path: Path
) -> None:
    _, orders = copied(spark, filled, "orders", tmp_path)
    position, parts = copied(spark, filled, "parts", tmp_path)
    filled.sql(
        f"UPDATE {filled.orders} SET price = 0 WHERE id % 10 = 1",
        f"UPDATE {filled.orders} SET id = id + 1000 WHERE id % 10 = 2",
        f"DELETE FROM {filled.orders} WHERE id % 10 = 3",
        f"INSERT INTO {filled.orders} VALUES (5000, 'late', NULL)",
    )
    result = audited(spark, filled, {"orders": orders, "parts": parts}, at=position)
    assert result.equal, str(result)
    assert result.position == position
    assert [table.keys for table in result.tables] == [("id",), ("a", "b")]
    assert [(table.source_rows, table.target_rows) for table in result.tables] == [(ROWS, ROWS)] * 2
    assert str(result).startswith(f"EQUAL at {position}: 2 tables, 1,000 rows")
    told = json.loads(result.json())
    assert told["equal"]
    assert told["tables"][0]["source_hash"] == told["tables"][0]["target_hash"]

    now = audited(spark, filled, {"orders": orders}, shown=3).tables[0]
    moved = ROWS // 10
    assert now.counts == {"missing": moved + 1, "extra": 2 * moved, "different": moved, "doubled": 0}
    assert not now.equal


def test_planted_faults_are_shown_with_both_rows(spark: SparkSession, filled: Shop, tmp_path: Path) -> None:
    position, orders = copied(spark, filled, "orders", tmp_path)
    stale = orders.withColumn("name", f.when(f.col("id") == 7, "stale").otherwise(f.col("name")))
    copy = stale.filter("id <> 8").unionAll(orders.filter("id = 9")).withColumn("loaded_at", f.lit("today"))
    result = audited(spark, filled, {"orders": copy}, at=position, ignore=["loaded_at"])
    assert not result.equal
    text = str(result)
    assert text.splitlines()[0].startswith("NOT EQUAL at")
    assert "1 missing, 1 different, 1 doubled; 500 rows, 500 in the copy" in text
    for line in (
        "missing   id='8'",
        "different id='7'",
        "table name='order 7'",
        "copy  name='stale'",
        "doubled   id='9'",
    ):
        assert line in text
    told = json.loads(result.json())["tables"][0]
    assert {one["kind"]: one["key"]["id"] for one in told["differences"]} == {
        "missing": "8",
        "different": "7",
        "doubled": "9",
    }
    whole = audited(spark, filled, {"orders": copy}, at=position, ignore=["loaded_at"], keys={filled.orders: ()})
    assert whole.tables[0].counts == {"missing": 2, "extra": 1, "different": 0, "doubled": 1}


def test_what_cannot_be_compared_is_an_error_of_its_type(spark: SparkSession, filled: Shop) -> None:
    position = filled.primary.gtid_binlog_pos()
    copy = spark.sql("SELECT 1 AS id, 'x' AS name, CAST(1 AS DECIMAL(10,2)) AS price")
    with pytest.raises(ConfigError, match="no table with its copy is named"):
        audited(spark, filled, {})
    with pytest.raises(ConfigError, match="option content is not allowed in an audit"):
        audited(spark, filled, {"orders": copy}, content="tables")
    with pytest.raises(ConfigError, match="shown=0 is not a number from 1"):
        audited(spark, filled, {"orders": copy}, shown=0)
    with pytest.raises(ConfigError, match=r"neither a table's name, nor a path"):
        audited(spark, filled, {"orders": 7})
    with pytest.raises(ConfigError, match=r"no\.such_table, cannot be read"):
        audited(spark, filled, {"orders": "no.such_table"}, at=position)
    with pytest.raises(SchemaError, match="copy has no column name"):
        audited(spark, filled, {"orders": copy.drop("name")}, at=position)
    with pytest.raises(PositionLostError, match="position of this server"):
        audited(spark, filled, {"orders": copy}, at=position.replace("-1-", "-77-"))
    filled.sql(f"ALTER TABLE {filled.orders} COMMENT = 'altered'")
    with pytest.raises(SchemaError, match=r"altered, .*ALTER TABLE"):
        audited(spark, filled, {"orders": copy}, at=position)
