"""Tables as they were at a position of the past (content=tables with endingPosition): rows recorded by SELECT at the
position while no one writes, then changes of every kind, then the read, which must give what was recorded.
"""

from __future__ import annotations

import contextlib
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from streaming_source.source.data_source import MariaDbBinlogSource
from tests.fixtures.mariadb import MariaDb, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.server]

ROWS = 2000
Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def source(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, "--binlog-row-metadata=FULL", "--max-connections=50") as running:
        running.add_user()
        yield running


@pytest.fixture
def past(source: MariaDb, request: pytest.FixtureRequest) -> Iterator[Past]:
    database = "past_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:40].lower()
    source.sql(
        f"CREATE DATABASE {database}",
        f"USE {database}",
        "CREATE TABLE one (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2))",
        "CREATE TABLE two (a INT, b VARCHAR(20), note TEXT, PRIMARY KEY (a, b))",
        f"INSERT INTO one SELECT seq, CONCAT('row ', seq), seq / 4 FROM seq_0_to_{ROWS - 1}",
        f"INSERT INTO two SELECT seq % 10, CONCAT('k', seq), NULL FROM seq_0_to_{ROWS - 1}",
    )
    yield Past(source, database)
    source.sql(f"DROP DATABASE {database}")


class Past:
    """A database of two tables, and what they held at positions."""

    def __init__(self, server: MariaDb, database: str) -> None:
        self.server = server
        self.database = database

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.sql(f"USE {self.database}", *statements)

    def recorded(self) -> tuple[str, Rows]:
        """The position, and the rows of both tables there."""
        rows = {
            "one": self.sql("SELECT id, name, price FROM one ORDER BY id"),
            "two": self.sql("SELECT a, b, note FROM two ORDER BY a, b"),
        }
        return self.server.gtid_binlog_pos(), {name: [tuple(row) for row in found] for name, found in rows.items()}

    def load(self, spark: SparkSession, **options: str) -> DataFrame:
        reader = spark.read.format(MariaDbBinlogSource.name()).options(
            host=self.server.host, port=str(self.server.port), user="repl", password="replica-secret"
        )
        return reader.options(content="tables", snapshotChunkRows="700", **options).load()

    def read(self, spark: SparkSession, position: str, table: str) -> list[tuple[Any, ...]]:
        rows = self.load(spark, table=f"{self.database}.{table}", endingPosition=position)
        (told,) = {row["_position"] for row in rows.select("_position").distinct().collect()}
        assert told == position
        return sorted(tuple(row)[:-1] for row in rows.collect())

    def change(self) -> None:
        """Insert, update, delete, move keys, put keys back, and the same in transactions of several statements."""
        self.sql(
            f"INSERT INTO one SELECT seq, 'new', 1 FROM seq_{ROWS}_to_{ROWS + 300}",
            "UPDATE one SET name = 'changed', price = price + 1 WHERE id % 3 = 0",
            "DELETE FROM one WHERE id % 7 = 1",
            "UPDATE one SET id = id + 100000 WHERE id % 11 = 2",
            "UPDATE one SET id = -id WHERE id BETWEEN 5 AND 9",
            "INSERT INTO one VALUES (1, 'put in again', NULL)",
            "BEGIN",
            "DELETE FROM two WHERE a = 3",
            "INSERT INTO two SELECT 3, CONCAT('k', seq), 'other' FROM seq_0_to_20",
            "UPDATE two SET a = a + 1 ORDER BY a DESC, b",
            "COMMIT",
            "UPDATE two SET b = CONCAT(b, '!') WHERE a = 5",
        )


@pytest.mark.quick_on("newest")
@pytest.mark.slow
def test_tables_are_read_as_they_were(spark: SparkSession, past: Past) -> None:
    first, rows = past.recorded()
    past.change()
    second, later = past.recorded()
    past.sql("DELETE FROM one", "REPLACE INTO two SELECT seq, 'x', 'y' FROM seq_1_to_50")
    assert past.read(spark, first, "one") == rows["one"]
    assert past.read(spark, first, "two") == rows["two"]
    assert past.read(spark, second, "one") == later["one"]
    both = past.load(spark, tables=f"{past.database}.*", endingPosition=second)
    assert {tuple(row) for row in both.groupBy("table").count().collect()} == {
        (name, len(found)) for name, found in later.items()
    }


