"""The rows of one table of a micro-batch, read by Spark's tasks when they are asked for.

In: a batch of outlines, the name of a table, its columns. Out: a DataFrame of envelope rows. Its images are STRUCTs of
these columns, decoded as they are wanted; without columns they are VARIANT, for rows of several definitions. Nothing is
kept: the same rows come again, from the relay log, whenever the DataFrame is used.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from streaming_source.driver.spark_border import spark_border
from streaming_source.mirroring.outlines.outline_columns import KNOWN, RANGE
from streaming_source.schema.row_schema import envelope_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from replica.rows.types.types import ValuePolicy
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.batch_facts import TableChanges
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.schema.row_schema import TableColumn

ROWS_A_TASK: Final = 50_000
"""Fewer rows are not worth a task of their own: starting one costs as much as decoding them."""
BROADCAST_BYTES: Final = 2 << 20
"""Spark takes these rows for as few bytes as their outline has, and would send a million of them to every task of a
join. Below this it is right to: in memory a byte of the binlog is some four, and Spark's own limit is 10 MB."""
_OTHER_TYPES: Final = frozenset({"INTERVAL DAY TO SECOND", "GEOMETRY(ANY)"})
"""Types of rows that a target holds as something else, which VARIANT already has."""


def typed_columns(table: TableSchema, policy: ValuePolicy) -> tuple[TableColumn, ...] | None:
    """Return the columns that a table's rows can be decoded into; None where their images have to be VARIANT."""
    from streaming_source.schema.table_columns import catalog_table_columns

    if "*" in table.name or any(column.hidden for column in table.columns):  # a pattern; what VARIANT does not show
        return None
    columns = catalog_table_columns(table, policy)
    return None if any(column.type in _OTHER_TYPES for column in columns) else columns


def rows_of_table(
    batch: DataFrame,
    name: TableName,
    columns: tuple[TableColumn, ...] | None,
    changes: TableChanges,
    *,
    wide_sequence: bool,
) -> DataFrame:
    """Return the rows of a table; `changes`: what the batch has of it, `wide_sequence`: sequence numbers are
    DECIMAL(20,0).
    """
    from pyspark.sql import functions as f

    database, table = name
    here = (f.col("database") == database) & (f.col("table") == table) & f.col(KNOWN).isNotNull()
    parts = batch.where(f.col(RANGE).isNotNull() | here).select(RANGE, KNOWN)
    tasks = max(1, -(-changes.rows // ROWS_A_TASK))
    read = RowsOfTable(database, table, columns)
    schema = envelope_schema(columns, wide_sequence=wide_sequence)
    found = parts.coalesce(tasks).mapInArrow(read, schema)
    rows = found.where((f.col("database") == database) & (f.col("table") == table))
    return rows if changes.bytes <= BROADCAST_BYTES else rows.hint("merge")


@dataclass(frozen=True, slots=True)
class RowsOfTable:
    """The function of tasks: parts of outlines -> the rows of a table in their partitions."""

    database: str
    table: str
    columns: tuple[TableColumn, ...] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streaming_source.rows.reader import read_changes

        partition = plan = None
        for batch in batches:
            for packed, known in zip(batch.column(RANGE).to_pylist(), batch.column(KNOWN).to_pylist(), strict=True):
                if packed is not None:
                    partition, plan = pickle.loads(packed)  # noqa: S301  (another task of this query has made it)
                elif partition is not None and plan is not None:
                    with spark_border():
                        yield from read_changes(partition, self._plan(plan, pickle.loads(known)))  # noqa: S301

    def _plan(self, plan: ReadPlan, known: TableSchema | None) -> ReadPlan:
        tables = replace(
            plan.tables,
            patterns=(f"{self.database}.{self.table}",),
            catalog={} if known is None else {(self.database, self.table): known},
            exclude=(),
            include_ddl=False,
            shadows=True,  # the outline has no rows of those that are not wanted
        )
        if self.columns is None:
            return replace(plan, tables=tables, shape="variant", columns=None)
        return replace(plan, tables=tables, shape="envelope", columns=self.columns)
