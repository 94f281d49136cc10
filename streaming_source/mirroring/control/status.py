"""The function that prints the state of each table of a mirror, `mirror_status()`.

In: the session and the mirror. Out: one line for each table, and the control table as a DataFrame with the last audit
of each table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.plain_text import one_line
from replica.schema.patterns import table_text
from streaming_source.auditing.mirror.records import last_audits
from streaming_source.mirroring.control.control_table import control_of
from streaming_source.mirroring.writers.choose import control_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUDITED: Final = (
    ("audited_at", "when the last audit of the table ended, or failed"),
    ("audited_position", "GTID position at which the audit compared"),
    ("audit", "its result: equal, not equal, or left out; after a repair: repaired, or not repaired"),
)
"""Name and meaning of the columns that the status adds to those of the control table."""


def mirror_status(spark: SparkSession, *, into: str | None = None, control: str | None = None) -> DataFrame:
    """Print the state of each table of a mirror, and return the control table with the last audits.

    Args:
        spark: a session that sees the control table.
        into: the template that the mirror was started with; or
        control: the name of its control table.

    Returns:
        A DataFrame with one row for each table: the columns of the control table, then those of its last audit.

    Raises:
        ConfigError: neither `into` nor `control` is given, or there is no such control table.
    """
    from pyspark.sql import functions as f

    name, rows = control_of(spark, "mirror_status", into, control)
    audits = last_audits(spark, name)
    told = {} if audits is None else {(row["source_database"], row["source_table"]): row for row in audits.collect()}
    for row in rows:
        error = f": {row.error}" if row.error else ""
        at = f", at {row.position}" if row.position else ""
        lag = "" if row.lag is None else f", {row.lag:.1f} s behind at the last write"
        last = told.get(row.name)
        audit = "" if last is None else f", audited {last['audited_at']:%Y-%m-%d %H:%M:%S}: {last['audit']}"
        target = row.target.replace("`", "")
        line = f"{table_text(row.name)} -> {target}: {row.state}{at}, {row.rows} rows in{lag}{audit}{error}"
        print(one_line(line))
    table = control_store(spark, name).rows()
    if audits is None:
        return table.withColumns(
            {column: f.lit(None).cast("timestamp" if column == "audited_at" else "string") for column, _ in AUDITED}
        )
    return table.join(audits, ["source_database", "source_table"], "left").select(
        *(table[column] for column in table.columns), *(column for column, _ in AUDITED)
    )
