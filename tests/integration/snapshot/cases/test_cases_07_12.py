"""Cases 7-12: isolation levels, keys that move over the border of what is delivered, kills at each step of a batch."""

from __future__ import annotations

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


def check(query: SnapshotQuery, server: MariaDb) -> None:
    """Everything that the server has, and nothing else."""
    query.catch_up()
    rows = {(key,): {"id": key, "v": v, "note": note} for key, v, note in server.sql("SELECT id, v, note FROM s.t")}
    assert query.state["t"] == rows


@pytest.mark.parametrize("level", ["READ-COMMITTED", "SERIALIZABLE"])
@pytest.mark.parametrize("by", ["tx-isolation", "init-connect"])
def test_case_7_the_session_sets_its_own_isolation(
    server_version: str, make_server: Callable[..., MariaDb], tmp_path: Path, *, level: str, by: str
) -> None:
    forced = f"--transaction-isolation={level}"
    if by == "init-connect":
        forced = f"--init-connect=SET SESSION TRANSACTION ISOLATION LEVEL {level.replace('-', ' ')}"
    server = make_server(server_version, METADATA, forced)
    fill(server, "s.t", 100, step=10)
    with SnapshotQuery(server, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        server.sql("UPDATE s.t SET v = v + 1", "DELETE FROM s.t WHERE id % 70 = 0")
        check(query, server)


MOVES = {
    "inside what is delivered": ("UPDATE s.t SET id = 15 WHERE id = 20",),
    "from what is delivered to what is not": ("UPDATE s.t SET id = 985 WHERE id = 10",),
    "to what is delivered": ("UPDATE s.t SET id = 5 WHERE id = 990",),
    "inside what is not": ("UPDATE s.t SET id = 955 WHERE id = 960",),
    "there and back": ("UPDATE s.t SET id = 986 WHERE id = 10", "UPDATE s.t SET id = 10, v = 7 WHERE id = 986"),
    "back and there": ("UPDATE s.t SET id = 6 WHERE id = 990", "UPDATE s.t SET id = 990, v = 7 WHERE id = 6"),
    "a swap over the border": (
        "UPDATE s.t SET id = 0 WHERE id = 10",
        "UPDATE s.t SET id = 10 WHERE id = 1000",
        "UPDATE s.t SET id = 1000 WHERE id = 0",
    ),
}


@pytest.mark.parametrize("when", ["between batches", "in one transaction", "before a replay"])
@pytest.mark.parametrize("move", MOVES)
def test_case_8_a_key_moves(source: MariaDb, tmp_path: Path, *, move: str, when: str) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        query.batch()
        statements = MOVES[move]
        if when == "in one transaction":
            statements = ("BEGIN", *statements, "COMMIT")
        if when == "before a replay":
            start, end = query.plan()
            source.sql(*statements)
            query.stop(lose="spool")  # it is read again, and moved back to where it was planned
            query.take(query.rows(start, end))
            query.offset = end
        else:
            source.sql(*statements)
        check(query, source)


@pytest.mark.parametrize("lose", ["", "spool", "relay"])
def test_case_9_a_key_is_deleted_and_comes_again(source: MariaDb, tmp_path: Path, *, lose: str) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        start, end = query.plan()
        for key in (10, 50, 150, 500, 990):
            source.sql(f"DELETE FROM s.t WHERE id = {key}", f"INSERT INTO s.t VALUES ({key}, -1, 'again')")
            source.sql(f"INSERT INTO s.t VALUES ({key + 1}, 0, 'short')", f"DELETE FROM s.t WHERE id = {key + 1}")
        query.stop(lose=lose)
        query.take(query.rows(start, end))
        query.offset = end
        check(query, source)


SHIFTS = (
    "REPLACE INTO s.t VALUES (10, -1, 'replaced'), (990, -1, 'replaced'), (15, -2, 'new'), (995, -2, 'new')",
    "INSERT INTO s.t VALUES (20, 1, 'a'), (980, 1, 'b'), (25, 1, 'c') ON DUPLICATE KEY UPDATE v = v + 1000",
    "UPDATE s.t SET id = id + 1 WHERE id BETWEEN 10 AND 60 ORDER BY id DESC",
    "UPDATE s.t SET id = id + 1 ORDER BY id DESC",
    "UPDATE s.t SET id = id - 1 ORDER BY id",
    "UPDATE s.t SET id = id + 10 ORDER BY id DESC",
    "UPDATE s.t SET id = id + 5 WHERE id > 400 ORDER BY id DESC LIMIT 3",
)


def test_case_10_replace_on_duplicate_key_and_shifts(source: MariaDb, tmp_path: Path) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        for statement in SHIFTS:
            query.batch()
            source.sql(statement)
        check(query, source)


POINTS, LOST = ("before planning", "after the offset log", "after the sink"), ("relay", "spool", "")


@pytest.mark.parametrize(
    ("point", "lose"),
    [
        *zip(POINTS, LOST, strict=True),
        *(
            pytest.param(point, lose, marks=pytest.mark.slow)
            for number, point in enumerate(POINTS)
            for lose in LOST
            if lose != LOST[number]
        ),
    ],
)
def test_case_11_a_killed_query_reads_the_same_rows(source: MariaDb, tmp_path: Path, *, point: str, lose: str) -> None:
    """The offset that Spark logged is all that is left; what was read in between is another state of the table."""
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        for turn in range(4):
            query.batch()
            if point == "before planning":
                query.stop(lose=lose)
                source.sql(f"UPDATE s.t SET v = v + {turn}, note = 'changed'")
                continue
            start, end = query.plan()
            first = query.rows(start, end) if point == "after the sink" else None
            source.sql(
                f"UPDATE s.t SET v = v + {turn}, note = 'changed'",
                f"DELETE FROM s.t WHERE id % 90 = {10 * turn}",
                f"INSERT IGNORE INTO s.t SELECT id + 1 + {turn}, 0, 'between' FROM s.t WHERE id % 10 = 0",
            )
            query.stop(lose=lose)
            again = query.rows(start, end)
            assert first is None or sorted(map(repr, again)) == sorted(map(repr, first))
            query.take(again)
            query.offset = end
        check(query, source)


def test_case_12_a_task_that_runs_again_gives_the_same_rows(source: MariaDb, tmp_path: Path) -> None:
    with SnapshotQuery(source, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        start, end = query.plan()
        first = query.rows(start, end)
        source.sql("UPDATE s.t SET v = v + 1")
        assert query.rows(start, end) == first
        assert {row["op"] for row in first} == {READ}
        query.take(first)
        query.offset = end
        check(query, source)
        assert query.keys("t") == ids(source, "s.t")
