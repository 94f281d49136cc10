"""Tables without a key, and of engines without versions, read as a whole: exact while others write, or an error.

The judge counts rows: what the relay log's changes leave of each table, from its CREATE on, each as often as it is
there. Writers pause between their bursts, so that some reading meets a moment without them.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pymysql.err import OperationalError

from replica.arrow.reading import read_relay_log
from replica.errors import PrerequisiteError
from replica.protocol.gtid import GtidPosition
from replica.table_reader import snapshot
from replica.table_reader.pace import Pace
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.integration.running_statement import running_statement
from tests.integration.snapshot.query import SnapshotQuery, server_state
from tests.integration.table_reading import TableReading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.relay_log.location import RelayHead
    from replica.table_reader.frontier import Frontier

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

TABLES = {
    "plain": "(n INT, t VARCHAR(20), x DOUBLE) ENGINE=InnoDB",
    "floats": "(f FLOAT PRIMARY KEY, n INT) ENGINE=InnoDB",
    "isam": "(n INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(20), f FLOAT) ENGINE=MyISAM",
    "aria": "(n INT, t TEXT, b BIT(3)) ENGINE=Aria",
    "loose": "(n INT, t CHAR(9), d DATE) ENGINE=Aria TRANSACTIONAL=0",
}
WHOLE = Pace(connections=3, chunk_bytes=4096, unkeyed=True)


@pytest.fixture
def server(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as server:
        server.sql("CREATE DATABASE d", "USE d", *(f"CREATE TABLE d.{name} {body}" for name, body in TABLES.items()))
        server.sql(
            "USE d",
            "INSERT INTO d.plain SELECT seq % 50, seq % 7, seq % 3 / 3 FROM seq_1_to_3000",
            "INSERT INTO d.floats SELECT seq / 3, seq FROM seq_1_to_1000",
            "INSERT INTO d.isam (t, f) SELECT seq % 5, seq / 3 FROM seq_1_to_3000",
            "INSERT INTO d.aria SELECT seq % 40, NULLIF(seq % 3, 0), seq % 8 FROM seq_1_to_3000",
            "INSERT INTO d.loose SELECT seq % 9, 'x', NULL FROM seq_1_to_500",
        )
        yield server


class Counted(TableReading):
    """A reading whose judge counts equal rows."""

    def judge(self, before: Frontier, after: Frontier, v: RelayHead) -> None:
        found: dict[str, Counter[Any]] = {}
        for part in self.snapshot.parts(before, after, v):
            found.setdefault(part.table[1], Counter()).update(map(shown, self.rows_of(part)))
        for name, rows in found.items():
            assert rows == self.rows_at(name, v.position), name
            self.delivered["d", name] = rows.total()

    def rows_at(self, name: str, position: GtidPosition) -> Counter[Any]:
        rows: Counter[Any] = Counter()
        for batch in read_relay_log(self.folder / "relay", f"d.{name}", until=position):
            for change in batch.to_pylist():
                if change["before"] is not None:
                    rows[shown(change["before"])] -= 1
                    assert rows[shown(change["before"])] >= 0
                if change["after"] is not None:
                    rows[shown(change["after"])] += 1
        return +rows


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.items())


def change(cursor: Any, rng: random.Random) -> None:
    name = rng.choice(list(TABLES))
    first = {"floats": "f"}.get(name, "n")
    match rng.randrange(4):
        case 0:
            cursor.execute(f"DELETE FROM d.{name} WHERE {first} = {rng.randrange(50)} LIMIT 3")
        case 1:
            other = "n" if name == "floats" else "t"
            cursor.execute(f"UPDATE d.{name} SET {other} = {rng.randrange(9)} WHERE {first} < {rng.randrange(20)}")
        case _:
            columns = {"isam": "(t, f)", "aria": "(n, t)", "loose": "(n, t)", "plain": "(n, x)"}.get(name, "(f, n)")
            values = ", ".join(f"({rng.randrange(50) if name != 'floats' else rng.random()}, 1)" for _ in range(20))
            cursor.execute(f"INSERT INTO d.{name} {columns} VALUES {values}")


@contextmanager
def bursts(server: MariaDb, *, burst_s: float, pause_s: float, threads: int = 3) -> Iterator[list[int]]:
    """Write until the end of the `with`: all writers, then none, by turns."""
    ending, writing, commits = threading.Event(), threading.Event(), [0]

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not ending.wait(0.01):
                if not writing.wait(0.1):
                    continue
                try:
                    change(cursor, rng)
                    connection.commit() if rng.random() < 0.8 else connection.rollback()
                    commits[0] += 1
                except OperationalError as error:
                    if error.args[0] not in (1205, 1213):
                        raise
                    connection.rollback()

    def turns() -> None:
        while not ending.is_set():
            writing.set()
            ending.wait(burst_s)
            writing.clear()
            ending.wait(pause_s)

    parts = [threading.Thread(target=turns), *(threading.Thread(target=write, args=(n,)) for n in range(threads))]
    for part in parts:
        part.start()
    try:
        wait_until(lambda: commits[0] > 10, "others write")
        yield commits
    finally:
        ending.set()
        for part in parts:
            part.join(60)


def test_tables_are_as_at_the_position_of_their_batch_under_writers(server: MariaDb, tmp_path: Path) -> None:
    keys = {("d", name): () for name in TABLES}
    with bursts(server, burst_s=0.5, pause_s=4.0) as commits, Counted(server, tmp_path, keys, pace=WHOLE) as reading:
        reading.to_the_end()
    assert commits[0] > 10
    assert {name for _, name in reading.delivered if reading.delivered["d", name]} == set(TABLES)


def test_a_batch_that_is_lost_is_made_again_from_changed_tables(server: MariaDb, tmp_path: Path) -> None:
    keys = {("d", name): () for name in TABLES}
    with Counted(server, tmp_path, keys, pace=WHOLE) as reading:
        (end,) = server.sql("SELECT @@GLOBAL.gtid_binlog_pos")[0]
        assert reading.replica.wait_for(GtidPosition.parse(end), 60)
        v = reading.replica.head()

        def stepped() -> bool:
            advance = reading.snapshot.advance(reading.frontier, v)
            if advance is not None:
                reading.batches.append((reading.frontier, advance.frontier, v))
                reading.frontier = advance.frontier
            return reading.frontier.finished

        with server.connect() as connection, connection.cursor() as cursor:
            rng = random.Random(5)
            for _ in range(60):
                change(cursor, rng)
        wait_until(stepped, "the tables are read as of a position before the changes")
        first = [[reading.rows_of(part) for part in reading.snapshot.parts(*batch)] for batch in reading.batches]
        for batch in reading.batches:
            reading.judge(*batch)
        with server.connect() as connection, connection.cursor() as cursor:
            for _ in range(60):
                change(cursor, rng)
        reading.restart()
        shutil.rmtree(tmp_path / "spool")
        again = [[reading.rows_of(part) for part in reading.snapshot.parts(*batch)] for batch in reading.batches]
    assert again == first
    assert sum(map(len, sum(first, []))) > 10_000  # noqa: RUF017


def test_a_table_that_is_always_written_is_an_error_and_not_a_guess(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST_UNSETTLED", 3)
    begun, ending = threading.Event(), threading.Event()

    def write() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            while not ending.wait(0.002):
                cursor.execute("INSERT INTO d.isam (t) VALUES ('x')")
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(60)
        keys = {("d", "isam"): ()}
        with (
            running_statement(server),  # else the first reading may fall between two rows
            Counted(server, tmp_path, keys, pace=WHOLE, wanted=lambda _, table: table == "isam") as one,
        ):
            with pytest.raises(PrerequisiteError, match=r"d\.isam has no key .* each of the 3 times") as caught:
                one.to_the_end()
            assert "LOCK TABLES `d`.`isam` READ" in str(caught.value.hint)
    finally:
        ending.set()
        writer.join(60)


def test_a_query_goes_on_with_the_changes_and_has_no_row_twice(server: MariaDb, tmp_path: Path) -> None:
    server.sql("USE d", "CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM")
    server.sql("USE d", "CREATE TABLE a (id INT, v INT) ENGINE=Aria")
    server.sql("USE d", *(f"INSERT INTO {name} SELECT seq, seq FROM seq_1_to_900" for name in "ma"))

    def write(ending: threading.Event) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            key = 1000
            while not ending.wait(0.02):
                key += 1
                if key % 100 < 85:  # else none for a while
                    cursor.execute(f"INSERT INTO d.{'ma'[key % 2]} VALUES ({key}, 1)")
                    cursor.execute(f"UPDATE d.m SET v = v + 1 WHERE id > {key - 100}")
                    cursor.execute(f"DELETE FROM d.a WHERE id = {key - 900}")
                else:
                    ending.wait(0.15)

    ending = threading.Event()
    writer = threading.Thread(target=write, args=(ending,))
    with SnapshotQuery(server, tmp_path, "d.m,d.a", snapshotUnkeyed="whole") as query:
        writer.start()
        try:
            while query.reading:
                query.batch()
            query.batch()
        finally:
            ending.set()
            writer.join(60)
        query.catch_up()
        for name in "ma":
            assert query.state[name] == server_state(server, f"d.{name}", ("id",), dict)
            assert len(query.operations(name, "read")) > 500
