"""docs/recipes.md: every block of code on the page, run against a real primary; tables end equal to the server's.

One Spark session for all, so all are in this file. What a block leaves is compared with what the server answers; each
test makes the changes that it needs itself, and finds those of the tests before it.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from tests.recipes.workbench import Workbench, blocks, environment

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

PIPELINES = Path(pyspark.__file__).parent / "pipelines" / "cli.py"  # what spark-pipelines starts

pytestmark = [pytest.mark.spark, pytest.mark.server]

EQUAL = "result = sorted(tuple(row) for row in spark.table('{}').selectExpr({}).collect())"
ORDERS = "'id', 'name', 'cast(price AS STRING)'"
DELTA_TABLE = 'create_streaming_table("orders_by_auto_cdc", format="delta")'
MORE = (
    "UPDATE shop.orders SET price = 9.5 WHERE id = 1",
    "BEGIN",
    "UPDATE shop.orders SET id = 100 WHERE id = 1",
    "UPDATE shop.orders SET id = 1 WHERE id = 2",
    "UPDATE shop.orders SET id = 2 WHERE id = 100",
    "INSERT INTO shop.orders SELECT seq, CONCAT('again ', seq), seq FROM seq_1180_to_1190",
    "DELETE FROM shop.orders WHERE id = 3",
    "COMMIT",
    "INSERT INTO shop.orders VALUES (3, 'newer', 3)",
    "DELETE FROM shop.orders WHERE id BETWEEN 1300 AND 1310",
)


def server_rows(primary: MariaDb, table: str = "shop.orders") -> list[list[Any]]:
    rows = primary.sql(f"SELECT * FROM {table}")
    return sorted([str(v) if isinstance(v, Decimal) else v for v in row] for row in rows)


def client(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """A Spark Connect client, in a process of its own."""
    return subprocess.run(
        command, env=environment() | variables, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.slow
def test_delta_table_equals_the_servers_after_each_run_and_after_a_replay(
    workbench: Workbench, primary: MariaDb
) -> None:
    first = server_rows(primary)
    # A crash between the last MERGE and Spark's commit log: the batch comes again, and what is new in another.
    crash = """
import os
merged = max(progress.batchId for progress in query.recentProgress if progress.numInputRows)
for folder, kept in (("commits", merged - 1), ("offsets", merged)):
    for entry in os.scandir(f"/checkpoints/orders/{folder}"):
        if entry.name.isdigit() and int(entry.name) > kept:
            os.remove(entry)
"""
    workbench.recipe("delta", then=crash)
    primary.sql("USE shop", *MORE)
    merges = f"""
merges = spark.sql("DESCRIBE HISTORY orders").where("operation = 'MERGE'").sort("version").collect()
states = [spark.read.option("versionAsOf", merge.version).table("orders") for merge in merges]
result = [sorted(tuple(row) for row in state.selectExpr({ORDERS}).collect()) for state in states]
"""
    after_each = workbench.recipe("delta", then=merges)
    assert (first, first) in pairwise(after_each)
    assert after_each[-1] == server_rows(primary)


@pytest.mark.slow
def test_messages_hold_what_the_rows_hold(workbench: Workbench, primary: MariaDb) -> None:
    write = """
def written(rows, name):
    query = rows.writeStream.format("parquet").option("path", f"/lake/{name}")
    query = query.option("checkpointLocation", f"/checkpoints/{name}").trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.read.parquet(f"/lake/{name}")
