"""Tables of a real server that change under a query: what task code delivers, against what SELECT showed at the time.

Every transaction has one row, which is compared under the names that its columns had when it was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ColumnsAddedError, ConfigError, SchemaError
from tests.fixtures.mariadb import MariaDb
from tests.integration.relay_log.test_xa import end
from tests.integration.schema.schema_stream import Stream, Tables, changing_tables, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.server


@pytest.fixture(params=["NO_LOG", "FULL"])
def tables(request: pytest.FixtureRequest, any_server: MariaDb) -> Iterator[Tables]:
    with changing_tables(any_server, request.param) as made:
        yield made


def changes(tables: Tables) -> str:
    """Every kind of change in the middle of one batch, each of which misleads who decodes with another definition."""
    t = tables
    t.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, name VARCHAR(20))")
    t.insert("t", 1, a=11, b=12, name="é")
    t.run("ALTER TABLE t RENAME COLUMN a TO x")
    t.insert("t", 2, x=21, b=22)
    t.run("ALTER TABLE t CHANGE x a INT UNSIGNED, ADD COLUMN c TINYINT UNSIGNED AFTER a")
    t.insert("t", 3, a=4_000_000_000, c=200, b=-1)
    t.run("ALTER TABLE t MODIFY b INT FIRST, DROP COLUMN c")
    t.insert("t", 4, a=41, b=42)
    t.run("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    t.insert("t", 5, a=51, b=52)
    t.run("ALTER TABLE t CONVERT TO CHARACTER SET latin1", "ALTER TABLE t ADD COLUMN e ENUM('x','y') FIRST")
    t.insert("t", 6, a=61, b=62, name="é", e="y")
    t.run("ALTER TABLE t MODIFY e ENUM('y','x')")
    t.insert("t", 7, e="y", name="ü")
    t.run("CREATE TABLE u LIKE t", "ALTER TABLE u RENAME COLUMN a TO q", "RENAME TABLE t TO old, u TO t, old TO u")
    t.insert("t", 8, q=81, b=82)
    t.insert("u", 8, a=83, b=84)
    t.run("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, b INT, a INT)")
    t.insert("t", 9, a=91, b=92)
    t.run("XA START 'x'", "INSERT INTO u (id, a) VALUES (10, 101)", "XA END 'x'", "XA PREPARE 'x'")
    t.run("ALTER TABLE t RENAME COLUMN a TO z")
    end(t.server, "XA COMMIT 'x'")
    t.remember("u", 10)
    t.run("RENAME TABLE t TO v", "ALTER TABLE v ADD COLUMN later INT DEFAULT 5 INVISIBLE")
    t.run("CREATE TABLE t AS SELECT 1 AS id, 2 AS made")
    t.remember("t", 1)
    return t.insert("v", 11, z=111, b=112)


def test_rows_have_the_names_that_they_were_written_under(tables: Tables, tmp_path: Path) -> None:
    before = Stream(tables.server, tmp_path, tables.start, tables=f"{tables.database}.*")
    before.begin()  # loaded before any of the tables is there
    last = changes(tables)
    before.read(last)
    before.stop()
    expected = {gtid: (table, _shown(row)) for gtid, (table, row) in tables.seen.items()}
    assert {gtid: (t, _shown(row)) for gtid, (t, row) in before.seen.items()} == expected


def test_a_restart_days_later_reads_old_rows_with_the_tables_of_their_time(tables: Tables, tmp_path: Path) -> None:
    tables.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    first = tables.insert("t", 1, a=1, b=2)
    stream = Stream(tables.server, tmp_path, tables.start, tables=f"{tables.database}.*")
    stream.read(first)
    start = stream.at
    second = tables.insert("t", 2, a=3, b=4)
    tables.run("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    third = tables.insert("t", 3, a=5, b=6)
    tables.run("ALTER TABLE t RENAME COLUMN a TO x")
    fourth = tables.insert("t", 4, x=7, b=8)
    stream.stop(lose_relay=True)
    again = Stream(tables.server, tmp_path, "latest", tables=f"{tables.database}.*")
    again.offset = start
    again.read(fourth)
    end = again.at
    again.stop(lose_relay=True)
    cold = Stream(tables.server, tmp_path, "latest", tables=f"{tables.database}.*")
    cold.replay(start, end)  # Spark plans an uncommitted batch again before it asks for anything
    cold.stop()
    assert cold.seen == again.seen == {gtid: tables.seen[gtid] for gtid in (second, third, fourth)}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Without the columns that SELECT * does not show."""
    return {name: value for name, value in row.items() if name != "later"}


# -- one table, typed ------------------------------------------------------------------------------------------------


