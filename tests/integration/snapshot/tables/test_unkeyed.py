"""Tables without a key, and of engines without versions, read as a whole: exact while others write, or an error."""

from __future__ import annotations

import random
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import PrerequisiteError
from replica.protocol.gtid import GtidPosition
from replica.snapshot.chunks import table_reading
from replica.snapshot.pace import Pace
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.integration.snapshot.kit.counting import Counted, bursts
from tests.integration.snapshot.kit.query import SnapshotQuery, server_state
from tests.integration.snapshot.kit.running_statement import running_statement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


def test_tables_are_as_at_the_position_of_their_batch_under_writers(server: MariaDb, tmp_path: Path) -> None:
    keys = {("d", name): () for name in TABLES}
    with (
        bursts(server, change, burst_s=0.5, pause_s=4.0) as commits,
        Counted(server, tmp_path, keys, pace=WHOLE) as reading,
    ):
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


@pytest.fixture
def always_written(server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[MariaDb]:
    """The server, while someone writes to `isam` all the time; a reading of a table that is never still ends sooner."""
    monkeypatch.setattr(table_reading, "MOST_UNSETTLED", 3)
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
        with running_statement(server):  # else the first reading may fall between two rows
            yield server
    finally:
        ending.set()
        writer.join(60)


def test_a_table_that_is_always_written_is_an_error_and_not_a_guess(always_written: MariaDb, tmp_path: Path) -> None:
    keys = {("d", "isam"): ()}
    with Counted(always_written, tmp_path, keys, pace=WHOLE, wanted=lambda _, table: table == "isam") as one:
        with pytest.raises(PrerequisiteError, match=r"d\.isam has no key .* each of the 3 times") as caught:
            one.to_the_end()
        assert "LOCK TABLES `d`.`isam` READ" in str(caught.value.hint)


def test_a_table_that_is_always_written_is_left_out_where_each_table_is_followed(
    always_written: MariaDb, tmp_path: Path
) -> None:
    keys = {("d", "isam"): (), ("d", "plain"): ()}
    pace = replace(WHOLE, table_by_table=True)
    with Counted(
        always_written, tmp_path, keys, pace=pace, wanted=lambda _, table: table in {"isam", "plain"}
    ) as reading:
        ((name, why),) = reading.to_the_end_without()
    assert name == ("d", "isam")
    assert "was changed each of the 3 times" in why
    assert "LOCK TABLES `d`.`isam` READ" in why
    assert reading.frontier.rows == 3000, "the other table is there as a whole"


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
