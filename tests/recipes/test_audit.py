"""The audit of Delta tables: by name, folder and version, of a mirror's control table, and as a program."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from replica.schema.known_tables import tables_to_json
from replica.schema.table import ColumnSchema, TableSchema
from tests.recipes.workbench import PAGE, Workbench

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server]

DOCUMENT = (PAGE.parent / "audit.md").read_text(encoding="utf-8")
COPY = """
spark.sql("CREATE DATABASE IF NOT EXISTS copies")
from pyspark_mariadb_binlog import audit
server = {"host": "db1", "user": "repl", "passwordFile": "/run/secrets/repl"}
def rows(table, at):
    options = {**server, "content": "tables", "endingPosition": at, "table": table}
    return spark.read.format("mariadb-binlog").options(**options).load().drop("_position")
"""
CONTROL = """
METADATA = "spark.databricks.delta.commitInfo.userMetadata"
def committed(batch, statement):
    spark.conf.set(METADATA, json.dumps({"mirror": "m1", "batch": batch, "position": AT}))
    try:
        statement()
    finally:
        spark.conf.unset(METADATA)
"""

CUSTOMERS = tables_to_json(
    {
        ("shop", "customers"): TableSchema(
            database="shop",
            table="customers",
            columns=(
                ColumnSchema(name="id", data_type="bigint", column_type="bigint(20)"),
                ColumnSchema(name="name", data_type="varchar", column_type="varchar(30)"),
            ),
        )
    }
)
PROGRAM = """
import contextlib, io
from streaming_source.auditing.program import main
def ended(arguments):
    out, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        try:
            main(arguments)
        except SystemExit as end:
            return end.code, out.getvalue(), told.getvalue()
