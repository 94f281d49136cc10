"""mirror(): targets made from the catalog and kept equal, over restarts, statements and faults; SELECT is the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming_source.mirroring.apply.parallel_applier import COMPILED, INTERPRETED, MARKED_ROWS, REWRITTEN_FILES
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored
    from tests.recipes.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.server]

_KEPT = """
executions = spark._jvm.org.apache.spark.sql.execution.SQLExecution
kept = spark.sparkContext._jsc.sc().dagScheduler().activeQueryToJobs().keySet().toArray()
result = [int(number) for number in kept if executions.getQueryExecution(int(number)) is None]
"""
"""Executions that have ended, and whose jobs Spark's scheduler keeps all the same."""

_SIZES = """
from streaming_source.mirroring.apply import parallel_applier
kept = {name: spark.conf.get(name) for name in parallel_applier.INTERPRETED}
limit, side_by_side, seen, counted = parallel_applier.MOST_ROWS, parallel_applier.side_by_side, [], {}
whole = parallel_applier.ParallelApplier._done
for name in kept:
    spark.conf.unset(name)
parallel_applier.MOST_ROWS = 600
def told(spark, work, items, **rest):
    done = side_by_side(spark, work, items, **rest)
    if rest["name"] == "mirror-size":
        counted.update({each.row.name[1]: each.count() for each in items if each.row.rows > 600})
    return done
def shown(sized, work):
    shown = "wholeStage STRING, factory STRING, marks STRING"
    if not work.is_over:
        of_tasks = work.part.spark.range(1).mapInArrow(as_a_task_has_it, shown).first()
        seen.append([work.row.name[1], *of_tasks])
    return whole(sized, work)
def as_a_task_has_it(_batches, names=(*parallel_applier.INTERPRETED, *parallel_applier.REWRITTEN_FILES)):
    import pyarrow as pa
    from pyspark import TaskContext
    told = [pa.array([TaskContext.get().getLocalProperty(name)]) for name in names]
    yield pa.RecordBatch.from_arrays(told, names=["wholeStage", "factory", "marks"])
parallel_applier.side_by_side = told
parallel_applier.ParallelApplier._done = shown
"""
_SEEN = """
parallel_applier.MOST_ROWS = limit
parallel_applier.side_by_side = side_by_side
parallel_applier.ParallelApplier._done = whole
result = seen, counted, [spark.conf.get(name, None) for name in kept]
for name, value in kept.items():
    spark.conf.set(name, value)
"""

_ROUND = """
import json
from streaming_source.mirroring.control import control_table
from streaming_source.mirroring.control.control_table import make_control, mirrored_tables, write_control
from tests.unit.streaming_source.mirroring.control.test_control_table import full, row
rows = [full()._replace(source_table="a"), row()._replace(source_table="b")]
folders = [{folder!r} + "/" + name for name in ("control", "parquet", "old")]
names = "delta.`" + folders[0] + "`", "parquet.`" + folders[1] + "`", "delta.`" + folders[2] + "`"
control, parquet, old = names
read = []
folder_of = control_table.known_folder
for name, folder, known in ((control, None, False), (control, folders[0], True), (parquet, None, True)):
    control_table.known_folder = folder_of if known else lambda *_: None
    make_control(spark, name, None, "here", {{}})
    for some in (rows, [], rows[::-1]):
        write_control(spark, name, some, folder)
        back = mirrored_tables(spark, name)
        write_control(spark, name, back, folder)  # with the times as Spark gives them
        read += [mirrored_tables(spark, name) == back, back == sorted(some, key=lambda one: one.name)]
commits = spark.sql(f"DESCRIBE HISTORY {{control}}").collect()
read.append(sum("delta-rs" in (one["engineInfo"] or "") for one in commits))
whole = control_table.COLUMNS
kept = whole[: next(place for place, (name, *_) in enumerate(whole) if name == "defaults")]
control_table.COLUMNS = kept
make_control(spark, old, None, "here", {{}})
values = [[getattr(rows[1], name) for name, *_ in kept]]
place = next(place for place, (name, *_) in enumerate(kept) if name == "definition")
values[0][place] = json.dumps(json.loads(values[0][place]) | {{"defaults": rows[1].defaults, "missed": "m"}})
spark.createDataFrame(values, spark.table(old).schema).writeTo(old).append()
control_table.COLUMNS = whole
wanted = rows[1]._replace(missed_cascade="m")
for folder in (None, folders[2]):
    read.append(mirrored_tables(spark, old) == [wanted])
    control_table.complete_control(spark, old)
    write_control(spark, old, mirrored_tables(spark, old), folder)
read.append(mirrored_tables(spark, old) == [wanted])
result = read
"""

