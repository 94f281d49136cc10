"""Tables as a batch (content=tables): all rows of all tables as of one GTID position, while writers go on.

The writer puts each key into two tables in one transaction and takes it out of both in one: at any one position both
have the same keys, and at any two different ones they do not.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from tests.fixtures.load.beside import beside

if TYPE_CHECKING:
    import threading

    from pyspark.sql import DataFrame, SparkSession

    from tests.fixtures.mariadb import MariaDb
    from tests.spark.queries import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

ROWS = 4000


def writing(server: MariaDb, database: str) -> contextlib.AbstractContextManager[None]:
    def write(stop: threading.Event) -> None:
        with contextlib.closing(server.connect(database=database, autocommit=False)) as connection:
            cursor = connection.cursor()
            key = ROWS
            while not stop.is_set():
                key += 1
                gone = key * 7919 % ROWS
                for table in ("one", "two"):
                    cursor.execute(f"INSERT INTO {table} VALUES ({key}, 'new', {key} / 4)")
                    cursor.execute(f"DELETE FROM {table} WHERE id = {gone}")
                connection.commit()
                stop.wait(0.002)

    return beside(write)


def load(spark: SparkSession, shop: Shop, **options: str) -> DataFrame:
    reader = spark.read.format("mariadb-binlog").options(**server(shop))
    return reader.options(content="tables", snapshotChunkRows="700", **options).load()


def server(shop: Shop) -> dict[str, str]:
    primary = shop.primary
    return {"host": primary.host, "port": str(primary.port), "user": primary.user, "password": primary.password}


@pytest.fixture
def pair(shop: Shop) -> Shop:
    for table in ("one", "two"):
        shop.sql(
            f"USE {shop.database}",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2))",
            f"INSERT INTO {table} SELECT seq, CONCAT('row ', seq), seq / 4 FROM seq_0_to_{ROWS - 1}",
        )
    return shop


def test_all_tables_are_as_of_one_position_while_they_are_written(spark: SparkSession, pair: Shop) -> None:
    with writing(pair.primary, pair.database):
        rows = load(spark, pair, tables=f"{pair.database}.*", excludeTables="*.orders")
        keys = rows.selectExpr("table", "variant_get(row, '$.id', 'int') AS id", "_position").collect()
        again = rows.count()  # another action, after other transactions: the same rows
    (position,) = {row["_position"] for row in keys}
    assert rows.schema["_position"].metadata == {"mariadb.position": position}
    one, two = ({row.id for row in keys if row.table == table} for table in ("one", "two"))
    assert one == two
    assert len(keys) == again == len(one) + len(two) == 2 * ROWS


def test_one_table_has_the_types_of_the_stream_and_the_values_of_select(spark: SparkSession, pair: Shop) -> None:
    rows = load(spark, pair, table=f"{pair.database}.one")
    assert rows.columns == ["id", "name", "price", "_position"]
    assert rows.dtypes[:3] == [("id", "int"), ("name", "string"), ("price", "decimal(10,2)")]
    expected = pair.sql(f"SELECT id, name, price FROM {pair.database}.one ORDER BY id")
    assert [tuple(row)[:3] for row in rows.orderBy("id").collect()] == [tuple(row) for row in expected]
    assert rows.filter("price > 999").select("name").count() == sum(price > 999 for *_, price in expected)


def test_what_is_about_changes_is_refused(spark: SparkSession, pair: Shop) -> None:
    with pytest.raises(AnalysisException, match="startingPosition is about changes"):
        load(spark, pair, table=f"{pair.database}.one", startingPosition="latest")
    stream = spark.readStream.format("mariadb-binlog").options(**server(pair), table=f"{pair.database}.one")
    with pytest.raises(Exception, match="startingPosition=initial"):
        stream.option("content", "tables").load().writeStream.format("noop").start().processAllAvailable()


def test_a_table_that_is_altered_before_it_is_read_is_named(spark: SparkSession, pair: Shop) -> None:
    rows = load(spark, pair, table=f"{pair.database}.one")
    pair.sql(f"ALTER TABLE {pair.database}.one ADD COLUMN more INT DEFAULT 7")
    with pytest.raises(Exception, match=r"altered, .* after .*ALTER TABLE"):
        rows.count()
