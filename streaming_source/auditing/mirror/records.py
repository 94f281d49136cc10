"""The audits of a mirror in a table beside its control table: `<control>_audits`, one row a table and audit.

`write_records` appends an `AuditResult`, and `last_audits` returns the last row of each table. Only audits write there,
so no write conflicts with the mirror's.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final, TypeAlias

from replica.schema.patterns import table_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.auditing.result import AuditResult

Columns: TypeAlias = "tuple[tuple[str, str, str], ...]"
"""Name, type and meaning of each column of a table."""

SUFFIX: Final = "_audits"
EQUAL: Final = "equal"
DIFFERENT: Final = "not equal"
LEFT_OUT: Final = "left out"
REPAIRED: Final = "repaired"
NOT_REPAIRED: Final = "not repaired"

COLUMNS: Final[Columns] = (
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


def beside(control: str, suffix: str) -> str:
    """Return the SQL name of a table beside the control table."""
    return f"{control[:-1]}{suffix}`" if control.endswith("`") else control + suffix


def make_beside(spark: SparkSession, control: str, suffix: str, columns: Columns) -> None:
    """Create a table beside the control table if there is none."""
    told = ", ".join(f"{name} {kind} COMMENT '{about}'" for name, kind, about in columns)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {beside(control, suffix)} ({told}) USING delta")


def append_beside(
    spark: SparkSession, control: str, suffix: str, columns: Columns, rows: Sequence[Sequence[object]]
) -> None:
    """Append rows to a table beside the control table, as one commit."""
    schema = ", ".join(f"{name} {kind}" for name, kind, _ in columns)
    spark.createDataFrame(rows, schema).coalesce(1).writeTo(beside(control, suffix)).append()


def make_records(spark: SparkSession, control: str) -> None:
    """Create the table of audits if there is none."""
    make_beside(spark, control, SUFFIX, COLUMNS)


def write_records(spark: SparkSession, control: str, result: AuditResult) -> None:
    """Append the result of an audit in one commit."""
    now = dt.datetime.now(dt.UTC)
    rows: list[Sequence[object]] = []
    for table in result.tables:
        verdict = EQUAL if table.equal else DIFFERENT
        at = table.target if table.version is None else f"{table.target}@v{table.version}"
        found = (table.source_rows, table.target_rows, dict(table.counts), table.seconds, None)
        rows.append((now, *table_named(table.table), at, table.position, verdict, *found))
    for left in result.left_out:
        nothing = (None, None, None, None, left.reason)
        rows.append((now, *table_named(left.table), None, result.position, LEFT_OUT, *nothing))
    if rows:
        append_beside(spark, control, SUFFIX, COLUMNS, rows)


def last_audits(spark: SparkSession, control: str) -> DataFrame | None:
    """Return the last row of each table; None if there is no table of audits."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        audits = spark.table(beside(control, SUFFIX))
    except AnalysisException:
        return None
    last = f.max_by(f.struct("audited_at", "audited_position", "audit"), "audited_at").alias("last")
    return (
        audits.groupBy("source_database", "source_table").agg(last).select("source_database", "source_table", "last.*")
    )