_ROW_IDS = """
ids = spark.table("{lake}.orders").where("id BETWEEN 1 AND 5").select("id", "_metadata.row_id").collect()
result = sorted(map(list, ids))
"""

UNDONE = (
    "BEGIN",
    "UPDATE codes SET v = 0.75 WHERE code = 'abc'",
    "SAVEPOINT a",
    "CREATE TEMPORARY TABLE kept (i INT)",
    "INSERT INTO codes VALUES ('xyz', 9)",
    "UPDATE orders SET price = 1000 WHERE id = 2",
    "DELETE FROM `lines` WHERE order_id = 9",
    "DELETE FROM orders WHERE id = 290",
    "ROLLBACK TO a",
    "INSERT INTO codes VALUES ('ghi', 0.25)",
    "COMMIT",
)
"""A transaction whose rows after the savepoint stay in the binlog, as a temporary table cannot be rolled back."""


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb("10.11", "--binlog-row-metadata=FULL") as running:
        running.add_user()
        yield running


@pytest.fixture
def shop(primary: MariaDb) -> Iterator[str]:
    primary.sql(
        "CREATE DATABASE shop",
        "USE shop",
        "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(30) NOT NULL COMMENT 'it''s', price DECIMAL(10,2))",
        "CREATE TABLE `lines` (order_id BIGINT, line INT, note TEXT, PRIMARY KEY (order_id, line))",
        "CREATE TABLE codes (code CHAR(3) NOT NULL UNIQUE, v DOUBLE) COMMENT = 'codes of all'",
        "INSERT INTO orders SELECT seq, CONCAT('order ', seq), seq / 4 FROM seq_1_to_500",
        "INSERT INTO `lines` SELECT seq DIV 3, seq MOD 3, REPEAT('x', seq MOD 7) FROM seq_1_to_900",
    )
    yield "shop"
    primary.sql("DROP DATABASE shop")


@pytest.mark.slow  # test_end_to_end.py has the same, smaller
@pytest.mark.parametrize("writer", ["native", "spark"])
def test_tables_are_made_filled_and_kept_equal_also_when_a_batch_comes_again(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored], writer: str
) -> None:
    tables = ("orders", "lines", "codes", "parts")
    primary.sql(
        "USE shop",
        "CREATE TABLE parts (id INT PRIMARY KEY, order_id INT, CONSTRAINT of_order FOREIGN KEY (order_id) "
        "REFERENCES orders (id) ON DELETE CASCADE)",
        "INSERT INTO parts SELECT seq, 280 + seq FROM seq_1_to_100",
    )
    mirror = mirrored(primary, shop, writer=writer)
    mirror.break_off()  # rows are appended, and the batch comes again
    mirror.run()
    mirror.assert_equal(*tables)
    assert mirror.states() == dict.fromkeys(tables, ("current", None))
    about = mirror.workbench.run(
        f"result = [[f.name, f.dataType.simpleString(), f.nullable, f.metadata.get('comment')] "
        f"for f in spark.table('{mirror.lake}.orders').schema], "
        f"spark.catalog.getTable('{mirror.lake}.codes').description, "
        f"spark.sql('SHOW TBLPROPERTIES {mirror.lake}.lines').where(\"key = 'mariadb.key'\").first()[1]"
    )
    columns = [["id", "int", False, None], ["name", "string", False, "it's"], ["price", "decimal(10,2)", True, None]]
    assert about == [columns, "codes of all", "order_id,line"]
    tracks = writer == "spark"
    tracked = mirror.workbench.run(_ROW_IDS.format(lake=mirror.lake)) if tracks else None
    primary.sql(
        "USE shop",
        "BEGIN",
        "UPDATE orders SET price = price + 1 WHERE id < 100",
        "UPDATE orders SET id = 9000 WHERE id = 7",
        "DELETE FROM `lines` WHERE order_id = 4",
        "INSERT INTO codes VALUES ('abc', 0.5), ('def', NULL)",
        "COMMIT",
        *UNDONE,
        "INSERT INTO parts VALUES (500, 301)",
        "DELETE FROM orders WHERE id BETWEEN 300 AND 350",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE `lines` SET note = 'n' WHERE order_id < 3",
    )
    logged = [str(row[5]) for row in primary.sql(f"SHOW BINLOG EVENTS IN '{primary.binlogs()[-1]}'")]
    assert "ROLLBACK TO `a`" in logged, "the server kept the rows that were undone"
    mirror.break_off()
    assert ["xyz", "9.0"] not in mirror.target("codes"), "not even until the batch comes again"
    mirror.run()
    assert mirror.workbench.run(_KEPT) == []
    mirror.assert_equal(*tables)
    assert mirror.states() == dict.fromkeys(tables, ("current", None))
    assert len(mirror.target("parts")) == 49  # 51 went with their orders, and one that was new
    if tracks:
        assert mirror.workbench.run(_ROW_IDS.format(lake=mirror.lake)) == tracked  # of rows that were updated since
    versions = mirror.workbench.run(
        "from streaming_source.mirroring.control.control_table import mirrored_tables\n"
        "from streaming_source.mirroring.writers.target_format import version_at\n"
        f"rows = mirrored_tables(spark, '{mirror.lake}.mirror_control')\n"
        "result = [[row.position, spark.read.option('versionAsOf', version_at(spark, row)).table(row.target).count()] "
        "for row in rows]"
    )
    counts = [primary.value(f"SELECT COUNT(*) FROM shop.`{name}`") for name in ("codes", "lines", "orders", "parts")]
    assert versions == [[primary.gtid_binlog_pos(), count] for count in counts]


