"""Tables first, while others write row images that lack columns, or within XA transactions: with a key and without one.

What an image leaves out is made whole by the one before it, in the judge as in what it judges, or the table is read
again. Writers without a key pause between their bursts, so that some reading meets a moment without them.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import PrerequisiteError
from replica.snapshot.pace import Pace
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.integration.snapshot.kit.counting import Counted, bursts
from tests.integration.snapshot.kit.query import READ, SnapshotQuery, server_state
from tests.integration.snapshot.kit.tables import METADATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

TABLES = {
    "plain": "(n INT, t VARCHAR(20), b BLOB, x DOUBLE) ENGINE=InnoDB",
    "aria": "(n INT, t TEXT, b BLOB, x DOUBLE) ENGINE=Aria",
    "long": "(t TEXT NOT NULL, n INT, b BLOB, x DOUBLE, UNIQUE KEY by_text (t)) ENGINE=InnoDB",
}
WHOLE = Pace(connections=2, chunk_bytes=4096, unkeyed=True)
ONE_WRITER: Any = {"burst_s": 0.3, "pause_s": 4.0, "threads": 1}


@pytest.fixture
def server(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, METADATA) as server:
        server.sql("CREATE DATABASE d", *(f"CREATE TABLE d.{name} {body}" for name, body in TABLES.items()))
        for name in TABLES:
            server.sql(
                "USE mysql",
                f"INSERT INTO d.{name} (n, t, b, x) SELECT seq % 50, CONCAT('t', seq), NULL, seq / 3 FROM seq_1_to_900",
            )
        yield server


def change(cursor: Any, rng: random.Random, tables: tuple[str, ...] = tuple(TABLES)) -> None:
    name, number = rng.choice(tables), rng.randrange(50)
    match rng.randrange(5):
        case 0:
            cursor.execute(f"DELETE FROM d.{name} WHERE n = {number} LIMIT 2")
        case 1:
            cursor.execute(f"INSERT INTO d.{name} VALUES {whole_row(name, number, rng)}")
        case 2:
            cursor.execute(f"UPDATE d.{name} SET b = REPEAT('b', {number}), n = n + 1 WHERE n = {number} LIMIT 3")
        case 3:
            cursor.execute(f"UPDATE d.{name} SET t = 'r{rng.randrange(10**9)}' WHERE n = {number} LIMIT 1")
        case _:
            cursor.execute(f"UPDATE d.{name} SET x = x + 1 WHERE n < {number} LIMIT 3")


def whole_row(name: str, number: int, rng: random.Random) -> str:
    text = f"'r{rng.randrange(10**9)}'"
    return f"({text}, {number}, 'x', 1)" if name == "long" else f"({number}, {text}, 'x', 1)"


@pytest.mark.parametrize("image", ["FULL", "FULL_NODUP", "NOBLOB", "MINIMAL"])
def test_tables_without_a_key_are_as_at_the_position_of_their_batch(
    server: MariaDb, tmp_path: Path, image: str
) -> None:
    if image == "FULL_NODUP" and server.version < "11":
        with pytest.raises(Exception, match="FULL_NODUP"):
            server.sql(f"SET GLOBAL binlog_row_image = {image}")
        return
    server.sql(f"SET GLOBAL binlog_row_image = {image}")
    keys: dict[tuple[str, str], tuple[str, ...]] = {("d", name): () for name in TABLES}
    with bursts(server, change, **ONE_WRITER), Counted(server, tmp_path, keys, pace=WHOLE) as reading:
        reading.to_the_end()
    assert {name for _, name in reading.delivered if reading.delivered["d", name]} == set(TABLES)


def test_tables_without_a_key_while_xa_transactions_change_them(server: MariaDb, tmp_path: Path) -> None:
    numbers = iter(range(100_000))

    def write(cursor: Any, rng: random.Random) -> None:
        xid = f"'x{next(numbers)}'"
        cursor.execute(f"XA START {xid}")
        change(cursor, rng, ("plain", "long"))
        for step in ("END", "PREPARE", "COMMIT" if rng.random() < 0.7 else "ROLLBACK"):
            cursor.execute(f"XA {step} {xid}")

    keys: dict[tuple[str, str], tuple[str, ...]] = {("d", name): () for name in ("plain", "long")}
    with (
        bursts(server, write, **ONE_WRITER),
        Counted(server, tmp_path, keys, pace=WHOLE, wanted=lambda *name: name in keys) as reading,
    ):
        reading.to_the_end()
    assert all(reading.delivered[name] for name in keys)


def test_a_prepared_transaction_of_a_table_without_a_key_comes_at_its_commit(server: MariaDb, tmp_path: Path) -> None:
    """It is open while the table is read, and its rows are in no reading; then they are once in the stream."""
    server.sql("CREATE TABLE d.x (id INT, v INT)", "INSERT INTO d.x VALUES (1, 1), (2, 2)")
    server.sql(
        "XA START 'a'",
        "INSERT INTO d.x VALUES (3, 3)",
        "UPDATE d.x SET v = 9 WHERE id = 1",
        "XA END 'a'",
        "XA PREPARE 'a'",
    )
    with SnapshotQuery(server, tmp_path, "d.x", snapshotUnkeyed="whole") as query:
        query.read_all()
        assert sorted(query.operations("x", READ)) == [(1,), (2,)]
        server.sql("XA COMMIT 'a'")
        query.catch_up()
        assert query.state["x"] == server_state(server, "d.x", ("id",), dict)


def test_a_unique_index_over_long_text_is_no_key(server: MariaDb, tmp_path: Path) -> None:
    with (
        SnapshotQuery(server, tmp_path, "d.long") as query,
        pytest.raises(PrerequisiteError, match=r"d\.long") as refused,
    ):
        query.read_all()
    assert "snapshotUnkeyed=whole" in str(refused.value.hint)


def test_a_key_that_is_read_in_one_go_and_changes_that_tell_only_it(server: MariaDb, tmp_path: Path) -> None:
    """Images before a change have the key alone, so that nothing can be counted: the table is read again."""
    server.sql("SET GLOBAL binlog_row_image = MINIMAL", "CREATE TABLE d.f (f FLOAT PRIMARY KEY, n INT, t VARCHAR(9))")
    server.sql("USE mysql", "INSERT INTO d.f SELECT seq / 4, seq, 't' FROM seq_1_to_300")

    def write(cursor: Any, rng: random.Random) -> None:
        number = rng.randrange(1, 300)
        cursor.execute(f"UPDATE d.f SET n = n + 1 WHERE f = {number / 4}")
        cursor.execute(f"DELETE FROM d.f WHERE f = {number / 2}")
        cursor.execute(f"REPLACE INTO d.f VALUES ({-number / 4}, {number}, 'x')")

    with SnapshotQuery(server, tmp_path, "d.f", keys={"f": ("f",)}, snapshotUnkeyed="whole") as query:
        with bursts(server, write, **ONE_WRITER):
            query.read_all()
        query.catch_up()
        assert query.state["f"] == server_state(server, "d.f", ("f",), dict)


def test_a_keyed_table_with_minimal_images_under_writers(server: MariaDb, tmp_path: Path) -> None:
    """The rows wait on disk, the truth for their batch, and are moved forward alone."""
    server.sql(
        "SET GLOBAL binlog_row_image = MINIMAL",
        "CREATE TABLE d.k (id INT PRIMARY KEY, v INT, note VARCHAR(40), b BLOB)",
        "USE mysql",
        "INSERT INTO d.k SELECT seq, 0, CONCAT('row ', seq), NULL FROM seq_1_to_4000",
    )
    ending, commits = threading.Event(), [0]

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with server.connect() as connection, connection.cursor() as cursor:
            while not ending.wait(0.003):
                key = rng.randrange(1, 2000) * 2 + seed % 2  # of its own: no two writers wait for each other
                column = rng.choice(("v = v + 1", "note = CONCAT(id, v)", "b = REPEAT('b', v % 300)"))
                cursor.execute(f"UPDATE d.k SET {column} WHERE id IN ({key}, {key + 2}, {key + 40})")
                if rng.random() < 0.2:
                    cursor.execute(f"DELETE FROM d.k WHERE id = {key}")
                if rng.random() < 0.1:
                    cursor.execute(f"REPLACE INTO d.k VALUES ({key}, {seed}, 'again', 'bb')")
                commits[0] += 1

    threads = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    with SnapshotQuery(server, tmp_path, "d.k", snapshotChunkRows="200", maxRowsPerTrigger="500") as query:
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: commits[0] > 20, "others write")
            while query.reading:
                query.batch()
                if query.batches % 3 == 0:
                    query.stop()  # a new life goes on with the rows on disk
        finally:
            ending.set()
            for thread in threads:
                thread.join(60)
        query.catch_up()
        assert query.state["k"] == server_state(server, "d.k", ("id",), dict)
        assert len(query.operations("k", READ)) > 1000
