"""XA transactions of real servers through replica, relay log, planner and task code, over restarts of all of them.

Rows are asked for one event group a batch, so that every XA COMMIT is in another batch than its XA PREPARE.
"""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING

import pymysql
import pytest

from replica.errors import DataLossError, PrerequisiteError
from streaming_source.offsets.offset import SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning import feed
from streaming_source.planning import feed as feed_module
from streaming_source.planning.open_planner import open_planner
from streaming_source.rows.reader import read_changes
from streaming_source.source.load import load_plan
from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pymysql.cursors import Cursor

    from streaming_source.planning.planner import ChangePlanner
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

WAIT_S = 60.0
XAER_NOTA = 1397
Row = tuple[str, int, int]  # GTID, ordinal, id


class Query:
    """What a streaming query does, without Spark: offsets go through JSON, rows through the code of a task."""

    def __init__(self, server: MariaDb, folder: Path, start: str, **options: str) -> None:
        self.folder = folder
        own = {"relayDir": str(folder / "relay"), "startingPosition": start, "table": "xa.t", "maxBytesPerTrigger": "1"}
        login = {"host": server.host, "port": str(server.port), "user": "repl", "password": "replica-secret"}
        self._given = login | own | options
        if "," in self._given["host"]:
            del self._given["port"]  # every host has its own
        self.offset: SourceOffset | None = None
        self.rows: list[Row] = []
        self._planner: ChangePlanner | None = None

    def open(self) -> ChangePlanner:
        if self._planner is None:
            self._plan = load_plan(self._given)
            self._planner = open_planner(SourceOptions.parse(self._given), self._plan)
        return self._planner

    def read(self, gtid: str) -> list[Row]:
        """Batch by batch up to this position; the rows of these batches."""
        planner = self.open()
        if self.offset is None:
            self.offset = planner.initial_offset()
            assert planner.latest_offset(self.offset, bounded=True) == self.offset
        found: list[Row] = []
        deadline = time.monotonic() + WAIT_S
        while str(self.offset.position) != gtid:
            after = planner.latest_offset(self._again(), bounded=True)
            if after != self.offset:
                found += self._rows(self.offset, after)
                self.offset = after
                planner.commit(after)
                deadline = time.monotonic() + WAIT_S  # kernels may have been compiled meanwhile
            assert time.monotonic() < deadline, f"{gtid} does not come; at {self.offset.position}"
        self.rows += found
        return found

    def replay(self, start: SourceOffset, end: SourceOffset) -> list[Row]:
        return self._rows(start, end)

    def stop(self, *, lose_relay: bool = False) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if lose_relay:
            shutil.rmtree(self.folder / "relay")

    def _again(self) -> SourceOffset:
        assert self.offset is not None
        return SourceOffset.parse(json.loads(json.dumps(self.offset.json())))

    def _rows(self, start: SourceOffset, end: SourceOffset) -> list[Row]:
        found: list[Row] = []
        for partition in self.open().partitions(start, end):
            for batch in read_changes(partition, self._plan):
                for row in batch.to_pylist():
                    transaction = row["transaction"]
                    found.append((transaction["gtid"], transaction["ordinal"], row["after"]["id"]))
        return found


@pytest.fixture
def server(server_version: str, make_server: Callable[..., MariaDb]) -> MariaDb:
    """One of the test's own: it is restarted, and what it has prepared must survive that."""
    return _ready(make_server(server_version, "--binlog-row-metadata=FULL", "--innodb-flush-log-at-trx-commit=2"))


def _ready(server: MariaDb) -> MariaDb:
    server.add_user()
    server.sql("CREATE DATABASE xa", "CREATE TABLE xa.t (id INT PRIMARY KEY) ENGINE=InnoDB")
    return server


def prepare(server: MariaDb, xid: str, *ids: int) -> str:
    """In a connection of its own, which ends: the transaction stays prepared."""
    values = ",".join(f"({i})" for i in ids)
    server.sql(f"XA START {xid}", f"INSERT INTO xa.t VALUES {values}", f"XA END {xid}", f"XA PREPARE {xid}")
    return server.gtid_binlog_pos()


def run(server: MariaDb, *statements: str) -> str:
    """The GTID of the last of them."""
    server.sql(*statements)
    return server.gtid_binlog_pos()


def end(server: MariaDb, statement: str, cursor: Cursor | None = None) -> str:
    """The GTID of an XA COMMIT or XA ROLLBACK; the connection that prepared may not have let go of it yet."""

    def ended() -> bool:
        try:
            if cursor is None:
                server.sql(statement)
            else:
                cursor.execute(statement)
        except pymysql.err.OperationalError as error:
            if error.args[0] != XAER_NOTA:
                raise
            return False
        return True

    wait_until(ended, statement)
    return server.gtid_binlog_pos()


