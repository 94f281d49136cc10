"""Where the batches of a mirror end: before a statement on one of its tables, on a real server."""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from replica.protocol.gtid import GtidPosition, covers
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning.open_planner import open_planner
from streaming_source.rows.reader import read_changes
from streaming_source.source.load import load_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_source.offsets.offset import SourceOffset
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

Event = tuple[str, str, str]
"""Operation, table, GTID."""
STATEMENTS = (
    "ALTER TABLE {t} ADD COLUMN c{n} INT",
    "TRUNCATE TABLE {t}",
    "CREATE INDEX i{n} ON {t} (v)",
    "CREATE OR REPLACE TABLE {t} (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AS SELECT 1 AS v",
    "RENAME TABLE {t} TO x, x TO {t}",
    "CREATE TABLE other{n} (i INT)",
    "CREATE TEMPORARY TABLE temporary{n} (i INT)",
    "SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE TABLE {t}",
)
"""On selected tables, on others, and on a temporary one, which is no selected table."""
ROWS = "INSERT INTO {t} (v) VALUES ({n}), ({n})"
OTHER_ROWS = "INSERT INTO elsewhere VALUES ({n})"


class Borders:
    """A database with two selected tables, and another one."""

    def __init__(self, server: MariaDb, folder: Path) -> None:
        self.server = server
        self.name = f"borders_{secrets.token_hex(4)}"
        self._folder = folder
        server.add_user()
        server.sql("SET GLOBAL binlog_row_metadata = FULL", f"CREATE DATABASE {self.name}")
        self.run(
            "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
            "CREATE TABLE b LIKE a",
            "CREATE TABLE elsewhere (i INT)",
        )
        self.start = server.gtid_binlog_pos()

    def run(self, *statements: str) -> None:
        """Run statements in one session."""
        self.server.sql(f"USE {self.name}", *statements)

    def batches(self, *, borders: bool) -> list[list[Event]]:
        """Read everything since the start, and return the batches that are not empty."""
        given = {
            "host": self.server.host,
            "port": str(self.server.port),
            "user": "repl",
            "password": "replica-secret",
            "tables": f"{self.name}.a,{self.name}.b",
            "includeDdl": "true",
            "onStatementDml": "warn",
            "startingPosition": self.start,
            "relayDir": str(self._folder / secrets.token_hex(4)),
        }
        plan = load_plan(given)
        planner = open_planner(SourceOptions.parse(given), plan, borders=borders)
        found: list[list[Event]] = []
        try:
            end = GtidPosition.parse(self.server.gtid_binlog_pos())
            at: SourceOffset = planner.initial_offset()
            while not covers(at.position, end):
                after = planner.latest_offset(at, bounded=True)
                if after != at:
                    found.append(
                        [
                            (row["op"], row["table"], row["transaction"]["gtid"])
                            for partition in planner.partitions(at, after)
                            for batch in read_changes(partition, plan)
                            for row in batch.to_pylist()
                        ]
                    )
                    at = after
        finally:
            planner.close()
        return [batch for batch in found if batch]


@pytest.fixture
def borders(server: MariaDb, tmp_path: Path) -> Iterator[Borders]:
    made = Borders(server, tmp_path)
    yield made
    server.sql(f"DROP DATABASE {made.name}")


def of(batches: list[list[Event]]) -> list[list[str]]:
    """The operations of each batch, without repetitions."""
    return [[op for n, (op, _, _) in enumerate(batch) if not n or batch[n - 1][0] != op] for batch in batches]


def test_rows_come_behind_the_statements_of_their_batch(borders: Borders) -> None:
    borders.run(
        ROWS.format(t="a", n=1),
        "ALTER TABLE a ADD COLUMN c INT",
        "TRUNCATE TABLE b",
        "ALTER TABLE b ADD COLUMN c INT",
        ROWS.format(t="a", n=2),
        ROWS.format(t="b", n=2),
        "TRUNCATE TABLE a",
        ROWS.format(t="b", n=3),
    )
    assert of(borders.batches(borders=True)) == [["insert"], ["ddl", "insert"], ["ddl", "insert"]]
    assert of(borders.batches(borders=False)) == [["insert", "ddl", "insert", "ddl", "insert"]]


def test_statements_in_a_row_are_one_batch(borders: Borders) -> None:
    borders.run(*(f"ALTER TABLE {table} ADD COLUMN c{n} INT" for n in range(20) for table in "ab"))
    (batch,) = borders.batches(borders=True)
    assert len(batch) == 40


def test_what_is_no_statement_on_a_selected_table_ends_no_batch(borders: Borders) -> None:
    borders.run(
        ROWS.format(t="a", n=1),
        "ALTER TABLE elsewhere ADD COLUMN c INT",
        "CREATE TEMPORARY TABLE a (i INT)",
        "ALTER TABLE a ADD COLUMN c INT",
        "INSERT INTO a VALUES (1, 1)",
        "DROP TEMPORARY TABLE a",
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE b SET v = 1",
        "SET SESSION binlog_format = ROW",
        "CREATE VIEW w AS SELECT * FROM a",
        ROWS.format(t="a", n=2),
    )
    assert of(borders.batches(borders=True)) == [["insert"]]


def test_a_table_that_is_made_with_rows_ends_the_batch_before_the_next_statement(borders: Borders) -> None:
    made = "CREATE OR REPLACE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AS SELECT 1 AS v"
    borders.run(made, "TRUNCATE TABLE b", made)
    assert of(borders.batches(borders=True)) == [["ddl", "insert"], ["ddl", "insert"]]


@pytest.mark.parametrize("seed", range(6))
def test_random_loads(borders: Borders, seed: int) -> None:
    chance = random.Random(seed)
    loads = []
    for number in range(60):
        form = chance.choice((*STATEMENTS, *[ROWS] * 6, *[OTHER_ROWS] * 2))
        loads.append(form.format(t=chance.choice("ab"), n=number))
    borders.run(*loads)
    batches = borders.batches(borders=True)
    for kinds in of(batches):
        assert kinds in (["ddl"], ["insert"], ["ddl", "insert"]), f"{loads}\n{kinds}"
    events: list[Any] = [event for batch in batches for event in batch]
    assert events == [event for batch in borders.batches(borders=False) for event in batch]
