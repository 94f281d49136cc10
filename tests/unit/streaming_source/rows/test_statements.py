"""DDL as rows, from bytes to the RecordBatches of a task: in order, with an identity of their own, as selected."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from replica.errors import ConfigError
from replica.protocol.constants import EventType, GtidFlag
from replica.protocol.gtid import Gtid
from replica.rows.decode.batch import Groups
from replica.rows.scan.scan import scan
from streaming_source.files.load_files import load_files
from streaming_source.files.partition import read_file_changes
from streaming_source.rows.reader import read_changes
from streaming_source.rows.statements import DdlRows
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.real_rows import insert, transaction
from tests.kit.relay.driving import receive
from tests.unit.streaming_source.feeds.binlog_files import ddl
from tests.unit.streaming_source.feeds.relay_feed import plan
from tests.unit.streaming_source.feeds.row_feed import PLAN, Group, RowFeed, offset

if TYPE_CHECKING:
    from pathlib import Path


def mixed() -> Primary:
    """Rows of d.t and statements, alone, between, and in one transaction with rows."""
    stream = Primary()
    ddl(stream, b"CREATE TABLE t (a INT)")
    transaction(stream, 1, 2)
    ddl(stream, b"RENAME TABLE t TO x, u TO t")
    ddl(stream, b"CREATE USER spy IDENTIFIED BY 'secret'")
    ddl(stream, b"TRUNCATE TABLE e.t")
    transaction(stream, 3)
    stream.gtid(None, GtidFlag.DDL | GtidFlag.TRANSACTIONAL)
    stream.query(b"CREATE TABLE t (a INT)")
    insert(stream, 4, 5)
    stream.xid()
    ddl(stream, b"DROP DATABASE d")
    return stream


def read(path: Path, **options: str) -> list[dict[str, Any]]:
    loaded = load_files({"path": str(path), **options})
    return [
        row
        for partition in loaded.partitions
        for batch in read_file_changes(partition, loaded.plan)
        for row in batch.to_pylist()
    ]


def short(row: dict[str, Any]) -> tuple[Any, ...]:
    transaction = row["transaction"]
    place = (transaction["sequence_number"], transaction["ordinal"], transaction["is_last"])
    if row["op"] == "ddl":
        assert row["before"] is None
        assert row["after"] is None
        return (*place, row["database"], row["table"], row["source"]["sql"])
    return (*place, row["after"]["a"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bin.000001"
    path.write_bytes(mixed().binlog())
    return path


def test_statements_stand_where_they_were_executed(file: Path) -> None:
    rows = read(file, table="d.t", includeDdl="true")
    renamed = "RENAME TABLE t TO x, u TO t"
    assert [short(row) for row in rows] == [
        (1, -1, True, "d", "t", "CREATE TABLE t (a INT)"),
        (2, 0, False, 1),
        (2, 1, True, 2),
        (3, -3, True, "d", "t", renamed),
        (6, 0, True, 3),
        (7, -1, False, "d", "t", "CREATE TABLE t (a INT)"),
        (7, 0, False, 4),
        (7, 1, True, 5),
        (8, -1, True, "d", None, "DROP DATABASE d"),
    ]
    assert "secret" not in str(rows)


def test_many_tables_give_a_row_for_each_that_is_selected(file: Path) -> None:
    rows = read(file, tables="*.t,d.x", excludeTables="d.t", operations="delete,ddl")
    assert [short(row) for row in rows] == [
        (3, -2, True, "d", "x", "RENAME TABLE t TO x, u TO t"),
        (5, -1, True, "e", "t", "TRUNCATE TABLE e.t"),
        (8, -1, True, "d", None, "DROP DATABASE d"),
    ]
    identities = [(row["transaction"]["sequence_number"], row["transaction"]["ordinal"]) for row in rows]
    assert len(set(identities)) == len(rows)


def test_changes_without_rows_are_delivered_where_they_are_asked_for(tmp_path: Path) -> None:
    stream = Primary()
    transaction(stream, 1)
    stream.gtid(None, GtidFlag.TRANSACTIONAL)
    insert(stream, 2)
    for text in (b"UPDATE T, e.u SET t.a = 1, u.a = 2", b"SELECT f()", b"UPDATE other.x SET a = 1", b"SAVEPOINT s"):
        stream.query(text)
    stream.xid()
    transaction(stream, 3)
    path = tmp_path / "bin.000001"
    path.write_bytes(stream.binlog())
    rows = read(path, tables="d.*,e.u", includeDdl="true", onStatementDml="row")
    updated = "UPDATE T, e.u SET t.a = 1, u.a = 2"
    assert [short(row) for row in rows if row["op"] == "ddl"] == [
        (2, -5, False, "d", "T", updated),
        (2, -4, False, "d", "t", updated),
        (2, -3, False, "e", "u", updated),
        (2, -2, False, "d", None, "SELECT f()"),
    ]
    assert len(rows) == 7
    assert len(read(path, tables="d.*,e.u", includeDdl="true", onStatementDml="ignore")) == 3
    with pytest.raises(ConfigError, match="onStatementDml=row"):
        read(path, tables="d.*", onStatementDml="row")


def test_without_includeddl_there_are_none(file: Path) -> None:
    assert [short(row)[-1] for row in read(file, table="d.t")] == [1, 2, 3, 4, 5]
    assert [short(row)[-1] for row in read(file, table="d.t", operations="insert")] == [1, 2, 3, 4, 5]
    assert read(file, table="d.t", operations="delete") == []


def test_a_range_without_rows_has_its_statements_all_the_same(tmp_path: Path) -> None:
    stream = Primary()
    ddl(stream, "ALTER TABLE t COMMENT 'größer'".encode())
    path = tmp_path / "bin.000001"
    path.write_bytes(stream.binlog())
    (row,) = read(path, tables="d.*", includeDdl="true")
    assert row["source"]["sql"] == "ALTER TABLE t COMMENT 'größer'"
    assert row["transaction"]["gtid"] == "3-9-1"
    assert row["source"]["file"] == "bin.000001"


def test_rows_are_counted_by_transaction() -> None:
    data = bytes(mixed())
    groups = Groups(scan(data, checksum=True).groups)
    for tables, counts in (
        (SelectedTables(("d.*",), {}), [1, 0, 3, 0, 0, 0, 1, 1]),
        (SelectedTables(("e.t",), {}), [0, 0, 0, 0, 1, 0, 0, 0]),
    ):
        rows = DdlRows(tables, memoryview(data), checksum=True)
        rows.find(groups)
        assert rows.counts().tolist() == counts


def test_a_batch_of_statements_has_no_images_of_any_shape(file: Path) -> None:
    loaded = load_files({"path": str(file), "table": "d.t", "operations": "ddl"})
    (partition,) = loaded.partitions
    batches = list(read_file_changes(partition, loaded.plan))
    assert all(batch.column("after").null_count == batch.num_rows for batch in batches)
    assert {batch.schema for batch in batches} == {batches[0].schema}
    assert pa.types.is_struct(batches[0].schema.field("after").type)


def test_text_is_in_the_characters_of_its_client(tmp_path: Path) -> None:
    """latin1 as character_set_client: status variable 4 holds three collations."""
    stream = Primary()
    stream.gtid(None, GtidFlag.STANDALONE | GtidFlag.DDL)
    status = struct.pack("<BHHH", 4, 8, 8, 8)
    text = "ALTER TABLE t COMMENT 'größer'".encode("latin1")
    stream.event(EventType.QUERY, bodies.query(text, status=status))
    insert_after = Primary(sequence=1)
    transaction(insert_after, 1)
    path = tmp_path / "bin.000001"
    path.write_bytes(Primary(events=[*stream.events, *insert_after.events]).binlog())
    rows = read(path, table="d.t", includeDdl="true")
    assert [row["source"]["sql"] for row in rows] == ["ALTER TABLE t COMMENT 'größer'", None]


def _statement(feed: RowFeed, gtid: str, sql: bytes) -> None:
    primary = feed.primary
    primary.connect()
    primary.gtid(Gtid.parse(gtid), GtidFlag.STANDALONE | GtidFlag.DDL)
    primary.query(sql)
    receive(feed._writer, primary.wire())


def test_a_stream_has_them_in_order_and_counts_them_for_its_limits(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    one = (("other", 1), ("t", 1))
    feed.arrive_rows(Group("0-1-1", one))
    _statement(feed, "0-1-2", b"ALTER TABLE t ADD b INT")
    feed.arrive_rows(Group("0-1-3", one))
    _statement(feed, "0-1-4", b"ALTER TABLE u ADD b INT")
    feed.arrive_rows(Group("0-1-5", one))
    _statement(feed, "0-1-6", b"TRUNCATE t")
    tables = SelectedTables(("d.t",), {}, include_ddl=True)
    reading = replace(PLAN, tables=tables)
    planner, start, found = plan(feed, tables=tables, max_rows=2), offset(""), []
    while (end := planner.latest_offset(start, bounded=True)) != start:
        rows = [
            (row["transaction"]["gtid"], row["op"], row["transaction"]["ordinal"])
            for partition in planner.partitions(start, end)
            for batch in read_changes(partition, reading)
            for row in batch.to_pylist()
        ]
        found.append((str(end.position), rows))
        start = end
    assert found == [
        ("0-1-2", [("0-1-1", "insert", 1), ("0-1-2", "ddl", -1)]),
        ("0-1-5", [("0-1-3", "insert", 1), ("0-1-5", "insert", 1)]),
        ("0-1-6", [("0-1-6", "ddl", -1)]),
    ]
