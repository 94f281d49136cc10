"""Mirrors into local folders in a session without Delta, as with a Spark for which Delta has no build.

`scripts/test-spark 4.3` runs this file on Spark 4.3, `scripts/test` on the Spark that has Delta, without its jars.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import Mirrored
from tests.recipes.workbench import Workbench
from tests.spark.conftest import CONFIGURATION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.server]

RULES = {
    "shop.h": {"mode": "history"},
    "shop.s": {"mode": "soft_delete"},
    "shop.l": {"mode": "append_log"},
    "shop.r": {"leaveOut": ["secret"], "where": "v < 100"},
}
"""One table in each mode besides `c` and `n` in the mode current, and one with a rule that only Spark applies."""
TABLES = ("c", "h", "s", "l", "r")


class Lake(Mirrored):
    """Mirror into folders."""

    def __init__(self, workbench: Workbench, primary: MariaDb, folder: Path, **options: Any) -> None:
        self.lake_folder = folder / "lake"
        super().__init__(workbench, primary, "shop", folder, {"into": f"{self.lake_folder}/{{table}}", **options})

    def rows(self, table: str, columns: str = "*", where: str = "true") -> list[list[Any]]:
        folder = DeltaTable(str(self.lake_folder / table))
        query = QueryBuilder().register("t", folder).execute(f"SELECT {columns} FROM t WHERE {where}")
        read = pa.table(query.read_all())
        return sorted(([*row.values()] for row in read.to_pylist()), key=str)

    def states(self) -> dict[str, tuple[str, str | None]]:
        rows = self.rows("mirror_control", "source_table, state, error")
        return {name: (state, error) for name, state, error in rows}

    def assert_live(self, *tables: str, where: str = "true") -> None:
        """Assert that the valid rows of the targets are those of the server."""
        valid = {"h": "_current", "s": "NOT _deleted"}
        for table in tables:
            columns = ", ".join(f"`{row[0]}`" for row in self.primary.sql(f"SHOW COLUMNS FROM shop.{table}"))
            wanted = self.primary.sql(f"SELECT {columns} FROM shop.{table} WHERE {where}")
            found = self.rows(table, columns.replace("`", '"'), valid.get(table, "true"))
            assert found == sorted((list(row) for row in wanted), key=str), table


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of a session without Delta."""
    return {**CONFIGURATION, "spark.sql.warehouse.dir": str(folder / "warehouse")}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    folder = tmp_path_factory.mktemp("bare")
    with Workbench(settings(folder), folder, {}) as bench:
        yield bench


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb("10.11", "--binlog-row-metadata=FULL") as running:
        running.add_user()
        yield running


@pytest.fixture
def lake(bare: Workbench, primary: MariaDb, tmp_path: Path) -> Lake:
    primary.sql("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    for table in TABLES:
        more = ", secret INT DEFAULT 1" if table == "r" else ""
        primary.sql(
            "USE shop",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, t VARCHAR(20){more}) COMMENT 'it''s {table}'",
            f"INSERT INTO {table} (id, v, t) SELECT seq, seq, 'ä' FROM seq_1_to_50",
        )
    return Lake(bare, primary, tmp_path, rules=RULES)


def change(primary: MariaDb) -> None:
    for table in TABLES:
        primary.sql(
            f"DELETE FROM shop.{table} WHERE id <= 5",
            f"UPDATE shop.{table} SET v = v + 1 WHERE id BETWEEN 6 AND 10",
            f"UPDATE shop.{table} SET v = 200 WHERE id = 11",
            f"INSERT INTO shop.{table} (id, v, t) VALUES (100, 1, NULL)",
        )


