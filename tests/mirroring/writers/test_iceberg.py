"""format="iceberg": all modes with a crash after each batch; three readers against the server's SELECT.

The readers are PyIceberg, Spark's reader of Parquet, and DuckDB, a second engine for Iceberg.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThanOrEqual

from tests.fixtures.duckdb_reader import duckdb_answers
from tests.fixtures.mariadb import MariaDb
from tests.mirroring.values.test_mode_tables import FIRST, SECOND, at, replayed, shown, told_apart
from tests.recipes.workbench import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.table import Table

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

RULES = {
    "shop.soft": {"mode": "soft_delete"},
    "shop.versions": {"mode": "history"},
    "shop.log": {"mode": "append_log"},
}
TABLES = ("now", "soft", "versions", "log")
Rows = list[list[str | None]]
FILES = """
from streaming_source.mirroring.writers.choose import open_target
target = open_target(spark, {name!r})
ids = {{field.name: field.field_id for field in target._load().schema().fields}}
schema = target.rows().schema
for field in schema:
    field.metadata = {{"parquet.field.id": ids[field.name]}}
spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
rows = spark.read.schema(schema).parquet(*{paths!r})
result = [{{n: None if v is None else str(v) for n, v in r.asDict().items()}} for r in rows.collect()]
spark.conf.unset("spark.sql.parquet.fieldId.read.enabled")
"""
STATUS = """
from streaming_source import mirror_status
rows = mirror_status(spark, into={into!r}).select("source_table", "state", "error").collect()
result = {{row[0]: [row[1], row[2]] for row in rows}}
"""
READ = """
from streaming_source import mirror_tables
found = mirror_tables(spark, into={into!r})
result = {{name: rows.count() for name, rows in found.items()}}
"""

ELSEWHERE = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from replica.errors import ConfigError
from streaming_source import mirror_report, mirror_resnapshot, mirror_status, mirror_tables
given = json.loads(sys.argv[1])
into, catalog, page = given["into"], given["catalog"], given["page"]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    mirror_status(spark, into=into)
    refused = ""
except ConfigError as error:
    refused = str(error)
state = [row["state"] for row in mirror_status(spark, into=into, icebergCatalog=catalog).collect()]
found = mirror_tables(spark, into=into, icebergCatalog=catalog)
rows = {name: sorted(row["v"] for row in each.collect()) for name, each in found.items()}
mirror_report(spark, file=page, into=into, icebergCatalog=catalog)
mirror_resnapshot(spark, tables=["shop.now"], into=into, icebergCatalog=catalog)
print("ANSWER", json.dumps({"refused": refused, "state": state, "rows": rows}))
"""


@pytest.fixture
def primary() -> Iterator[MariaDb]:
    with MariaDb("11.8", "--binlog-row-metadata=FULL") as running:
        running.add_user()
        running.sql("CREATE DATABASE shop")
        yield running


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """The properties of a catalog of the test alone."""
    return {
        "name": "lakehouse",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }


def table_of(catalog: dict[str, str], name: str) -> Table:
    return load_catalog(catalog["name"], **{key: value for key, value in catalog.items() if key != "name"}).load_table(
        name
    )


def text(value: Any) -> str | None:
    return None if value is None else str(value)


def by_pyiceberg(table: Table) -> list[dict[str, Any]]:
    return [{name: text(value) for name, value in row.items()} for row in table.scan().to_arrow().to_pylist()]


def by_spark(mirror: Mirrored, table: Table, name: str) -> list[dict[str, Any]]:
    """Rows as Spark's Parquet reader gives them, by field ids, from the files of the scan plan."""
    tasks = list(table.scan().plan_files())
    assert not any(task.delete_files for task in tasks)
    paths = [task.file.file_path for task in tasks]
    found: list[dict[str, Any]] = mirror.workbench.run(FILES.format(name=name, paths=paths)) if paths else []
    return found


def by_duckdb(table: Table) -> list[dict[str, Any]]:
    (found,) = duckdb_answers([("SELECT * FROM iceberg_scan(?)", [table.metadata_location])])
    return [{name: text(value) for name, value in row.items()} for row in found]


