"""Evaluation of the modes' MERGE and UPDATE statements over DataFrames, for tables that Spark itself cannot write.

Spark's parser reads the statement, and its expressions become columns over a full outer join of the target's rows and
the changes. So an Iceberg target follows the same statements as a Delta table. A statement must match each row of the
target with at most one change that modifies it; the modes reduce changes by key before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming_source.sinks.sql_text import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SOURCE: Final = "mirror_changes"
_OLD: Final = "_mirror_old"
"""Column that is true in rows of the target, and NULL in changes without a matching row."""
_NEW: Final = "_mirror_new"
"""Column that is true in changes, and NULL in rows of the target without a matching change."""


def merged(statement: str, rows: DataFrame, changes: DataFrame, placeholder: str) -> DataFrame:
    """Return the rows of a target after a MERGE.

    Args:
        statement: the MERGE, with `placeholder` in braces for its source.
        rows: all rows of the target that the MERGE may change.
        changes: the source of the MERGE.
        placeholder: the name of the source in the statement.
    """
    from pyspark.sql import functions as f

    spark, schema = rows.sparkSession, rows.schema
    plan = _plan(spark, statement.format(**{placeholder: _SOURCE}))
    target, source = (str(table.alias()) for table in (plan.targetTable(), plan.sourceTable()))
    old = rows.withColumn(_OLD, f.lit(True)).alias(target)
    new = changes.withColumn(_NEW, f.lit(True)).alias(source)
    both = old.join(new, _column(spark, plan.mergeCondition()), "full_outer")
    kept = f.struct(*(f.col(f"{target}.{identifier(field.name)}").alias(field.name) for field in schema))
    known = {field.name.lower(): f.col(f"{target}.{identifier(field.name)}") for field in schema}
    matched = _first(spark, _all(plan.matchedActions()), schema, known, otherwise=kept)
    missing = {field.name.lower(): f.lit(None) for field in schema}
    inserted = _first(spark, _all(plan.notMatchedActions()), schema, missing, otherwise=None)
    row = f.when(f.col(_OLD).isNull(), inserted).when(f.col(_NEW).isNull(), kept).otherwise(matched)
    return both.select(row.alias("row")).where("row IS NOT NULL").select("row.*")


def updated(statement: str, rows: DataFrame) -> DataFrame:
    """Return the rows of a target after an UPDATE."""
    from pyspark.sql import functions as f

    spark = rows.sparkSession
    plan = _plan(spark, statement)
    fits = f.lit(True) if plan.condition().isEmpty() else _column(spark, plan.condition().get())
    known = {field.name.lower(): f.col(identifier(field.name)) for field in rows.schema}
    values = known | _assigned(spark, plan.assignments())
    return rows.select(
        *(
            f.when(fits, values[field.name.lower()].cast(field.dataType))
            .otherwise(known[field.name.lower()])
            .alias(field.name)
            for field in rows.schema
        )
    )


def _first(
    spark: SparkSession,
    actions: Iterable[Any],
    schema: StructType,
    known: Mapping[str, Column],
    otherwise: Column | None,
) -> Column:
    """Return the row after the first action whose condition is true; NULL if this action deletes the row."""
    from pyspark.sql import functions as f

    found: Column | None = None
    for action in actions:
        fits = f.lit(True) if action.condition().isEmpty() else _column(spark, action.condition().get())
        row: Column | None = None
        if action.getClass().getSimpleName() != "DeleteAction":
            values = {**known, **_assigned(spark, action.assignments())}
            row = f.struct(*(values[field.name.lower()].cast(field.dataType).alias(field.name) for field in schema))
        nothing = f.lit(None) if row is None else row
        found = f.when(fits, nothing) if found is None else found.when(fits, nothing)
    rest = f.lit(None) if otherwise is None else otherwise
    return rest if found is None else found.otherwise(rest)


def _assigned(spark: SparkSession, assignments: Any) -> dict[str, Column]:
    found = {}
    for one in _all(assignments):
        *_, name = _all(one.key().nameParts())
        found[str(name).lower()] = _column(spark, one.value())
    return found


def _plan(spark: SparkSession, statement: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)  # noqa: SLF001  (Python has no API for it)


def _column(spark: SparkSession, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column

    return Column(spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))  # noqa: SLF001


def _all(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
