"""Cases 13-19: DDL in the middle of reading, keys of every type and collation, tables that grow while they are read."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.snapshot.kit.query import READ, SnapshotQuery
from tests.integration.snapshot.kit.tables import METADATA, SMALL_CHUNKS, fill, ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest"), pytest.mark.timeout(300)]


@pytest.fixture
def source(server_version: str, make_server: Callable[..., MariaDb]) -> MariaDb:
    """A hundred rows, ids 10 to 1000."""
    server = make_server(server_version, METADATA)
    fill(server, "s.t", 100, step=10)
    return server


GHOST = (
    "CREATE TABLE s._t_gho LIKE s.t",
    "ALTER TABLE s._t_gho ADD COLUMN made INT",
    "INSERT INTO s._t_gho (id, v, note) SELECT id, v, note FROM s.t",
    "RENAME TABLE s.t TO s._t_del, s._t_gho TO s.t",
    "DROP TABLE s._t_del",
)
ALTERATIONS = {
    "ADD COLUMN": ("ALTER TABLE s.t ADD COLUMN more INT DEFAULT 7, ALGORITHM=INSTANT",),
    "DROP COLUMN": ("ALTER TABLE s.t DROP COLUMN note",),
    "RENAME COLUMN": ("ALTER TABLE s.t RENAME COLUMN note TO remark",),
    "a copying ALTER": ("ALTER TABLE s.t MODIFY v BIGINT, ALGORITHM=COPY",),
    "OPTIMIZE": ("OPTIMIZE TABLE s.t",),
    "a swap as gh-ost makes it": GHOST,
}


def rows_of(server: MariaDb) -> dict[tuple[int], int]:
    return {(key,): v for key, v in server.sql("SELECT id, v FROM s.t")}


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_cases_13_and_14_the_table_is_altered_while_it_is_read(
    source: MariaDb, tmp_path: Path, *, alteration: str
) -> None:
    """Read as many tables, so that rows of every definition can be put out."""
    with SnapshotQuery(source, tmp_path, "s.t*", **SMALL_CHUNKS) as query:
        query.batch()
        query.batch()
        source.sql("UPDATE s.t SET v = v + 1 WHERE id IN (10, 500, 990)")
        source.sql(*ALTERATIONS[alteration])
        source.sql("UPDATE s.t SET v = v + 1 WHERE id IN (10, 510, 990)")
        source.sql("INSERT INTO s.t (id, v) VALUES (5, 5), (995, 5)")
        query.catch_up()
        assert {key: row["v"] for key, row in query.state["t"].items()} == rows_of(source)


def test_case_13_the_table_is_altered_between_the_plan_and_a_replay(source: MariaDb, tmp_path: Path) -> None:
    """The spool has the rows as they were planned."""
    with SnapshotQuery(source, tmp_path, "s.t*", **SMALL_CHUNKS) as query:
        query.batch()
        start, end = query.plan()
        source.sql("ALTER TABLE s.t ADD COLUMN more INT, DROP COLUMN note", "UPDATE s.t SET v = -1")
        query.stop()
        query.take(query.rows(start, end))
        query.offset = end
        query.catch_up()
        assert {key: row["v"] for key, row in query.state["t"].items()} == rows_of(source)


def test_case_14_truncate_empties_what_is_not_read(source: MariaDb, tmp_path: Path) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", onStatementDml="ignore", **SMALL_CHUNKS) as query:
        source.sql("SET GLOBAL max_statement_time = 0")
        query.batch()
        read = len(query.keys("t"))
        source.sql("TRUNCATE TABLE s.t", "INSERT INTO s.t VALUES (2000, 1, 'behind')")
        query.receive_all()
        query.catch_up()
        # A stream of rows cannot say TRUNCATE: what was delivered before it stays, nothing more of the old rows comes.
        assert len(query.operations("t", READ)) in {read, read + 1}
        assert (2000,) in query.state["t"]


def test_case_14_drop_ends_the_table(source: MariaDb, tmp_path: Path) -> None:
    fill(source, "s.u", 30)
    with SnapshotQuery(source, tmp_path, "s.*", **SMALL_CHUNKS) as query:
        query.batch()
        source.sql("DROP TABLE s.t", "INSERT INTO s.u VALUES (31, 1, 'behind')")
        query.catch_up()
        assert query.keys("u") == ids(source, "s.u")


def test_case_15_an_alter_does_not_wait_for_the_whole_table(source: MariaDb, tmp_path: Path) -> None:
    """No batch is taken meanwhile: only what is being read could hold it up."""
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        assert query.reading
        altering = threading.Thread(target=source.sql, args=("ALTER TABLE s.t COMMENT 'x', ALGORITHM=COPY",))
        altering.start()
        altering.join(60)
        assert not altering.is_alive()
        query.catch_up()
        assert query.keys("t") == ids(source, "s.t")


KEYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "BIGINT UNSIGNED": (
        "BIGINT UNSIGNED",
        ("0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615"),
    ),
    "BIGINT": ("BIGINT", ("-9223372036854775808", "-1", "0", "1", "9223372036854775807")),
    "TINYINT": ("TINYINT", ("-128", "-1", "0", "127")),
    "MEDIUMINT": ("MEDIUMINT", ("-8388608", "-1", "0", "8388607")),
    "DECIMAL(30,5)": ("DECIMAL(30,5)", ("-9999999999999999999999999.99999", "-0.00001", "0", "0.00001", "12.5")),
    "DATE": ("DATE", ("'1000-01-01'", "'1999-12-31'", "'2000-01-01'", "'9999-12-31'")),
    "DATETIME(6)": ("DATETIME(6)", ("'1000-01-01'", "'2000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'")),
    # 10.5 would set the first TIMESTAMP of a table that has no default of its own at every UPDATE.
    "TIMESTAMP(3)": (
        "TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3)",
        ("'1970-01-01 00:00:01'", "'2020-01-01 00:00:00.001'", "'2038-01-19 03:14:07'"),
    ),
    "TIME(2)": ("TIME(2)", ("'-838:59:59'", "'-00:00:00.01'", "'00:00:00'", "'838:59:59'")),
    "YEAR": ("YEAR", ("0", "1901", "2155")),
    "BINARY(16)": ("BINARY(16)", ("x'00'", "x'0001'", "x'61'", "x'6101'", "x'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF'")),
    "VARBINARY(9)": ("VARBINARY(9)", ("''", "x'00'", "x'0000'", "x'0001'", "x'61'", "x'6100'", "x'FF'")),
    "INET6": ("INET6", ("'::'", "'::1'", "'2001:db8::'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'")),
    "ENUM": ("ENUM('z','a','m')", ("'z'", "'a'", "'m'")),
    "BIT(12)": ("BIT(12)", ("0", "1", "255", "256", "4095")),
    "VARCHAR ci": (
        "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        ("''", "'a'", "'ab '", "'B'", "'ä1'", "'é'", "'Z'", "'z9'", "'😀'"),
    ),
    "VARCHAR nopad": (
        "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_nopad_ci",
        ("''", "'a'", "'a '", "'B'", "'ä1'", "'😀'"),
    ),
    "VARCHAR bin": ("VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", ("''", "'A'", "'a'", "'ä'", "'😀'")),
    "latin1": ("VARCHAR(20) CHARACTER SET latin1", ("'a'", "'b'", "'ÿ'", "'z'")),
}
"""By name: the declared type, and keys in it, as SQL literals."""


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("kind", KEYS)
def test_cases_16_and_17_every_key_once(source: MariaDb, tmp_path: Path, *, kind: str, unique: bool) -> None:
    """Chunks of one row: every key is a border once."""
    declared, keys = KEYS[kind]
    index = "UNIQUE KEY by_id (id)" if unique else "PRIMARY KEY (id)"
    source.sql(
        "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00', names utf8mb4",
        f"CREATE TABLE s.k (id {declared} NOT NULL, v INT NOT NULL, {index}) ENGINE=InnoDB",
        f"INSERT INTO s.k VALUES {', '.join(f'({key}, {n})' for n, key in enumerate(keys))}",
    )
    with SnapshotQuery(source, tmp_path, "s.k", snapshotChunkRows="1", maxRowsPerTrigger="1") as query:
        query.batch()  # all of a table whose order only the server knows
        source.sql("UPDATE s.k SET v = v + 100")
        query.catch_up()
        assert sorted(row["v"] for row in query.state["k"].values()) == [100 + n for n in range(len(keys))]
        assert len(query.operations("k", READ)) == len(keys)


def test_case_16_uuid(source: MariaDb, tmp_path: Path) -> None:
    if source.version == "10.5":  # it has no such type, and says so
        with pytest.raises(Exception, match="UUID"):
            source.sql("CREATE TABLE s.k (id UUID PRIMARY KEY)")
        return
    source.sql(
        "CREATE TABLE s.k (id UUID PRIMARY KEY, v INT NOT NULL)",
        "INSERT INTO s.k SELECT CONCAT(LEFT(MD5(seq), 12), IF(seq % 2, '1', '4'), SUBSTR(MD5(seq), 14, 3), 'a', "
        "SUBSTR(MD5(seq), 18)), seq FROM mysql.seq_1_to_40",
    )
    with SnapshotQuery(source, tmp_path, "s.k", snapshotChunkRows="3", maxRowsPerTrigger="3") as query:
        query.batch()
        source.sql("UPDATE s.k SET v = v + 100", "DELETE FROM s.k WHERE v % 7 = 0")
        query.catch_up()
        left = sorted(v for (v,) in source.sql("SELECT v FROM s.k"))
        assert sorted(row["v"] for row in query.state["k"].values()) == left


def test_case_17_a_key_changes_its_case(source: MariaDb, tmp_path: Path) -> None:
    source.sql(
        "CREATE TABLE s.k (id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY, v INT)",
        "INSERT INTO s.k SELECT CONCAT('row', seq), seq FROM mysql.seq_1_to_30",
    )
    with SnapshotQuery(source, tmp_path, "s.k", **SMALL_CHUNKS) as query:
        query.batch()
        source.sql("UPDATE s.k SET id = UPPER(id) WHERE v % 3 = 0", "UPDATE s.k SET id = LOWER(id) WHERE v = 3")
        query.catch_up()
        source.sql("UPDATE s.k SET id = UPPER(id) WHERE v % 3 = 1")
        query.catch_up()
        assert {key for (key,) in query.state["k"]} == {key for (key,) in source.sql("SELECT id FROM s.k")}


def test_case_18_a_composite_key_is_read_by_ranges(source: MariaDb, tmp_path: Path) -> None:
    """One value in the first column; every SELECT of the reader is explained by the server itself."""
    source.sql(
        "CREATE TABLE s.k (a INT NOT NULL, b VARCHAR(10) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
        "c INT NOT NULL, v INT, UNIQUE KEY by_all (a, b, c)) ENGINE=InnoDB",
        "INSERT INTO s.k SELECT 7, CONCAT('b', seq DIV 50), seq, seq FROM mysql.seq_1_to_400",
        "SET GLOBAL log_output = 'TABLE'",
        "SET GLOBAL general_log = ON",
    )
    keys = {"k": ("a", "b", "c")}
    with SnapshotQuery(source, tmp_path, "s.k", keys=keys, snapshotChunkRows="50", maxRowsPerTrigger="50") as query:
        query.catch_up()
        assert len(query.operations("k", READ)) == len(set(query.operations("k", READ))) == 400
    source.sql("SET GLOBAL general_log = OFF")
    logged = source.sql(
        "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type = 'Execute' "
        "AND argument LIKE '%FROM%k%' AND argument LIKE '%ORDER BY%'"
    )
    statements = {statement for (statement,) in logged if "LIMIT" in statement}
    assert len(statements) >= 8
    for statement in statements:
        (plan,) = source.sql(f"EXPLAIN {statement}")
        assert "by_all" in plan, f"{plan} of {statement}"
        assert plan[3] in {"range", "index"}, f"{plan} of {statement}"
        if " WHERE " in statement:
            assert plan[3] == "range", f"{plan} of {statement}"


def test_case_19_gaps_and_rows_at_the_end(source: MariaDb, tmp_path: Path) -> None:
    source.sql(
        "CREATE TABLE s.k (id BIGINT UNSIGNED PRIMARY KEY, v INT)",
        "INSERT INTO s.k VALUES (1, 1), (18000000000000000000, 2)",
        "INSERT INTO s.k SELECT 18446744073709551515 + seq, seq FROM mysql.seq_1_to_100",
    )
    with SnapshotQuery(source, tmp_path, "s.k", **SMALL_CHUNKS) as query:
        query.read_all()
        assert len(query.state["k"]) == 102


def test_case_19_rows_are_appended_faster_than_they_are_read(source: MariaDb, tmp_path: Path) -> None:
    """Each batch adds a hundred after the last row, and a hundred are read a second: reading ends all the same.

    They come behind the first chunk: with it the key is known up to which chunks keep their size.
    """
    deadline = time.monotonic() + 240
    slowly = {"snapshotChunkRows": "10", "maxRowsPerTrigger": "20", "snapshotRowsPerSecond": "100"}
    with SnapshotQuery(source, tmp_path, "s.t", **slowly) as query:
        while not query.keys("t"):
            query.batch()
        for turn in itertools.count():
            if not query.reading:
                break
            assert time.monotonic() < deadline, "the end of the table was never reached"
            source.sql(f"INSERT INTO s.t SELECT {2000 + turn * 100} + seq, 0, '' FROM mysql.seq_1_to_100")
            query.batch()
        query.catch_up()
        assert query.keys("t") == ids(source, "s.t")
