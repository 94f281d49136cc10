"""Changes that a real server logs as statements, without rows: what onStatementDml makes of each, in every way to read.

Only the tables t and m are selected. After each case a row comes that has to arrive whatever was before it.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from replica.daemon.status.record import read_status
from replica.errors import StatementDmlError
from replica.protocol.gtid import GtidPosition
from streaming_source.files.load_files import load_files
from streaming_source.files.partition import read_file_changes
from streaming_source.options.source_options import SourceOptions
from streaming_source.rows.reader import read_changes
from streaming_source.source.batch.planning import plan_range
from streaming_source.source.load import load_plan
from tests.fixtures.mariadb import wait_until
from tests.integration.schema.schema_stream import Stream
from tests.spark.daemons import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

STATEMENT, MIXED, ROW = (f"SET SESSION binlog_format = {name}" for name in ("STATEMENT", "MIXED", "ROW"))
TEMPORARY_T = "CREATE TEMPORARY TABLE t (v TEXT)"
LOAD = "LOAD DATA LOCAL INFILE '{file}' INTO TABLE"
LONG = f"'{'x' * 1000}'"  # beyond log_bin_compress_min_len


class Shop:
    """A database of one test: t and m, which are selected, and u, which is not."""

    def __init__(self, server: MariaDb) -> None:
        self.server = server
        self.name = f"statement_{secrets.token_hex(4)}"
        server.add_user()
        server.sql("SET GLOBAL log_bin_trust_function_creators = 1", "SET GLOBAL binlog_row_metadata = FULL")
        server.sql(f"CREATE DATABASE {self.name}")
        self.start = server.gtid_binlog_pos()
        columns = "(id INT AUTO_INCREMENT PRIMARY KEY, v TEXT)"
        self.run(
            f"CREATE TABLE t {columns}",
            f"CREATE TABLE u {columns}",
            f"CREATE TABLE m {columns} ENGINE = MyISAM",
            f"CREATE TABLE p {columns.replace('TEXT', 'INT')} PARTITION BY HASH (id) PARTITIONS 2",
            "CREATE FUNCTION f(x INT) RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO t (v) VALUES (x); RETURN x; END",
            "CREATE PROCEDURE c(x INT) BEGIN INSERT INTO t (v) VALUES (x); INSERT INTO u (v) VALUES (x); END",
            "INSERT INTO u (v) VALUES ('u')",
        )

    @property
    def tables(self) -> str:
        return f"{self.name}.t,{self.name}.m"

    def run(self, *statements: str) -> str:
        self.server.sql(f"USE {self.name}", *statements)
        return self.server.gtid_binlog_pos()

    def row(self, value: str) -> str:
        return self.run(f"INSERT INTO t (v) VALUES ('{value}')")

    def stream(self, folder: Path, **options: str) -> Stream:
        return Stream(self.server, folder, self.start, tables=self.tables, **options)


@pytest.fixture
def shop(server: MariaDb) -> Iterator[Shop]:
    made = Shop(server)
    yield made
    server.sql(f"DROP DATABASE {made.name}")


@pytest.fixture
def one_shop(any_server: MariaDb) -> Iterator[Shop]:
    made = Shop(any_server)
    yield made
    any_server.sql(f"DROP DATABASE {made.name}")


def counted(stream: Stream) -> int:
    report = stream.open().report()
    assert report is not None
    return int(report.get("statementDml", 0))


def values(stream: Stream) -> list[str]:
    """What arrived of the rows that have to."""
    return [image["v"] for _, image in stream.seen.values() if image["v"].startswith("row")]


CASES: list[tuple[int, list[str]]] = [
    (1, [STATEMENT, "UPDATE t SET v = 'x'"]),
    (1, [STATEMENT, "INSERT INTO t (v) VALUES ('x')"]),
    (1, [STATEMENT, "INSERT INTO t (v) SELECT v FROM u"]),
    (1, [STATEMENT, "SET @a = 'x'", "REPLACE INTO t (id, v) VALUES (1, @a)"]),
    (1, [STATEMENT, "INSERT INTO t (v) VALUES (RAND())"]),
    (1, [STATEMENT, "DELETE FROM m"]),
    (1, [STATEMENT, "DELETE x FROM t AS x JOIN u ON u.id = x.id"]),
    (1, [STATEMENT, "UPDATE u, t SET t.v = u.v, t.id = t.id + 1000 WHERE t.id = u.id"]),
    (1, [STATEMENT, "SELECT f(1)"]),
    (1, [STATEMENT, "DO f(1)"]),
    (1, [STATEMENT, "CALL c(1)"]),
    (1, [STATEMENT, "SET STATEMENT max_statement_time = 100 FOR INSERT INTO t (v) VALUES ('x')"]),
    (1, [STATEMENT, "INSERT INTO t (v) VALUES ('x') -- COMMIT"]),
    (1, [STATEMENT, "USE mysql", "UPDATE {name}.t SET v = 'x'"]),
    (1, [STATEMENT, f"INSERT INTO t (v) VALUES ({LONG})"]),
    (1, [STATEMENT, f"{LOAD} t (v)"]),
    (3, [STATEMENT, "BEGIN", "UPDATE t SET v = 1", "SAVEPOINT s", "UPDATE u SET v = 2", "ROLLBACK TO s",
         "INSERT INTO t (v) VALUES (3)", "INSERT INTO m (v) VALUES (3)", "COMMIT"]),
    (2, [STATEMENT, "BEGIN", "INSERT INTO t (v) VALUES ('x')", "INSERT INTO m (v) VALUES (3)", "ROLLBACK"]),
    (1, [MIXED, "BEGIN", "INSERT INTO t (v) VALUES ('x')", "INSERT INTO t (v) VALUES (UUID())", "COMMIT"]),
    (1, [STATEMENT, "XA START 'x'", "UPDATE t SET v = 'x'", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"]),
    (1, [ROW, "TRUNCATE t"]),
    (1, [STATEMENT, "CREATE TABLE made LIKE t", "TRUNCATE TABLE m", "DROP TABLE made"]),
    (1, [STATEMENT, "DROP TABLE m", "CREATE TABLE m SELECT * FROM t"]),
    (1, [STATEMENT, "CREATE TEMPORARY TABLE w (v INT)", "INSERT INTO w VALUES (1)", "DELETE t FROM t, w"]),
    (1, [STATEMENT, TEMPORARY_T, "INSERT INTO t VALUES ('x')", "DROP TABLE t", "DELETE FROM t"]),
    # quiet
    (0, [STATEMENT, TEMPORARY_T, "INSERT INTO t VALUES ('x')", "UPDATE t SET v = 'y'", "TRUNCATE t"]),
    (0, [MIXED, TEMPORARY_T, "BEGIN", "DELETE FROM t", "INSERT INTO u (v) VALUES (1)", "COMMIT"]),
    (0, [STATEMENT, "UPDATE u SET v = 'x'", "INSERT INTO u (v) SELECT v FROM t", "DELETE u FROM u JOIN t USING (id)"]),
    (0, [STATEMENT, "TRUNCATE u", "ALTER TABLE p REBUILD PARTITION p0", f"{LOAD} u (v)"]),
    (0, [ROW, "ALTER TABLE t ADD w INT", "ALTER TABLE t DROP w", "ANALYZE TABLE t"]),
    (0, [ROW, "FLUSH TABLES", "CREATE INDEX i ON t (v(9))"]),
    (0, [ROW, "DROP TABLE m", "CREATE TABLE m SELECT 1 AS id, 'x' AS v"]),
    (0, [ROW, "CREATE TABLE made SELECT * FROM t", "DROP TABLE made", "CREATE OR REPLACE USER w", "DROP USER w"]),
    (0, [ROW, TEMPORARY_T, "INSERT INTO t VALUES ('x')", "TRUNCATE t", "DROP TABLE t"]),
    (0, [ROW, "BEGIN", "INSERT INTO t (v) VALUES ('x')", "SAVEPOINT s", "DELETE FROM m", "ROLLBACK TO s", "COMMIT"]),
    (0, [STATEMENT, "XA START 'x'", "UPDATE t SET v = 'y'", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"]),
    (0, [STATEMENT, "XA START 'x'", "UPDATE u SET v = 'x'", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"]),
]  # fmt: skip


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_what_counts_and_what_is_quiet(shop: Shop, tmp_path: Path, *, compressed: bool) -> None:
    file = tmp_path / "load.csv"
    file.write_text("x\ny\n")
    shop.server.sql(f"SET GLOBAL log_bin_compress = {int(compressed)}", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        stream = shop.stream(tmp_path, onStatementDml="warn")
        before, rows = 0, []
        for number, (expected, statements) in enumerate(CASES):
            texts = [text.replace("{name}", shop.name).replace("{file}", str(file)) for text in statements]
            with (
                shop.server.connect(database=shop.name, local_infile=True) as connection,
                connection.cursor() as cursor,
            ):
                for text in texts:
                    cursor.execute(text)
            rows.append(f"row {number}")
            stream.read(shop.row(rows[-1]))
            now = counted(stream)
            assert (now - before, statements) == (expected, statements)
            assert values(stream) == rows
            before = now
        stream.stop()
    finally:
        shop.server.sql("SET GLOBAL log_bin_compress = 0", "SET GLOBAL log_bin_compress_min_len = DEFAULT")


def read_until_stopped(stream: Stream) -> StatementDmlError:
    with pytest.raises(StatementDmlError) as stopped:
        stream.read("9-9-9")
    return stopped.value


@pytest.mark.parametrize("attached", [False, True], ids=["embedded", "attached"])
def test_a_stream_stops_right_before_and_goes_on_right_behind(
    one_shop: Shop, tmp_path: Path, *, attached: bool
) -> None:
    shop = one_shop
    first = shop.row("row 1")
    changed = shop.run(STATEMENT, "UPDATE  t\nSET v = 'a \x07 bell'")
    shop.run(ROW, "INSERT INTO t (v) VALUES ('row 2')")
    again = shop.run(
        MIXED, "BEGIN", "INSERT INTO t (v) VALUES (UUID()), ('row 3')", "DELETE FROM t WHERE id = 1", "COMMIT"
    )
    last = shop.row("row 4")
    with Daemon(shop.server, tmp_path / "daemon") as daemon:
        options = {}
        if attached:
            daemon.catch_up()
            options = {"relayDir": str(daemon.relay_dir), "readerName": "statements"}
        for lose in (False, True):
            stream = shop.stream(tmp_path, **options)
            error = read_until_stopped(stream)
            assert values(stream) == ["row 1"], "the batch before was delivered whole"
            assert str(stream.at.position) == first
            assert all(
                part in str(error)
                for part in (changed, f"{shop.name}.t", "UPDATE t SET v = 'a \ufffd bell'", "onStatementDml=warn")
            )
            assert error.exit_code == 61
            stream.stop(lose_relay=lose and not attached)
            read_until_stopped(stream)  # a restart alone changes nothing
            assert str(stream.at.position) == first
            stream.stop()
        stream.given |= {"onStatementDml": "warn", "maxBytesPerTrigger": "1"}
        stream.read(changed)
        stream.stop()
        stream.given["onStatementDml"] = "fail"
        error = read_until_stopped(stream)
        assert again in str(error)
        assert values(stream) == ["row 1", "row 2"]
        stream.stop()
        stream.given["onStatementDml"] = "ignore"
        stream.read(last)
        assert values(stream) == ["row 1", "row 2", "row 3", "row 4"]
        assert counted(stream) == 1
        stream.stop()


def test_a_transaction_that_is_read_piece_by_piece(one_shop: Shop, tmp_path: Path) -> None:
    shop = one_shop
    first = shop.row("row 1")
    shop.run(MIXED, "BEGIN", *["INSERT INTO t (v) VALUES (UUID())"] * 20, "DELETE FROM t WHERE id = 1", "COMMIT")
    last = shop.row("row 2")
    stream = shop.stream(tmp_path, maxRowsPerTrigger="3", splitLargeTransactions="true")
    read_until_stopped(stream)
    assert str(stream.at.position) == first
    assert stream.at.part is None
    stream.stop()
    stream.given["onStatementDml"] = "ignore"
    stream.read(last)
    assert counted(stream) == 1
    stream.stop()


def test_statements_of_an_xa_transaction_count_where_it_is_committed(one_shop: Shop, tmp_path: Path) -> None:
    """Also where its XA PREPARE came in an earlier batch, before a restart, or before the start of the query."""
    shop = one_shop
    stream = shop.stream(tmp_path / "a", maxBytesPerTrigger="1")
    with shop.server.connect(database=shop.name) as connection, connection.cursor() as cursor:
        for text in (STATEMENT, "XA START 'x'", "INSERT INTO t (v) VALUES ('x')", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(text)
        prepared = shop.row("row 1")
        stream.read(prepared)
        stream.stop()
        cursor.execute("XA COMMIT 'x'")
    committed = shop.server.gtid_binlog_pos()
    last = shop.row("row 2")
    for _ in range(2):
        assert committed in str(read_until_stopped(stream))
        assert str(stream.at.position) == prepared
        stream.stop()
    stream.given["onStatementDml"] = "warn"
    stream.read(last)
    assert counted(stream) == 1
    assert values(stream) == ["row 1", "row 2"]
    stream.stop()
    path = str(shop.server.datadir / shop.server.value("SHOW MASTER STATUS"))
    files = {"table": f"{shop.name}.t", "path": path}
    with pytest.raises(StatementDmlError):
        file_rows(files)


def test_temporary_tables_are_known_after_a_restart(one_shop: Shop, tmp_path: Path) -> None:
    shop = one_shop
    stream = shop.stream(tmp_path)
    with shop.server.connect(database=shop.name) as connection, connection.cursor() as cursor:
        cursor.execute(STATEMENT)
        cursor.execute("CREATE TEMPORARY TABLE t (v TEXT)")
        stream.read(shop.row("row 1"))
        stream.stop()
        cursor.execute("INSERT INTO t VALUES ('x')")
        stream.read(shop.row("row 2"))
        cursor.execute("INSERT INTO t VALUES ('y')")
        stream.read(shop.row("row 3"))
    assert values(stream) == ["row 1", "row 2", "row 3"]
    stream.stop()


def test_ddl_that_is_delivered_is_quiet_and_what_only_removes_where_no_deletes_are_asked_for(
    one_shop: Shop, tmp_path: Path
) -> None:
    shop = one_shop
    shop.row("row 1")
    last = shop.run("TRUNCATE t")
    stream = shop.stream(tmp_path / "a", includeDdl="true")
    planner = stream.open()
    stream.begin()
    assert str(planner.latest_offset(stream.at, bounded=True).position) == last
    stream.stop()
    last = shop.run(STATEMENT, "DELETE FROM t")
    for folder, operations in (("b", "insert,update"), ("c", "insert,delete")):
        stream = shop.stream(tmp_path / folder, operations=operations)
        if "delete" in operations:
            read_until_stopped(stream)
        else:
            stream.read(last)
        stream.stop()


def replica(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "replica", *arguments], capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.slow
def test_the_daemon_counts_and_the_commands_show_them(one_shop: Shop, tmp_path: Path) -> None:
    shop = one_shop
    folder = str(tmp_path / "daemon")
    with Daemon(shop.server, tmp_path / "daemon", "--start", shop.start) as daemon:
        daemon.catch_up()
        changed = shop.run(STATEMENT, "BEGIN", "UPDATE t SET v = 'x'", "DELETE FROM u", "COMMIT")
        shop.run("INSERT INTO m (v) VALUES ('row')", "TRUNCATE m")
        daemon.catch_up()

        def counted() -> bool:
            record = read_status(tmp_path / "daemon")
            return record is not None and record.stream.statement_dml == 2

        wait_until(counted, "the daemon's status counts the two statements, not the TRUNCATE")
        place = ("--relay-dir", folder)
        shown = replica("tail", *place, "--from", "earliest", "--no-follow", "--table", f"{shop.name}.t")
        assert "sql     UPDATE t SET v = 'x'" in shown
        assert f"1 statement without rows: changes of {shop.name}.t" in shown
        told = json.loads(replica("explain", changed, *place, "--json"))
        assert told["statement_dml"] == {"statements": 2, "tables": [f"{shop.name}.t", f"{shop.name}.u"]}
    (path,) = (tmp_path / "daemon").glob("relay.000001")
    counts = json.loads(replica("dump", "--count", "--json", "--table", f"{shop.name}.*", str(path)))
    assert {one["table"]: one["statements"] for one in counts["statement_dml"]["tables"]} == {"t": 1, "u": 1, "m": 1}


def batch_rows(options: dict[str, str]) -> list[str]:
    plan = load_plan(options)
    parsed = SourceOptions.parse(options)
    latest = GtidPosition.parse(options["endingPosition"])
    found: list[dict[str, Any]] = []
    for partition in plan_range(parsed, plan, latest, secrets.token_hex(4)).partitions:
        found += [row for batch in read_changes(partition, plan) for row in batch.to_pylist()]
    return [row["after"]["v"] for row in found if row["op"] == "insert"]


def file_rows(options: dict[str, str]) -> list[str]:
    loaded = load_files(options)
    found: list[dict[str, Any]] = []
    for partition in loaded.partitions:
        found += [row for batch in read_file_changes(partition, loaded.plan) for row in batch.to_pylist()]
    return [row["after"]["v"] for row in found if row["op"] == "insert"]


@pytest.mark.parametrize("way", ["server", "daemon", "files"])
def test_batch_reads(one_shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str) -> None:
    shop = one_shop
    shop.server.sql("FLUSH BINARY LOGS")
    shop.start = shop.row("row 0")
    first = shop.row("row 1")
    changed = shop.run(STATEMENT, "UPDATE t SET v = 'x'")
    last = shop.row("row 2")
    with Daemon(shop.server, tmp_path / "daemon") as daemon:
        login = {"host": shop.server.host, "port": str(shop.server.port), "user": "repl", "password": "replica-secret"}
        options = {"table": f"{shop.name}.t", "startingPosition": shop.start, "endingPosition": last, **login}
        read = batch_rows
        if way == "daemon":
            daemon.catch_up()
            options["relayDir"] = str(daemon.relay_dir)
        elif way == "files":
            read = file_rows
            name = shop.server.value("SHOW MASTER STATUS")
            options = {"table": f"{shop.name}.t", "path": str(shop.server.datadir / name)}
        with pytest.raises(StatementDmlError, match=rf"{changed} may have changed rows of {shop.name}\.t .*UPDATE t"):
            read(options)
        before = ["row 0"] if way == "files" else []
        assert read(options | {"onStatementDml": "warn"}) == [*before, "row 1", "row 2"]
        assert changed in caplog.text
        caplog.clear()
        assert read(options | {"onStatementDml": "ignore"}) == [*before, "row 1", "row 2"]
        assert changed not in caplog.text
        if way != "files":
            assert read(options | {"endingPosition": first}) == ["row 1"], "what lies behind the end does not count"
