"""writer=native: tasks write the changes themselves, and Spark what they cannot; readers find what they look for."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from streaming_source.mirroring.writers.native import rewritten_files
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(900)]

COLUMNS = (
    'id BIGINT UNSIGNED PRIMARY KEY, w DECIMAL(38,0), d DECIMAL(12,2), f DOUBLE, g FLOAT, `we``ird "n` VARCHAR(300), '
    "t TIMESTAMP(6) NULL, m DATETIME(6), y DATE, b VARBINARY(60), k BIT(1), i INT, h TIME(3)"
)
ENDS = (
    """18446744073709551615, -99999999999999999999999999999999999999, 0.01, -0.0, -0.0, REPEAT('\U0001f600', 60),
    '2020-10-25 00:30:00.999999', '9999-12-31 23:59:59.999999', '1000-01-01', REPEAT(x'ff', 60), b'1', -2147483648,
    '-838:59:59'""",
    """9223372036854775808, 99999999999999999999999999999999999999, -9999999999.99, 0.0, 0.0,
    CONCAT(REPEAT('a', 40), 'b'), '2020-10-25 01:30:00.000001', '1000-01-01 00:00:00.000001', '9999-12-31', x'00',
    b'0', 2147483647, '00:00:00.001'""",
    """9007199254740993, 9007199254740993, 9007199254.99, 4.9e-324, 1.4e-45, '', '1970-01-01 00:00:01',
    '2020-02-29 12:00:00', '2020-02-29', '', b'0', 0, NULL""",
)
_WRITERS = (
    "result = [r[0] for r in spark.sql('DESCRIBE HISTORY {target}').select('engineInfo').limit({last}).collect()]"
)
PLAIN = ("id", "w", "d", "i", "y", "k")
"""Columns of types that delta-rs and Spark give as the same objects of Python."""
_PLAIN = f"result = [[str(v) for v in row] for row in spark.table({{table!r}}).select(*{PLAIN!r}).collect()]"
_COMMITS = """
from streaming_source.auditing.mirror.from_mirror import commits_of
from streaming_source.sinks.delta import known_folder
history = spark.sql("DESCRIBE HISTORY {target}").select("version", "userMetadata").collect()
result = known_folder(spark, "{target}"), commits_of(spark, "{target}"), [list(row) for row in reversed(history)]
"""
_LOOKS = """
from functools import reduce
from pyspark.sql import functions as f
table = spark.table("{table}").drop("pad").where("id <> 1")
rows, wrong = table.collect(), []
kinds = {{field.name: field.dataType for field in table.schema}}

def sought(name, value, how):
    column = f.col("`" + name.replace("`", "``") + "`")
    value = f.lit(value if isinstance(value, (bytes, bytearray, float)) else str(value)).cast(kinds[name])
    return column == value if how == "=" else column.between(value, value)

def found(looks):
    # One job, in which each look is a scan of each file with its own filter.
    counts = [table.where(look).agg(f.count("*"), f.lit(number)) for number, look in enumerate(looks)]
    numbered = {{number: count for count, number in reduce(lambda one, other: one.union(other), counts).collect()}}
    return [numbered[number] for number in range(len(looks))]

def values(row):
    return {{name: value for name, value in row.asDict().items() if value is not None}}

# A file that is left out by one of the columns is not found by all of them.
whole = [(how, row) for how in ("=", "BETWEEN") for row in rows]
looks = [[sought(*value, how) for value in values(row).items()] for how, row in whole]
looks = [reduce(lambda one, other: one & other, each) for each in looks]
for (how, row), count in zip(whole, found(looks)):
    if count != 1:
        each = values(row)
        counts = found([sought(name, value, how) for name, value in each.items()])
        wrong += [(name, str(each[name]), how, count) for name, count in zip(each, counts)]
