"""Rows that are of another definition than the mirror knows, and rows that cannot be read any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

LOST = """
import shutil
from streaming_source.mirroring.writers.native.writer import NativeWriter
kept = NativeWriter.write
def lost(writer, *rest):
    shutil.rmtree({relay!r})
    return kept(writer, *rest)
NativeWriter.write = lost
"""


REPLACED = """
import pymysql
from streaming_source.mirroring import sink
kept_asking = sink.request_resnapshot
def replaced(*arguments, **more):
    with pymysql.connect(host={host!r}, port={port}, user="writer", password="w", database="shop") as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO a SELECT seq, 2 FROM seq_100_to_140")
        cursor.execute("COMMIT")
        cursor.execute("CREATE OR REPLACE TABLE a (id BIGINT PRIMARY KEY, v BIGINT, more INT)")
        cursor.execute("INSERT INTO a SELECT seq, 3, 3 FROM seq_120_to_160")
        cursor.execute("COMMIT")
    sink.request_resnapshot = kept_asking
    return kept_asking(*arguments, **more)
sink.request_resnapshot = replaced
"""


def test_a_definition_that_was_changed_behind_the_binlog(mirrored: Callable[..., Mirrored]) -> None:
    """The statement is in no log, so that nothing tells of it but the rows."""
    with MariaDb("11.8", "--binlog-row-metadata=FULL") as primary:
        fill_shop(primary, "a", "b")
        mirror = mirrored(primary, "shop")
        mirror.run()
        primary.sql("SET sql_log_bin = 0", "ALTER TABLE shop.a MODIFY v VARCHAR(20)")
        primary.sql("INSERT INTO shop.a VALUES (100, '12')", "INSERT INTO shop.b VALUES (100, 12)")
        mirror.run()
        mirror.assert_equal("a", "b")
        primary.sql("INSERT INTO shop.a VALUES (101, 'twelve')", "INSERT INTO shop.b VALUES (101, 12)")
        mirror.run()
        mirror.assert_equal("a", "b")
        assert mirror.states() == dict.fromkeys("ab", ("current", None))


def test_a_table_that_is_replaced_again_before_it_is_read(mirrored: Callable[..., Mirrored]) -> None:
    """As of the place where it is to be read, the table is one that nobody can read any more; then come its changes."""
    with MariaDb("11.8") as primary:
        primary.add_user()
        primary.sql("CREATE USER writer IDENTIFIED BY 'w'", "GRANT ALL ON *.* TO writer")
        primary.sql("CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
        primary.sql("USE shop", "INSERT INTO a SELECT seq, 0 FROM seq_1_to_30")
        mirror = mirrored(primary, "shop")
        mirror.run()
        primary.sql("DROP TABLE shop.a", "CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
        primary.sql("USE shop", "INSERT INTO a SELECT seq, 1 FROM seq_1_to_40")
        mirror.run(before=REPLACED.format(host=primary.host, port=primary.port))
        for _ in range(3):
            mirror.run(before="sink.request_resnapshot = kept_asking")
        assert mirror.states()["a"] == ("current", None)
        mirror.assert_equal("a")


def test_rows_that_are_gone_end_the_query_and_come_again(mirrored: Callable[..., Mirrored]) -> None:
    """They were there when their batch was planned: no table is to blame."""
    with MariaDb("11.8") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
        mirror = mirrored(primary, "shop")
        mirror.run()
        primary.sql("INSERT INTO shop.a VALUES (1, 1)")
        with pytest.raises(AssertionError, match=r"RelayError|DataLossError|RelayFileRemovedError"):
            mirror.run(before=LOST.format(relay=mirror.arguments["relayDir"]))
        assert mirror.states()["a"] == ("current", None)
        mirror.run(before="NativeWriter.write = kept")
        mirror.assert_equal("a")
