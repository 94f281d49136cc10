"""Edge cases 28-35: table maps, their metadata, and statements that touch several tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import SchemaError
from replica.protocol.constants import RowsFlag
from replica.protocol.rows.rows_event import RowsEvent
from replica.protocol.rows.table_map import TableMapEvent
from tests.fixtures.mariadb import MariaDb
from tests.integration.commands.dump_agreement import check_binlogs
from tests.integration.edges.log import Log, catalog, log_of, version

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(server_version: str) -> Iterator[MariaDb]:
    """In the end, what the tests have written is what mariadb-binlog -vv reads, row by row and value by value."""
    with MariaDb(server_version) as running:
        yield running
        check_binlogs(running)


@pytest.mark.edge(28)
def test_signedness_bits_count_year_and_not_bit(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (i INT, y YEAR, b BIT(3), d DECIMAL(4,2) UNSIGNED, t TINYINT UNSIGNED)",
        "INSERT INTO a VALUES (-1, 2024, 5, 99.25, 255)",
    )
    assert b"\x01\x01\x70" in log.data
    assert [column.unsigned for column in log.columns("a")] == [False, True, None, True, True]
    ((i, y, b, d, t),) = log.inserted("a")
    assert (i, y, b, str(d), t) == (-1, 2024, 5, "99.25", 255)


@pytest.mark.edge(29)
def test_labels_with_everything_in_them(server: MariaDb) -> None:
    labels = ["a,b", "it's", 'say "x"', "", "ü€😀", "back\\slash", " lead"]
    quoted = ",".join("'" + label.replace("\\", "\\\\").replace("'", "''") + "'" for label in labels)
    log = log_of(
        server,
        f"CREATE TABLE a (e ENUM({quoted}), s SET('ä''','b''') CHARACTER SET latin1)",
        *(f"INSERT INTO a VALUES ({i}, 3)" for i in range(1, len(labels) + 1)),
    )
    expected = [(label, "ä',b'") for label in labels]
    assert log.inserted("a") == expected
    assert log.inserted("a", with_catalog=True) == expected


@pytest.mark.edge(30)
def test_keys_with_and_without_a_prefix(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE p (a INT, x1 INT, x2 INT, x3 INT, x4 INT, c VARCHAR(10), PRIMARY KEY (a, c(2)))",
        "CREATE TABLE k (x INT, b INT, a INT, PRIMARY KEY (a, b))",
        "INSERT INTO p VALUES (1, 1, 1, 1, 1, 'abc')",
        "INSERT INTO k VALUES (1, 2, 3)",
    )
    assert b"\x09\x04\x00\x00\x05\x02" in log.data
    assert b"\x08\x02\x02\x01" in log.data
    assert [column.is_key for column in log.columns("p")] == [True, False, False, False, False, True]
    assert [column.is_key for column in log.columns("k")] == [False, True, True]


@pytest.mark.edge(31)
def test_collations_as_default_with_exceptions_and_one_by_one(server: MariaDb) -> None:
    newest = "utf8mb4_uca1400_ai_ci" if version(server) >= (10, 10) else "utf8mb4_unicode_520_ci"
    log = log_of(
        server,
        "CREATE TABLE few (a CHAR(9), b CHAR(9), c CHAR(9), d CHAR(9) CHARACTER SET latin1, e CHAR(9))",
        f"CREATE TABLE many (a CHAR(9) CHARACTER SET latin1, b CHAR(9) CHARACTER SET latin2, "
        f"c CHAR(9) CHARACTER SET koi8r, d VARCHAR(9) COLLATE {newest})",
        "INSERT INTO few VALUES ('a', 'ж', 'c', 'é', 'e')",
        "INSERT INTO many VALUES ('é', 'č', 'ж', '漢')",
    )
    assert log.inserted("few") == [("a", "ж", "c", "é", "e")]
    assert log.inserted("many") == [("é", "č", "ж", "漢")]
    new = "full_collation_name, id FROM information_schema.collation_character_set_applicability"
    old = "collation_name, id FROM information_schema.collations"
    numbers = dict(server.sql(f"SELECT {new if version(server) >= (10, 10) else old}"))
    assert log.columns("many")[3].collation == numbers[newest]
    assert (numbers[newest] > 255) == (version(server) >= (10, 10))


NAMES = ["漢" * 40, "back`tick", "a.b", "with space", "quote'\"", "ü"]


@pytest.mark.edge(32)
@pytest.mark.parametrize("name", NAMES)
def test_identifiers(server: MariaDb, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    longest = "漢" * 64  # of a column: names of tables and databases become file names, which are shorter
    log = log_of(
        server,
        f"CREATE OR REPLACE DATABASE {quoted}",
        f"CREATE TABLE {quoted}.{quoted} (`{longest}` INT, {quoted} INT)",
        f"INSERT INTO {quoted}.{quoted} VALUES (1, 2)",
    )
    log = Log(log.data, catalog(server, name))
    expected = {longest: 1, name: 2}
    for with_catalog in (False, True):
        assert [c.after for c in log.changes(name, database=name, with_catalog=with_catalog)] == [expected]


@pytest.mark.edge(33)
def test_a_table_altered_between_two_rows(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (x INT, y VARCHAR(5))",
        "INSERT INTO a VALUES (1, 'one')",
        "ALTER TABLE a ADD COLUMN z INT DEFAULT 7 FIRST",
        "INSERT INTO a VALUES (2, 2, 'two')",
        "ALTER TABLE a DROP COLUMN x",
        "INSERT INTO a VALUES (3, 'three')",
        "ALTER TABLE a RENAME COLUMN y TO name",
        "INSERT INTO a VALUES (4, 'four')",
    )
    maps = [tuple(column.name for column in event.columns) for event in log.events(TableMapEvent)]
    assert maps == [("x", "y"), ("z", "x", "y"), ("z", "y"), ("z", "name")]
    assert [change.after for change in log.changes("a", twin=False)] == [
        {"x": 1, "y": "one"},
        {"x": 2, "y": "two"},
        {"x": None, "y": "three"},
        {"x": None, "y": None},
    ], "columns meet the first definition by name"


@pytest.mark.edge(33)
def test_a_table_altered_where_names_are_not_logged_is_an_error(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (x INT, y INT)",
        "INSERT INTO a VALUES (1, 2)",
        "ALTER TABLE a ADD COLUMN z INT FIRST",
        "INSERT INTO a VALUES (3, 4, 5)",
        metadata="NO_LOG",
    )
    with pytest.raises(SchemaError, match=r"edge\.a has 2 columns in the binlog and 3 in the catalog"):
        log.changes("a", with_catalog=True)


@pytest.mark.edge(34)
def test_two_tables_in_one_statement_and_a_trigger(server: MariaDb) -> None:
    log = log_of(
        server,
        "UPDATE a JOIN b ON a.id = b.id SET a.x = a.x + 1, b.y = b.y + 1",
        before=[
            "CREATE TABLE a (id INT PRIMARY KEY, x INT)",
            "CREATE TABLE b (id INT PRIMARY KEY, y INT)",
            "CREATE TABLE c (t TEXT)",
            "CREATE TRIGGER told AFTER UPDATE ON b FOR EACH ROW INSERT INTO c VALUES (CONCAT('b is ', NEW.y))",
            "INSERT INTO a VALUES (1, 10), (2, 20)",
            "INSERT INTO b VALUES (1, 100), (2, 200)",
        ],
    )
    assert {event.table for event in log.events(TableMapEvent)} == {"a", "b", "c"}
    ends = [bool(event.flags & RowsFlag.STMT_END) for event in log.events(RowsEvent)]
    assert ends == [False] * (len(ends) - 1) + [True]
    after = {table: [change.after for change in log.changes(table)] for table in "abc"}
    assert after["a"] == [{"id": 1, "x": 11}, {"id": 2, "x": 21}]
    assert after["b"] == [{"id": 1, "y": 101}, {"id": 2, "y": 201}]
    assert after["c"] == [{"t": "b is 101"}, {"t": "b is 201"}]


@pytest.mark.edge(35)
def test_one_statement_in_many_events(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (id INT, t CHAR(20))",
        "INSERT INTO a SELECT seq, CONCAT('row ', seq) FROM seq_1_to_10000",
    )
    rows = log.events(RowsEvent)
    assert len(rows) > 10
    assert [bool(event.flags & RowsFlag.STMT_END) for event in rows] == [False] * (len(rows) - 1) + [True]
    assert log.inserted("a") == [(i, f"row {i}") for i in range(1, 10001)]