@pytest.mark.parametrize("lose_relay", [False, True])
def test_rows_come_at_the_commit_over_restarts_of_query_and_server(
    server: MariaDb, tmp_path: Path, *, lose_relay: bool
) -> None:
    query = Query(server, tmp_path, server.gtid_binlog_pos())
    alone = run(server, "INSERT INTO xa.t VALUES (1)")
    prepare(server, "'a','branch',7", 10, 11)
    prepare(server, "X'00ff27'", 20)
    between = run(server, "INSERT INTO xa.t VALUES (2)")
    assert query.read(between) == [(alone, 0, 1), (between, 0, 2)]
    assert query.offset is not None
    assert str(query.offset.resume) == alone
    query.stop(lose_relay=lose_relay)
    server.kill()
    server.start()
    second = end(server, "XA COMMIT X'00ff27'")
    assert query.read(second) == [(second, 0, 20)]
    assert str(query.offset.resume) == alone
    before = query.offset
    query.stop(lose_relay=lose_relay)
    server.stop()
    server.start()
    prepare(server, "'gone'", 30)
    end(server, "XA ROLLBACK 'gone'")
    server.sql("FLUSH BINARY LOGS")
    first = end(server, "XA COMMIT 'a','branch',7")
    assert query.read(first) == [(first, 0, 10), (first, 1, 11)]
    assert query.offset.resume == query.offset.position
    after = query.offset
    query.stop(lose_relay=lose_relay)
    assert query.replay(before, after) == [(first, 0, 10), (first, 1, 11)]
    one_phase = run(server, "XA START 'o'", "INSERT INTO xa.t VALUES (40)", "XA END 'o'", "XA COMMIT 'o' ONE PHASE")
    prepare(server, "'a','branch',7", 50)
    again = end(server, "XA COMMIT 'a','branch',7")
    assert query.read(again) == [(one_phase, 0, 40), (again, 0, 50)]
    query.stop()
    assert sorted(i for _, _, i in query.rows) == [row[0] for row in server.sql("SELECT id FROM xa.t ORDER BY id")]


def test_a_start_at_the_end_waits_for_what_is_prepared_there(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "XA_PATIENCE_S", 0.5)
    prepare(server, "'open'", 1)
    server.sql("FLUSH BINARY LOGS")
    server.purge_binlogs()
    waiting = Query(server, tmp_path / "waiting", "latest")
    with pytest.raises(PrerequisiteError, match=r"1 have been prepared .* \(X'6f70656e',X'',1\)"):
        waiting.read("")
    waiting.stop()
    start = server.gtid_binlog_pos()
    forced = Query(server, tmp_path / "forced", start)
    commit = end(server, "XA COMMIT 'open'")
    with pytest.raises(DataLossError, match=f"{commit} commits the XA transaction X'6f70656e',X'',1"):
        forced.read(commit)
    forced.stop()
    lenient = Query(server, tmp_path / "lenient", start, skipUnpreparedXa="true")
    after = run(server, "INSERT INTO xa.t VALUES (3)")
    assert lenient.read(after) == [(after, 0, 3)]
    lenient.stop()
    # Prepared after the query began, whatever happened before.
    latest = Query(server, tmp_path / "latest", "latest")
    latest.read(after)
    prepare(server, "'later'", 2)
    later = end(server, "XA COMMIT 'later'")
    assert latest.read(later) == [(later, 0, 2)]
    latest.stop()


