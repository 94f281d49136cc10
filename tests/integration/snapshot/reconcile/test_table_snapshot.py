"""Tables read beside a stream of changes: what each batch delivers is what the server held at its position."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from replica.errors import KeyChangedError, PrerequisiteError
from replica.snapshot.chunks.schedule import ReadLimit
from replica.snapshot.frontier import NOTHING
from replica.snapshot.pace import Pace
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.integration.snapshot.kit.table_reading import TableReading, Writers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

TABLES = {("d", "a"): ("id",), ("d", "b"): ("id",), ("d", "c"): ("id", "w"), ("d", "e"): ("id",)}


@pytest.fixture
def server(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as server:
        server.sql(
            "CREATE DATABASE d",
            "USE d",
            "CREATE TABLE d.a (id INT PRIMARY KEY, v INT, t VARCHAR(20) DEFAULT 'x')",
            "CREATE TABLE d.b (id INT NOT NULL, v INT, UNIQUE KEY k (id))",
            "CREATE TABLE d.c (id INT, v INT, w INT DEFAULT 7, PRIMARY KEY (id, w))",
            "CREATE TABLE d.e (id INT PRIMARY KEY, v INT)",
            "INSERT INTO d.a (id, v) SELECT seq, seq FROM seq_1_to_3000",
            "INSERT INTO d.b (id, v) SELECT seq, seq FROM seq_1_to_2000",
            "INSERT INTO d.c (id, v) SELECT seq, seq FROM seq_1_to_1500",
        )
        yield server


def test_every_batch_is_the_server_at_its_position_while_others_write(server: MariaDb, tmp_path: Path) -> None:
    with Writers(server, ["d.a", "d.b", "d.c"]) as writers, TableReading(server, tmp_path, TABLES) as reading:
        reading.to_the_end(limit=ReadLimit(rows=700))
        wait_until(lambda: writers.commits > 50, "others write")
    assert reading.frontier.finished
    assert all(reading.delivered[name] for name in (("d", "a"), ("d", "b"), ("d", "c")))
    assert reading.delivered["d", "e"] == 0
    assert len(reading.batches) > 3
    assert list((tmp_path / "spool").iterdir()) == []


@pytest.mark.quick_on("newest")
def test_a_restart_after_every_batch_gives_the_same_rows_from_files_and_from_tables(
    server: MariaDb, tmp_path: Path
) -> None:
    def killed() -> None:
        for lost in (False, True):
            reading.restart(without_files=lost)
            reading.delivered.clear()
            batch = reading.batches[-1]
            parts = reading.snapshot.parts(*batch)
            assert [row for part in parts for row in reading.rows_of(part)] == rows[-1]

    rows: list[object] = []
    with Writers(server, ["d.a", "d.b", "d.c"]), TableReading(server, tmp_path, TABLES) as reading:
        plain = reading.judge

        def judge(*batch: object) -> None:
            plain(*batch)  # type: ignore[arg-type]
            parts = reading.snapshot.parts(*batch)  # type: ignore[arg-type]
            rows.append([row for part in parts for row in reading.rows_of(part)])

        reading.judge = judge  # type: ignore[method-assign]
        reading.to_the_end(limit=ReadLimit(rows=1500), each=killed)
    assert len(reading.batches) > 3


def collected(reading: TableReading) -> dict[tuple[str, str], list[int]]:
    """Keep the ids of what is delivered, in the place of the judge, who cannot follow DDL."""
    found: dict[tuple[str, str], list[int]] = {}

    def judge(*batch: object) -> None:
        for part in reading.snapshot.parts(*batch):  # type: ignore[arg-type]
            found.setdefault(part.table, []).extend(row["id"] for row in reading.rows_of(part))

    reading.judge = judge  # type: ignore[method-assign]
    return found


def ids(server: MariaDb, table: str) -> list[int]:
    return [int(row[0]) for row in server.sql(f"SELECT id FROM {table} ORDER BY id")]


SLOWLY = Pace(connections=1, chunk_rows=400)


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE d.{0} ADD COLUMN n INT DEFAULT 5 FIRST, ALGORITHM=INSTANT",
        "ALTER TABLE d.{0} DROP COLUMN v",
        "ALTER TABLE d.{0} MODIFY v BIGINT",
        "OPTIMIZE TABLE d.{0}",
        "ALTER TABLE d.{0} RENAME COLUMN v TO u",
        "CREATE TABLE d._new LIKE d.{0}; INSERT INTO d._new SELECT * FROM d.{0}; "  # noqa: ISC004  (one text)
        "RENAME TABLE d.{0} TO d._old, d._new TO d.{0}; DROP TABLE d._old",
    ],
    ids=["add", "drop", "copy", "optimize", "rename", "swap"],
)
def test_a_table_that_is_altered_before_and_in_the_middle_of_its_reading(
    server: MariaDb, tmp_path: Path, ddl: str
) -> None:
    whole = {name: ids(server, name) for name in ("d.a", "d.c")}
    with TableReading(server, tmp_path, TABLES, pace=SLOWLY, caught_up=True) as reading:
        found = collected(reading)
        wait_until(lambda: reading.step(ReadLimit(rows=400)), "a part of the first table is delivered")
        for statement in ddl.split("; "):
            for table in "ac":
                server.sql(statement.format(table).replace("_new", f"_new{table}").replace("_old", f"_old{table}"))
        reading.to_the_end()
    assert found["d", "a"] == whole["d.a"]
    assert found["d", "c"] == whole["d.c"]


def test_progress_counts_each_table_once_also_after_a_restart(server: MariaDb, tmp_path: Path) -> None:
    with TableReading(server, tmp_path, TABLES, pace=SLOWLY) as reading:
        for name in (("d", "a"), ("d", "b")):
            wait_until(
                lambda: reading.step(ReadLimit(rows=400)) and reading.frontier.reached(name) not in (None, NOTHING),  # noqa: B023
                "a part of it is delivered",
            )
            done = sum(reading.frontier.reached(table) is None for table in TABLES)
            for _ in range(2):
                progress = reading.snapshot.progress()
                assert (progress.tables, progress.tables_done) == (len(TABLES), done)
                reading.restart()


def test_tables_that_vanish_empty_or_appear_in_the_middle(server: MariaDb, tmp_path: Path) -> None:
    with TableReading(server, tmp_path, TABLES, pace=SLOWLY, caught_up=True) as reading:
        found = collected(reading)
        wait_until(lambda: reading.step(ReadLimit(rows=400)), "a part of the first table is delivered")
        delivered = len(found["d", "a"])
        server.sql("TRUNCATE TABLE d.a", "DROP TABLE d.b", "CREATE TABLE d.d (id INT PRIMARY KEY)")
        server.sql("INSERT INTO d.d VALUES (1), (2)", "CREATE TABLE d.x (id INT PRIMARY KEY)", "INSERT d.x VALUES (3)")
        server.sql("INSERT INTO d.a (id) VALUES (-1), (100000)", "CREATE DATABASE c", "CREATE TABLE c.c LIKE d.d")
        server.sql("INSERT INTO c.c VALUES (4)")  # its name is passed: the stream has its rows
        reading.receive_all()
        reading.to_the_end()
    assert found["d", "a"] == [*range(1, delivered + 1), 100_000]
    assert ("d", "b") not in found
    assert found["d", "d"] == [1, 2]
    assert found["d", "x"] == [3]
    assert ("c", "c") not in found


def test_a_table_whose_key_changes_in_the_middle_is_an_error(server: MariaDb, tmp_path: Path) -> None:
    server.sql("UPDATE d.a SET v = id")
    with TableReading(server, tmp_path, TABLES, pace=SLOWLY) as reading:
        collected(reading)
        wait_until(lambda: reading.step(ReadLimit(rows=400)), "a part of the first table is delivered")
        server.sql("ALTER TABLE d.a DROP PRIMARY KEY, ADD PRIMARY KEY (v)")
        end = server.gtid_binlog_pos()  # before it, what was read ahead is still right
        wait_until(lambda: str(reading.replica.head().position) == end, "the relay log has the statement")
        with pytest.raises(
            KeyChangedError, match=r"the key of table d\.a was changed while it was read: it is \(v int\(11\)\) now"
        ):
            reading.to_the_end()


def test_a_table_that_cannot_be_read_is_named(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE TABLE d.z (id INT PRIMARY KEY) ENGINE=MyISAM")
    with (
        TableReading(server, tmp_path, TABLES, pace=SLOWLY) as reading,
        pytest.raises(PrerequisiteError, match=r"d\.z .* engine MyISAM"),
    ):
        reading.to_the_end()


def test_a_table_whose_order_only_the_server_knows_comes_as_a_whole(server: MariaDb, tmp_path: Path) -> None:
    server.sql(
        "USE d",
        "CREATE TABLE d.s (id VARCHAR(30) COLLATE utf8mb4_unicode_ci PRIMARY KEY, v INT) CHARSET utf8mb4",
        "INSERT INTO s SELECT CONCAT(IF(seq % 2, 'a', 'Ä'), seq), seq FROM seq_1_to_1200",
    )
    keys = {("d", "s"): ("id",)}

    def selected(database: str, table: str) -> bool:
        return (database, table) in keys

    pace = Pace(connections=1, chunk_rows=300)
    with TableReading(server, tmp_path, keys, pace=pace, wanted=selected) as reading, server.connect() as connection:
        write = connection.cursor()
        write.execute("USE d")
        for number in range(1, 200):
            write.execute("UPDATE IGNORE s SET id = REVERSE(id) WHERE v = %s", [number])
            write.execute("REPLACE INTO s VALUES (CONCAT('A', %s), 0)", [number * 2])
            reading.step()
        reading.to_the_end()
        assert len([batch for batch in reading.batches if batch[0].rows < batch[1].rows]) == 1
        rows = [reading.rows_of(part) for part in reading.snapshot.parts(*reading.batches[-1])]
        shutil.rmtree(tmp_path / "spool")
        write.execute("DELETE FROM s WHERE v % 3 = 0")
        reading.restart()
        assert [reading.rows_of(part) for part in reading.snapshot.parts(*reading.batches[-1])] == rows


def test_tables_that_are_made_or_altered_behind_a_position_that_stays(server: MariaDb, tmp_path: Path) -> None:
    with TableReading(server, tmp_path, TABLES, pace=SLOWLY) as reading:
        found = collected(reading)
        wait_until(lambda: reading.step(ReadLimit(rows=400)), "a part of the first table is delivered")
        v = reading.batches[-1][2]
        server.sql("CREATE TABLE d.d (id INT PRIMARY KEY)", "INSERT INTO d.d VALUES (1)", "ALTER TABLE d.e FORCE")
        reading.end()
        reading.begin()  # lists the new table, too

        def stood_still() -> bool:
            advance = reading.snapshot.advance(reading.frontier, v)
            if advance is not None:
                reading.judge(reading.frontier, advance.frontier, v)
                reading.frontier = advance.frontier
            return reading.snapshot.blocked_tables == (("d", "e"),) and dict(reading.frontier.open).keys() <= {
                ("d", "e")
            }

        wait_until(stood_still, "all that can be delivered there is")
        assert (found["d", "a"], found["d", "c"]) == (ids(server, "d.a"), ids(server, "d.c"))
        assert ("d", "d") not in found
        reading.to_the_end()
    assert ("d", "d") not in found


def test_a_table_that_is_gone_behind_a_position_that_stays(server: MariaDb, tmp_path: Path) -> None:
    """As a name that a swap of tables has for a moment: as of the position it is there, and nobody can read it."""
    away = ("d", "away")
    with TableReading(server, tmp_path, TABLES, pace=SLOWLY) as reading:
        reading.to_the_end()
        v = reading.batches[-1][2]
        server.sql("CREATE TABLE d.away (id INT PRIMARY KEY)", "DROP TABLE d.away")
        reading.end()
        reading.frontier = reading.frontier.restarted([away])
        reading.begin()

        def blocked_tables() -> bool:
            assert reading.snapshot.advance(reading.frontier, v) is None
            return reading.snapshot.blocked_tables == (away,)

        wait_until(blocked_tables, "it is known that the table is gone")
        reading.to_the_end()