"""


def counts(told: dict[str, Any]) -> list[dict[str, int]]:
    return [{kind: count for kind, count in table["counts"].items() if count} for table in told["tables"]]


@pytest.mark.slow
def test_the_call_of_the_page_finds_what_was_written_into_a_copy(workbench: Workbench, primary: MariaDb) -> None:
    (call, *_) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
    position = primary.gtid_binlog_pos()
    assert "0-1-4711" in call
    assert "lake.orders" in call
    call = call.replace("0-1-4711", position).replace("lake.orders", "copies.orders")
    workbench.run(
        f"{COPY}\nAT = '{position}'\n"
        "rows('shop.orders', AT).write.format('delta').saveAsTable('copies.orders')\n"
        "rows('shop.lines', AT).write.format('delta').save('/lake/lines')\n"
    )
    # Rows of later, and of no one: what the table does and what others write does not reach the versions named.
    primary.sql("UPDATE shop.orders SET price = 77 WHERE id = 2", "INSERT INTO shop.`lines` VALUES (9, 9, 9, 'nine')")
    workbench.run("spark.sql(\"INSERT INTO delta.`/lake/lines` VALUES (1L, 2, 3.25, 'foreign')\")")
    equal = workbench.run(call.replace("@v12", "@v0") + "\nresult = result.json()")
    told = json.loads(equal)
    assert told["equal"]
    assert [table["version"] for table in told["tables"]] == [0, 0]

    workbench.run("spark.sql('UPDATE copies.orders SET price = price + 0.01 WHERE id = 2')")
    told = json.loads(workbench.run(call.replace("@v12", "").replace("assert", "#") + "\nresult = result.json()"))
    assert counts(told) == [{"different": 1}, {"extra": 1}]
    assert [table["version"] for table in told["tables"]] == [1, 1]
    (different,) = told["tables"][0]["differences"]
    assert different["key"] == {"id": "2"}
    assert float(different["target"]["price"]) - float(different["source"]["price"]) == pytest.approx(0.01)


@pytest.mark.slow
def test_a_mirror_is_audited_in_the_versions_of_its_control_table(workbench: Workbench, primary: MariaDb) -> None:
    position = primary.gtid_binlog_pos()
    told = workbench.run(
        f"import json\n{COPY}\n{CONTROL}\nAT = '{position}'\nCUSTOMERS = {CUSTOMERS!r}\n"
        "committed(3, lambda: rows('shop.customers', AT).write.format('delta').saveAsTable('copies.mirrored'))\n"
        "committed(4, lambda: spark.sql(\"INSERT INTO copies.mirrored VALUES (90L, 'of the next batch')\"))\n"
        "columns = 'mirror STRING, source_database STRING, source_table STRING, target STRING, state STRING, '\n"
        "columns += 'keys ARRAY<STRING>, position STRING, batch BIGINT, error STRING, rules STRING, mode STRING, '\n"
        "columns += 'definition STRING'\n"
        "told = [('m1', 'shop', 'customers', '`copies`.`mirrored`', 'current', ['id'], AT, 3, None, None, 'current'),\n"
        "        ('m1', 'shop', 'orders', 'copies.none', 'failed', ['id'], AT, 3, 'disk full', None, 'current'),\n"
        "        ('m1', 'shop', 'lost', 'copies.none', 'current', ['id'], AT, 3, None, None, 'current'),\n"
        "        ('m1', 'shop', 'gone', 'copies.none', 'dropped', ['id'], AT, 3, None, None, 'current')]\n"
        "told = [(*row, CUSTOMERS.replace('customers', row[2])) for row in told]\n"
        "spark.createDataFrame(told, columns).write.format('delta').saveAsTable('copies.mirror_control')\n"
        "result = audit(spark, mirror='copies.mirror_control', **server).json()\n"
    )
    first = json.loads(told)
    assert counts(first) == [{}]
    assert first["tables"][0]["version"] == 0
    assert first["tables"][0]["keys"] == ["id"]
    lost, failed = first["left_out"]
    assert lost["table"] == "shop.lost"
    assert lost["reason"].startswith("its target cannot be read: [TABLE_OR_VIEW_NOT_FOUND]")
    assert failed == {"table": "shop.orders", "reason": "failed: disk full"}
    assert not first["equal"]

    # What others wrote before the next batch is seen; the batch itself belongs to a later position.
    second = workbench.run(
        "spark.sql('RESTORE TABLE copies.mirrored TO VERSION AS OF 0')\n"
        "spark.sql(\"INSERT INTO copies.mirrored VALUES (91L, 'foreign')\")\n"
        "spark.sql('UPDATE copies.mirror_control SET batch = 4')\n"
        "result = audit(spark, mirror='copies.mirror_control', **server).json()\n"
    )
    assert counts(json.loads(second)) == [{"extra": 1}]
    refused = workbench.run(
        "try:\n    audit(spark, mirror='copies.none', **server)\n"
        "except Exception as error:\n    result = f'{type(error).__name__}: {error}'\n"
    )
    assert "ConfigError" in refused
    assert "mirror_control" in refused


@pytest.mark.slow
def test_the_program_ends_with_the_verdict(workbench: Workbench, primary: MariaDb, tmp_path: Path) -> None:
    copy = tmp_path / "customers"
    position = primary.gtid_binlog_pos()
    workbench.run(f"{COPY}\nrows('shop.customers', '{position}').write.format('delta').save({str(copy)!r})")
    settings = tmp_path / "audit.toml"
    settings.write_text(
        f'at = "{position}"\nhost = "{primary.host}:{primary.port}"\nuser = "repl"\n'
        f'passwordFile = "{workbench.replaced["/run/secrets/repl"]}"\n\n[tables]\n"shop.customers" = "{copy}"\n',
        encoding="utf-8",
    )
    workbench.run(PROGRAM)
    code, out, _ = workbench.run(f"result = ended([{str(settings)!r}, '--json'])")
    assert code == 0
    assert json.loads(out)["equal"]
    workbench.run(f'spark.sql("DELETE FROM delta.`{copy}` WHERE id > -1")')
    primary.sql("INSERT INTO shop.customers VALUES (1, 'one')")
    code, out, _ = workbench.run(f"result = ended([{str(settings)!r}, '--at', '{primary.gtid_binlog_pos()}'])")
    assert code == 1
    assert "1 missing; 1 rows, 0 in the copy" in out
    late = ["--at", "0-1-99999999", "--option", "connectRetry=1s"]
    code, out, told = workbench.run(f"result = ended([{str(settings)!r}, *{late}])")
    assert (code, out) == (20, "")
    assert told.startswith("audit: endingPosition 0-1-99999999 is not reached")
