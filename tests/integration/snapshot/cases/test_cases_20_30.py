"""Cases 20-30: extreme tables, what is refused, row images, other servers, idle and purged ones, missing rights."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from replica.errors import DataLossError, PositionPurgedError, PrerequisiteError, ReplicaError, StatementDmlError
from replica.schema.catalog import omits_generated
from replica.snapshot.snapshot import TableSnapshot
from tests.integration.snapshot.kit.query import READ, SnapshotQuery, server_state
from tests.integration.snapshot.kit.tables import METADATA, SMALL_CHUNKS, fill, ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest"), pytest.mark.timeout(300)]


@pytest.fixture
def source(server_version: str, make_server: Callable[..., MariaDb]) -> MariaDb:
    """A hundred rows, ids 10 to 1000."""
    server = make_server(server_version, METADATA, "--max-allowed-packet=64M")
    fill(server, "s.t", 100, step=10)
    return server


@pytest.mark.parametrize("rows", [0, 1])
def test_case_20_an_empty_table_and_one_row(source: MariaDb, tmp_path: Path, rows: int) -> None:
    source.sql(
        "CREATE TABLE s.k (id INT PRIMARY KEY, v INT)", f"INSERT INTO s.k SELECT seq, 1 FROM mysql.seq_0_to_{rows}"
    )
    source.sql("DELETE FROM s.k WHERE id = 0")
    with SnapshotQuery(source, tmp_path, "s.k") as query:
        query.read_all()
        assert query.operations("k", READ) == [(n + 1,) for n in range(rows)]
        source.sql("INSERT INTO s.k VALUES (7, 7)")
        query.catch_up()
        assert query.operations("k", "insert") == [(7,)]


@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_a_batch_comes_again_before_the_relay_log_has_a_group(
    server_version: str, make_server: Callable[..., MariaDb], tmp_path: Path, metadata: str
) -> None:
    source = make_server(server_version, f"--binlog-row-metadata={metadata}")
    fill(source, "s.t", 100, step=10)
    with SnapshotQuery(source, tmp_path, "s.t") as query:
        start, end = query.plan()
        rows = query.rows(start, end)
        assert rows
        query.stop()
        assert query.rows(start, end) == rows


def test_case_20_rows_of_20_mb(source: MariaDb, tmp_path: Path) -> None:
    source.sql(
        "CREATE TABLE s.k (id INT PRIMARY KEY, b LONGBLOB)",
        "INSERT INTO s.k SELECT seq, REPEAT(CHAR(64 + seq), ELT(seq, 16777200, 16777215, 20000000, 10)) "
        "FROM mysql.seq_1_to_4",
    )
    with SnapshotQuery(source, tmp_path, "s.k") as query:
        query.read_all()
        assert [(key, len(row["b"]), bytes(row["b"][:1])) for (key,), row in sorted(query.state["k"].items())] == [
            (1, 16777200, b"A"),
            (2, 16777215, b"B"),
            (3, 20000000, b"C"),
            (4, 10, b"D"),
        ]


def test_case_20_a_thousand_columns(source: MariaDb, tmp_path: Path) -> None:
    columns = ", ".join(f"c{n} SMALLINT" for n in range(999))
    values = ", ".join(f"seq + {n}" if n % 3 else "NULL" for n in range(999))
    source.sql(
        f"CREATE TABLE s.k (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO s.k SELECT seq, {values} FROM mysql.seq_1_to_25",
    )
    with SnapshotQuery(source, tmp_path, "s.k", **SMALL_CHUNKS) as query:
        query.read_all()
        assert query.state["k"][3,]["c996"] is None
        assert query.state["k"][3,]["c998"] == 1001
        assert len(query.state["k"]) == 25


REFUSED = {
    "no key": "CREATE TABLE s.k (id INT, v INT) ENGINE=InnoDB",
    "a key that may be NULL": "CREATE TABLE s.k (id INT, v INT, UNIQUE (id)) ENGINE=InnoDB",
    "a FLOAT key": "CREATE TABLE s.k (id FLOAT PRIMARY KEY, v INT) ENGINE=InnoDB",
    "a key of a prefix": "CREATE TABLE s.k (id TEXT NOT NULL, v INT, PRIMARY KEY (id(10))) ENGINE=InnoDB",
    "MyISAM": "CREATE TABLE s.k (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
    "Aria": "CREATE TABLE s.k (id INT PRIMARY KEY, v INT) ENGINE=Aria",
    "MEMORY": "CREATE TABLE s.k (id INT PRIMARY KEY, v INT) ENGINE=MEMORY",
}


@pytest.mark.parametrize("what", REFUSED)
def test_case_21_what_cannot_be_read_is_named_at_the_start(source: MariaDb, tmp_path: Path, what: str) -> None:
    source.sql(REFUSED[what])
    with SnapshotQuery(source, tmp_path, "s.*") as query, pytest.raises(ReplicaError, match=r"s\.k") as refused:
        query.read_all()
    assert "s.t" not in str(refused.value)


IMAGES = ("MINIMAL", "NOBLOB", "FULL_NODUP")


def set_images(server: MariaDb, image: str) -> None:
    """Let all sessions from here on log such images; older servers have no FULL_NODUP, and say so."""
    if image == "FULL_NODUP" and server.version in ("10.5", "10.11"):
        with pytest.raises(Exception, match="FULL_NODUP"):
            server.sql(f"SET GLOBAL binlog_row_image = {image}")
        return
    server.sql(f"SET GLOBAL binlog_row_image = {image}")


@pytest.mark.parametrize("image", IMAGES)
def test_case_22_row_images_are_not_full(source: MariaDb, tmp_path: Path, image: str) -> None:
    """What changes lack is as it was read: columns that were set before and behind the reading, by several changes."""
    set_images(source, image)
    source.sql(
        "ALTER TABLE s.t ADD COLUMN b BLOB, ADD COLUMN w INT NOT NULL DEFAULT 0",
        "INSERT INTO s.t (id, v) SELECT seq, 0 FROM mysql.seq_1001_to_1500",
    )
    chance = random.Random(22)
    limits = {"snapshotChunkRows": "10", "maxRowsPerTrigger": "100"}
    with SnapshotQuery(source, tmp_path, "s.t", **limits) as query, source.connect(autocommit=True) as connection:
        cursor = connection.cursor()
        while query.reading:
            for _ in range(5):
                key = chance.randrange(1, 1500)
                column = chance.choice(("v = v + 1", "note = id + v", "b = REPEAT('b', v % 300)", "w = -w - 1"))
                cursor.execute(f"UPDATE s.t SET {column} WHERE id BETWEEN {key} AND {key + 30} LIMIT 6")
            cursor.execute(f"DELETE FROM s.t WHERE id = {10 * chance.randrange(1, 150)}")
            cursor.execute(f"REPLACE INTO s.t VALUES ({10 * chance.randrange(1, 150)}, 1, 'again', 'bb', 2)")
            query.batch()
        query.catch_up()
        assert query.state["t"] == server_state(source, "s.t", ("id",), dict)
        assert len(query.operations("t", READ)) > 300


@pytest.mark.parametrize("image", IMAGES)
def test_case_22_a_batch_whose_rows_are_lost(source: MariaDb, tmp_path: Path, image: str) -> None:
    """With the rows it is the same again. Without them it can be read again while nothing changed, or where the images
    before the changes are whole; else the query ends, and says what to do.
    """
    set_images(source, image)
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        start, end = query.plan()
        rows = query.rows(start, end)
        query.stop(lose="spool")
        assert query.rows(start, end) == rows
        source.sql("UPDATE s.t SET v = -1")
        query.stop()
        assert query.rows(start, end) == rows
        query.stop(lose="spool")
        if image == "MINIMAL":
            with pytest.raises(DataLossError, match=r"row images of s\.t lack columns.*new checkpoint"):
                query.rows(start, end)
        else:  # NOBLOB leaves out nothing here
            assert query.rows(start, end) == rows


def test_case_22_one_session_writes_other_images(source: MariaDb, tmp_path: Path) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        source.sql("SET SESSION binlog_row_image = MINIMAL", "UPDATE s.t SET v = -1 WHERE id IN (10, 900)")
        query.catch_up()
        assert query.state["t"] == server_state(source, "s.t", ("id",), dict)
        assert query.state["t"][900,]["v"] == -1


def test_case_22_rows_that_come_into_being_with_a_part_of_their_columns(source: MariaDb, tmp_path: Path) -> None:
    """They are read again, once they are surely seen."""
    source.sql("SET GLOBAL binlog_row_image = MINIMAL")
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        source.sql("INSERT INTO s.t (id, v) VALUES (905, 5), (915, 5)", "UPDATE s.t SET id = 925 WHERE id = 920")
        query.catch_up()
        assert query.state["t"] == server_state(source, "s.t", ("id",), dict)


def test_case_22_available_now_goes_on_to_where_the_rows_can_be_had(source: MariaDb, tmp_path: Path) -> None:
    """What was committed behind its end, before the reading, cannot be taken back."""
    source.sql("SET GLOBAL binlog_row_image = MINIMAL")
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.begin()
        query.open().prepare_available_now()
        source.sql("UPDATE s.t SET v = -v WHERE id > 500")
        query.read_all()
        assert query.state["t"] == server_state(source, "s.t", ("id",), dict)
        assert query.planned() is None


def test_case_22_generated_columns_take_whole_images(source: MariaDb, tmp_path: Path) -> None:
    """The server leaves them out, also where they change: refused at the start, and where a session switches."""
    source.sql("ALTER TABLE s.t ADD COLUMN twice INT AS (v * 2) STORED")
    if not omits_generated(source.value("SELECT VERSION()") or ""):  # else read without them
        with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
            query.batch()
            source.sql("SET SESSION binlog_row_image = MINIMAL", "UPDATE s.t SET v = v + 1 WHERE id >= 900")
            query.read_all()
            read = {key: row for key, row in query.state["t"].items() if key >= (900,)}
            there = server_state(source, "s.t", ("id",), dict)
            assert read == {key: row for key, row in there.items() if key >= (900,)}
    source.sql("SET GLOBAL binlog_row_image = MINIMAL")
    with (
        SnapshotQuery(source, tmp_path / "other", "s.t") as query,
        pytest.raises(PrerequisiteError, match="twice is a generated column"),
    ):
        query.read_all()


def test_case_23_a_statement_without_rows_is_named(source: MariaDb, tmp_path: Path) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        source.sql("SET SESSION binlog_format = STATEMENT", "UPDATE s.t SET v = v + 1 WHERE id > 500")
        gtid = source.gtid_binlog_pos()
        with pytest.raises(StatementDmlError, match=gtid):
            query.read_all()


def test_case_27_an_idle_server_is_read_at_once(
    server_version: str, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    """One binlog file, and no group in it: there is no commit to wait for."""
    server = make_server(server_version, METADATA)
    fill(server, "s.t", 20)
    server.reset_master()
    assert server.gtid_binlog_pos() == ""
    with SnapshotQuery(server, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.read_all()
        assert server.gtid_binlog_pos() == "", "nothing was written to the server"
        assert query.keys("t") == ids(server, "s.t")
        server.sql("INSERT INTO s.t VALUES (21, 0, 'the first group')")
        query.catch_up()
        assert query.operations("t", "insert") == [(21,)]


def test_case_27_a_server_that_was_written_a_moment_ago_is_read_at_once(source: MariaDb, tmp_path: Path) -> None:
    """The relay log begins behind its last commit; the age that a place has to have is never reached."""
    source.sql("INSERT INTO s.t VALUES (100001, 0, 'young')")
    defaults = TableSnapshot.__init__.__kwdefaults__
    assert defaults is not None
    with mock.patch.dict(defaults, age_s=600), SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        source.sql("DELETE FROM s.t WHERE id IN (10, 100001)")
        query.read_all()
        query.catch_up()
        assert query.keys("t") == ids(source, "s.t")


@pytest.mark.parametrize("lose", ["spool", "relay"])
def test_case_28_the_binlogs_are_purged_behind_a_plan(source: MariaDb, tmp_path: Path, lose: str) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        start, end = query.plan()
        source.sql("UPDATE s.t SET v = v + 1", "FLUSH BINARY LOGS", "UPDATE s.t SET v = v + 1", "FLUSH BINARY LOGS")
        query.receive_all()
        query.stop()
        source.purge_binlogs()
        if lose == "spool":
            query.stop(lose=lose)
            query.take(query.rows(start, end))
            query.offset = end
            query.catch_up()
            assert {key: row["v"] for key, row in query.state["t"].items()} == {
                (key,): v for key, v in source.sql("SELECT id, v FROM s.t")
            }
        else:
            query.stop(lose=lose)
            with pytest.raises((DataLossError, PositionPurgedError), match=r"purged|no longer"):
                query.rows(start, end)


def test_case_29_a_missing_right_is_named(source: MariaDb, tmp_path: Path) -> None:
    source.sql(
        "CREATE USER few@'%' IDENTIFIED BY 'few-secret'",
        "GRANT REPLICATION SLAVE ON *.* TO few@'%'",
        "GRANT SELECT (id, v) ON s.t TO few@'%'",
    )
    account = {"user": "few", "password": "few-secret"}
    with (
        SnapshotQuery(source, tmp_path, "s.t", **account) as query,
        pytest.raises(ReplicaError, match=r"note|SELECT") as refused,
    ):
        query.read_all()
    assert "few-secret" not in str(refused.value)


def test_case_29_a_table_that_is_dropped_and_made_again(source: MariaDb, tmp_path: Path) -> None:
    """Its old rows are not taken back: a stream of rows cannot say DROP. The new ones come, each once."""
    with SnapshotQuery(source, tmp_path, "s.t*", keys={}, **SMALL_CHUNKS) as query:
        query.batch()
        source.sql("DROP TABLE s.t")
        query.state.clear()
        fill(source, "s.t", 30)
        source.sql("UPDATE s.t SET v = v + 5")
        query.catch_up()
        assert set(ids(source, "s.t")) <= set(query.keys("t"))


@pytest.mark.parametrize("columns", ["id BIGINT PRIMARY KEY, v INT", "v INT, id VARCHAR(9) PRIMARY KEY"])
def test_case_29_a_key_that_changes_while_a_part_is_delivered_ends_the_query_until_the_table_is_read_again(
    source: MariaDb, tmp_path: Path, columns: str
) -> None:
    fill(source, "s.u", 100)
    with SnapshotQuery(source, tmp_path, "s.t,s.u", **SMALL_CHUNKS) as query:
        while not query.keys("t"):  # the other table may be the first that is read
            query.batch()
        source.sql(
            f"CREATE OR REPLACE TABLE s.t ({columns})",
            "INSERT INTO s.t (id, v) SELECT seq, seq FROM mysql.seq_1_to_30",
            "UPDATE s.t SET v = v + 5",
        )
        with pytest.raises(ReplicaError):
            query.catch_up()
        query.stop()
        query.state.pop("t", None)
        query.options["resnapshot"] = "s.t@1"
        query.catch_up()
        assert query.keys("u") == ids(source, "s.u")
        held = {key: row["v"] for (key,), row in query.state["t"].items()}
        assert held == dict(source.sql("SELECT id, v FROM s.t"))


def test_rows_of_before_an_alter_are_counted_by_a_query_that_was_down(
    server_version: str, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    source = make_server(server_version, "--binlog-row-metadata=NO_LOG")
    fill(source, "s.t", 20)
    with SnapshotQuery(source, tmp_path, "s.*", maxRowsPerTrigger="7") as query:
        query.catch_up()
        query.stop()
        source.sql(
            "UPDATE s.t SET v = v + 1",
            "ALTER TABLE s.t MODIFY v BIGINT, ADD COLUMN w INT FIRST",
            "UPDATE s.t SET v = v + 10, w = 3",
        )
        query.catch_up()
        assert {key: (row["v"], row.get("w")) for (key,), row in query.state["t"].items()} == {
            key: (v, w) for key, v, w in source.sql("SELECT id, v, w FROM s.t")
        }


def test_case_30_the_offset_stays_small(source: MariaDb, tmp_path: Path) -> None:
    """A few hundred tables here; ten thousand are counted in the tests of the frontier."""
    for first in range(0, 300, 100):
        names = [f"t{n:05}" for n in range(first, first + 100)]
        source.sql(*(f"CREATE TABLE s.{name} (id INT PRIMARY KEY, v INT) ENGINE=InnoDB" for name in names))
        source.sql(*(f"INSERT INTO s.{name} VALUES (1, 1), (2, 2)" for name in names))
    largest = 0
    with SnapshotQuery(source, tmp_path, "s.*", maxRowsPerTrigger="20") as query:
        while query.reading:
            query.batch()
            assert query.offset is not None
            largest = max(largest, len(json.dumps(query.offset.json())))
        assert sum(map(len, query.state.values())) == 700
    assert largest < 4096
