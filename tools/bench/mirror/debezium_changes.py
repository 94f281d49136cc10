"""Changes that Debezium Embedded reads, brought into Delta tables by the mirror's own MERGE.

In: its program, the tables of a benchmark, how many row changes are old and how many are new. Out: what the new ones
took. The engine writes them as lines of JSON into one file, as there is no Kafka; Spark reads the file, takes the last
change of each key, and brings the tables up side by side. One comes behind the other, and both times are added up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from tools.bench.kit.peer_programs import java_answer
from tools.bench.mirror.mirror_runs import Measured, measured

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from tools.bench.mirror.mirror_runs import Bench

IMAGE = "STRUCT<id INT, k INT, c STRING, pad STRING, amount DECIMAL(10,2), at BIGINT>"
LINES = f"before {IMAGE}, after {IMAGE}, source STRUCT<table STRING, file STRING, pos BIGINT, row INT>, op STRING"
LAST = "max_by(struct(op, after), struct(source.file, source.pos, source.row)) AS last"
KEY = ("source.table AS table", "coalesce(after.id, before.id) AS id")
VALUES = [f"last.after.{name}" for name in ("k", "c", "pad", "amount")]
AT = "timestampadd(MILLISECOND, last.after.at, TIMESTAMP_NTZ'1970-01-01') AS at"  # it gives DATETIME(3) as a number
OP = "if(last.op = 'd', 'delete', 'upsert') AS _op"


def debezium_changes(
    bench: Bench, program: Path, lake: Path, names: list[str], changes: int, *, skipped: int
) -> Measured:
    """Bring the changes of the tables behind the first `skipped` ones into the targets below `lake`.

    The engine reads all of them once before, which warms it up, and is not measured; neither is its start, nor what it
    skips.
    """
    lines = lake / "changes.json"
    at = (bench.server.host, bench.server.port, *bench.login.values())
    engine = java_answer(program, "Lines", *at, skipped, changes, lines)
    with bench.as_the_mirror(lake, names, changes):
        spark = measured(changes, lambda: bench.merge_all(lake, last_changes(bench, lines, names)))
    return Measured(changes, engine["wall"] + spark.seconds, engine["cpu"] + spark.cpu)


def last_changes(bench: Bench, lines: Path, names: list[str]) -> dict[str, DataFrame]:
    """Return the last change of each key, by table."""
    read = bench.spark.read.schema(LINES).json(str(lines))
    grouped = read.selectExpr(*KEY, "op", "after", "source").groupBy("table", "id")
    last = grouped.agg(f.expr(LAST)).persist()
    return {name: last.where(f"table = '{name}'").selectExpr("id", *VALUES, AT, OP) for name in names}
