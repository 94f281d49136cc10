"""`spark.read` over binlog files: the rows a stream of their server gives, and nothing left out without a word."""

from __future__ import annotations

import base64
import gzip
import lzma
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import DecimalType, Geometry

from streaming_source.schema.row_schema import FLAT
from tests.spark.queries import PATIENCE_S, ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from tests.spark.queries import Shop

pytestmark = [pytest.mark.spark]

VECTORS = Path(__file__).parents[2] / "vectors"
ROTATION = VECTORS / "11.8"
POINT = "0101000000000000000000F03F0000000000000040"  # as WKB


def read(spark: SparkSession, path: object, **options: object) -> DataFrame:
    reader = spark.read.format("mariadb-binlog").option("path", str(path))
    for key, value in options.items():
        reader = reader.option(key, str(value))
    return reader.load()


def _ours(error: PySparkException) -> str:
    """Our line of an error that Spark wraps into Python's traceback and more."""
    lines = [line for line in str(error).splitlines() if "replica.errors." in line]
    assert lines, f"none of our errors: {error}"
    return lines[-1].partition("replica.errors.")[2]


def _comparable(rows: list[Row]) -> list[dict[str, object]]:
    """A server and its files are not called the same."""
    found = [row.asDict(recursive=True) for row in rows]
    for row in found:
        row["source"]["server"] = None
    return found


@pytest.mark.server
def test_files_of_a_running_server_give_the_rows_of_a_stream(shop: Shop) -> None:
    other = f"{shop.database}.other"
    shop.insert(1, 3)
    shop.sql("FLUSH BINARY LOGS")
    with shop.primary.connect() as connection, connection.cursor() as cursor:
        cursor.execute("XA START 'x'")
        cursor.execute(f"INSERT INTO {shop.orders} VALUES (10, 'prepared', 1), (11, 'in another file', 2)")
        cursor.execute("XA END 'x'")
        cursor.execute("XA PREPARE 'x'")
        shop.sql(
            f"CREATE TABLE {other} (id INT PRIMARY KEY, tags SET('a','b'), at POINT)",
            "FLUSH BINARY LOGS",
            f"INSERT INTO {other} VALUES (1, 'b', POINT(1, 2))",
        )
        # By the connection that prepared it: another one would have to wait until the server noticed that it has gone.
        cursor.execute("XA COMMIT 'x'")
    shop.sql(
        f"ALTER TABLE {shop.orders} ADD COLUMN note TEXT, ADD COLUMN place POINT",
        f"INSERT INTO {shop.orders} VALUES (4, 'four', 4, 'new', POINT(1, 2))",
        "SET SESSION binlog_row_image = MINIMAL",
        f"UPDATE {shop.orders} SET price = NULL WHERE id = 1",
        f"DELETE FROM {shop.orders} WHERE id = 2",
    )
    files = shop.primary.datadir / "bin.*"

    streamed = shop.run("typed").drain(shop.changes(geometry="spark"))
    rows = read(shop.spark, files, table=shop.orders, geometry="spark").collect()
    assert _comparable(rows) == _comparable(streamed)
    assert ids(rows) == [1, 2, 3, 10, 11, 4, None, 2]
    committed = [row.transaction for row in rows if row.op == "insert" and row.after.id in (10, 11)]
    assert [(t.ordinal, t.is_last) for t in committed] == [(0, False), (1, True)]
    assert rows[3].source.file > rows[2].source.file
    assert [row.after and row.after.note for row in rows] == [None, None, None, None, None, "new", None, None]
    assert rows[5].after.place == Geometry(bytes.fromhex(POINT), 0)
    assert [row.absent and row.absent.asDict() for row in rows[6:]] == [
        {"before": ["name", "price", "note", "place"], "after": ["id", "name", "note", "place"]},
        {"before": ["name", "price", "note", "place"], "after": None},
    ]
    assert all(row.absent is None and row.history is None for row in rows[:6])

    tables = f"{shop.database}.*"
    found = read(shop.spark, files, tables=tables).selectExpr("*", "to_json(before) b", "to_json(after) a").collect()
    stored = base64.b64encode(bytes(4) + bytes.fromhex(POINT)).decode()
    others = [row.a for row in found if row.table == "other"]
    assert others == [f'{{"at":"{stored}","id":1,"tags":"b"}}']
    orders = [row for row in found if row.table == "orders"]
    assert [row.transaction for row in orders] == [row.transaction for row in rows]
    assert [row.a for row in orders[4:6]] == [
        '{"id":11,"name":"in another file","price":2}',
        f'{{"id":4,"name":"four","note":"new","place":"{stored}","price":4}}',
    ]
    assert [(row.b, row.a, row.absent) for row in orders[6:]] == [
        ('{"id":1}', '{"price":null}', rows[6].absent),
        ('{"id":2}', None, rows[7].absent),
    ]

    flat = read(shop.spark, files, table=other, rowShape="flat", geometry="spark")
    (row,) = flat.selectExpr("tags", "st_srid(at) AS srid", "hex(st_asbinary(at)) AS wkb").collect()
    assert tuple(row) == ("b", 0, POINT)


