"""Values of columns that row images leave out (`binlog_row_image` MINIMAL or NOBLOB), if they are known.

In: rows of a micro-batch, the table's row of the control table. Out: the values by column. An INSERT leaves out the
columns that its statement does not name and no function or trigger sets. Such a column has its constant DEFAULT, or
NULL, or the implicit value of a NOT NULL column. Servers 10.5, 10.11 and 11.8 do so;
`TABLE::mark_columns_needed_for_insert` marks the other columns. Refused: rows without a column whose value is unknown,
so that the table is suspended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.schema.patterns import table_text
from replica.schema.text.sql_tokens import tokenize
from streaming_source.mirroring.batch.time_text import INTERVAL
from streaming_source.mirroring.statements.added_values import NULL, value_of
from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import ColumnSchema
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.schema.row_schema import TableColumn
    from streaming_source.transforms.transformed_images import Transformed


def value_left_out(column: ColumnSchema, default: str | None, kind: str, policy: ValuePolicy) -> KnownValue | None:
    """Return the value of a column that an INSERT leaves out; None if it is unknown."""
    words = None if default is None else tuple(tokenize(default))
    if words is not None and [word.upper for word in words] == ["NULL"]:
        return NULL
    return value_of(column, words, kind, policy)


def columns_left_out(
    spark: SparkSession, row: ControlRow, columns: Sequence[TableColumn], policy: ValuePolicy
) -> OmittedColumns:
    """Return the known values of columns that images leave out."""
    import pyarrow as pa

    declared = {column.name: column for column in row.table.columns}
    known: dict[str, KnownValue] = {}
    for column in columns:
        if column.name in row.defaults:
            value = value_left_out(declared[column.name], row.defaults[column.name], column.type, policy)
            if value is not None and (value == NULL or column.type != INTERVAL):  # a target holds TIME as text
                known[column.name] = value
    wanted = [value.column().alias(str(number)) for number, value in enumerate(known.values())]
    made = pa.table(spark.range(1).select(*wanted).toArrow()) if wanted else pa.table({})
    found = {name: made.column(number).combine_chunks() for number, name in enumerate(known)}
    names = tuple(column.name for column in columns)
    return OmittedColumns(names, tuple(name in row.defaults for name in names), tuple(map(found.get, names)))


def values_left_out(rows: DataFrame, row: ControlRow, ruled: Transformed) -> dict[str, Column]:
    """Return the values of columns that inserts leave out, by column.

    Raises:
        SchemaError: a row lacks a column whose value is unknown.
    """
    from pyspark.sql import functions as f

    update = f.col("op") == "update"
    lacks = {side: f.coalesce(f.col(f"absent.{side}"), f.array().cast("array<string>")) for side in ("before", "after")}
    lacking = f.when(update, f.array_intersect(lacks["after"], lacks["before"])).otherwise(lacks["after"])
    told = rows.select("op", "transaction.gtid", f.explode(lacking).alias("name"))
    found = told.groupBy("name", "op").agg(f.min("gtid").alias("gtid")).collect()
    columns = {column.name: column for column in row.table.columns}
    kinds = {column.name: column.type for column in ruled.read_columns}
    defaults = row.defaults
    values = {}
    for name, op, gtid in sorted(found):
        if name not in kinds:
            continue  # the rule leaves it out
        if op == "read":  # snapshot rows are complete, except for generated columns
            raise _never_there(row, [one for one, op, _ in found if op == "read" and one in kinds])
        if name not in defaults:
            raise _unknown(row, name, op, gtid, "it is a generated column, or its DEFAULT is not known")
        if op == "insert":
            value = value_left_out(columns[name], defaults[name], kinds[name], ruled.policy)
            if value is None:
                raise _unknown(row, name, op, gtid, "the value of its DEFAULT is not certain")
            values[name] = value.column()
    return values


def _unknown(row: ControlRow, name: str, op: str, gtid: str | None, why: str) -> SchemaError:
    table = table_text(row.name)
    where = "" if gtid is None else f" in the transaction {gtid}"
    return SchemaError(
        f"the row image of {op}{where} leaves out the column {name} of {table}. Its value is not known: {why}.",
        hint="Set binlog_row_image=FULL on the primary, or leave the column out by a rule (leaveOut). Then re-snapshot "
        f'the table: mirror_resnapshot(spark, tables=["{table}"], into=…).',
    )


def _never_there(row: ControlRow, names: list[str]) -> SchemaError:
    table = table_text(row.name)
    listed = ", ".join(f'"{name}"' for name in sorted(names))
    return SchemaError(
        f"{table} has generated columns ({listed}), which this version of MariaDB leaves out of row images, whatever "
        "binlog_row_image is. Changes would lack their values.",
        hint=f'Start the mirror with the rule {{"{table}": {{"leaveOut": [{listed}]}}}} and resnapshot="{table}@WORD".',
    )