result = [row.asDict(recursive=True) for row in written(messages, "messages").collect()]
"""
    messages = workbench.recipe("messages", then=write)
    values = [json.loads(message["value"]) for message in messages]
    state: dict[int, Any] = {}
    for value in sorted(values, key=_place):
        assert value["op"] in ("r", "c", "u", "d")
        assert (value["before"] is None) == (value["op"] in ("r", "c"))
        if value["before"]:
            state.pop(value["before"]["id"], None)
        if value["after"]:
            state[value["after"]["id"]] = value["after"]
    assert sorted([row["id"], row["name"]] for row in state.values()) == [row[:2] for row in server_rows(primary)]
    assert {message["topic"] for message in messages} == {"shop.orders"}
    assert all(json.loads(message["key"]).keys() == {"id"} for message in messages)
    assert messages[0]["headers"][0]["key"] == "gtid"

    primary.sql("INSERT INTO shop.customers VALUES (7, 'Zoë'), (8, NULL)")
    rows = workbench.recipe(
        "variant-messages", then="result = [list(row) for row in written(every_table, 'all').collect()]"
    )
    assert [topic for topic, _ in rows].count("shop.orders") == len(messages)
    customers = [json.loads(value)["after"] for topic, value in rows if topic == "shop.customers"]
    assert {(7, "Zoë"), (8, None)} <= {(row["id"], row["name"]) for row in customers if row}


def _place(message: dict[str, Any]) -> tuple[int, int]:
    return int(message["source"]["gtid"].rsplit("-", 1)[1]), message["source"]["ordinal"]


@pytest.mark.slow
def test_deleted_rows_can_be_kept_and_marked(workbench: Workbench, primary: MariaDb) -> None:
    workbench.recipe("soft-delete")
    primary.sql("DELETE FROM shop.orders WHERE id IN (1400, 1401)")
    kept = workbench.recipe(
        "soft-delete", then="result = [tuple(r) for r in spark.sql('SELECT id, deleted FROM kept').collect()]"
    )
    assert sorted(row[0] for row in kept if not row[1]) == [row[0] for row in server_rows(primary)]
    assert {row[0] for row in kept if row[1]} == {1400, 1401}


@pytest.mark.slow
def test_many_tables_end_equal(workbench: Workbench, primary: MariaDb) -> None:
    primary.sql(
        "USE shop",
        "BEGIN",
        "INSERT INTO shop.customers VALUES (9, 'nine'), (10, 'ten'), (11, NULL)",
        "INSERT INTO shop.`lines` VALUES (1, 1, 1.5, NULL), (1, 2, 2.5, 'x'), (2, 1, NULL, NULL), (3, 1, 3, NULL)",
        "UPDATE shop.`lines` SET line = 3 WHERE order_id = 1 AND line = 2",
        "DELETE FROM shop.customers WHERE id = 11",
        "COMMIT",
        # The same key in another replication domain, and images that hold little more than what was changed.
        "SET SESSION gtid_domain_id = 7, binlog_row_image = MINIMAL, timestamp = UNIX_TIMESTAMP() + 5",
        "UPDATE shop.customers SET name = NULL WHERE id = 9",
        "UPDATE shop.`lines` SET amount = amount + 1 WHERE order_id = 1",
        "UPDATE shop.`lines` SET note = 'n' WHERE order_id < 3",
        "DELETE FROM shop.`lines` WHERE order_id = 3",
    )
    workbench.recipe("many")
    rows = workbench.run(EQUAL.format("lines", "'order_id', 'line', 'cast(amount AS STRING)', 'note'"))
    assert rows == server_rows(primary, "shop.`lines`")
    assert workbench.run(EQUAL.format("customers", "'id', 'name'")) == server_rows(primary, "shop.customers")


@pytest.mark.slow
def test_iceberg_table_equals_the_servers(workbench: Workbench, primary: MariaDb) -> None:
    rows = """
found = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
result = sorted((row["id"], row["name"], row["price"]) for row in found)
"""
    assert workbench.recipe("iceberg", then=rows) == server_rows(primary)


def pipeline(workbench: Workbench, name: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    """One `spark-pipelines run` of a project with one recipe in it, or with other code."""
    project = workbench.folder / name
    (project / "transformations").mkdir(parents=True, exist_ok=True)
    specification = workbench.code("pipeline-spec").replace("/pipeline", f"/{name}")
    (project / "spark-pipeline.yml").write_text(specification, encoding="utf-8")
    (project / "transformations" / "orders.py").write_text(code or workbench.code(name), encoding="utf-8")
    command = [sys.executable, str(PIPELINES), "run", "--spec", str(project / "spark-pipeline.yml")]
    return client(command, SPARK_REMOTE=workbench.adapted("sc://spark-server:15002"))


@pytest.mark.slow
def test_a_declarative_pipeline_ends_equal_to_the_servers_table(workbench: Workbench, primary: MariaDb) -> None:
    done = pipeline(workbench, "pipeline")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert workbench.run(EQUAL.format("current_orders", ORDERS)) == server_rows(primary)


@pytest.mark.slow
def test_an_auto_cdc_flow_ends_equal_to_the_servers_table(workbench: Workbench, primary: MariaDb) -> None:
    # The position has two domains, and the second one's numbers lie below those of the first.
    raised = "UPDATE shop.orders SET price = price + 1 WHERE id = 20"
    primary.sql("SET SESSION gtid_domain_id = 7", raised, "SET SESSION gtid_domain_id = 0", raised)
    for changes in (
        (),
        (
            "INSERT INTO shop.orders VALUES (7001, 'came', 1), (7002, 'went', 2), (7003, 'moved', 3)",
            "BEGIN",
            "UPDATE shop.orders SET price = price + 1, name = CONCAT(name, '!') WHERE id < 5 OR id > 7000",
            "DELETE FROM shop.orders WHERE id IN (1, 7002)",
            "UPDATE shop.orders SET id = 7004 WHERE id = 7003",
            "INSERT INTO shop.orders VALUES (1, 'again', NULL)",
            "COMMIT",
        ),
        (
            "SET SESSION gtid_domain_id = 7",
            "UPDATE shop.orders SET price = price + 1 WHERE id BETWEEN 20 AND 30",
            "DELETE FROM shop.orders WHERE id BETWEEN 25 AND 27",
        ),
    ):
        if changes:
            primary.sql(*changes)
        done = pipeline(workbench, "auto-cdc")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        assert workbench.run(EQUAL.format("lake.shop.orders", ORDERS)) == server_rows(primary)


@pytest.mark.slow  # what the page says of Delta; when it fails, the page has better news to tell
def test_spark_does_not_let_auto_cdc_into_a_delta_table(workbench: Workbench) -> None:
    code = workbench.code("auto-cdc").replace('create_streaming_table("lake.shop.orders")', DELTA_TABLE)
    done = pipeline(workbench, "auto-cdc-delta", code.replace('"lake.shop.orders"', '"orders_by_auto_cdc"'))
    assert "Cannot start AutoCDC flow: the target table" in done.stdout
    assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in done.stderr


@pytest.mark.slow
def test_spark_connect_runs_the_same_queries_and_says_the_same_errors(workbench: Workbench, primary: MariaDb) -> None:
    delta = workbench.code("delta").replace('"orders"', '"remote"').replace("EXISTS orders", "EXISTS remote")
    more = """
