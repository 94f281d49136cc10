"""A mirror in a session whose settings change types, zones, case, parsing and files: its targets are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from streaming_source.auditing.call import audit
from streaming_source.driver.own_session import PINNED, RESET
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(1800)]

HOSTILE = {
    "spark.sql.variable.substitute": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.sources.partitionOverwriteMode": "DYNAMIC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.crossJoin.enabled": "false",
    "spark.sql.retainGroupColumns": "false",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.orderByOrdinal": "false",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding",
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.ansi.relationPrecedence": "true",
    "spark.sql.analyzer.failAmbiguousSelfJoin": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "true",
    "spark.sql.legacy.createHiveTableByDefault": "true",
    "spark.sql.legacy.setopsPrecedence.enabled": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.legacy.interval.enabled": "true",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.legacy.statisticalAggregate": "true",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true",
    "spark.sql.legacy.keepCommandOutputSchema": "true",
    "spark.sql.legacy.useV1Command": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.databricks.delta.schema.autoMerge.enabled": "true",
    "spark.databricks.delta.properties.defaults.appendOnly": "true",
    "spark.databricks.delta.properties.defaults.columnMapping.mode": "id",
    "spark.databricks.delta.write.txnAppId": "other",
    "spark.databricks.delta.write.txnVersion": "1000000",
}
"""Settings of a user, each with another value than Spark's own."""
ALONE, GROUPS = [*HOSTILE][:-2], 8
SET = """
for name, value in {settings!r}.items():
    spark.conf.set(name, value)
"""
UNSET = """
for name in {settings!r}:
    spark.conf.unset(name)
"""
LOOKED_AT = """
left_out = ("mariadb.", "delta.columnMapping.maxColumnId", "delta.rowTracking")
found = []
for target in {targets!r}:
    rows = spark.table(target)
    values = ", ".join(
        f"unix_micros(`{{field.name}}`)" if field.dataType.typeName() == "timestamp" else f"`{{field.name}}`"
        for field in rows.schema
        if not field.name.startswith(("_valid", "_commit", "_deleted_at"))
    )
    properties = [f"{{row.key}}={{row.value}}" for row in spark.sql("SHOW TBLPROPERTIES " + target).collect()]
    found.append(
        [
            [[field.name, field.dataType.simpleString()] for field in rows.schema],
            sorted(one for one in properties if not one.startswith(left_out)),
            sorted(str(list(row)) for row in spark.sql(f"SELECT {{values}} FROM {{target}}").collect()),
        ]
    )
states = spark.table({control!r}).select("source_table", "state", "error").sort("source_table").collect()
result = [[list(row) for row in states], found]
"""
AUDIT = (
    f"from {audit.__module__} import {audit.__name__}"
    """
found = audit(spark, mirror={control!r}, **{server!r})
result = [[one.table for one in found.tables if one.equal], [one.table for one in found.left_out], str(found)]
"""
)
SOURCE = """
from pyspark.sql import functions as f
found = []
for more in ({{"content": "tables"}}, {{"startingPosition": "earliest", "rowShape": "flat"}}):
    rows = spark.read.format("mariadb-binlog").options(**{server!r}, table="shop.plain", **more).load()
    texts = [
        f.unix_micros(field.name) if field.dataType.typeName() == "timestamp" else f.col(f"`{{field.name}}`")
        for field in rows.schema
        if field.name in {columns!r}
    ]
    found.append([rows.schema.json(), sorted(str(list(row)) for row in rows.select(*texts).collect())])
result = found
"""
"""The rows of the source in the user's own session."""
RULES: Mapping[str, Mapping[str, object]] = {
    "shop.soft": {"mode": "soft_delete", "where": "at >= '2026-10-25 01:00:00' OR at IS NULL"},
    "shop.versions": {"mode": "history"},
    "shop.log": {"mode": "append_log"},
}
TABLES = ("plain", "soft", "versions", "log", "counted")
NAMES = ("id", "v", "d", "at", "n", "day", "c", "raw", "Mixed Case", "f", "b")
COLUMNS = """v DOUBLE, d DECIMAL(30,10), at TIMESTAMP(6) NULL, n DATETIME(6), day DATE, t TIME(3), c CHAR(8),
  raw VARBINARY(9), `Mixed Case` VARCHAR(20), f FLOAT, b BIT(9)"""