def rows_of(mirror: Mirrored, catalog: dict[str, str], name: str) -> list[dict[str, Any]]:
    """Rows of a target, which all readers give alike."""
    table = table_of(catalog, f"{mirror.lake}.{name}")
    found = by_pyiceberg(table)
    plain = [{key: value for key, value in row.items() if not key.startswith("_")} for row in found]
    full = f"`iceberg:{catalog['name']}`.`{mirror.lake}`.`{name}`"
    other = [
        {key: value for key, value in row.items() if not key.startswith("_")} for row in by_spark(mirror, table, full)
    ]
    assert sorted(plain, key=str) == sorted(other, key=str), name
    assert sorted(found, key=str) == sorted(by_duckdb(table), key=str), name
    return found


def states(mirror: Mirrored) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = mirror.workbench.run(STATUS.format(into=mirror.arguments["into"]))
    return found


def test_each_mode_holds_what_it_promises_after_crashes(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored]
) -> None:
    follow_modes(primary, catalog, mirrored)


def follow_modes(primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored]) -> None:
    """Mirror a table in each mode over changes and an ALTER, break each run off once, and compare with the server."""
    held: list[tuple[int, Rows]] = []

    def server(table: str) -> Rows:
        return [[text(value) for value in row] for row in primary.sql(f"SELECT * FROM shop.{table} ORDER BY id")]

    for table in TABLES:
        primary.sql("USE shop", f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, v INT)")
        primary.sql("USE shop", f"INSERT INTO {table} SELECT seq, CONCAT('row ', seq), seq FROM seq_1_to_10")
    mirror = mirrored(primary, "shop", rules=RULES, format="iceberg", icebergCatalog=catalog)
    mirror.break_off()
    mirror.run()
    assert states(mirror) == {table: ["current", None] for table in TABLES}
    assert shown(rows_of(mirror, catalog, "now")) == server("now")
    for steps, columns in ((FIRST, 3), (SECOND, 4)):
        for step in steps:
            for table in TABLES:
                primary.sql("USE shop", *step.format(t=table).split("; "))
                if table == "versions":
                    held.append((int(primary.gtid_binlog_pos().rpartition("-")[2]), server("versions")))
        mirror.break_off()
        mirror.run()
        assert states(mirror) == {table: ["current", None] for table in TABLES}
        now, soft, versions, log = (rows_of(mirror, catalog, table) for table in TABLES)
        assert shown(now) == server("now")
        assert shown([row for row in soft if row["_deleted"] == "False"]) == server("soft")
        assert shown([row for row in versions if row["_current"] == "True"]) == server("versions")
        for number, rows in held:
            assert shown(at(versions, number)) == [[*row, *[None] * (columns - len(row))] for row in rows], number
        assert replayed(log) == server("log")
        if steps is FIRST:
            assert len(log) == len(told_apart(log))
    counts = mirror.workbench.run(READ.format(into=mirror.arguments["into"]))
    assert counts["shop.now"] == len(server("now"))
    assert counts["shop.log"] == len(log)
    table = table_of(catalog, f"{mirror.lake}.now")
    tokens = [snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary]
    named = [(one["mariadb.batch"], one["mariadb.part"]) for one in tokens if "mariadb.part" in one]
    assert len(named) == len(set(named)), "a part of a batch was committed twice"


VALUES = (
    "id INT PRIMARY KEY, b BIGINT UNSIGNED, d DECIMAL(30,5), f FLOAT, e DOUBLE, t LONGTEXT, y VARBINARY(40), "
    "day DATE, at DATETIME(6), stamp TIMESTAMP(6) NULL, time TIME(6), small TINYINT, v VECTOR(2)"
)