@pytest.mark.parametrize("files", [0, 1, 5], ids=["in the last file", "in the one before", "some files back"])
def test_a_start_at_the_end_goes_back_before_what_stays_prepared(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    monkeypatch.setattr(feed_module, "XA_PATIENCE_S", 0.5)
    run(server, "INSERT INTO xa.t VALUES (1)")
    prepare(server, "'other'", 2)
    before = server.gtid_binlog_pos()
    prepare(server, "'open'", 3)
    end(server, "XA COMMIT 'other'")
    for number in range(files):
        server.sql("FLUSH BINARY LOGS")
        run(server, f"INSERT INTO xa.t VALUES ({10 + number})")
    query = Query(server, tmp_path, "latest")
    behind = query.open().initial_offset()
    assert str(behind.resume) == before
    assert str(behind.position) == server.gtid_binlog_pos()
    after = run(server, "INSERT INTO xa.t VALUES (4)")
    assert query.read(after) == [(after, 0, 4)]
    query.stop(lose_relay=True)
    commit = end(server, "XA COMMIT 'open'")
    assert query.read(commit) == [(commit, 0, 3)]
    query.stop()


def test_a_start_at_the_end_does_not_go_back_further_than_a_relay_log_may_hold(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "XA_PATIENCE_S", 0.5)
    server.sql("CREATE TABLE xa.wide (b LONGBLOB)")
    prepare(server, "'open'", 1)
    for _ in range(4):
        server.sql("INSERT INTO xa.wide VALUES (REPEAT('x', 3000000))", "FLUSH BINARY LOGS")
    small = Query(server, tmp_path / "small", "latest", relayMaxBytes="8m")
    with pytest.raises(PrerequisiteError, match="further back than relayMaxBytes"):
        small.open().initial_offset()
    small.stop()
    large = Query(server, tmp_path / "large", "latest", relayMaxBytes="20m")
    large.open().initial_offset()
    large.stop()
    end(server, "XA ROLLBACK 'open'")


def test_limits_by_rows_count_at_the_commit(server: MariaDb, tmp_path: Path) -> None:
    query = Query(server, tmp_path, server.gtid_binlog_pos(), maxBytesPerTrigger="1g", maxRowsPerTrigger="3")
    prepare(server, "'x'", *range(100, 104))
    single = run(server, "INSERT INTO xa.t VALUES (1)")
    end(server, "XA COMMIT 'x'")
    last = run(server, "INSERT INTO xa.t VALUES (2)")
    planner = query.open()
    start = planner.initial_offset()
    planner.latest_offset(start, bounded=True)
    first = planner.latest_offset(start, bounded=True)
    # Everything but the commit's four rows fits; they are a batch of their own.
    assert str(first.position) == single
    query.offset = first
    rows = query.read(last)
    assert [i for _, _, i in rows] == [100, 101, 102, 103, 2]
    query.stop()


def test_large_groups_in_files_of_their_own(make_server: Callable[..., MariaDb], tmp_path: Path) -> None:
    """11.7+ makes a binlog file of a large transaction's cache; its GTID event is padded with thousands of zeros."""
    server = _ready(make_server("11.8", "--binlog-row-metadata=FULL", f"--binlog-large-commit-threshold={10 << 20}"))
    server.sql("ALTER TABLE xa.t ADD v LONGBLOB")
    query = Query(server, tmp_path, server.gtid_binlog_pos())

    def inserts(first: int) -> list[str]:
        return [f"INSERT INTO xa.t VALUES ({i}, REPEAT('x', {1 << 20}))" for i in range(first, first + 11)]

    files = len(server.binlogs())
    plain = run(server, "BEGIN", *inserts(100), "COMMIT")
    server.sql("XA START 'large'", *inserts(200), "XA END 'large'", "XA PREPARE 'large'")
    small = run(server, "INSERT INTO xa.t VALUES (1, NULL)")
    commit = end(server, "XA COMMIT 'large'")
    assert len(server.binlogs()) == files + 2
    assert query.read(small) == [*((plain, i, 100 + i) for i in range(11)), (small, 0, 1)]
    assert query.read(commit) == [(commit, i, 200 + i) for i in range(11)]
    query.stop()


def test_a_transaction_that_ends_without_a_trace_does_not_keep_the_log(
    make_server: Callable[..., MariaDb], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "CHECK_EVERY_S", 0.0)
    server = _ready(make_server(None, "--binlog-row-metadata=FULL"))
    query = Query(server, tmp_path, server.gtid_binlog_pos())
    prepared = prepare(server, "'gone'", 1)
    query.read(prepared)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        end(server, "XA ROLLBACK 'gone'", cursor)
    assert server.gtid_binlog_pos() == prepared
    assert query.offset is not None
    assert query.offset.resume != query.offset.position
    for number in range(2, 6):
        query.read(run(server, "FLUSH BINARY LOGS", f"INSERT INTO xa.t VALUES ({number})"))
    assert query.offset.resume == query.offset.position
    assert len([file for file in (tmp_path / "relay").iterdir() if file.suffix[1:].isdigit()]) <= 2
    query.stop()


@pytest.mark.parametrize("lose_relay", [False, True])
def test_a_transaction_prepared_on_one_server_and_committed_on_the_next(
    make_server: Callable[..., MariaDb], tmp_path: Path, *, lose_relay: bool
) -> None:
    first, second = (
        make_server("10.11", "--binlog-row-metadata=FULL", "--log-slave-updates", server_id=number) for number in (1, 2)
    )
    user, password = second.add_user()
    first.add_user()
    source = f"master_host='{first.host}', master_port={first.port}, master_user='{user}'"
    second.sql(
        f"CHANGE MASTER TO {source}, master_password='{password}', master_use_gtid=slave_pos, master_connect_retry=1",
        "START SLAVE",
    )
    first.sql("CREATE DATABASE xa", "CREATE TABLE xa.t (id INT PRIMARY KEY) ENGINE=InnoDB")
    hosts = ",".join(f"{server.host}:{server.port}" for server in (first, second))
    query = Query(first, tmp_path, first.gtid_binlog_pos(), host=hosts)
    prepare(first, "'x'", 1, 2)
    alone = run(first, "INSERT INTO xa.t VALUES (3)")
    assert query.read(alone) == [(alone, 0, 3)]
    wait_until(lambda: second.gtid_binlog_pos() == alone, "the server's own replica caught up")
    query.stop(lose_relay=lose_relay)
    first.kill()
    second.sql("STOP SLAVE")
    commit = end(second, "XA COMMIT 'x'")
    assert commit.startswith("0-2-")
    assert query.read(commit) == [(commit, 0, 1), (commit, 1, 2)]
    query.stop()