def typed(tables: Tables, folder: Path, mode: str = "ignore", **options: str) -> Stream:
    given = {"table": f"{tables.database}.t", "onSchemaChange": mode} | options
    return Stream(tables.server, folder, tables.start, **given)


def test_by_default_new_columns_are_ignored_and_lost_ones_null(tables: Tables, tmp_path: Path) -> None:
    tables.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b BIGINT)")
    tables.start = tables.server.gtid_binlog_pos()
    stream = typed(tables, tmp_path)
    stream.begin()
    tables.insert("t", 1, a=10, b=1 << 31)
    tables.run("ALTER TABLE t ADD COLUMN c INT FIRST, MODIFY a SMALLINT, MODIFY b INT UNSIGNED")
    tables.insert("t", 2, a=-20, b=4_000_000_000, c=5)
    tables.run("ALTER TABLE t DROP COLUMN a")
    stream.read(tables.insert("t", 3, b=7, c=6))
    stream.stop()
    assert rows(stream) == [
        {"id": 1, "a": 10, "b": 1 << 31},
        {"id": 2, "a": -20, "b": 4_000_000_000},  # narrower types go into the query's
        {"id": 3, "a": None, "b": 7},
    ]


def test_a_type_that_loses_values_stops_right_before_it_and_a_restart_goes_on(tables: Tables, tmp_path: Path) -> None:
    tables.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    tables.start = tables.server.gtid_binlog_pos()
    stream = typed(tables, tmp_path)
    stream.begin()
    begin = stream.at
    last = tables.insert("t", 1, a=-1)
    change = tables.run("ALTER TABLE t MODIFY a BIGINT")
    end = tables.insert("t", 2, a=1 << 40)
    with pytest.raises(SchemaError, match=rf"{change}: ALTER TABLE t MODIFY a BIGINT\. Column a becomes BIGINT.* INT"):
        stream.read(end)
    assert str(stream.at.position) == last
    with pytest.raises(SchemaError, match="Start the query again with the same checkpoint: then the column is BIGINT"):
        stream.read(end)
    stream.stop()
    again = typed(tables, tmp_path)
    again.offset = stream.at
    again.replay(begin, stream.at)  # the rows before the change fit, too
    again.read(end)
    again.stop()
    assert rows(stream) == [{"id": 1, "a": -1}]
    assert rows(again) == [{"id": 1, "a": -1}, {"id": 2, "a": 1 << 40}]
    tables.run("ALTER TABLE t MODIFY a VARCHAR(30)")
    third = typed(tables, tmp_path)
    third.offset = again.at
    text = tables.insert("t", 3, a="x")
    third.read(text)
    third.stop(lose_relay=True)
    assert rows(third) == [{"id": 3, "a": "x"}]
    with pytest.raises(SchemaError, match="BIGINT in the binlog and STRING in the query"):
        third.replay(stream.at, again.at)
    third.stop()


@pytest.mark.parametrize("mode", ["fail", "add"])
def test_a_stop_at_new_columns_loses_nothing(tables: Tables, tmp_path: Path, mode: str) -> None:
    tables.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    tables.start = tables.server.gtid_binlog_pos()
    stream = typed(tables, tmp_path, mode)
    stream.begin()
    first = tables.insert("t", 1, a=1)
    change = tables.run("ALTER TABLE t ADD COLUMN b INT FIRST")
    tables.insert("t", 2, a=2, b=20)
    tables.run("ALTER TABLE t ADD INDEX (a)", "ALTER TABLE t ADD COLUMN c INT")
    third = tables.insert("t", 3, a=3, b=30, c=300)
    with pytest.raises(SchemaError, match=rf"t is changed by the transaction {change}: .*same checkpoint") as stopped:
        stream.read(third)
    assert isinstance(stopped.value, ColumnsAddedError) == (mode == "add")
    assert str(stream.at.position) == first
    stream.stop(lose_relay=True)
    again = typed(tables, tmp_path, mode)
    again.offset = stream.at
    again.read(third)
    other = tables.run("ALTER TABLE t DROP COLUMN a")
    fourth = tables.insert("t", 4, b=40)
    with pytest.raises(SchemaError, match=f"{other}: .* A is dropped") as stopped:
        again.read(fourth)
    assert not isinstance(stopped.value, ColumnsAddedError)
    again.stop()
    last = typed(tables, tmp_path, mode)
    last.offset = again.at
    last.read(fourth)
    last.stop()
    assert [*rows(stream), *rows(again), *rows(last)] == [
        {"id": 1, "a": 1},
        {"b": 20, "id": 2, "a": 2, "c": None},
        {"b": 30, "id": 3, "a": 3, "c": 300},
        {"b": 40, "id": 4, "c": None},
    ]


# -- rows older than what is known -----------------------------------------------------------------------------------


