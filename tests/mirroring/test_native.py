"""writer=native: tasks write the changes themselves, and Spark what they cannot; readers find what they look for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
_LOOKS = """
from pyspark.sql import functions as f
table = spark.table("{target}")
rows, wrong = table.collect(), []
for name in table.columns:
    column, kind = f.col("`" + name.replace("`", "``") + "`"), table.schema[name].dataType
    for value in [row[name] for row in rows if row[name] is not None]:
        sought = f.lit(value if isinstance(value, (bytes, bytearray, float)) else str(value)).cast(kind)
        found = [table.where(one).count() for one in (column == sought, column.between(sought, sought))]
        if found != [sum(row[name] == value for row in rows)] * 2:
            wrong.append((name, str(value), found))
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


def test_readers_find_all_values_of_targets_that_tasks_wrote(
    primary: MariaDb, mirrored: Callable[..., Mirrored]
) -> None:
    primary.sql("CREATE DATABASE ends", f"CREATE TABLE ends.t ({COLUMNS})")
    mirror = mirrored(primary, "ends", writer="native")
    mirror.run()
    for row in ENDS:  # a batch and a file each, so that files can be left out by their limits: an ALTER ends a batch
        primary.sql(f"INSERT INTO ends.t VALUES ({row})", "ALTER TABLE ends.t COMMENT = 'as it was'")
    mirror.run()
    assert writers(mirror, "t", 3) == ["delta-rs"] * 3
    rows, wrong = mirror.workbench.run(_LOOKS.format(target=f"{mirror.lake}.t"))
    assert (rows, wrong) == (3, [])
    texts = mirror.workbench.run(f"result = [row[0] for row in spark.sql('SELECT h FROM {mirror.lake}.t').collect()]")
    assert {text for text in texts if text} == {"-838:59:59.000", "00:00:00.001"}
