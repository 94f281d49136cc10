"""What a mirror does, each of it once and small: real Spark, a real server, SELECT as the judge. One JVM for all."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.fixtures.jars import JarsMissingError
from tests.fixtures.object_store import PROGRAM, ObjectStore, object_store_jars
from tests.mirroring.faults.test_kills import folder, kill_in_a_batch, spark_settings
from tests.mirroring.mirrors import Mirrored, fill_shop
from tests.mirroring.objects.conftest import InBucket, mirror_in
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(600)]

CURRENT = ("current", None)
COUNTS = "result = [list(row) for row in spark.sql({sql!r}).collect()]"
AUDIT = """
from streaming_source import audit
found = audit(spark, mirror={control!r}, repair=True, **{server!r})
result = {{table.table: {{kind: n for kind, n in table.counts.items() if n}} for table in found.tables}}
"""
S3 = """
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
for jar in {jars!r}:
    loader.addURL(spark._jvm.java.io.File(jar).toURI().toURL())
for name, value in {settings!r}.items():
    spark._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
"""
"""Give a session that runs the jars of S3: other tests need not wait for 690 MB."""


@pytest.fixture(scope="module")
def s3_jars() -> list[str]:
    if not PROGRAM.exists():
        pytest.skip("the S3 server is not built: scripts/get-versitygw .cache/versitygw, which needs Go")
    try:
        return [str(jar) for jar in object_store_jars()]
    except JarsMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def database(primary: MariaDb, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own, with three tables of 30 rows."""
    name = f"of_{str(request.node.name).removeprefix('test_')}"
    fill_shop(primary, *"abc", database=name)
    yield name
    primary.sql(f"DROP DATABASE {name}")


def asked(mirror: Mirrored, sql: str) -> list[list[Any]]:
    """Rows of a query over targets: `{lake}` is where they are."""
    found: list[list[Any]] = mirror.workbench.run(COUNTS.format(sql=sql.format(lake=mirror.lake)))
    return found