def test_rows_before_a_change_that_the_catalog_is_behind_of_are_refused_or_told(tables: Tables, tmp_path: Path) -> None:
    tables.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    tables.start = tables.server.gtid_binlog_pos()
    tables.insert("t", 1, a=1, b=2)
    tables.run("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    last = tables.insert("t", 2, a=3, b=4)
    told = tmp_path / "tables.sql"
    told.write_text(f"CREATE TABLE {tables.database}.t (id INT PRIMARY KEY, a INT, b INT);", encoding="utf-8")
    alone = Stream(tables.server, tmp_path / "alone", tables.start, tables=f"{tables.database}.t")
    if tables.server.value("SELECT @@binlog_row_metadata") == "NO_LOG":
        with pytest.raises(SchemaError, match="binlog_row_metadata=FULL"):
            alone.read(last)
        alone.stop()
        alone = Stream(
            tables.server, tmp_path / "told", tables.start, tables=f"{tables.database}.t", schemaFile=str(told)
        )
    alone.read(last)
    alone.stop()
    assert alone.seen == tables.seen


@pytest.mark.parametrize("tables", ["NO_LOG"], indirect=True)
def test_what_was_read_under_later_names_is_said_when_it_is_found_out(tables: Tables, tmp_path: Path) -> None:
    tables.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    tables.start = tables.server.gtid_binlog_pos()
    tables.insert("t", 1, a=1, b=2)
    change = tables.run("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    stream = Stream(tables.server, tmp_path, tables.start, tables=f"{tables.database}.t", maxBytesPerTrigger="1")
    with pytest.raises(SchemaError, match=f"{change} changed {tables.database}.t: .*schemaFile"):
        stream.read(change)
    stream.stop()


@pytest.mark.parametrize("tables", ["NO_LOG"], indirect=True)
def test_many_tables_are_kept_in_files_beside_the_checkpoint(tables: Tables, tmp_path: Path) -> None:
    tables.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    where = {"tables": f"{tables.database}.*", "schemaLocation": str(tmp_path / "tables")}
    stream = Stream(tables.server, tmp_path, tables.start, **where)
    stream.read(tables.insert("t", 1, a=1, b=2))
    start = stream.at
    stream.stop(lose_relay=True)
    assert start.schema is not None
    assert start.schema.startswith("file:")
    second = tables.insert("t", 2, a=3, b=4)
    last = tables.run("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    again = Stream(tables.server, tmp_path, "latest", **where)
    again.offset = start
    again.read(last)
    again.stop(lose_relay=True)
    assert again.seen == {second: tables.seen[second]}
    (kept,) = [p for p in (tmp_path / "tables").iterdir() if p.name.startswith(start.schema.removeprefix("file:"))]
    kept.write_text("torn", encoding="ascii")
    torn = Stream(tables.server, tmp_path, "latest", **where)
    with pytest.raises(ConfigError, match=f"{kept}: its content has changed"):
        torn.replay(start, again.at)
    torn.stop()


def test_statements_of_a_server_that_stores_names_in_small_letters(tmp_path: Path) -> None:
    """Two ALTERs under sql_mode=ORACLE with rows between, read after both, where no row names its columns."""
    with MariaDb("10.11", "--lower-case-table-names=1", "--binlog-row-metadata=NO_LOG") as server:
        server.add_user()
        tables = Tables(server, "capitals")
        tables.run("CREATE TABLE Old (id INT PRIMARY KEY, a INT)", "CREATE TABLE GONE (id INT PRIMARY KEY, b INT)")
        stream = Stream(server, tmp_path, tables.start, tables="capitals.*")
        stream.begin()
        tables.insert("old", 1, a=1)
        tables.run("ALTER TABLE OLD ADD Later VARCHAR(9) FIRST")
        tables.insert("OLD", 2, a=2, Later="x")
        tables.run("SET sql_mode = ORACLE", "ALTER TABLE Old ADD d DATE FIRST, ADD t VARCHAR2(9)")
        tables.insert("old", 3, a=3, t="y")
        tables.run("SET sql_mode = ORACLE", "ALTER TABLE oLD ADD n NUMBER(5,1) FIRST, DROP COLUMN d")
        tables.insert("old", 4, a=4, t="z")
        tables.insert("gone", 4, b=4)
        tables.run("SET STATEMENT lock_wait_timeout=5 FOR RENAME TABLE OLD TO New, Gone TO old")
        tables.insert("old", 5, b=5)
        stream.read(tables.insert("NEW", 6, a=6))
        stream.stop()
    seen = {gtid: (table.lower(), _shown(row)) for gtid, (table, row) in tables.seen.items()}
    assert {gtid: (table, _shown(row)) for gtid, (table, row) in stream.seen.items()} == seen
