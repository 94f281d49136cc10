"""What a query asks for is what it gets: columns, operations, tables, statements, and conditions of batch reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from replica.protocol.gtid import GtidPosition
from tests.spark.queries import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from tests.spark.queries import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

FLAT = {"rowShape": "flat"}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ITEMS = """(
    id INT PRIMARY KEY COMMENT 'the key', name VARCHAR(30) NOT NULL COMMENT 'as printed', price DECIMAL(10,2),
    stock INT, photo GEOMETRY
)"""


def place(row: Row) -> tuple[int, bool]:
    return row.transaction.ordinal, row.transaction.is_last


def test_a_typed_query_gets_the_columns_changes_and_statements_it_asks_for(shop: Shop) -> None:
    items, other = f"{shop.database}.items", f"{shop.database}.other"
    shop.sql(
        f"CREATE TABLE {items} {ITEMS}",
        f"INSERT INTO {items} VALUES (1, 'one', 1, 5, NULL), (2, 'two', 2, 5, NULL), (3, 'three', 3, 5, NULL)",
        f"UPDATE {items} SET stock = stock - 1",  # nothing that is asked for
        f"UPDATE {items} SET stock = 0, name = IF(id = 2, 'zwei', name) ORDER BY id",
        f"CREATE TABLE {other} (id INT)",
        f"ALTER TABLE {items} ADD COLUMN note TEXT",
        "SET SESSION binlog_row_image = MINIMAL",
        f"UPDATE {items} SET stock = 7 WHERE id = 1",  # the key before, stock after: the name was not set
        f"UPDATE {items} SET name = 'three' WHERE id = 3",  # set to what it was: the server logs no change
        f"UPDATE {items} SET name = 'drei' WHERE id = 3",
        f"DELETE FROM {items} WHERE id = 1",
        f"TRUNCATE TABLE {items}",
    )
    changes = shop.changes(table=items, columns="NAME,id", skipUnchanged=True, includeDdl=True)
    after = changes.schema["after"].dataType
    assert after.simpleString() == "struct<id:int,name:string>"
    key = {"comment": "the key", "mariadb.type": "int(11)", "mariadb.nullable": False, "mariadb.key": True}
    assert after["id"].metadata == key
    assert after["name"].metadata["comment"] == "as printed"
    assert all(field.nullable for field in after.fields)

    rows = shop.run().drain(changes)
    statements = [(row.op, row.table, row.source.sql.split(" (")[0], place(row)) for row in rows if row.op == "ddl"]
    assert statements == [
        ("ddl", "items", f"CREATE TABLE {items}", (-1, True)),
        ("ddl", "items", f"ALTER TABLE {items} ADD COLUMN note TEXT", (-1, True)),
        ("ddl", "items", f"TRUNCATE TABLE {items}", (-1, True)),
    ]
    found = [(row.op, row.before and tuple(row.before), row.after and tuple(row.after), place(row)) for row in rows]
    assert [row for row in found if row[0] != "ddl"] == [
        ("insert", None, (1, "one"), (0, False)),
        ("insert", None, (2, "two"), (1, False)),
        ("insert", None, (3, "three"), (2, True)),
        ("update", (2, "two"), (2, "zwei"), (1, True)),  # the second of three, and the last that changed
        ("update", (3, None), (None, "drei"), (0, True)),
        ("delete", (1, None), None, (0, True)),
    ]
    assert [row[0] for row in found] == ["ddl", *["insert"] * 3, "update", "ddl", "update", "delete", "ddl"]
    absent = rows[6].absent
    assert (absent.before, absent.after) == (["name"], ["id"])

    asked = {"table": items, "columns": "id,name", "rowShape": "flat", "operations": "delete"}
    files = f"{shop.primary.datadir}/bin.*"
    with pytest.raises(PySparkException, match=r"StatementDmlError.*TRUNCATE TABLE"):
        shop.spark.read.format("mariadb-binlog").options(**asked).load(files)
    asked["onStatementDml"] = "warn"
    narrow = shop.spark.read.format("mariadb-binlog").options(**asked).load(files)
    (deleted,) = narrow.collect()
    assert (narrow.columns[:2], deleted.id, deleted._change_type) == (["id", "name"], 1, "delete")
    with pytest.raises(PySparkException, match=r"names nmae, a column that \S+items does not have\..*mean name\?"):
        shop.changes(table=items, columns="nmae")


@pytest.mark.slow
def test_a_variant_query_leaves_out_tables_columns_and_operations(shop: Shop) -> None:
    history, temporary = f"{shop.database}.history", f"{shop.database}.tmp_1"
    shop.sql(
        f"CREATE TABLE {history} (id INT, nam VARCHAR(9), size INT) WITH SYSTEM VERSIONING",
        f"CREATE TABLE {temporary} (id INT)",
    )
    with shop.primary.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {shop.orders} VALUES (1, 'a', 1)")
        cursor.execute(f"INSERT INTO {temporary} VALUES (1), (2)")
        cursor.execute(f"INSERT INTO {history} VALUES (7, 'x', 1)")
        cursor.execute(f"UPDATE {shop.orders} SET name = 'b'")
        cursor.execute(f"INSERT INTO {temporary} VALUES (3)")
        connection.commit()
    shop.sql(f"DELETE FROM {history}", f"DROP TABLE {temporary}", f"RENAME TABLE {history} TO {shop.database}.past")
    changes = shop.changes(
        tables=f"{shop.database}.*",
        excludeTables="*.tmp_*",
        columns="id,nam*",
        operations="insert,update,ddl",
        skipUnchanged=True,
    ).selectExpr("op", "table", "to_json(after) AS after", "history", "transaction", "source")
    rows = shop.run().drain(changes)
    found = [(row.op, row.table, row.after and json.loads(row.after), row.history, *place(row)) for row in rows]
    assert found == [
        ("ddl", "history", None, None, -1, True),
        ("insert", "orders", {"id": 1, "name": "a"}, None, 0, False),
        ("insert", "history", {"id": 7, "nam": "x"}, False, 3, False),
        ("update", "orders", {"id": 1, "name": "b"}, None, 4, True),
        ("update", "history", {"id": 7, "nam": "x"}, True, 0, True),  # its period ended: that is a change
        ("ddl", "history", None, None, -2, False),
        ("ddl", "past", None, None, -1, True),
    ]
    assert rows[-1].source.sql.startswith("RENAME TABLE")


@pytest.mark.slow
def test_a_checkpoint_that_goes_on_with_other_tables_says_so_and_another_table_is_refused(shop: Shop) -> None:
    items = f"{shop.database}.items"
    shop.sql(f"CREATE TABLE {items} (id INT)", f"INSERT INTO {items} VALUES (1)")
    shop.insert(1, 2)
    run = shop.run()
    variant = "op", "table", "to_json(after) AS after"

    def changed(tables: str) -> dict[str, Any] | None:
        query = run.start(shop.changes(tables=tables).selectExpr(*variant), available_now=True)
        try:
            assert query.awaitTermination(PATIENCE_S), query.status
            report = json.loads(query.lastProgress["sources"][0]["latestOffset"])
        finally:
            query.stop()
        found: dict[str, Any] | None = report.get("selectionChanged")
        return found

    assert changed(shop.orders) is None
    reached = shop.primary.gtid_binlog_pos()
    shop.sql(f"INSERT INTO {items} VALUES (2)")
    assert changed(f"{items},{shop.orders}") == {"behind": reached, "added": [items]}
    shop.insert(3)
    assert changed(f"{shop.orders},{items}") is None  # it is the remembered one now
    assert [json.loads(row.after)["id"] for row in run.rows] == [1, 2, 2, 3]
    assert run.offsets()[-1]["selection"] == {"shape": "variant", "tables": [items, shop.orders]}
    shop.insert(4)
    with pytest.raises(PySparkException, match=r"belongs to a query with tables .*, and this query has table="):
        run.drain(shop.changes())


def test_conditions_of_batch_reads_are_the_sources_and_change_no_result(shop: Shop) -> None:
    for first in (1, 11, 21):
        shop.insert(first, 3)
        shop.sql(f"UPDATE {shop.orders} SET price = 0 WHERE id = {first}", "FLUSH BINARY LOGS")
    first = next(gtid.seq_no for gtid in GtidPosition.parse(shop.start).gtids if gtid.domain_id == 0)
    files = ",".join(str(shop.primary.datadir / name) for name in shop.primary.binlogs())

    def read(**options: str) -> DataFrame:
        reader = shop.spark.read.format("mariadb-binlog").option("path", files)
        for key, value in options.items():
            reader = reader.option(key, value)
        return reader.load()

    def filters(frame: DataFrame) -> str:
        plan = frame._jdf.queryExecution().executedPlan().toString()
        return next((line for line in plan.splitlines() if "Filter" in line.split("[")[0]), "")

    envelope = read(table=shop.orders)
    number = f.col("transaction.sequence_number")
    third = envelope.where(number == first + 3).select("transaction").first()
    assert third is not None
    conditions: list[tuple[dict[str, str], Any, int, str]] = [
        ({}, number.between(first + 5, first + 8), 4, ">="),
        ({}, f.col("transaction.gtid") == third.transaction.gtid, 1, third.transaction.gtid),
        ({}, f.col("transaction.commit_timestamp") < f.lit("2001-01-01").cast("timestamp"), 0, "<"),
        ({}, f.col("table").isin("orders") & (f.col("after.id") == 12), 1, "IN"),
        ({}, f.col("transaction.is_last") & (f.col("op") == "insert"), 9, "insert"),
        (FLAT, (f.col("_change_type") != "update_preimage") & (f.col("_commit_version") > first + 4), 8, ">"),
    ]
    # Read once, for all of Spark's own answers.
    whole = {bool(o): read(table=shop.orders, **o).cache() for o in ({}, FLAT)}
    expected = [[row.asDict(True) for row in whole[bool(o)].where(c).collect()] for o, c, _, _ in conditions]
    for frame in whole.values():
        frame.unpersist()
    assert [len(rows) for rows in expected] == [count for _, _, count, _ in conditions]
    shop.spark.conf.set(PUSHDOWN, "true")
    try:
        for (options, condition, _, pushed), rows in zip(conditions, expected, strict=True):
            filtered = read(table=shop.orders, pushFilters="true", **options).where(condition)
            assert [row.asDict(True) for row in filtered.collect()] == rows
            assert pushed not in filters(filtered), pushed
        last = read(table=shop.orders, pushFilters="true").where(number > first + 8)
        assert last.rdd.getNumPartitions() < envelope.rdd.getNumPartitions()
        # Spark gives what a reader has planned to every other use of the DataFrame: without the option, all of it.
        assert envelope.where(number > first + 8).union(envelope).count() == 4 + 12
    finally:
        shop.spark.conf.unset(PUSHDOWN)