def test_modes(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    modes = {"a": "soft_delete", "b": "history", "c": "append_log"}
    mirror = mirrored(primary, database, rules={f"{database}.{name}": {"mode": mode} for name, mode in modes.items()})
    mirror.run()
    for table in "abc":
        primary.sql(
            f"USE {database}",
            f"UPDATE {table} SET v = v + 1 WHERE id <= 2",
            f"UPDATE {table} SET id = 99 WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 3",
        )
    mirror.break_off()
    mirror.run()
    assert mirror.states() == dict.fromkeys("abc", CURRENT)
    marked = mirror.columns("a", "id", "v", "_deleted")
    assert [row[:2] for row in marked if row[2]] == [[2, 3], [3, 3]]
    assert len(marked) == 31
    assert asked(mirror, "SELECT count(*) FROM {lake}.a WHERE NOT _deleted") == [[29]]
    versions = [row for row in mirror.columns("b", "id", "v", "_current") if row[0] in (1, 2, 3, 99)]
    assert versions == [[1, 1, False], [1, 2, True], [2, 2, False], [2, 3, False], [3, 3, False], [99, 3, True]]
    kinds = Counter(kind for (kind,) in mirror.columns("c", "_change_type"))
    assert kinds == {"delete": 1, "read": 30, "update_postimage": 3, "update_preimage": 3}
    assert asked(mirror, "SELECT DISTINCT writer FROM {lake}.mirror_control") == [["native"]]


def test_alter(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    mirror = mirrored(primary, database)
    mirror.run()
    primary.sql(
        f"USE {database}",
        "INSERT INTO a VALUES (100, 1)",
        "ALTER TABLE a ADD COLUMN note VARCHAR(20) DEFAULT 'new', MODIFY v BIGINT",
        "INSERT INTO a VALUES (101, 1 << 40, 'between')",
        "ALTER TABLE a RENAME COLUMN note TO remark",
        "UPDATE a SET remark = 'later' WHERE id = 100",
        "ALTER TABLE b DROP COLUMN v",
        "DELETE FROM b WHERE id = 1",
    )
    mirror.run()
    mirror.assert_equal("a", "b", "c")
    primary.sql(f"USE {database}", "UPDATE a SET v = 0 WHERE id = 101", "INSERT INTO b VALUES (200)")
    mirror.run()
    mirror.assert_equal("a", "b", "c")
    assert mirror.states() == dict.fromkeys("abc", CURRENT)
    for table in "ab":  # columns were renamed and dropped: Spark finds them by their mapping, too
        seen = asked(mirror, f"SELECT * FROM {{lake}}.{table}")
        assert sorted([None if value is None else str(value) for value in row] for row in seen) == mirror.source(table)


def test_truncate_drop_and_swap(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    mirror = mirrored(primary, database)
    mirror.run()
    primary.sql(
        f"USE {database}",
        "INSERT INTO a VALUES (100, 1)",
        "TRUNCATE TABLE a",
        "INSERT INTO a VALUES (1, 7)",
        "CREATE TABLE new_b LIKE b",
        "INSERT INTO new_b VALUES (1, 1)",
        "RENAME TABLE b TO old_b, new_b TO b",
        "DROP TABLE c",
        "CREATE TABLE c (id INT PRIMARY KEY, t TEXT)",
        "INSERT INTO c VALUES (1, 'another table')",
    )
    mirror.run()
    mirror.run()
    mirror.assert_equal("a", "b", "old_b", "c")
    assert {state for name, (state, _) in mirror.states().items() if name != "new_b"} == {"current"}
    assert mirror.operations("b").count("CREATE OR REPLACE TABLE") == 1  # emptied by delta-rs when it was read again
    assert mirror.operations("c").count("CREATE OR REPLACE TABLE") == 2


def test_policies_and_the_return_of_a_table(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    mirror = mirrored(primary, database, onTruncate="stop", onAlter="stop", onDrop="drop")
    mirror.run()
    primary.sql(
        f"USE {database}", "TRUNCATE TABLE a", "ALTER TABLE b ADD x INT", "DROP TABLE c", "CREATE TABLE d LIKE b"
    )
    mirror.run()
    states = mirror.states()
    assert {name: state for name, (state, _) in states.items()} == {
        "a": "failed",
        "b": "failed",
        "c": "dropped",
        "d": "current",
    }
    assert "onTruncate=stop" in str(states["a"][1])
    assert "onAlter=stop" in str(states["b"][1])
    assert len(mirror.target("a")) == 30, "a suspended table keeps its rows"
    primary.sql(f"INSERT INTO {database}.a VALUES (1, 2)", f"INSERT INTO {database}.d VALUES (1, 2, 3)")
    mirror.resnapshot("a", "b")
    mirror.run()
    mirror.assert_equal("a", "b", "d")


@pytest.mark.slow  # test_net_changes.py has what tasks append, test_counted.py what Spark does
def test_a_table_without_a_key(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    made = "CREATE TABLE twice (v INT, t TEXT)", "INSERT INTO twice SELECT seq % 7, 'x' FROM seq_1_to_60"
    primary.sql(f"USE {database}", *made)
    mirror = mirrored(primary, database, snapshotUnkeyed="whole")
    mirror.run()
    writer = "SELECT split(writer, ':')[0] FROM {lake}.mirror_control WHERE source_table = 'twice'"
    rows = "SELECT v, count(*) FROM {lake}.twice GROUP BY v ORDER BY v"
    for number, change in enumerate(
        (
            "INSERT INTO twice SELECT * FROM twice",
            "UPDATE twice SET v = NULL WHERE v = 2 LIMIT 3",
            "INSERT INTO twice VALUES (1, 'y'), (1, 'y')",  # is in, when the batch comes again
            "TRUNCATE TABLE twice; INSERT INTO twice SELECT seq % 3, NULL FROM seq_1_to_20",
        )
    ):
        primary.sql(f"USE {database}", *change.split("; "))
        if number == 2:
            mirror.break_off()
        mirror.run()
        grouped = primary.sql(f"SELECT v, COUNT(*) FROM {database}.twice GROUP BY v ORDER BY v")
        assert asked(mirror, rows) == [list(row) for row in grouped], change
        assert asked(mirror, writer) == [["native"]], change
    assert mirror.states() == dict.fromkeys([*"abc", "twice"], CURRENT)


def test_a_generated_column_that_no_image_has(
    primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]
) -> None:
    """The column would be NULL, in first rows too: 11.8 leaves it out of updates."""
    made = "CREATE TABLE twice (id INT PRIMARY KEY, v INT, double_v INT AS (v * 2))"
    primary.sql(f"USE {database}", made, "INSERT INTO twice (id, v) VALUES (1, 1), (2, 2)")
    mirror = mirrored(primary, database)
    mirror.run()
    states = mirror.states()
    assert states.pop("twice")[0] == "failed"
    assert states == dict.fromkeys("abc", CURRENT)


def test_cascade(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    primary.sql(
        f"USE {database}",
        "CREATE TABLE child (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE)",
        "CREATE TABLE left_child (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE SET NULL)",
        "INSERT INTO child SELECT seq, seq DIV 2 + 1 FROM seq_1_to_50",
        "INSERT INTO left_child SELECT seq, seq DIV 2 + 1 FROM seq_1_to_50",
    )
    mirror = mirrored(primary, database)
    mirror.run()
    primary.sql(f"DELETE FROM {database}.a WHERE id BETWEEN 5 AND 9", f"INSERT INTO {database}.child VALUES (99, 1)")
    mirror.run()
    mirror.assert_equal("a", "child", "left_child")
    assert {state for state, _ in mirror.states().values()} == {"current"}


def test_rules(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    primary.sql(f"ALTER TABLE {database}.a ADD secret VARCHAR(20) DEFAULT 'do not tell', ADD w INT DEFAULT 5")
    rule = {"leaveOut": ["secret"], "rename": {"w": "weight"}, "where": "v > 10"}
    mirror = mirrored(primary, database, rules={f"{database}.a": rule})
    mirror.run()
    primary.sql(f"UPDATE {database}.a SET v = 1 WHERE id = 20", f"UPDATE {database}.a SET v = 50, w = 6 WHERE id = 2")
    mirror.run()
    wanted = [[row[0], row[1], row[3]] for row in mirror.source("a") if int(str(row[1])) > 10]
    assert mirror.target("a") == wanted
    assert "secret" not in asked(mirror, "SHOW COLUMNS IN {lake}.a")[0]


def test_changes_without_rows(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    mirror = mirrored(primary, database)
    mirror.run()
    primary.sql(
        f"USE {database}",
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE a SET v = v * 2 WHERE id > 10",
        "SET SESSION binlog_format = ROW",
        "INSERT INTO b VALUES (100, 1)",
    )
    mirror.run()
    mirror.run()
    mirror.assert_equal("a", "b", "c")
    assert mirror.states() == dict.fromkeys("abc", CURRENT)


def test_audit_and_repair(primary: MariaDb, database: str, mirrored: Callable[..., Mirrored]) -> None:
    mirror = mirrored(primary, database)
    mirror.run()
    DeltaTable(mirror.folder(f"{mirror.lake}.a")).update({"v": "-1"}, predicate="id = 3")
    asked(mirror, "DELETE FROM {lake}.a WHERE id IN (5, 6)")
    asked(mirror, "INSERT INTO {lake}.b VALUES (1000, 1)")
    server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
    found = mirror.workbench.run(AUDIT.format(control=mirror.control, server=server))
    assert found == {
        f"{database}.a": {"different": 1, "missing": 2},
        f"{database}.b": {"extra": 1},
        f"{database}.c": {},
    }
    primary.sql(f"INSERT INTO {database}.c VALUES (100, 1)")
    mirror.run()
    mirror.assert_equal("a", "b", "c")


@pytest.mark.slow  # its jars are 690 MB
def test_object_storage(
    primary: MariaDb, database: str, workbench: Workbench, tmp_path: Path, s3_jars: list[str]
) -> None:
    with ObjectStore(tmp_path) as store:
        store.make_bucket("lake")
        workbench.run(S3.format(jars=s3_jars, settings=store.spark_settings()))
        mirror = mirror_in("lake", InBucket(workbench, primary, database, tmp_path, {}), store)
        mirror.run()
        primary.sql(
            f"USE {database}",
            "UPDATE a SET v = v + 1 WHERE id < 20",
            "DELETE FROM b WHERE id = 3",
            "UPDATE b SET id = 100 WHERE id = 4",
            "INSERT INTO c VALUES (100, 1)",
        )
        mirror.run()
        mirror.assert_equal("a", "b", "c")
        assert all(mirror.written_by(table)[0].startswith("delta-rs") for table in ("a", "b", "c", "mirror_control"))


def test_a_killed_driver(primary: MariaDb, database: str, tmp_path: Path, mirrored: Callable[..., Mirrored]) -> None:
    options: dict[str, object] = {"into": f"{tmp_path}/lake/{{table}}", "maxRowsPerTrigger": 500}
    primary.sql(f"USE {database}", "INSERT INTO a SELECT seq + 1000, seq FROM seq_1_to_2000")
    with Workbench(spark_settings(tmp_path), folder(tmp_path, "killed"), {}) as bench:
        mirror = Mirrored(bench, primary, database, tmp_path, options)
        killing = threading.Thread(target=kill_in_a_batch, args=(bench, tmp_path / "lake", 0.5))
        killing.start()
        with pytest.raises(AssertionError, match="the Spark driver has ended with -9"):
            mirror.run(trigger=None)
        killing.join()
    primary.sql(f"USE {database}", "UPDATE a SET v = v + 1 WHERE id > 2000", "DELETE FROM b WHERE id < 9")
    mirror = mirrored(primary, database, **options)
    mirror.run()
    mirror.assert_equal("a", "b", "c")
    assert mirror.states() == dict.fromkeys("abc", CURRENT)