@pytest.mark.slow
def test_statements_are_followed_in_order_or_set_the_table_aside_until_it_is_read_again(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored]
) -> None:
    mirror = mirrored(primary, shop, onSwap="stop")
    mirror.run()
    primary.sql(
        "USE shop",
        "INSERT INTO `lines` VALUES (7000, 1, 'gone at once')",
        "TRUNCATE TABLE `lines`",
        "INSERT INTO `lines` VALUES (7001, 1, 'stays')",
        "UPDATE orders SET price = 1 WHERE id = 2",
        "ALTER TABLE orders ADD COLUMN note TEXT, MODIFY id BIGINT",
        "INSERT INTO orders VALUES (5000000000, 'wide', NULL, 'new')",
        "UPDATE orders SET note = name, price = 2 WHERE id < 4",
        "ALTER TABLE orders DROP COLUMN price, RENAME COLUMN name TO title",
        "INSERT INTO orders VALUES (501, 'x', 'y')",
        "ALTER TABLE orders ADD INDEX (title)",
        "CREATE TABLE fresh (id INT PRIMARY KEY, v VARBINARY(8))",
        "INSERT INTO fresh VALUES (1, 'a')",
        "INSERT INTO codes VALUES ('abc', 1)",
        "CREATE OR REPLACE TABLE codes (code CHAR(3) NOT NULL UNIQUE, v DOUBLE, d INT)",
        "INSERT INTO codes VALUES ('def', 2, 6)",
    )
    mirror.break_off()
    mirror.run()
    mirror.assert_equal("orders", "lines")
    states = mirror.states()
    assert states["fresh"] == states["orders"] == states["lines"] == ("current", None)
    state, error = states["codes"]
    assert state == "failed"
    assert error is not None
    assert "shop.codes cannot be kept equal after 0-1-" in error
    assert "CREATE OR REPLACE TABLE codes" in error
    assert "onSwap=stop suspends the table" in error
    primary.sql(
        "USE shop", "DELETE FROM codes WHERE code = 'abc'", "DROP TABLE fresh", "DELETE FROM orders WHERE id = 1"
    )
    mirror.run(resnapshot="shop.codes@first")
    mirror.assert_equal("orders", "lines", "codes")
    assert {name: state for name, (state, _) in mirror.states().items()} == {
        "codes": "current",
        "fresh": "dropped",
        "lines": "current",
        "orders": "current",
    }


@pytest.mark.slow
def test_many_statements_cost_a_commit_only_where_rows_are_between_them(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored]
) -> None:
    """A batch ends before each TRUNCATE: it costs one commit, and the rows behind it another one."""
    mirror = mirrored(primary, shop)
    mirror.run()
    before = _commits(mirror, "lines", "orders")
    times = 20
    filled_and_emptied = ["INSERT INTO `lines` SELECT seq, 9, 'n' FROM seq_1_to_50", "TRUNCATE TABLE `lines`"] * times
    altered = ["ALTER TABLE orders ADD INDEX more (price)", "ALTER TABLE orders DROP INDEX more"] * 10
    primary.sql(
        "USE shop",
        "UPDATE orders SET price = 3 WHERE id = 9",
        *altered,
        *filled_and_emptied,
        "INSERT INTO `lines` VALUES (1, 1, 'stays'), (1, 2, 'goes')",
        "DELETE FROM `lines` WHERE line = 2",
        "UPDATE orders SET price = 4 WHERE id = 10",
    )
    mirror.break_off()
    mirror.run()
    mirror.assert_equal("orders", "lines", "codes")
    lines, orders = (now - then for now, then in zip(_commits(mirror, "lines", "orders"), before, strict=True))
    assert lines <= 2 * times + 1
    assert orders <= 5