zeros = [(name, value, how) for name in ("f", "g") for value in (0.0, -0.0) for how in ("=", "BETWEEN")]
for zero, count in zip(zeros, found([sought(*zero) for zero in zeros])):
    if count != sum(row[zero[0]] == 0 for row in rows):
        wrong.append((*zero, count))
result = len(rows), wrong
"""


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb("11.8") as running:
        running.add_user()
        running.sql("SET GLOBAL time_zone = '+00:00'")
        yield running


def writers(mirror: Mirrored, table: str, last: int) -> list[str]:
    """Who made the last commits of a target, the newest first."""
    told = mirror.workbench.run(_WRITERS.format(target=f"{mirror.lake}.{table}", last=last))
    return ["delta-rs" if one.startswith("delta-rs") else one.partition("/")[0] for one in told]


@pytest.mark.slow
def test_tasks_write_changes_and_spark_what_they_cannot(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    primary.sql(
        "CREATE DATABASE native",
        "USE native",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, w VARCHAR(9))" for name in ("plain", "altered", "logged")),
        *(f"INSERT INTO {name} SELECT seq, seq, 'x' FROM seq_1_to_50" for name in ("plain", "altered", "logged")),
    )
    rules = {"native.logged": {"mode": "soft_delete"}}
    mirror = mirrored(primary, "native", writer="native", rules=rules)
    mirror.run()
    changes = (
        "UPDATE {t} SET v = v + 1 WHERE id < 20",
        "DELETE FROM {t} WHERE id = 30",
        "UPDATE {t} SET id = 99 WHERE id = 1",
    )
    every = [change.format(t=table) for change in changes for table in ("plain", "altered", "logged")]
    primary.sql("USE native", *every)
    mirror.break_off()  # the batch is in the targets, and comes again
    mirror.run()
    assert writers(mirror, "plain", 3) == ["delta-rs", "delta-rs", "Apache-Spark"], "made, first rows, changes once"
    assert writers(mirror, "logged", 2) == ["delta-rs", "delta-rs"]
    assert writers(mirror, "mirror_control", 1) == ["delta-rs"]
    mirror.assert_equal("plain", "altered")

    mirror.workbench.run(f"spark.sql('OPTIMIZE {mirror.lake}.plain'); result = True")
    primary.sql(
        "USE native",
        "INSERT INTO altered VALUES (200, 1, 'before')",
        "ALTER TABLE altered MODIFY v BIGINT",
        "INSERT INTO altered VALUES (201, 1 << 40, 'behind')",
        "INSERT INTO plain VALUES (200, 1, 'one')",
    )
    mirror.run()
    primary.sql("USE native", "UPDATE altered SET v = v + 1", "UPDATE plain SET v = v + 1", "TRUNCATE TABLE logged")
    mirror.run()
    assert writers(mirror, "plain", 1) == ["delta-rs"]
    assert writers(mirror, "altered", 1) == ["Apache-Spark"], "delta-rs does not write tables with wider types"
    mirror.assert_equal("plain", "altered")
    assert {state for state, _ in mirror.states().values()} == {"current"}


_MARKED = """
from deltalake import DeltaTable
from streaming_source.mirroring.writers.native.deletion_vectors import deleted_rows
from streaming_source.sinks.delta import known_folder
result = sum(len(rows) for rows in deleted_rows(DeltaTable(known_folder(spark, "{target}"))).values())
"""
_AT = "result = spark.sql('SELECT COUNT(*), SUM(v) FROM {target} VERSION AS OF {version}').collect()[0].asDict()"


@pytest.mark.slow
def test_rows_of_large_files_are_marked_as_deleted_by_both_writers(
    primary: MariaDb, mirrored: Callable[..., Mirrored]
) -> None:
    text = "REPEAT(MD5(RAND(seq)), 3)"
    primary.sql(
        "CREATE DATABASE marks",
        "USE marks",
        "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, v INT, c VARCHAR(100))",
        f"INSERT INTO t SELECT seq, 0, {text} FROM seq_1_to_200000",
    )
    mirror = mirrored(primary, "marks", writer="native")
    mirror.run()
    target = f"{mirror.lake}.t"

    def change(number: int) -> None:
        primary.sql(
            "USE marks",
            f"UPDATE t SET v = {number} WHERE id % 100 = {number}",
            f"DELETE FROM t WHERE id % 1000 = {number + 550}",
            f"INSERT INTO t VALUES ({300_000 + number}, {number}, 'new')",
        )
        mirror.run()

    for number in (1, 2):
        change(number)
    marked = mirror.workbench.run(_MARKED.format(target=target))
    assert marked > 0, "in the files from 4 MB on; the others are copied"
    mirror.assert_equal("t")
    versions = mirror.workbench.run(f"result = spark.sql('DESCRIBE HISTORY {target}').count()")
    before = mirror.workbench.run(_AT.format(target=target, version=versions - 2))
    assert before["sum(v)"] == 2_000 + 1, "the version before the second change, with the first one's vectors"
    mirror.workbench.run(f"spark.sql('UPDATE {target} SET v = v WHERE id % 1000 = 7'); result = True")
    change(3)  # a vector of Spark and new positions are one vector
    mirror.assert_equal("t")
    mirror.workbench.run(f"spark.sql('OPTIMIZE {target}'); result = True")
    change(4)
    mirror.assert_equal("t")
    for number in range(5, 30):  # more than a quarter of the rows: the files are copied
        primary.sql(f"UPDATE marks.t SET v = {number} WHERE id % 100 = {number}")
    mirror.run()
    assert mirror.workbench.run(_MARKED.format(target=target)) == 0
    mirror.assert_equal("t")
    assert {state for state, _ in mirror.states().values()} == {"current"}


def test_readers_find_all_values_of_targets_that_tasks_wrote(
    primary: MariaDb, mirrored: Callable[..., Mirrored]
) -> None:
    pad = os.urandom(rewritten_files.SMALL_BYTES + 1)  # a table with it is not written again as one file
    primary.sql("CREATE DATABASE ends", f"CREATE TABLE ends.small ({COLUMNS})")
    primary.sql(f"CREATE TABLE ends.large ({COLUMNS}, pad MEDIUMBLOB)")
    primary.sql("INSERT INTO ends.large (id, pad) VALUES (1, %s)", args=(pad,))
    mirror = mirrored(primary, "ends", writer="native")
    mirror.run()
    for row in ENDS:  # a batch each, and so a file of the large one, left out by its limits: an ALTER ends a batch
        primary.sql(
            f"INSERT INTO ends.small VALUES ({row})",
            f"INSERT INTO ends.large VALUES ({row}, NULL)",
            "ALTER TABLE ends.small COMMENT = 'as it was'",
        )
    mirror.run()
    for table, files in (("small", 1), ("large", 4)):
        assert writers(mirror, table, 3) == ["delta-rs"] * 3
        assert mirror.workbench.run(f"result = len(spark.table('{mirror.lake}.{table}').inputFiles())") == files
        rows, wrong = mirror.workbench.run(_LOOKS.format(table=f"{mirror.lake}.{table}"))
        assert (rows, wrong) == (3, [])
        both = mirror.workbench.run(_PLAIN.format(table=f"{mirror.lake}.{table}"))
        assert sorted(both) == sorted([str(value) for value in row] for row in mirror.columns(table, *PLAIN))
    folder, *commits = mirror.workbench.run(_COMMITS.format(target=f"{mirror.lake}.small"))
    assert folder
    assert commits[0] == commits[1], "delta-rs and Spark read the same log"
    assert json.loads(commits[0][-1][1])["batch"] > 0
    times = f"result = [row[0] for row in spark.sql('SELECT h FROM {mirror.lake}.small').collect()]"
    assert {text for text in mirror.workbench.run(times) if text} == {"-838:59:59.000", "00:00:00.001"}