def test_rows_changes_statements_and_an_audit(lake: Lake, primary: MariaDb) -> None:
    lake.run()
    assert {state for state, _ in lake.states().values()} == {"current"}
    lake.assert_live("c", "h", "s")
    assert lake.rows("r", "count(*)") == [[50]]
    assert lake.rows("l", "count(*)") == [[50]]
    assert DeltaTable(str(lake.lake_folder / "c")).metadata().description == "it's c"

    change(primary)
    lake.run()
    assert {state for state, _ in lake.states().values()} == {"current"}, lake.states()
    lake.assert_live("c", "h", "s")
    assert lake.rows("s", "count(*)", "_deleted") == [[5]]
    assert lake.rows("h", "count(*)", "NOT _current") == [[11]]
    assert lake.rows("r", "id, v, t") == sorted(
        (list(row) for row in primary.sql("SELECT id, v, t FROM shop.r WHERE v < 100")), key=str
    )
    assert lake.rows("l", "count(*)") > [[50]]

    for table in ("c", "h", "s"):
        primary.sql(
            f"ALTER TABLE shop.{table} ADD COLUMN n INT, CHANGE COLUMN t `name of it` VARCHAR(30)",
            f"INSERT INTO shop.{table} VALUES (101, 2, 'x', 3)",
        )
    primary.sql("ALTER TABLE shop.c ADD COLUMN d INT NOT NULL DEFAULT 7", "ALTER TABLE shop.c MODIFY v BIGINT")
    primary.sql("INSERT INTO shop.c VALUES (102, 9876543210, 'wide', 1, 1)")
    lake.run()
    assert {state for state, _ in lake.states().values()} == {"current"}, lake.states()
    lake.assert_live("c", "h", "s")
    primary.sql("ALTER TABLE shop.h DROP COLUMN n")
    lake.run()
    assert "n" not in [field.name for field in DeltaTable(str(lake.lake_folder / "h")).schema().fields]
    lake.assert_live("h")

    for table in ("c", "h", "s"):
        primary.sql(f"TRUNCATE TABLE shop.{table}")
    primary.sql("INSERT INTO shop.c VALUES (1, 1, 'again', 1, 1)")
    lake.run()
    lake.assert_live("c", "h", "s")
    assert lake.rows("h", "count(*)", "_current") == [[0]]
    assert lake.rows("s", "count(*)", "NOT _deleted") == [[0]]

    arguments = {name: lake.arguments[name] for name in ("host", "port", "user", "password")}
    result = lake.workbench.run(
        f"from streaming_source import audit, mirror_report, mirror_status, mirror_tables\n"
        f"found = audit(spark, mirror={str(lake.lake_folder / 'mirror_control')!r}, **{arguments!r})\n"
        f"into = {lake.arguments['into']!r}\n"
        "read = mirror_tables(spark, into=into)\n"
        "status = mirror_status(spark, into=into)\n"
        "audits = {row['source_table']: row['audit'] for row in status.collect()}\n"
        f"mirror_report(spark, into=into, file={str(lake.lake_folder / 'page.html')!r})\n"
        "result = [[one.table for one in found.tables if one.equal], [one.reason for one in found.left_out],"
        " read['shop.c'].count(), read['shop.s'].where('_deleted').count(), audits]"
    )
    equal, left_out, count, deleted, audits = result
    assert sorted(equal) == ["shop.c", "shop.h", "shop.r", "shop.s"]
    assert len(left_out) == 1  # a log cannot be compared
    assert count == 1
    assert deleted > 0
    assert audits["c"] == "equal"
    page = (lake.lake_folder / "page.html").read_text(encoding="utf-8")
    assert "4 equal" in page
    assert "Rows and changes per second<span>now" in page


def test_a_resnapshot_keeps_history_and_replaces_current_rows(lake: Lake, primary: MariaDb) -> None:
    lake.run()
    primary.sql("SET sql_log_bin = 0", "UPDATE shop.c SET v = 77 WHERE id = 1", "UPDATE shop.h SET v = 77 WHERE id = 1")
    lake.resnapshot("c", "h", "s")
    lake.run()
    lake.assert_live("c", "h", "s")
    assert lake.rows("h", "count(*)", "NOT _current") == [[50]]


