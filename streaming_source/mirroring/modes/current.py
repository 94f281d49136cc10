"""The mode current: a target holds the current rows of the server.

`CurrentRows` is for tables with a key: a MERGE by the key. `CountedRows` is for tables without one: it adds and removes
copies of equal rows, so that duplicates are kept. The target has no extra column in either case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import SchemaError
from streaming_source.mirroring.modes.mode import SparkChange
from streaming_source.schema.target_modes import CURRENT
from streaming_source.sinks.sql_text import identifier
from streaming_source.sinks.upserts import merge_head, merge_statement, reduced, sql_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.modes.mode import EndReason, NetChanges
    from streaming_source.mirroring.writers.target_format import Commit, TableWriter
    from streaming_source.transforms.transformed_images import TargetColumn


class CurrentRows:
    """Mode that applies the last change of each key, with one MERGE."""

    name = CURRENT
    append_only = False
    by_key = True
    needs_latest_only = True
    appends_values = True
    cascades: frozenset[str] = frozenset({"CASCADE", "SET NULL"})

    def columns(self, columns: Sequence[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the table's columns: the mode adds none."""
        return tuple(columns)

    def appended(self, part: NetChanges) -> DataFrame:
        """Return the rows without metadata columns."""
        return part.rows.select("after.*")

    def merge(self, part: NetChanges) -> SparkChange:
        """Insert, update and delete rows by the last change of each key."""
        latest = part.rows
        if not part.reduced:
            latest = reduced(part.rows, part.keys, partial=part.partial, domains=part.domains)
        return SparkChange(latest, merge_statement(part.target.name, part.keys, part.columns, partial=part.partial))

    def can_append(self, target: TableWriter) -> bool:  # noqa: ARG002  (the answer does not depend on the target)
        """Return True: the target is created again before a re-snapshot."""
        return True

    def end_all(self, target: TableWriter, statement: StatementRow, why: EndReason, at: Commit) -> None:  # noqa: ARG002
        """Delete all rows after TRUNCATE.

        After DROP, all rows stay (onDrop=keep). A re-snapshot creates the target again.
        """
        if why == "truncate":
            target.truncate(at)

    def end_statement(self, target: TableWriter, statement: StatementRow) -> str:
        """Refuse: the mode does not keep ended rows."""
        raise NotImplementedError(target.name, statement)

    def cascaded(self, nulls: Sequence[str]) -> str:
        """Return the actions that delete the rows."""
        others = f" WHEN MATCHED THEN UPDATE SET {', '.join(nulls)}" if nulls else ""
        return f"WHEN MATCHED AND gone.deleted THEN DELETE{others}"


# Tables without a key. A change removes one row that equals its before image and adds one row that equals its after
# image, so the order of changes is irrelevant: a micro-batch is a number of added or removed copies for each distinct
# row. Images that lack columns are refused. The removal of a row that the target does not have is refused, too.


class CountedRows(CurrentRows):
    """Mode that changes the number of copies of each row, with one append or one MERGE."""

    by_key = False
    needs_latest_only = False
    cascades: frozenset[str] = frozenset()  # rows without a key cannot be matched by a foreign key

    def merge(self, part: NetChanges) -> SparkChange:
        """Add and remove copies of rows."""
        changed = _counted(part)
        if changed.where("number < 0").isEmpty():
            from pyspark.sql import functions as f

            more = changed.withColumn("each", f.explode(f.array_repeat(f.lit(0), f.col("number").cast("int"))))
            return SparkChange(more.select("row.*"))
        return SparkChange(_replaced(part, changed), _merge(part))


def _counted(part: NetChanges) -> DataFrame:
    """Return the change in the number of copies of each distinct row."""
    from pyspark.sql import functions as f

    op, ended = f.col("op"), f.coalesce(f.col("history"), f.lit(False))
    rows = part.rows.where(op.isin("insert", "update", "delete", "read") & ~(ended & (op != "update")))
    if part.partial:
        rows = _filled(part, rows)
    step = f.array(
        f.when(op.isin("update", "delete"), f.struct(f.col("before").alias("row"), f.lit(-1).alias("number"))),
        f.when((op != "delete") & ~ended, f.struct(f.col("after").alias("row"), f.lit(1).alias("number"))),
    )
    steps = rows.select(f.explode(f.array_compact(step)).alias("step")).select("step.*")
    return _summed(part, steps, "number").where("number <> 0")


