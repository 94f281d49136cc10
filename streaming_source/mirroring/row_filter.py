"""The row filter of a rule: a condition in Spark's SQL over the columns of one table.

In: its text, and the table's columns. Out: the columns that it names. Refused, with a ConfigError: text that is no
condition, columns that the table has not, and what would not give the same answer each time it is asked, or asks other
tables: a batch that comes again must have the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from replica.errors import ConfigError
from streaming_source.schema.spark_names import spark_column_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_REFUSED: Final = frozenset(
    {"CurrentDate", "CurrentTimestamp", "CurrentTime", "LocalTimestamp", "Now", "CurrentUser", "CurrentTimeZone"}
    | {"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "PythonUDF", "AggregateExpression", "WindowExpression"}
)
"""What Spark calls expressions whose value is not that of the row alone."""
_HINT: Final = "A filter is a condition over the table's columns, as in WHERE: where = \"country = 'DE'\"."


def check_filter(spark: SparkSession, table: str, where: str, columns: StructType) -> frozenset[str]:
    """Return the columns that a filter names.

    Raises:
        ConfigError: it is no filter for rows with these columns.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import BooleanType

    try:
        asked = spark.createDataFrame([], columns).select(f.expr(where).alias("fits"))
        kind = asked.schema["fits"].dataType
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigError(f"the filter of {table}, {where}, is not understood: {first}", hint=_HINT) from None
    if not isinstance(kind, BooleanType):
        raise ConfigError(f"the filter of {table}, {where}, is no condition but a {kind.simpleString()}.", hint=_HINT)
    plan: Any = asked._jdf.queryExecution().analyzed()  # noqa: SLF001  (nothing public tells it)
    if plan.nodeName() != "Project" or not plan.deterministic():
        raise _changing(table, where)
    (expression,) = _children(plan.projectList())
    for kind in _kinds(expression):
        if kind in _REFUSED:
            raise _changing(table, where)
    names = {spark_column_key(attribute.name()) for attribute in _children(expression.references().toSeq())}
    return frozenset(name for name in columns.names if spark_column_key(name) in names)


def _kinds(expression: Any) -> set[str]:
    found = {str(expression.getClass().getSimpleName())}
    for child in _children(expression.children()):
        found |= _kinds(child)
    return found


def _children(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


def _changing(table: str, where: str) -> ConfigError:
    return ConfigError(
        f"the filter of {table}, {where}, depends on more than the row: time, chance or other rows.", hint=_HINT
    )