def test_what_needs_a_merge_of_spark_suspends_only_its_table(lake: Lake, primary: MariaDb) -> None:
    primary.sql("CREATE TABLE shop.n (v INT, g INT)", "INSERT INTO shop.n VALUES (1, 1), (1, 1), (2, 2)")
    rules = {**RULES, "shop.n": {"leaveOut": ["g"]}}
    lake.run(rules=rules, snapshotUnkeyed="whole")
    assert lake.rows("n") == [[1], [1], [2]]
    primary.sql("DELETE FROM shop.n WHERE v = 2")
    change(primary)
    lake.run(rules=rules, snapshotUnkeyed="whole")
    states = lake.states()
    state, why = states.pop("n")
    assert state == "failed"
    assert why is not None
    assert "needs Spark's MERGE, and this session has no Delta" in why
    assert "mirror_resnapshot" in why
    assert {state for state, _ in states.values()} == {"current"}
    lake.assert_live("c", "h", "s")


@pytest.mark.slow  # scripts/test kills the driver of a session with Delta: test_end_to_end.py
def test_a_killed_driver_loses_and_doubles_nothing(primary: MariaDb, lake: Lake, tmp_path: Path) -> None:
    ended = threading.Event()

    def write() -> None:
        with primary.connect(database="shop") as connection, connection.cursor() as cursor:
            for number in range(100_000):
                if ended.wait(0.01):
                    return
                for table in ("c", "h", "s"):
                    cursor.execute(f"REPLACE INTO shop.{table} VALUES ({number % 60}, {number}, 'x')")
                    cursor.execute(f"DELETE FROM shop.{table} WHERE id = {(number * 7) % 60}")
                cursor.execute("COMMIT")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            with Workbench(settings(tmp_path), tmp_path, {}) as bench:
                own = Lake(bench, primary, tmp_path, rules=RULES)
                log = own.lake_folder / "h" / "_delta_log"
                running = threading.Thread(target=run_until_killed, args=(own,))
                before = commits(log)
                running.start()
                try:
                    until = time.monotonic() + 240
                    while commits(log) < before + 3 and time.monotonic() < until:
                        time.sleep(0.05)
                    written = commits(log) - before
                finally:
                    bench._driver.kill()
                    running.join(60)
                assert written >= 3, "the mirror wrote too little before it was killed"
    finally:
        ended.set()
        writer.join()
    lake.run()
    assert {state for state, _ in lake.states().values()} == {"current"}, lake.states()
    lake.assert_live("c", "h", "s")
    opened = lake.rows("h", "id, _from_gtid, _from_sequence, count(*)", "true GROUP BY 1, 2, 3 HAVING count(*) > 1")
    assert not opened, "a version is there twice"


def commits(log: Path) -> int:
    """Return the number of the newest commit."""
    return max((int(file.stem) for file in log.glob("*[0-9].json")), default=-1)


def run_until_killed(lake: Lake) -> None:
    with pytest.raises(AssertionError):  # the driver ends without an answer
        lake.run(trigger={"processingTime": "0 seconds"})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"into": "lake.{table}"}, "a mirror into tables of a catalog"),
        ({"into": "s3://lake/{table}"}, "a mirror into storage other than a local disk"),
        ({"writer": "spark"}, "writer=spark"),
    ],
)
def test_other_targets_are_refused_before_the_query(
    bare: Workbench, tmp_path: Path, arguments: dict[str, str], why: str
) -> None:
    given = {
        "tables": "shop.*",
        "into": f"{tmp_path}/{{table}}",
        "checkpointLocation": str(tmp_path / "c"),
        **arguments,
    }
    code = f"from streaming_source import mirror\nmirror(spark, host='none', user='u', **{given!r})"
    with pytest.raises(AssertionError, match=f"ConfigError: {why} needs Delta's classes in Spark"):
        bare.run(code)


@pytest.mark.slow
@pytest.mark.parametrize("work", ["altered_and_filled", "emptied_and_filled", "read_again"])
def test_a_batch_that_was_broken_off_at_any_commit_is_in_the_target_once(
    bare: Workbench, tmp_path: Path, work: str
) -> None:
    """The contract of all writers: tests/mirroring/writers/test_writer_contract.py."""
    call = (
        f"broken_off(own_session(spark), {str(tmp_path / 't')!r}, writer_contract.{work}, soft={work == 'read_again'})"
    )
    code = (
        "from tests.mirroring.writers import writer_contract\n"
        "from streaming_source.driver.own_session import own_session\n"
        f"result = writer_contract.{call}"
    )
    assert bare.run(code) == []
