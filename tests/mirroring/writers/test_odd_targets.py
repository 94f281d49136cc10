"""Targets that others change under a mirror, very wide tables, very long rows: one table, one clear reason."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import Mirrored, fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1200)]

CURRENT = ("current", None)
RETENTION = "spark.databricks.delta.retentionDurationCheck.enabled"
COLUMNS = 1000
LONG = 100 << 20
FEATURES = {
    "tracked": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "fed": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "checked": "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (v > 0)",
    "defaulted": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
    "clustered": "ALTER TABLE {t} CLUSTER BY (id)",
    "plain": "OPTIMIZE {t}",
    "unmarked": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
    "widening": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
    "checkpoints": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')",
    "timed": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    "vacuum_checked": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')",
    "timestamps": "ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')",
    "vacuumed": "VACUUM {t} RETAIN 0 HOURS",
}
"""What somebody does to a target; in all of them the mirror goes on."""
COLUMNS_CHANGED = {
    "extended": "ALTER TABLE {t} ADD COLUMNS (x INT)",
    "reordered": "ALTER TABLE {t} ALTER COLUMN v FIRST",
    "widened": "ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT",
}
"""The same with its columns, by whose names rows go in."""
BROKEN = {
    "frozen": ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", "only allow appends"),
    "narrow": ("ALTER TABLE {t} DROP COLUMN v", "mirror_resnapshot"),
    "impossible": ("ALTER TABLE {t} ADD CONSTRAINT small CHECK (v < 40)", "small"),
}
"""What no writer can go on after, and a part of the reason: the table is suspended."""


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    options = ("--binlog-row-metadata=FULL", "--max-allowed-packet=1G", "--innodb-log-file-size=1G")
    with MariaDb("11.8", *options) as running:
        running.add_user()
        yield running


def writers(mirror: Mirrored) -> dict[str, str]:
    found: list[list[str]] = mirror.workbench.run(
        f"result = [list(row) for row in spark.table('{mirror.control}').select('source_table', 'writer').collect()]"
    )
    return {table: writer for table, writer in found}  # noqa: C416  (mypy takes it for lists)


def warehouse(mirror: Mirrored) -> Path:
    """The folder of the targets."""
    return Path(mirror.workbench.run("result = spark.conf.get('spark.sql.warehouse.dir')")) / f"{mirror.lake}.db"


def test_targets_that_somebody_changes(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    changes = FEATURES | COLUMNS_CHANGED | {table: change for table, (change, _) in BROKEN.items()}
    fill_shop(primary, *changes, database="odd")
    mirror = mirrored(primary, "odd")
    mirror.run()
    widening = f"ALTER TABLE {mirror.lake}.widened SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    mirror.workbench.run(f"spark.conf.set('{RETENTION}', 'false'); spark.sql({widening!r}); result = 1")
    for table, change in changes.items():
        mirror.workbench.run(f"spark.sql({change.format(t=f'{mirror.lake}.{table}')!r}); result = 1")
        primary.sql(
            "USE odd",
            f"UPDATE {table} SET v = v + 100 WHERE id < 5",
            f"DELETE FROM {table} WHERE id = 7",
            f"INSERT INTO {table} VALUES (99, 99)",
        )
    mirror.run()
    states = mirror.states()
    goes_on = FEATURES.keys() | COLUMNS_CHANGED.keys()
    assert {table: states[table] for table in goes_on} == dict.fromkeys(goes_on, CURRENT)
    assert {table: states[table][0] for table in BROKEN} == dict.fromkeys(BROKEN, "failed")
    for table, (_, reason) in BROKEN.items():
        assert reason in str(states[table][1]), table
    mirror.assert_equal(*FEATURES)
    by = writers(mirror)
    assert by["plain"] == "native"
    assert by["tracked"].startswith("spark: "), by
    primary.sql("USE odd", *(f"UPDATE {table} SET v = v + 1 WHERE id = 20" for table in changes))
    mirror.run()
    mirror.assert_equal(*FEATURES)
    for table in COLUMNS_CHANGED:
        rows = f"spark.table('{mirror.lake}.{table}').select('id', 'v').collect()"
        found = mirror.workbench.run(f"result = sorted(list(row) for row in {rows})")
        assert found == [list(row) for row in primary.sql(f"SELECT id, v FROM odd.{table} ORDER BY id")], table


def test_a_foreign_append_stays_and_the_mirror_goes_on(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    fill_shop(primary, "a", database="foreign_rows")
    mirror = mirrored(primary, "foreign_rows")
    mirror.run()
    mirror.workbench.run(f"spark.sql('INSERT INTO {mirror.lake}.a VALUES (-1, -1)'); result = 1")
    primary.sql("UPDATE foreign_rows.a SET v = 7 WHERE id = 3", "INSERT INTO foreign_rows.a VALUES (40, 40)")
    mirror.run()
    assert mirror.target("a") == sorted([*mirror.source("a"), ["-1", "-1"]], key=lambda row: [v or "" for v in row])
    assert mirror.states() == {"a": CURRENT}


def test_a_table_of_a_thousand_columns(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    columns = ", ".join(f"c{number} INT" for number in range(COLUMNS - 1))
    values = ", ".join(f"seq + {number}" for number in range(COLUMNS - 1))
    fill_shop(primary, "beside", database="wide")
    primary.sql(
        "USE wide",
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO t SELECT seq, {values} FROM seq_1_to_200",
    )
    mirror = mirrored(primary, "wide")
    mirror.run()
    primary.sql(
        "USE wide",
        "UPDATE t SET c0 = -1, c998 = NULL WHERE id % 3 = 0",
        "DELETE FROM t WHERE id % 10 = 1",
        f"INSERT INTO t SELECT seq, {values} FROM seq_500_to_520",
        "UPDATE beside SET v = 1",
    )
    mirror.run()
    assert mirror.states() == {"t": CURRENT, "beside": CURRENT}
    assert writers(mirror)["t"] == "native"
    mirror.assert_equal("t", "beside")


def test_a_row_of_a_hundred_megabytes(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    fill_shop(primary, "beside", database="long_rows")
    primary.sql("CREATE TABLE long_rows.t (id INT PRIMARY KEY, v INT, b LONGBLOB)")
    mirror = mirrored(primary, "long_rows")
    mirror.run()
    primary.sql(
        f"INSERT INTO long_rows.t VALUES (1, 1, REPEAT('x', {LONG})), (2, 2, 'y')",
        "UPDATE long_rows.beside SET v = 1",
        "UPDATE long_rows.t SET v = 3 WHERE id = 1",
    )
    mirror.run()
    assert mirror.states() == {"t": CURRENT, "beside": CURRENT}
    # Not by Spark: to show such a row it needs a larger JVM than the mirror does.
    table = QueryBuilder().register("t", DeltaTable(str(warehouse(mirror) / "t")))
    rows = pa.table(table.execute("SELECT id, v, b FROM t ORDER BY id").read_all()).to_pylist()
    found = [(row["id"], row["v"], hashlib.sha256(row["b"]).hexdigest()) for row in rows]
    assert found == primary.sql("SELECT id, v, SHA2(b, 256) FROM long_rows.t ORDER BY id")
    mirror.assert_equal("beside")
