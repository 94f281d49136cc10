"""Edge cases 42-54: transactions, GTIDs and event groups."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pymysql
import pytest

from replica.protocol.constants import GtidExtraFlag, GtidFlag, HeaderFlag
from replica.protocol.events.decode import GtidEvent, QueryEvent, XidEvent
from replica.protocol.gtid import GtidPosition
from replica.protocol.rows.rows_event import RowsEvent
from replica.rows.scan.scan import scan
from tests.integration.edges.log import Log, log_of, version
from tests.integration.edges.streams import receive

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


def queries(log: Log) -> list[bytes]:
    return [bytes(event.query) for event in log.events(QueryEvent)]


def groups(log: Log) -> int:
    """Event groups as the scan kernel counts them."""
    return len(scan(log.data, checksum=True).groups)


@pytest.mark.edge(42)
def test_savepoints(server: MariaDb) -> None:
    log = log_of(
        server,
        "BEGIN",
        "INSERT INTO a VALUES (1)",
        "SAVEPOINT s",
        "INSERT INTO a VALUES (2)",
        "ROLLBACK TO s",
        "INSERT INTO a VALUES (3)",
        "COMMIT",
        before=["CREATE TABLE a (id INT)"],
    )
    assert groups(log) == 1
    assert log.inserted("a") == [(1,), (3,)]


@pytest.mark.edge(43)
def test_tables_without_transactions(server: MariaDb) -> None:
    log = log_of(
        server,
        "INSERT INTO m VALUES (1)",
        "BEGIN",
        "INSERT INTO i VALUES (2)",
        "INSERT INTO m VALUES (3)",
        "ROLLBACK",
        before=["CREATE TABLE m (id INT) ENGINE = MyISAM", "CREATE TABLE i (id INT)"],
    )
    assert log.inserted("m") == [(1,), (3,)]
    assert queries(log)[0] == b"COMMIT"
    assert not any(event.xid for event in log.events(XidEvent)), "nothing of InnoDB was committed"


@pytest.mark.edge(44)
def test_a_comment_that_ends_like_a_commit(server: MariaDb) -> None:
    log = log_of(
        server,
        "SET SESSION binlog_format = STATEMENT",
        "INSERT INTO s VALUES (1) -- COMMIT",
        "SET SESSION binlog_format = ROW",
        "INSERT INTO a VALUES (1)",
        before=["CREATE TABLE s (id INT)", "CREATE TABLE a (id INT)"],
    )
    assert any(query.endswith(b"-- COMMIT") for query in queries(log))
    assert groups(log) == 2
    assert log.inserted("a") == [(1,)]


@pytest.mark.edge(45)
def test_create_table_select(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a SELECT seq AS id FROM seq_1_to_3",
        "CREATE TABLE b SELECT seq AS id FROM seq_1_to_3 WHERE seq > 9",
    )
    assert log.inserted("a") == [(1,), (2,), (3,)]
    assert groups(log) == 2
    flags = [event.flags2 for event in log.events(GtidEvent)]
    assert all(flag & GtidFlag.DDL for flag in flags)
    assert not flags[0] & GtidFlag.STANDALONE


def inserts(log: Log) -> list[tuple[tuple[int, int, int], int]]:
    return [(change.gtid, (change.after or {})["id"]) for change in log.changes("a", twin=False)]


def xa(xid: str, value: int, *end: str) -> list[str]:
    """The statements of an XA transaction that inserts a value."""
    return [f"XA START '{xid}'", f"INSERT INTO a VALUES ({value})", f"XA END '{xid}'", *end]


@pytest.mark.edge(46)
def test_xa_rows_come_at_the_commit(server: MariaDb) -> None:
    log = log_of(
        server,
        *xa("one", 1, "XA PREPARE 'one'"),
        before=["CREATE TABLE a (id INT PRIMARY KEY)"],
    )
    assert log.events(RowsEvent)
    assert inserts(log) == [], "prepared is not committed"

    server.sql("SET GLOBAL binlog_row_metadata = FULL")
    for session in (
        xa("two", 2, "XA PREPARE 'two'"),  # interleaved with 'one'
        ["XA COMMIT 'one'", "INSERT INTO a VALUES (10)"],
        xa("three", 3, "XA PREPARE 'three'", "XA ROLLBACK 'three'"),
        xa("four", 4, "XA COMMIT 'four' ONE PHASE"),
        ["XA COMMIT 'two'", "SET GLOBAL binlog_row_metadata = NO_LOG"],
    ):
        server.sql("USE edge", *session)
    log = Log((server.datadir / server.binlogs()[-1]).read_bytes(), log.catalog)
    assert [row for _, row in inserts(log)] == [1, 10, 4, 2]
    completed = [tuple(event.gtid) for event in log.events(GtidEvent) if event.flags2 & GtidFlag.COMPLETED_XA]
    assert inserts(log)[0][0] == completed[0], "the rows carry the GTID of the XA COMMIT"
    assert inserts(log)[-1][0] == completed[-1]


@pytest.mark.edge(47)
def test_two_phase_alter(server: MariaDb) -> None:
    if version(server) < (10, 8):
        with pytest.raises(pymysql.err.OperationalError, match="binlog_alter_two_phase"):
            server.sql("SET SESSION binlog_alter_two_phase = ON")
        return
    log = log_of(
        server,
        "SET SESSION binlog_alter_two_phase = ON",
        "ALTER TABLE a ADD COLUMN n INT",
        "INSERT INTO a VALUES (2, 2)",
        before=["CREATE TABLE a (id INT)", "INSERT INTO a VALUES (1), (1)"],
    )
    extra = [event.flags_extra for event in log.events(GtidEvent)]
    assert extra[0] & GtidExtraFlag.START_ALTER
    assert extra[1] & GtidExtraFlag.COMMIT_ALTER
    assert log.inserted("a") == [(2, 2)]

    with pytest.raises(pymysql.err.IntegrityError, match="Duplicate entry"):
        server.sql("SET SESSION binlog_alter_two_phase = ON", "ALTER TABLE edge.a ADD UNIQUE (id)")
    log = Log((server.datadir / server.binlogs()[-1]).read_bytes(), log.catalog)
    last = log.events(GtidEvent)[-1]
    assert last.flags_extra & GtidExtraFlag.ROLLBACK_ALTER
    assert log.events(QueryEvent)[-1].error == 1062
    assert log.inserted("a") == [(2, 2)]


@pytest.mark.edge(48)
def test_domains_servers_gaps_and_lower_numbers(server: MariaDb) -> None:
    log = log_of(
        server,
        "INSERT INTO a VALUES (0)",
        "SET SESSION gtid_domain_id = 7",
        "INSERT INTO a VALUES (7)",
        "SET SESSION gtid_domain_id = 0",
        "SET SESSION server_id = 42, gtid_seq_no = 100000",
        "INSERT INTO a VALUES (42)",
        "SET SESSION gtid_seq_no = 90000",
        "INSERT INTO a VALUES (43)",
        before=["CREATE TABLE a (id INT)"],
    )
    changes = log.changes("a")
    assert [(change.gtid[0], change.gtid[1]) for change in changes] == [(0, 1), (7, 1), (0, 42), (0, 42)]
    assert [change.gtid[2] for change in changes][2:] == [100000, 90000]


@pytest.mark.edge(49)
def test_a_group_commit_has_one_commit_id(server: MariaDb) -> None:
    log_of(server, "DO 1", before=["CREATE TABLE a (id INT)"])
    wait, microseconds = server.sql("SELECT @@global.binlog_commit_wait_count, @@global.binlog_commit_wait_usec")[0]
    server.sql("SET GLOBAL binlog_commit_wait_count = 4", "SET GLOBAL binlog_commit_wait_usec = 60000000")
    try:
        threads = [threading.Thread(target=server.sql, args=(f"INSERT INTO edge.a VALUES ({i})",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        server.sql(
            f"SET GLOBAL binlog_commit_wait_count = {wait}", f"SET GLOBAL binlog_commit_wait_usec = {microseconds}"
        )
    log = Log((server.datadir / server.binlogs()[-1]).read_bytes(), {})
    ids = {event.commit_id for event in log.events(GtidEvent) if event.commit_id}
    assert len(ids) == 1
    found = scan(log.data, checksum=True)
    assert len(found.groups) >= 4


@pytest.mark.edge(50)
def test_skip_replication(server: MariaDb, tmp_path: Path) -> None:
    log = log_of(
        server,
        "INSERT INTO a VALUES (1)",
        "SET SESSION skip_replication = 1",
        "INSERT INTO a VALUES (2)",
        before=["CREATE TABLE a (id INT)"],
    )
    flagged = [event.header.flags & HeaderFlag.SKIP_REPLICATION for event in log.events(RowsEvent)]
    assert [bool(flag) for flag in flagged] == [False, True]
    assert log.inserted("a") == [(1,), (2,)], "the flag is the primary's wish to other servers; a change is a change"
    before = str(GtidPosition.parse(server.gtid_binlog_pos()))
    server.sql("SET SESSION skip_replication = 1", "INSERT INTO edge.a VALUES (3)")
    received = receive(server, before, tmp_path)
    assert [change.after for change in received.changes("a", with_catalog=True)] == [{"id": 3}]


@pytest.mark.edge(51)
def test_ddl_of_several_tables(server: MariaDb) -> None:
    log = log_of(
        server,
        "INSERT INTO a VALUES (1)",
        "RENAME TABLE a TO tmp, b TO a, tmp TO b",
        "INSERT INTO a VALUES ('two')",
        "DROP TABLE a, b",
        "CREATE TABLE a (x INT)",
        "INSERT INTO a VALUES (3)",
        before=["CREATE TABLE a (id INT)", "CREATE TABLE b (t TEXT)"],
    )
    assert groups(log) == 6
    assert [event.width for event in log.events(RowsEvent)] == [1, 1, 1]
    assert any(b"RENAME TABLE" in query for query in queries(log))
    assert [change.after for change in log.changes("a", twin=False)] == [{"id": 1}, {"id": None}, {"id": None}]


@pytest.mark.edge(52)
def test_nothing_leaves_nothing(server: MariaDb) -> None:
    log = log_of(
        server,
        "BEGIN",
        "SELECT * FROM a FOR UPDATE",
        "COMMIT",
        "BEGIN",
        "UPDATE a SET id = 1",
        "COMMIT",
        "BEGIN",
        "INSERT INTO a VALUES (2)",
        "ROLLBACK",
        before=["CREATE TABLE a (id INT)", "INSERT INTO a VALUES (1)"],
    )
    assert log.events(GtidEvent) == []
    assert groups(log) == 0


@pytest.mark.edge(53)
def test_sequences(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE SEQUENCE s START WITH 5 CACHE 10",
        "SELECT NEXTVAL(s)",
        "SELECT NEXTVAL(s)",
    )
    changes = log.changes("s")
    assert [change.op for change in changes] == ["insert"] * len(changes)
    assert (changes[-1].after or {})["next_not_cached_value"] == 15
    assert len(changes[-1].after or {}) == 8


@pytest.mark.edge(54)
def test_offsets_lie_at_group_ends_only(server: MariaDb, tmp_path: Path) -> None:
    start = str(GtidPosition.parse(server.gtid_binlog_pos()))
    log_of(server, "DO 1", before=["CREATE TABLE a (id INT)"], metadata="FULL")
    server.sql("SET GLOBAL binlog_row_metadata = FULL")
    with server.connect(database="edge") as session, session.cursor() as cursor:
        for i in range(300):
            cursor.execute(f"INSERT INTO a VALUES ({i})")
        cursor.execute("INSERT INTO a SELECT seq FROM seq_1000_to_20999")
    server.sql("SET GLOBAL binlog_row_metadata = NO_LOG")
    received = receive(server, start, tmp_path)
    log, location = received.log, received.log.locate(GtidPosition.parse(start))
    assert location is not None
    ends = []
    while location < received.end:
        head = log.cut(location, received.end, 10_000)
        ends.append(head)
        location = head.location
    large = [b for a, b in pairwise(ends) if b.location.offset - a.location.offset > 80_000]
    assert len(large) == 1, "a transaction that is larger than a batch is a batch"
    assert len(ends) > 5
    assert len(received.changes("a")) == 20_300
