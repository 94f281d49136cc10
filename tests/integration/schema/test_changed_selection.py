"""A checkpoint that goes on with more tables, on a server whose rows do not name their columns, as is its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, SchemaError
from tests.integration.schema.schema_stream import Stream, changing_tables, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


def test_an_added_table_is_read_with_the_columns_it_has(server: MariaDb, tmp_path: Path) -> None:
    with changing_tables(server, "NO_LOG") as made:
        made.run("CREATE TABLE a (id INT PRIMARY KEY, x INT)", "CREATE TABLE b (id INT PRIMARY KEY, y INT)")
        stream = Stream(server, tmp_path, server.gtid_binlog_pos(), tables=f"{made.database}.a")
        stream.begin()
        stream.read(made.insert("a", 1, x=10))
        made.insert("b", 2, y=20)  # before it is asked for: it lies behind the checkpoint all the same
        stream.stop()
        stream.given["tables"] = f"{made.database}.*"
        stream.read(made.insert("a", 3, x=30))
        report = stream.open().report()
        assert report is not None
        assert report["selectionChanged"]["added"] == [f"{made.database}.*"]
        made.run("ALTER TABLE b ADD z INT")
        stream.read(made.insert("b", 4, y=40, z=41))
        stream.stop(lose_relay=True)  # what the offset says of the added table is enough
        stream.read(made.insert("b", 5, y=50, z=51))
        assert stream.seen == made.seen
        stream.stop()


def test_rows_of_before_its_last_change_cannot_be_named(server: MariaDb, tmp_path: Path) -> None:
    with changing_tables(server, "NO_LOG") as made:
        made.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY, y INT)")
        stream = Stream(server, tmp_path, server.gtid_binlog_pos(), tables=f"{made.database}.a")
        stream.begin()
        stream.read(made.insert("a", 1))
        made.insert("b", 2, y=20)
        made.run("ALTER TABLE b CHANGE y z INT")
        stream.stop()
        stream.given["tables"] = f"{made.database}.*"
        with pytest.raises(SchemaError, match=r"\.b"):
            stream.read(made.insert("b", 3, z=30))
        stream.stop()


def test_another_table_is_refused(server: MariaDb, tmp_path: Path) -> None:
    with changing_tables(server, "FULL") as made:
        made.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
        stream = Stream(server, tmp_path, server.gtid_binlog_pos(), table=f"{made.database}.a")
        stream.read(made.insert("a", 1))
        stream.stop()
        stream.given["table"] = f"{made.database}.b"
        with pytest.raises(ConfigError, match=rf"of table {made.database}\.a, and this query reads {made.database}\.b"):
            stream.read(made.insert("b", 2))
        stream.given["table"] = f"{made.database}.a"
        stream.stop()
        stream.read(server.gtid_binlog_pos())
        assert rows(stream) == [{"id": 1}]
        stream.stop()