import json
from pyspark.errors import PySparkException
errors = []
for options in ({"table": "shop.ordres"}, {"table": "shop.orders", "startingPositon": "latest"}):
    try:
        changes(**options).schema
    except PySparkException as error:
        errors.append(str(error))
print(json.dumps([type(spark).__module__, lag(query).position, errors]))
"""
    delta = delta.replace("/orders", "/remote")
    code = "\n".join([*map(workbench.code, ("connect", "source")), delta, workbench.code("watch"), more])
    done = client([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr[-6000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told[0] == "pyspark.sql.connect.session"
    assert set(told[1].split(",")) == set(primary.gtid_binlog_pos().split(","))
    assert "shop.ordres" in told[2][0]
    assert "startingPosition" in told[2][1]
    assert workbench.run(EQUAL.format("remote", ORDERS)) == server_rows(primary)


@pytest.mark.slow
def test_several_queries_run_side_by_side(workbench: Workbench, primary: MariaDb) -> None:
    primary.sql("INSERT INTO shop.customers VALUES (70, 'seventy')")
    seen = """
import time
deadline = time.monotonic() + 60  # nothing is available until the first rows of a table were read
for query in queries:
    while not any(progress.numInputRows for progress in query.recentProgress) and time.monotonic() < deadline:
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()
result = [sorted({row.table for row in spark.read.parquet(f"/lake/all_{q.name}").collect()}) for q in queries]
"""
    assert workbench.recipe("several", then=seen) == [["orders"], ["customers"]]


def test_parquet_has_every_change_once_and_listener_and_lag_see_the_position(
    workbench: Workbench, primary: MariaDb
) -> None:
    position = primary.gtid_binlog_pos()
    seen = """
import time
def of_listener():
    ours = [words for words in printed if len(words) == 4 and words[1]]
    return [words for words in ours if words[3].position == lag(query).position]
deadline = time.monotonic() + 60  # reports come when the query may have ended already
while not of_listener() and time.monotonic() < deadline:
    time.sleep(0.05)
del print
rates = [rate for name, rate, text, position in of_listener()]
rows = sum(progress.numInputRows for progress in query.recentProgress)
result = [rates, lag(query).position, str(lag(query)), lag(query).running, rows]
"""
    workbench.run("printed = []\ndef print(*words): printed.append(words)")
    rates, reached, words, running, rows = workbench.recipe("listener", "parquet", "watch", then=seen)
    assert any(rate > 0 for rate in rates)
    assert set(reached.split(",")) == set(position.split(","))
    assert "ended" in words
    assert running is False

    leftover = """
import shutil
from pathlib import Path
largest = max(Path("/lake/order_changes").glob("part-*.parquet"), key=lambda file: file.stat().st_size)
shutil.copy(largest, largest.with_name("part-99999.parquet"))
"""
    counts = "result = [spark.read.parquet('/lake/order_changes').count(), files.count(), once.count()]"
    workbench.run(leftover)
    through_the_log, in_files, distinct = workbench.recipe("parquet-files", then=counts)
    assert in_files > through_the_log == distinct == rows
    there = """
from pyspark.sql import functions as f
# Of rows that got another key, the old one is told by the preimage only.
step = f.when(f.col("_change_type") == "update_preimage", 0).otherwise(1)
last = f.max_by("_change_type", f.struct("_sequence", step)).alias("last")
newest = spark.read.parquet("/lake/order_changes").groupBy("id").agg(last)
result = sorted(row.id for row in newest.where("last NOT IN ('delete', 'update_preimage')").collect())
"""
    assert workbench.run(there) == [row[0] for row in server_rows(primary)]


def test_every_block_of_the_page_is_run_here() -> None:
    """A block that no test names is code that nobody runs."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    assert blocks().keys() <= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