def test_folders_globs_and_compressed_files_are_one_sequence(spark: SparkSession, tmp_path: Path) -> None:
    sources = [(ROTATION / f"rotation.{number}.binlog").read_bytes() for number in (1, 2, 3, 4)]
    (tmp_path / "bin.000008").write_bytes(sources[0])
    (tmp_path / "bin.000009.gz").write_bytes(gzip.compress(sources[1]))
    (tmp_path / "bin.000010.zst").write_bytes(zstandard.compress(sources[2]))
    (tmp_path / "bin.000011.xz").write_bytes(lzma.compress(sources[3]))
    (tmp_path / "bin.index").write_text("./bin.000008\n")
    (tmp_path / "notes.txt").write_text("no binlog")
    # Names and types come from the CREATE TABLE in the first file.
    changes = read(spark, tmp_path, table="v.t", rowShape="flat")
    assert changes.schema["a"].dataType.simpleString() == "int"
    rows = changes.collect()
    assert [row.a for row in rows] == [1, 2, 3, 4]
    assert [row._gtid for row in rows] == ["0-1-3", "7-1-1", "7-1-2", "7-1-3"]
    several = spark.read.format("mariadb-binlog").option("tables", "v.*")
    # Without the first file, nothing there says what the column is called.
    with pytest.raises(AnalysisException) as caught:
        several.load(str(tmp_path / "bin.00001*"))
    assert "SchemaError: The columns of v.t have no known names" in _ours(caught.value)
    schema = tmp_path / "schema.sql"
    schema.write_text("CREATE TABLE v.t (renamed INT);")
    paths = [str(tmp_path / "bin.000011.xz"), str(tmp_path / "bin.000010.zst")]
    several = several.option("schemaFile", str(schema))
    with pytest.raises(AnalysisException) as caught:
        several.load(paths)
    assert "OutOfOrderGtidError: the transaction 7-1-2 in" in _ours(caught.value), "the later file stands first"
    several = several.option("gtidStrictMode", "false")
    rows = several.load(paths).selectExpr("to_json(after) a", "source.file").collect()
    assert [tuple(row) for row in rows] == [('{"renamed":4}', "bin.000011"), ('{"renamed":3}', "bin.000010")]


def test_what_cannot_be_read_is_refused_by_load(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, ROTATION / "rotation.1.binlog", table="v.u")
    expected = "SchemaError: v.u has no rows and no definition in these files."
    assert _ours(caught.value) == f"{expected} Did you mean v.t?"


def test_sequence_numbers_as_decimals_pass_spark_in_both_shapes(spark: SparkSession) -> None:
    file, wide = ROTATION / "rotation.1.binlog", {"table": "v.t", "sequenceNumbers": "decimal"}
    flat = read(spark, file, rowShape="flat", **wide)
    envelope = read(spark, file, **wide).select("transaction.sequence_number")
    assert flat.schema["_commit_version"].dataType == envelope.schema["sequence_number"].dataType == DecimalType(20, 0)
    found = [row for frame in (flat.select("_commit_version"), envelope) for row in frame.collect()]
    assert [tuple(row) for row in found] == [(Decimal(3),), (Decimal(3),)]


def test_a_table_of_the_catalog_is_made_with_its_options_and_read_with_those_of_the_query(spark: SparkSession) -> None:
    """Spark hands over each option twice when such a table is made, and none of them when it is read."""
    options = f"path '{ROTATION / 'rotation.1.binlog'}', table 'v.t', rowShape 'flat'"
    spark.sql(f"CREATE TABLE kept USING `mariadb-binlog` OPTIONS ({options}) COMMENT 'c' TBLPROPERTIES ('a'='b')")
    try:
        assert spark.table("kept").columns == ["a", *(column.name for column in FLAT)]
        named = options.replace(" '", "='")
        assert spark.sql(f"SELECT a FROM kept WITH ({named})").collect() == [(1,)]
        with pytest.raises(PySparkException, match=r"CREATE TABLE … USING.*none of its options.*WITH"):
            spark.table("kept").collect()
    finally:
        spark.sql("DROP TABLE kept")


def test_a_part_of_the_columns_and_no_rows_at_all(spark: SparkSession) -> None:
    full = read(spark, ROTATION / "rotation.1.binlog", table="v.t", rowShape="flat").select("_gtid", "a")
    reader = spark.read.format("mariadb-binlog").schema(full.schema).option("table", "v.t").option("rowShape", "flat")
    assert [tuple(row) for row in reader.load(str(ROTATION / "rotation.1.binlog")).collect()] == [("0-1-3", 1)]
    # Spark makes up a partition where there is none.
    assert read(spark, ROTATION / "rotation.1.binlog", tables="nothing.*").count() == 0


def test_streams_want_a_server_and_batches_a_path(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("mariadb-binlog").option("table", "v.t").load(str(ROTATION / "rotation.1.binlog"))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(PySparkException, match=r"path names binlog files: they are read with spark\.read"):
        query.awaitTermination(PATIENCE_S)
