"""Upkeep of a mirror's targets by the native writer: Spark reads what it read before, at every version that is kept."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.writers.test_native import COLUMNS, ENDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

_SOON = "from streaming_source.mirroring.writers.native import upkeep; upkeep.FEW_FILES = {few}"
_HISTORY = """
result = [list(row) for row in spark.sql("DESCRIBE HISTORY {target}").select("version", "userMetadata").collect()]
"""
_FOUND = """
from pyspark.sql import functions as f
table = spark.table("{target}")
rows, wrong = table.collect(), []
for name in table.columns:
    column, kind = f.col("`" + name.replace("`", "``") + "`"), table.schema[name].dataType
    for value in [row[name] for row in rows if row[name] is not None]:
        sought = f.lit(value if isinstance(value, (bytes, bytearray, float)) else str(value)).cast(kind)
        if table.where(column == sought).count() != sum(row[name] == value for row in rows):
            wrong.append((name, str(value)))
result = sorted(str(row) for row in rows), wrong
"""
_VERSIONS = """
result = [spark.read.option("versionAsOf", n).table("{target}").count() for n in range({first}, {last} + 1)]
"""
_TOGETHER = """
from streaming_source import mirror_tables
found = mirror_tables(spark, control="{control}")
result = {{name: table.count() for name, table in found.items()}}
"""
_FOLDER = """
import os
folder = spark.sql("DESCRIBE DETAIL {target}").first()["location"].removeprefix("file:")
names = lambda folder: [name for name in os.listdir(folder) if not name.startswith(".")]
result = names(folder), names(folder + "/_delta_log"), folder
"""
_MARKED = """
from deltalake import DeltaTable
from streaming_source.mirroring.writers.native import upkeep
from streaming_source.mirroring.writers.native.upkeep import Upkeep
properties = "'delta.columnMapping.mode'='name', 'delta.enableDeletionVectors'='true'"
table = "delta.`{folder}`"
spark.sql(f"CREATE TABLE {{table}} (id BIGINT, v STRING) USING delta TBLPROPERTIES ({{properties}})")
for first in range(0, 6000, 1000):
    rows = spark.range(first, first + 1000, 1, 1).selectExpr("id", "'x' AS v")
    rows.write.format("delta").mode("append").save("{folder}")
spark.sql(f"DELETE FROM {{table}} WHERE id < 2000 AND id % 7 = 0")
before = sorted(row[0] for row in spark.read.format("delta").load("{folder}").collect())
files = len(DeltaTable("{folder}").file_uris())
upkeep.FEW_FILES = 3
Upkeep().after_batch(["{folder}"])
upkeep.FEW_FILES = 20
after = sorted(row[0] for row in spark.read.format("delta").load("{folder}").collect())
result = before == after, files, len(DeltaTable("{folder}").file_uris())
"""


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb("11.8") as running:
        running.add_user()
        running.sql("SET GLOBAL time_zone = '+00:00'")
        yield running


def history(mirror: Mirrored, table: str) -> list[tuple[int, str]]:
    """Versions and the user's metadata of a target's commits, the oldest first."""
    found = mirror.workbench.run(_HISTORY.format(target=f"{mirror.lake}.{table}"))
    return sorted((version, told or "") for version, told in found)


def test_small_files_are_joined_and_every_version_stays(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    primary.sql("CREATE DATABASE joined", f"CREATE TABLE joined.t ({COLUMNS}, large MEDIUMTEXT)")
    mirror = mirrored(primary, "joined", writer="native")
    mirror.run()
    for row in ENDS:
        # A small file of its own each: a smaller one is written again with the rows that come next.
        primary.sql(f"INSERT INTO joined.t VALUES ({row}, '{secrets.token_hex(1 << 20)}')")
        mirror.run()
    before = mirror.workbench.run(_FOUND.format(target=f"{mirror.lake}.t"))
    primary.sql("CREATE TABLE joined.other (id INT PRIMARY KEY)")
    mirror.run()  # a batch ends before a statement: what follows is one
    primary.sql("INSERT INTO joined.t (id) VALUES (7)", "DELETE FROM joined.t WHERE id = 7")
    mirror.run(before=_SOON.format(few=3))
    mirror.workbench.run(_SOON.format(few=20) + "; result = True")
    last, told = history(mirror, "t")[-1]
    assert '"upkeep": "compaction"' in told
    assert mirror.workbench.run(_FOUND.format(target=f"{mirror.lake}.t")) == before
    assert before[1] == []
    counts = mirror.workbench.run(_VERSIONS.format(target=f"{mirror.lake}.t", first=last - 4, last=last))
    assert counts[-2:] == [3, 3]
    assert mirror.workbench.run(_TOGETHER.format(control=f"{mirror.lake}.mirror_control")) == {
        "joined.t": 3,
        "joined.other": 0,
    }
    primary.sql("DELETE FROM joined.t WHERE id = 9007199254740993")
    mirror.break_off()  # the batch is in the target, and comes again
    mirror.run()
    assert mirror.workbench.run(_TOGETHER.format(control=f"{mirror.lake}.mirror_control"))["joined.t"] == 2


def test_old_files_and_versions_go_and_the_mirror_goes_on(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    primary.sql(
        "CREATE DATABASE old",
        "USE old",
        "CREATE TABLE old.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO old.t SELECT seq, seq FROM seq_1_to_50",
    )
    kept = {"delta.deletedFileRetentionDuration": "interval 1 seconds", "delta.checkpointInterval": "2"}
    mirror = mirrored(primary, "old", writer="native", tableProperties=kept)
    mirror.run()
    for _ in range(5):
        primary.sql("UPDATE old.t SET v = v + 1 WHERE id < 10")
        mirror.run()
    files, log, _ = mirror.workbench.run(_FOLDER.format(target=f"{mirror.lake}.t"))
    time.sleep(1.1)  # the retention
    primary.sql("UPDATE old.t SET v = v + 1 WHERE id < 10")
    mirror.run()
    time.sleep(1.1)
    primary.sql("UPDATE old.t SET v = v + 1 WHERE id < 10")
    mirror.break_off()
    mirror.run()
    mirror.assert_equal("t")
    for target in ("t", "mirror_control"):
        files, log, _ = mirror.workbench.run(_FOLDER.format(target=f"{mirror.lake}.{target}"))
        assert sum(name.endswith(".parquet") for name in files) <= 4
        assert sum(name.endswith(".json") for name in log) <= 6
    assert mirror.workbench.run(_TOGETHER.format(control=f"{mirror.lake}.mirror_control")) == {"old.t": 50}
    primary.sql("UPDATE old.t SET v = v + 1 WHERE id < 10")
    mirror.run(writer="spark")  # which goes on with what is left of the log
    mirror.assert_equal("t")


def test_rows_that_deletion_vectors_hide_stay_hidden(mirrored: Callable[..., Mirrored], primary: MariaDb) -> None:
    mirror = mirrored(primary, "none")
    folder = f"{mirror.checkpoint.parent}/marked"
    same, before, after = mirror.workbench.run(_MARKED.format(folder=folder))
    assert same
    assert after < before
