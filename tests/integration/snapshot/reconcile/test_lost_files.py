"""The files of batches are lost, and statements came after the batches: which tables cannot be read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from replica.errors import DataLossError
from replica.snapshot.pace import Pace
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.integration.snapshot.kit.table_reading import TableReading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.schema.known_tables import TableName

pytestmark = pytest.mark.server

A, B, C, Z, EMPTY = ("d", "a"), ("d", "b"), ("d", "c"), ("d", "z"), ("d", "empty")
_LATER_ROWS: Final = (
    "UPDATE d.a SET v = v + 1 WHERE id < 9",
    "DELETE FROM d.c WHERE id = 3",
    "INSERT INTO d.c VALUES (77, 1)",
)

STATEMENTS: Final = {
    "changes": ((), set()),
    "truncate": (("TRUNCATE d.b",), {B}),
    "alter": (("ALTER TABLE d.b ADD w INT DEFAULT 3",), {B}),
    "another-key": (("ALTER TABLE d.b DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)",), {B}),
    "drop": (("DROP TABLE d.b",), {B}),
    "rename": (("RENAME TABLE d.b TO d.z",), {B}),
    "made-again": (("DROP TABLE d.b", "CREATE TABLE d.b (id INT PRIMARY KEY, v INT)"), {B}),
    "two": (("TRUNCATE d.b", "DROP TABLE d.a"), {A, B}),
    "images-that-lack-columns": (
        ("SET binlog_row_image = 'MINIMAL'", "UPDATE d.b SET v = 9 WHERE id = 5", "SET binlog_row_image = 'FULL'"),
        {B},
    ),
    "new-table": (("CREATE TABLE d.bb (id INT PRIMARY KEY)", "INSERT INTO d.bb VALUES (1)"), set()),
    "drop-of-an-empty-one": (("DROP TABLE d.empty",), set()),
    "rows-not-logged": (("SET sql_log_bin = 0", "DELETE FROM d.b WHERE id = 5", "SET sql_log_bin = 1"), {B}),
}
"""Statements on d.b and others, and the tables whose rows are lost by them."""


@pytest.fixture(scope="module")
def running() -> Iterator[MariaDb]:
    with MariaDb("11.8") as server:
        yield server


@pytest.fixture
def server(running: MariaDb) -> MariaDb:
    running.sql("DROP DATABASE IF EXISTS d")
    running.reset_master()
    running.sql("CREATE DATABASE d", "USE d", "CREATE TABLE d.empty (id INT PRIMARY KEY)")
    for _, table in (A, B, C):
        running.sql(
            "USE d",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_40",
        )
    return running


@pytest.mark.parametrize("by_table", [False, True], ids=["together", "by-table"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_only_tables_that_a_statement_changed_are_lost(
    server: MariaDb, tmp_path: Path, name: str, *, by_table: bool
) -> None:
    statements, lost = STATEMENTS[name]
    with TableReading(server, tmp_path, {}, pace=Pace(table_by_table=by_table)) as reading:
        reading.judge = lambda *_: None  # type: ignore[method-assign]
        wait_until(lambda: (reading.step(), reading.frontier.finished)[1], "all is read")
        before = rows_of(reading)
        server.sql(*_LATER_ROWS, *statements)
        reading.restart(without_files=True)
        reading.receive_all()
        if lost and not by_table:
            with pytest.raises(DataLossError, match="the same rows cannot be read again"):
                rows_of(reading)
            return
        for _ in range(2):  # the files that this process wrote say the same
            missing: dict[TableName, str] = {}
            found = rows_of(reading, missing)
            if "not-logged" in name:
                assert lost <= missing.keys() <= {A, B, C, EMPTY}, "which table it was is not known"
            else:  # d.b is lost because it does not exist any more, or by the statement, which also names d.z
                assert missing.keys() - {Z} == lost
            assert found == {table: before[table] for table in before if table not in missing}


def rows_of(reading: TableReading, lost: dict[TableName, str] | None = None) -> dict[TableName, list[Any]]:
    """Return the rows of all batches by table, and put the tables that are lost into `lost`."""
    found: dict[TableName, list[Any]] = {}
    for batch in reading.batches:
        for part in reading.snapshot.parts(*batch):
            found.setdefault(part.table, []).extend(reading.rows_of(part))
        if lost is not None:
            lost |= reading.snapshot.lost_tables
    return found