def _filled(part: NetChanges, rows: DataFrame) -> DataFrame:
    """Fill columns that the after image of an update lacks, from its before image.

    Raises:
        SchemaError: an image lacks columns whose values are unknown.
    """
    from pyspark.sql import functions as f

    lacks = {side: f.coalesce(f.col(f"absent.{side}"), f.array().cast("array<string>")) for side in ("before", "after")}
    update = f.col("op") == "update"
    unknown = f.when(update, lacks["before"]).otherwise(f.concat(lacks["before"], lacks["after"]))
    found = rows.where(f.size(unknown) > 0).select("transaction.gtid").first()
    if found is not None:
        raise SchemaError(
            f"a row image of the transaction {found[0]} lacks columns, and {part.target.name} has no key.",
            hint="Set binlog_row_image to FULL or FULL_NODUP on the primary, and re-snapshot the table.",
        )

    def value(name: str) -> Column:
        before, after = (f.col(side).getField(name) for side in ("before", "after"))
        return f.when(update & f.array_contains(lacks["after"], name), before).otherwise(after).alias(name)

    filled = f.when(f.col("after").isNotNull(), f.struct(*map(value, part.columns)))
    return rows.withColumn("after", filled)


def _replaced(part: NetChanges, changed: DataFrame) -> DataFrame:
    """Return the source rows of the MERGE: `put` false deletes all copies of a row, `put` true inserts one copy."""
    from pyspark.sql import functions as f

    lost = changed.where("number < 0").select(*(f.col(name).alias(f"lost{name}") for name in _names(part)))
    same = f.lit(True)
    for name in _names(part):
        same &= f.col(name).eqNullSafe(f.col(f"lost{name}"))
    target = part.target.rows().select(f.struct(*map(identifier, part.columns)).alias("row"))
    matching = target.select("row", *_identity(part)).join(lost, same, "left_semi")
    both = matching.select("row", f.lit(1).alias("there"), f.lit(0).alias("number")).unionByName(
        changed.select("row", f.lit(0).alias("there"), "number")
    )
    found = _summed(part, both, "there", "number")
    left, removed = f.col("there") + f.col("number"), f.col("number") < 0
    missing = f.raise_error(f.lit(f"{part.target.name} lacks a row that was deleted or updated."))
    added = f.when(removed & (left < 0), missing.cast("bigint")).when(removed, left).otherwise(f.col("number"))
    deleted = f.when(removed, f.array(f.lit(False))).otherwise(f.array().cast("array<boolean>"))
    put = f.concat(deleted, f.array_repeat(f.lit(True), added.cast("int")))
    return found.select("row", f.explode(put).alias("put"))


def _merge(part: NetChanges) -> str:
    def same(name: str, kind: DataType) -> str:
        return " <=> ".join(_exact(f"{side}.{sql_name(name)}", kind) for side in ("target", "change.row"))

    names, values = (", ".join(prefix + sql_name(name) for name in part.columns) for prefix in ("", "change.row."))
    return " ".join(
        (
            f"{merge_head(part.target.name, ())}NOT change.put AND",
            " AND ".join(same(*column) for column in _kinds(part)),
            "WHEN MATCHED THEN DELETE",
            f"WHEN NOT MATCHED AND change.put THEN INSERT ({names}) VALUES ({values})",  # noqa: S608  (quoted names)
        )
    )


def _summed(part: NetChanges, rows: DataFrame, *numbers: str) -> DataFrame:
    """Return the sums of `numbers` over equal rows."""
    from pyspark.sql import functions as f

    return rows.groupBy(*_identity(part)).agg(
        f.first("row").alias("row"), *(f.sum(number).alias(number) for number in numbers)
    )


def _identity(part: NetChanges) -> list[Column]:
    """Return the columns that are equal for equal values of `row`."""
    from pyspark.sql import functions as f

    values = (f.expr(_exact(f"row.{identifier(name)}", kind)) for name, kind in _kinds(part))
    return [value.alias(alias) for value, alias in zip(values, _names(part), strict=True)]


def _names(part: NetChanges) -> list[str]:
    return [f"_{number}" for number, _ in enumerate(part.columns)]


def _kinds(part: NetChanges) -> list[tuple[str, DataType]]:
    image = part.rows.schema["after"].dataType
    return [(name, image[name].dataType) for name in part.columns]


def _exact(value: str, kind: DataType) -> str:
    """Return SQL for an exact comparison: Spark takes -0.0 and 0.0 for equal, also in a VECTOR."""
    return f"CAST({value} AS STRING)" if kind.typeName() in {"float", "double", "array"} else value
