"""The audits of a mirror, kept in a table beside its control table: `<control>_audits`, a row a table and audit.

In: the name of the control table and the result of an audit. Out: rows appended, and the last one of each table. Only
audits write there, so nothing of it meets what the mirror writes.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.auditing.result import AuditResult

EQUAL: Final = "equal"
DIFFERENT: Final = "not equal"
LEFT_OUT: Final = "left out"
REPAIRED: Final = "repaired"
NOT_REPAIRED: Final = "not repaired"

COLUMNS: Final = (
    ("audited_at", "TIMESTAMP", "when the audit of all tables ended"),
    ("source_database", "STRING", "database of the table on the server"),
    ("source_table", "STRING", "its name there"),
    ("target", "STRING", "the target, with the version that was compared"),
    ("audited_position", "STRING", "GTID position that both sides were compared at"),
    ("audit", "STRING", "equal, not equal, left out, repaired, or not repaired"),
    ("source_rows", "BIGINT", "rows of the table there"),
    ("target_rows", "BIGINT", "rows of the target"),
    (
        "counts",
        "MAP<STRING, BIGINT>",
        "rows that are missing, extra, different and doubled; of a repair: asked for, and changed since",
    ),
    ("seconds", "DOUBLE", "how long it took"),
    ("reason", "STRING", "why the table was left out or not repaired"),
)
"""Name, type and meaning of each column."""


def beside(control: str, suffix: str) -> str:
    """Return the name of a table beside the control table, as SQL takes it."""
    return f"{control[:-1]}{suffix}`" if control.endswith("`") else control + suffix


def make_records(spark: SparkSession, control: str) -> None:
    """Make the table of audits, where there is none."""
    columns = ", ".join(f"{name} {kind} COMMENT '{about}'" for name, kind, about in COLUMNS)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {beside(control, '_audits')} ({columns}) USING delta")


def write_records(spark: SparkSession, control: str, result: AuditResult) -> None:
    """Append what an audit found, as one commit."""
    now = dt.datetime.now(dt.UTC)
    rows: list[Sequence[object]] = []
    for table in result.tables:
        verdict = EQUAL if table.equal else DIFFERENT
        at = table.target if table.version is None else f"{table.target}@v{table.version}"
        found = (table.source_rows, table.target_rows, dict(table.counts), table.seconds, None)
        rows.append((now, *table.table.split(".", 1), at, table.position, verdict, *found))
    for left in result.left_out:
        nothing = (None, None, None, None, left.reason)
        rows.append((now, *left.table.split(".", 1), None, result.position, LEFT_OUT, *nothing))
    if rows:
        schema = ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)
        spark.createDataFrame(rows, schema).coalesce(1).writeTo(beside(control, "_audits")).append()


def last_audits(spark: SparkSession, control: str) -> DataFrame | None:
    """Return the last row of each table; None where nothing was ever audited."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        audits = spark.table(beside(control, "_audits"))
    except AnalysisException:
        return None
    last = f.max_by(f.struct("audited_at", "audited_position", "audit"), "audited_at").alias("last")
    return (
        audits.groupBy("source_database", "source_table").agg(last).select("source_database", "source_table", "last.*")
    )
