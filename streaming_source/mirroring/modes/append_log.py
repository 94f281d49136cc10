"""The mode append_log: one row for each row image, in the shape of rowShape=flat. Rows are never changed later.

An update is two rows, as in rowShape=flat. TRUNCATE and DROP are rows without column values, so that the log is
complete. All columns of the table are nullable in the target: such rows have no values, and images may lack columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.mirroring.modes.mode import SparkChange, own_columns
from streaming_source.schema.target_modes import APPEND_LOG
from streaming_source.sinks.sql_text import text_value
from streaming_source.sinks.upserts import sequence_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.modes.mode import EndReason, NetChanges
    from streaming_source.mirroring.writers.target_format import Commit, TableWriter
    from streaming_source.transforms.transformed_images import TargetColumn


class AppendLog:
    """Mode that only appends rows."""

    name = APPEND_LOG
    append_only = True
    by_key = False
    needs_latest_only = False
    appends_values = False
    cascades: frozenset[str] = frozenset()

    def columns(self, columns: Sequence[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the table's columns, all of them nullable, and the metadata columns of the flat shape."""
        return (*(column._replace(nullable=True) for column in columns), *own_columns(APPEND_LOG))

    def appended(self, part: NetChanges) -> DataFrame:
        """Return one row for each row image."""
        from pyspark.sql import functions as f

        def image(side: str, kind: Column) -> Column:
            return f.struct(
                f.col(side).alias("row"), kind.alias("kind"), f.col(f"absent.{side}").alias("absent"), f.lit(side)
            )

        op, update = f.col("op"), f.col("op") == "update"
        before = image("before", f.when(update, "update_preimage").otherwise(op))
        after = image("after", f.when(update, "update_postimage").otherwise(op))
        images = f.when(update, f.array(before, after)).when(op == "delete", f.array(before)).otherwise(f.array(after))
        rows = part.rows.where(op.isin("read", "insert", "update", "delete"))
        number, ordinal = f.col("transaction.sequence_number"), f.col("transaction.ordinal")
        own = {
            "_change_type": f.col("image.kind"),
            "_commit_version": number,
            "_commit_timestamp": f.col("transaction.commit_timestamp"),
            "_gtid": f.col("transaction.gtid"),
            "_sequence": sequence_text(number, ordinal),
            "_absent": f.col("image.absent"),
            "_history": f.col("history"),
        }
        return rows.withColumn("image", f.explode(images)).select(
            *(f.col("image.row").getField(name).alias(name) for name in part.columns),
            *(own[column.name].cast(column.type).alias(column.name) for column in own_columns(APPEND_LOG)),
        )

    def merge(self, part: NetChanges) -> SparkChange:
        """Append the changes."""
        return SparkChange(self.appended(part))

    def can_append(self, target: TableWriter) -> bool:  # noqa: ARG002  (the answer does not depend on the target)
        """Return True: the log has no keys."""
        return True

    def end_all(self, target: TableWriter, statement: StatementRow, why: EndReason, at: Commit) -> None:
        """Append a row without values, with the reason as its change type."""
        values = {
            "_change_type": text_value(why),
            "_commit_version": str(statement.number),
            "_commit_timestamp": f"timestamp_micros({statement.committed_us})",
            "_gtid": text_value(statement.gtid),
            "_sequence": text_value(statement.sequence),
        }
        types = {column.name: column.type for column in own_columns(APPEND_LOG)}
        columns = [f"CAST({value} AS {types[name]}) AS {name}" for name, value in values.items()]
        target.append(target.spark.range(1).selectExpr(*columns), at)

    def end_statement(self, target: TableWriter, statement: StatementRow) -> str:
        """Refuse: rows of the log never change."""
        raise NotImplementedError(target.name, statement)

    def cascaded(self, nulls: Sequence[str]) -> str:
        """Refuse: the log holds only changes of the stream."""
        raise NotImplementedError(nulls)