def xa(connection: Any, name: str, *statements: str) -> None:
    cursor = connection.cursor()
    for statement in (f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'"):
        cursor.execute(statement)


@pytest.mark.quick_on("newest")
@pytest.mark.parametrize("rotated", [0, 3])
@pytest.mark.slow
def test_an_xa_transaction_that_is_open_at_the_position_is_taken_back(
    spark: SparkSession, past: Past, rotated: int
) -> None:
    with contextlib.closing(past.server.connect(database=past.database, autocommit=True)) as session:
        xa(session, "open", "UPDATE one SET name = 'xa' WHERE id < 500", "DELETE FROM one WHERE id BETWEEN 500 AND 599")
        past.sql(*["FLUSH BINARY LOGS"] * rotated, "INSERT INTO two VALUES (77, 'between', 'files')")
        position, rows = past.recorded()
        past.sql("UPDATE one SET price = 0 WHERE id > 1000")
        session.cursor().execute("XA COMMIT 'open'")
        xa(session, "later", "DELETE FROM one WHERE id > 1500")
        session.cursor().execute("XA COMMIT 'later'")
    assert past.read(spark, position, "one") == rows["one"]


@pytest.mark.quick_on("newest")
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE one ADD COLUMN more INT DEFAULT 7",
        "DROP TABLE two",
        "CREATE OR REPLACE TABLE two (a INT PRIMARY KEY)",
        *(
            pytest.param(statement, marks=pytest.mark.slow)
            for statement in (
                "TRUNCATE TABLE one",
                "RENAME TABLE one TO three",
                "CREATE INDEX by_name ON one (name)",
            )
        ),
    ],
)
def test_a_statement_on_a_selected_table_behind_the_position_is_named(
    spark: SparkSession, past: Past, statement: str
) -> None:
    position, _ = past.recorded()
    past.sql(statement)
    with pytest.raises(Exception, match=r"after .* requested rows: \d+-\d+-\d+, ") as raised:
        past.load(spark, tables=f"{past.database}.*", endingPosition=position).count()
    assert " ".join(statement.split()[:2]) in str(raised.value)
    assert "endingPosition after that statement" in str(raised.value)


@pytest.mark.quick_on("newest")
@pytest.mark.slow
def test_a_table_that_was_made_later_has_no_rows_there(spark: SparkSession, past: Past) -> None:
    position, rows = past.recorded()
    past.sql("CREATE TABLE young (id INT PRIMARY KEY)", "INSERT INTO young VALUES (1)", "ALTER TABLE young ADD x INT")
    found = past.load(spark, tables=f"{past.database}.*", endingPosition=position)
    assert {row["table"] for row in found.collect()} == set(rows)
    with pytest.raises(Exception, match="CREATE TABLE young"):
        past.load(spark, table=f"{past.database}.young", endingPosition=position).count()


@pytest.mark.slow
@pytest.mark.quick_on("newest")
def test_positions_that_cannot_be_had_are_refused(spark: SparkSession, past: Past) -> None:
    position, _ = past.recorded()
    domain, server, number = map(int, position.split(",")[0].split("-"))
    table = f"{past.database}.one"
    with pytest.raises(AnalysisException, match="is not reached"):
        past.load(spark, table=table, endingPosition=f"{domain}-{server}-{number + 1000}", connectRetry="1s")
    with pytest.raises(AnalysisException, match="position of this server"):
        past.load(spark, table=table, endingPosition=f"{domain}-{server + 7}-{number}")
    with pytest.raises(AnalysisException, match="is in the future"):
        past.load(spark, table=table, endingPosition="2100-01-01T00:00:00Z")
    past.change()
    past.server.sql("FLUSH BINARY LOGS")
    newest = past.server.sql("SHOW MASTER STATUS")[0][0]
    past.server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1", "FLUSH LOCAL ENGINE LOGS")

    def purged() -> bool:
        """A file that a connection still reads stays, and PURGE only warns of that."""
        past.server.sql(f"PURGE BINARY LOGS TO '{newest}'")
        return bool(past.server.sql("SHOW BINARY LOGS")[0][0] == newest)

    wait_until(purged, "no one reads the old files any more")
    with pytest.raises(AnalysisException, match="Set a later endingPosition"):
        past.load(spark, table=table, endingPosition=position)


@pytest.mark.slow
@pytest.mark.quick_on("newest")
def test_a_position_that_is_about_to_be_reached_is_waited_for(spark: SparkSession, past: Past) -> None:
    position, rows = past.recorded()
    domain, server, number = map(int, position.split("-"))
    writer = threading.Timer(1.0, past.sql, args=("DELETE FROM one WHERE id = 1", "DELETE FROM one WHERE id = 2"))
    writer.start()
    try:
        found = past.read(spark, f"{domain}-{server}-{number + 1}", "one")
    finally:
        writer.join()
    assert found == [row for row in rows["one"] if row[0] != 1]
    assert found[0] == (0, "row 0", Decimal("0.00"))