def _commits(mirror: Mirrored, *tables: str) -> list[int]:
    counts = ", ".join(f"spark.sql('DESCRIBE HISTORY {mirror.lake}.{table}').count()" for table in tables)
    return list(mirror.workbench.run(f"result = [{counts}]"))


@pytest.mark.slow
def test_what_does_not_belong_together_is_refused(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored]
) -> None:
    mirror = mirrored(primary, shop)
    mirror.workbench.run(f"spark.sql('CREATE DATABASE {mirror.lake}')")
    mirror.workbench.run(f"spark.sql('CREATE TABLE {mirror.lake}.orders (id INT) USING delta')")
    mirror.run()
    state, error = mirror.states()["orders"]
    assert state == "failed"
    assert "exists, and no mirror created it" in str(error)
    mirror.workbench.run(f"spark.sql('DROP TABLE {mirror.lake}.orders')")
    mirror.run(resnapshot=f"{shop}.orders@mine")
    mirror.assert_equal("orders", "lines")
    other = str(mirror.checkpoint.parent / "other")
    with pytest.raises(AssertionError, match=r"ConfigError: .*mirror_control.* belongs to the mirror .*other is new"):
        mirror.run(checkpointLocation=other)
    with pytest.raises(
        AssertionError, match=r"ConfigError: the checkpoint .* is in use, but .*elsewhere.* does not exist"
    ):
        mirror.run(control="elsewhere")
    with pytest.raises(AssertionError, match=r"ConfigError: the target .* belongs to another mirror"):
        mirror.run(control="elsewhere", checkpointLocation=other, relayDir=other + "-relay")


@pytest.mark.slow
def test_a_name_that_the_catalog_does_not_take_sets_its_table_aside(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored]
) -> None:
    mirror = mirrored(primary, shop)
    alone = mirrored(primary, shop, tables=f"{shop}.order-items", checkpointLocation=f"{mirror.checkpoint}-alone")
    primary.sql(
        f"CREATE TABLE {shop}.`order-items` (id INT PRIMARY KEY)", f"INSERT INTO {shop}.`order-items` VALUES (1)"
    )
    mirror.run()
    mirror.assert_equal("orders", "lines", "codes")
    state, error = mirror.states()["order-items"]
    assert state == "failed"
    assert error is not None
    assert "order-items" in error
    assert "not a valid name" in error
    with pytest.raises(AssertionError, match="not a valid name"):
        alone.run()  # where no table can have a target, the mirror does not begin


@pytest.mark.slow
def test_each_target_is_written_with_the_settings_of_its_size_and_all_end_equal(
    primary: MariaDb, shop: str, mirrored: Callable[..., Mirrored]
) -> None:
    mirror = mirrored(primary, shop, writer="spark")
    mirror.run()
    between = int(primary.sql("SELECT COUNT(*) FROM shop.`lines` WHERE order_id <> 4")[0][0])
    for order in (4, 5):
        primary.sql(
            "USE shop",
            "BEGIN",
            f"UPDATE orders SET price = NULL WHERE id < {order}",
            f"DELETE FROM `lines` WHERE order_id = {order}",
            f"INSERT INTO codes VALUES ('ab{order}', 0.5)",
            "COMMIT",
        )
    mirror.run(before=_SIZES, maxRowsPerTrigger=1)  # a batch for each transaction: one finds what the other has set
    seen, counted, left = mirror.workbench.run(_SEEN)
    mirror.assert_equal("orders", "lines", "codes")
    small = [[name, *INTERPRETED.values(), *REWRITTEN_FILES.values()] for name in ("codes", "orders")]
    batch = [small, [["lines", *COMPILED.values(), *MARKED_ROWS.values()]]]
    assert [sorted(seen[0:2]), seen[2:3], sorted(seen[3:5]), seen[5:]] == [*batch, *batch]
    last = [
        f"spark.sql('DESCRIBE HISTORY {mirror.lake}.{table}').first()['operationMetrics']"
        for table in ("orders", "lines")
    ]
    metrics = mirror.workbench.run(f"result = [{', '.join(last)}]")
    assert [int(of["numTargetDeletionVectorsAdded"]) for of in metrics] == [0, 1], "files again, and rows marked"
    assert counted == {"lines": between}, "the others have had fewer changes than a small target has rows"
    assert left == [None, None], "what the mirror sets is for its query alone"


@pytest.mark.slow
def test_control_rows_come_back_as_they_were_written(workbench: Workbench, tmp_path: Path) -> None:
    found = workbench.run(_ROUND.format(folder=str(tmp_path)))
    by_delta_rs = 6
    assert found == [True] * 18 + [by_delta_rs] + [True] * 3
