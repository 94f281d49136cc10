"""System-versioned tables: the rows of now are read, and their changes told from rows of the past that come along."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import pymysql
import pytest

from replica.errors import PrerequisiteError
from tests.integration.snapshot.kit.query import READ, SnapshotQuery
from tests.integration.snapshot.kit.tables import METADATA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest"), pytest.mark.timeout(300)]

TABLES = {
    "implicit": ("id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING", "row_start", "row_end"),
    "own_names": (
        (
            "id INT NOT NULL, since TIMESTAMP(6) GENERATED ALWAYS AS ROW START, v INT, "
            "until TIMESTAMP(6) GENERATED ALWAYS AS ROW END, "
            "PERIOD FOR SYSTEM_TIME (since, until), UNIQUE KEY by_id (id)) "
            "WITH SYSTEM VERSIONING"
        ),
        "since",
        "until",
    ),
    "text_key": ("id VARCHAR(20) PRIMARY KEY, v INT) WITH SYSTEM VERSIONING", "row_start", "row_end"),
    "parts": (
        (
            "id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING "
            "PARTITION BY SYSTEM_TIME (PARTITION past HISTORY, PARTITION present CURRENT)"
        ),
        "row_start",
        "row_end",
    ),
}


@pytest.fixture
def source(server_version: str, make_server: Callable[..., MariaDb]) -> MariaDb:
    server = make_server(server_version, METADATA)
    server.sql("CREATE DATABASE s")
    return server


def change(server: MariaDb, chance: random.Random, table: str, count: int) -> None:
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for _ in range(count):
            one, two = chance.randrange(100, 420), chance.randrange(100, 420)
            statement = chance.choice(
                (
                    f"UPDATE s.{table} SET v = v + 1 WHERE id = {one}",
                    f"UPDATE s.{table} SET v = v + 1 WHERE id BETWEEN {one} AND {one + 4}",
                    f"DELETE FROM s.{table} WHERE id = {one}",
                    f"INSERT INTO s.{table} (id, v) VALUES ({one}, 1)",
                    f"REPLACE INTO s.{table} (id, v) VALUES ({one}, 2)",
                    f"UPDATE s.{table} SET id = {two} WHERE id = {one}",
                )
            )
            with contextlib.suppress(pymysql.err.IntegrityError):
                cursor.execute(statement)


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_of_now_and_their_changes(source: MariaDb, tmp_path: Path, table: str) -> None:
    definition, begin, end = TABLES[table]
    source.sql(
        f"CREATE TABLE s.{table} ({definition}",
        f"INSERT INTO s.{table} (id, v) SELECT 99 + seq, seq FROM mysql.seq_1_to_300",
        f"UPDATE s.{table} SET v = 0 WHERE id % 3 = 0",
        f"DELETE FROM s.{table} WHERE id % 5 = 0",
    )
    chance = random.Random(7)
    limits = {"snapshotChunkRows": "20", "maxRowsPerTrigger": "60"}
    with SnapshotQuery(source, tmp_path, f"s.{table}", **limits) as query:
        while query.reading:
            change(source, chance, table, 6)
            query.batch()
        change(source, chance, table, 20)
        query.catch_up()
        asked = f"SELECT id, v, UNIX_TIMESTAMP({begin}), UNIX_TIMESTAMP({end}) FROM s.{table}"
        wanted = {(key,): (v, float(since), float(until)) for key, v, since, until in source.sql(asked)}
        found = {
            key: (row["v"], row[begin].timestamp(), row[end].timestamp()) for key, row in query.state[table].items()
        }
        assert found == wanted
        assert len(query.operations(table, READ)) > 100


def test_a_batch_of_rows_of_now_that_is_read_again(source: MariaDb, tmp_path: Path) -> None:
    """Back to where it was, over rows that were ended since."""
    source.sql(
        f"CREATE TABLE s.implicit ({TABLES['implicit'][0]}",
        "INSERT INTO s.implicit (id, v) SELECT seq, seq FROM mysql.seq_1_to_100",
    )
    with SnapshotQuery(source, tmp_path, "s.implicit", snapshotChunkRows="10", maxRowsPerTrigger="40") as query:
        query.batch()
        start, end = query.plan()
        rows = query.rows(start, end)
        source.sql("UPDATE s.implicit SET v = v + 1", "DELETE FROM s.implicit WHERE id % 2 = 0")
        query.stop(lose="spool")
        assert query.rows(start, end) == rows


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_versions_that_no_row_of_the_stream_tells_are_refused(source: MariaDb, tmp_path: Path, image: str) -> None:
    period = "BIGINT UNSIGNED" if image == "FULL" else "TIMESTAMP(6)"
    source.sql(
        f"SET GLOBAL binlog_row_image = {image}",
        f"CREATE TABLE s.t (id INT PRIMARY KEY, a {period} GENERATED ALWAYS AS ROW START, b {period} GENERATED ALWAYS "
        "AS ROW END, PERIOD FOR SYSTEM_TIME (a, b)) WITH SYSTEM VERSIONING ENGINE=InnoDB",
    )
    why = "versioned by transactions" if image == "FULL" else "row images leave out columns"
    with SnapshotQuery(source, tmp_path, "s.t") as query, pytest.raises(PrerequisiteError, match=why):
        query.read_all()
