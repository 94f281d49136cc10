"""Tables with generated columns, read first while others write: without these where updates leave them out.

The judge replays the relay log by key and compares the columns that all images have; the generated ones are all there,
as the server computes them, or all absent, whatever was written while the table was read.
"""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from replica.readers.arrow import read_relay_log
from replica.schema.catalog import omits_generated
from replica.snapshot.chunks.schedule import ReadLimit
from replica.snapshot.pace import Pace
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.integration.snapshot.kit.table_reading import TableReading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead
    from replica.snapshot.frontier import Frontier

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

PLAIN = ("a", "id", "v", "t")
COLUMNS = """a INT, twice INT AS (a * 2) STORED, id INT NOT NULL, v INT, x VARCHAR(20) AS (CONCAT('x', v)) VIRTUAL,
    t VARCHAR(9) DEFAULT 'q'"""
TABLES = {
    "keyed": f"({COLUMNS}, PRIMARY KEY (id), UNIQUE KEY by_x (x, id))",
    "texts": f"({COLUMNS}, k VARCHAR(30) NOT NULL, UNIQUE KEY u (k))",
    "loose": f"({COLUMNS})",
}


@pytest.fixture
def server(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as server:
        server.sql("CREATE DATABASE d", "USE d", *(f"CREATE TABLE d.{name} {body}" for name, body in TABLES.items()))
        server.sql(
            "USE d",
            "INSERT INTO keyed (a, id, v) SELECT seq % 99, seq, seq FROM seq_1_to_3000",
            "INSERT INTO texts (a, id, v, k) SELECT NULLIF(seq % 9, 0), seq, seq, CONCAT('k', seq) FROM seq_1_to_1000",
            "INSERT INTO loose (a, id, v) SELECT seq % 99, seq, seq FROM seq_1_to_500",
        )
        yield server


class Replayed(TableReading):
    """A reading whose judge knows rows by their column id, and keeps what it has seen of generated columns."""

    def judge(self, before: Frontier, after: Frontier, v: RelayHead) -> None:
        for part in self.snapshot.parts(before, after, v):
            state = self.rows_at(part.table[1], v.position)
            for row in self.rows_of(part):
                assert [row[name] for name in PLAIN] == [state[row["id"]][name] for name in PLAIN]
                self.seen.append((row["a"], row["v"], row["twice"], row["x"]))
                self.delivered[part.table] = self.delivered.get(part.table, 0) + 1

    seen: list[tuple[Any, ...]] = []  # noqa: RUF012

    def rows_at(self, name: str, position: GtidPosition) -> dict[int, dict[str, Any]]:
        state: dict[int, dict[str, Any]] = {}
        for batch in read_relay_log(self.folder / "relay", f"d.{name}", until=position):
            for change in batch.to_pylist():
                if change["before"] is not None:
                    del state[change["before"]["id"]]
                if change["after"] is not None:
                    state[change["after"]["id"]] = change["after"]
        return state


@contextmanager
def writer(server: MariaDb) -> Iterator[list[int]]:
    ending, done = threading.Event(), [0]

    def write() -> None:
        rng = random.Random(3)
        with server.connect() as connection, connection.cursor() as cursor:
            while not ending.wait(0.01):
                key, table = rng.randrange(1, 3000), rng.choice(("keyed", "texts"))
                match rng.randrange(4):
                    case 0:
                        cursor.execute(f"DELETE FROM d.{table} WHERE id = {key}")
                    case 1:
                        more = ("", "") if table == "keyed" else (", k", f", 'k{key}'")
                        cursor.execute(f"REPLACE INTO d.{table} (a, id, v{more[0]}) VALUES ({key}, {key}, 1{more[1]})")
                    case _:
                        cursor.execute(
                            f"UPDATE d.{table} SET v = v + 1, a = a + 1 WHERE id BETWEEN {key} AND {key + 5}"
                        )
                done[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: done[0] > 10, "others write")
        yield done
    finally:
        ending.set()
        thread.join(60)


def test_all_rows_have_them_or_none(server: MariaDb, tmp_path: Path) -> None:
    pace = Pace(connections=2, chunk_rows=300, unkeyed=True)
    keys = {("d", name): () for name in TABLES}
    with writer(server), Replayed(server, tmp_path, keys, pace=pace) as reading:
        reading.seen = []
        reading.to_the_end(limit=ReadLimit(rows=700))
    assert len(reading.batches) > 2
    assert all(reading.delivered[name] > 400 for name in keys)
    if omits_generated(server.sql("SELECT VERSION()")[0][0]):
        assert {row[2:] for row in reading.seen} == {(None, None)}
    else:
        assert [row[2:] for row in reading.seen] == [
            (None if a is None else a * 2, f"x{v}") for a, v, _, _ in reading.seen
        ]


def test_rows_that_are_lost_are_made_again_without_them(server: MariaDb, tmp_path: Path) -> None:
    pace = Pace(connections=2, chunk_rows=300, unkeyed=True)
    with Replayed(server, tmp_path, {("d", name): () for name in TABLES}, pace=pace) as reading:
        reading.seen = []
        wait_until(lambda: reading.step(ReadLimit(rows=700)), "a part of the first table is delivered")
        first = [reading.rows_of(part) for part in reading.snapshot.parts(*reading.batches[0])]
        server.sql("UPDATE d.keyed SET a = a + 1, v = v + 1 WHERE id % 3 = 0", "DELETE FROM d.keyed WHERE id % 7 = 0")
        server.sql("USE d", "INSERT INTO d.keyed (a, id, v) SELECT 1, -seq, 1 FROM seq_1_to_99")
        for path in (tmp_path / "spool").iterdir():
            path.unlink()
        reading.restart()
        again = [reading.rows_of(part) for part in reading.snapshot.parts(*reading.batches[0])]
    assert first == again
    assert len(first[0]) >= 300