ROWS = (
    # One hour of New York that comes twice, and one that never is.
    """(1, 1.5, 0.1, '2026-11-01 05:30:00.123456', '2026-11-01 01:30:00.123456', '1000-01-01', '01:02:03.004', 'a', 'x',
    'A', 0.1, 5)""",
    """(2, -0.0, -7, '2026-11-01 06:30:00.654321', '2026-03-08 02:30:00', '9999-12-31', '-838:59:59', '', '', NULL,
    1e30, 0)""",
    "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    """(4, 1e300, 99999999999999999999.9999999999, '1970-01-01 00:00:01', '1000-01-01 00:00:00', '1582-10-10',
    '00:00:00', 'é', x'00ff', '${env:HOME}', -1.25, 511)""",
)


KINDS = (
    "id int, v double, d decimal(30,10), at timestamp, n timestamp_ntz, day date, t string, c string, raw binary, "
    "Mixed Case string, f float, b bigint, added decimal(9,3)"
)


def changed(primary: MariaDb, tables: Iterable[str]) -> None:
    """Change rows and columns of tables."""
    for table in tables:
        primary.sql(
            "SET time_zone = '+00:00'",
            "USE shop",
            f"UPDATE {table} SET at = '2026-11-01 06:59:59.999999', `Mixed Case` = 'b' WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 2",
            f"INSERT INTO {table} VALUES {ROWS[3]}",
            f"ALTER TABLE {table} ADD COLUMN added DECIMAL(9,3)" + " NOT NULL DEFAULT 1.5" * (table == "plain"),
            f"INSERT INTO {table} (id, at, added) VALUES (5, '2026-10-25 00:30:00', 2.25)",
            f"INSERT INTO {table} (id, at, added) VALUES (6, '2026-10-25 01:30:00', 3)",
        )


class Outcome(NamedTuple):
    """The targets, and the rows of the source in the user's session: types, properties, values."""

    targets: list[list[Any]]
    rows: list[list[Any]]


def run_under(
    primary: MariaDb,
    mirrored: Callable[..., Mirrored],
    folder: Path,
    settings: Mapping[str, str],
    tables: Sequence[str] = TABLES,
) -> Outcome:
    """Read the tables, follow changes, and audit, in a session with these settings."""
    primary.add_user()
    primary.sql("CREATE DATABASE shop CHARACTER SET utf8mb4")
    for table in tables:
        key = "INT" if table == "counted" else "INT PRIMARY KEY"
        primary.sql(
            "SET time_zone = '+00:00'",
            f"CREATE TABLE shop.{table} (id {key}, {COLUMNS})",
            f"INSERT INTO shop.{table} VALUES {', '.join(ROWS[:3])}",
        )
    rules = {name: rule for name, rule in RULES.items() if name.removeprefix("shop.") in tables}
    folders = {"checkpointLocation": str(folder / "checkpoint"), "relayDir": str(folder / "relay")}
    mirror = mirrored(primary, "shop", rules=rules, snapshotUnkeyed="whole", **folders)
    run = mirror.workbench.run
    server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
    control = f"{mirror.lake}.mirror_control"
    try:
        run(SET.format(settings=dict(settings)))
        mirror.run()
        changed(primary, tables)
        mirror.run()
        rows = run(SOURCE.format(server=server, columns=NAMES))
        equal, left_out, told = run(AUDIT.format(control=control, server=server))
    finally:
        run(UNSET.format(settings=list(settings)))
    states, found = run(LOOKED_AT.format(targets=[f"{mirror.lake}.{table}" for table in tables], control=control))
    assert [state for _, state, _ in states] == ["current"] * len(tables), states
    logs = {f"shop.{name}" for name in tables if name == "log"}  # which hold changes: no audit compares them
    assert ({*equal}, {*left_out}) == ({f"shop.{name}" for name in tables} - logs, logs), told
    return Outcome(found, rows)


@pytest.mark.slow
@pytest.mark.quick_on("newest")
def test_all_at_once(server_version: str, mirrored: Callable[..., Mirrored], tmp_path: Path) -> None:
    with MariaDb(server_version) as primary:
        found = run_under(primary, mirrored, tmp_path, HOSTILE, ["plain"])
        ((kinds, properties, values),) = found.targets
        micros = "CAST(UNIX_TIMESTAMP(at) * 1000000 AS SIGNED)"
        at = dict(primary.sql("SET time_zone = '+00:00'", f"SELECT id, {micros} FROM shop.plain"))
    assert ", ".join(map(" ".join, kinds)) == KINDS
    assert "delta.columnMapping.mode=name" in properties
    assert not [one for one in properties if one.startswith("delta.appendOnly")]
    assert {int(row.partition(",")[0][1:]): row.split(", ")[3] for row in values} == {
        number: str(value) for number, value in at.items()
    }
    (_, tables), (_, changes) = found.rows
    assert len(tables) == len(at)
    assert [row for row in tables if row not in changes] == []


def test_each_setting_of_ours_is_among_them() -> None:
    assert {setting.name for setting in PINNED} <= HOSTILE.keys()
    used = {family.prefix for family in RESET if any(name.startswith(family.prefix) for name in HOSTILE)}
    assert used == {family.prefix for family in RESET} - {"spark.sql.collation.", "spark.sql.functionResolution."}


@pytest.mark.slow
@pytest.mark.quick_on("newest")
def test_all_at_once_in_every_mode(server_version: str, mirrored: Callable[..., Mirrored], tmp_path: Path) -> None:
    with MariaDb(server_version) as primary:
        wanted = run_under(primary, mirrored, tmp_path / "own", {})
    with MariaDb(server_version) as primary:
        assert run_under(primary, mirrored, tmp_path / "hostile", HOSTILE) == wanted


@pytest.mark.slow
@pytest.mark.quick_on("newest")
@pytest.mark.timeout(7200)
def test_a_few_at_a_time(server_version: str, mirrored: Callable[..., Mirrored], tmp_path: Path) -> None:
    """Settings that hide each other when all are set at once. Each alone takes an hour: only where some differ."""

    def found(folder: str, names: Sequence[str]) -> object:
        with MariaDb(server_version) as primary:
            return run_under(primary, mirrored, tmp_path / folder, {name: HOSTILE[name] for name in names})

    wanted = found("own", ())
    for first in range(GROUPS):
        names = ALONE[first::GROUPS]
        if found(f"group {first}", names) != wanted:
            assert [name for name in names if found(name, [name]) != wanted] == [], names
            pytest.fail(f"only together: {names}")