def test_no_statistics_hide_a_row(primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored]) -> None:
    long = "REPEAT('z', 5000)"
    primary.sql(
        "USE shop",
        f"CREATE TABLE ends ({VALUES}) CHARSET utf8mb4",
        "SET time_zone = '+00:00'",
        "INSERT INTO ends VALUES (1, 18446744073709551615, 9999999999999999999999999.99999, -0.0, -1.7e308, "
        f"{long}, REPEAT(X'FF', 40), '9999-12-31', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999999', "
        "'838:59:59.999999', 127, VEC_FromText('[1,-0]'))",
        "INSERT INTO ends VALUES (2, 0, -9999999999999999999999999.99999, 0.0, 1.7e308, "
        "CONCAT(REPEAT('\U0010ffff', 16), 'a'), X'00', '1000-01-01', '1000-01-01 00:00:00', '1970-01-01 00:00:01', "
        "'-838:59:59', -128, VEC_FromText('[3,4]'))",
        "INSERT INTO ends VALUES (3, 1, 0, 3.4e38, -0.0, CONCAT(REPEAT('\ud7ff', 16), 'b'), NULL, NULL, NULL, NULL, "
        "NULL, NULL, NULL)",
        "INSERT INTO ends (id) VALUES (-2147483648), (2147483647)",
        f"INSERT INTO ends (id, t) VALUES (4, CONCAT(REPEAT('a', 16), 'b')), (5, REPEAT('a', 16)), (6, ''), "
        f"(7, {long})",
    )
    mirror = mirrored(primary, "shop", format="iceberg", icebergCatalog=catalog)
    mirror.run()
    assert states(mirror) == {"ends": ["current", None]}
    table = table_of(catalog, f"{mirror.lake}.ends")
    whole = table.scan().to_arrow().to_pylist()
    assert len(whole) == 9
    asked: list[tuple[str, list[object]]] = []
    wanted: list[set[int]] = []
    for name in whole[0]:
        if name == "v":
            continue
        for value in {row[name] for row in whole if row[name] is not None}:
            given = value.isoformat() if isinstance(value, dt.date) else value
            for kind, sign, keeps in (
                (EqualTo, "=", lambda other, value=value: other == value),
                (GreaterThanOrEqual, ">=", lambda other, value=value: other >= value),
                (LessThanOrEqual, "<=", lambda other, value=value: other <= value),
            ):
                files = {task.file.file_path for task in table.scan(row_filter=kind(name, given)).plan_files()}
                ids = {row["id"] for row in whole if row[name] is not None and keeps(row[name])}
                found = {row["id"] for row in table.scan(row_filter=kind(name, given)).to_arrow().to_pylist()}
                assert found == ids, (name, kind, value)
                assert files
                asked.append(
                    (f'SELECT id FROM iceberg_scan(?) WHERE "{name}" {sign} ?', [table.metadata_location, value])
                )
                wanted.append(ids)
    for (statement, values), rows, ids in zip(asked, duckdb_answers(asked), wanted, strict=True):
        assert {row["id"] for row in rows} == ids, (statement, values)


def test_another_process_finds_the_mirror_by_its_catalog(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    primary.sql("USE shop", "CREATE TABLE now (id INT PRIMARY KEY, v INT)", "INSERT INTO now VALUES (1, 7), (2, 8)")
    mirror = mirrored(primary, "shop", format="iceberg", icebergCatalog=catalog)
    mirror.run()
    before = table_of(catalog, f"{mirror.lake}.now").current_snapshot()
    page = tmp_path / "page.html"
    given = json.dumps({"into": mirror.arguments["into"], "catalog": catalog, "page": str(page)})
    temporary = mirror.workbench.run("import tempfile; result = tempfile.gettempdir()")  # has the requests
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, given],
        env=environment() | {"TMPDIR": temporary},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    answer = next((line for line in done.stdout.splitlines() if line.startswith("ANSWER ")), None)
    assert answer, done.stderr[-3000:]
    found = json.loads(answer.removeprefix("ANSWER "))
    assert "icebergCatalog" in found["refused"]
    assert found["state"] == ["current"]
    assert found["rows"] == {"shop.now": [7, 8]}
    assert "now" in page.read_text()
    mirror.run()  # takes the request of the other process
    after = table_of(catalog, f"{mirror.lake}.now").current_snapshot()
    assert before is not None
    assert after is not None
    assert after.snapshot_id != before.snapshot_id
    assert states(mirror) == {"now": ["current", None]}
