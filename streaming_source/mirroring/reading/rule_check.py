"""Check a table's rule against the table.

In: the rule, the table's definition and key. Out: the table with its rule, with which its rows are read. Refused with a
ConfigError that names table and column:

- a column that the table lacks;
- a key column that is left out or masked;
- two columns with one name;
- a hash of a type without a canonical text;
- a mask that is no constant of the column's type.

A filter is a condition in Spark SQL over the columns of the table. It is refused if its answer may differ between two
evaluations, or depends on other tables. A repeated micro-batch must have the same rows.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from replica.errors import ConfigError
from replica.schema.text.naming import column_key
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.sinks.short_errors import first_line
from streaming_source.transforms.hash_text import HASHED
from streaming_source.transforms.target_columns import image_type, target_columns
from streaming_source.transforms.transformed_images import Transformed, folded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from replica.schema.table import TableSchema
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.transforms.table_rules import TableRule
    from streaming_source.transforms.target_columns import TargetColumn

_REFUSED: Final = frozenset(
    {"CurrentDate", "CurrentTimestamp", "CurrentTime", "LocalTimestamp", "Now", "CurrentUser", "CurrentTimeZone"}
    | {"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "PythonUDF", "AggregateExpression", "WindowExpression"}
)
"""Names of Spark's expressions whose value depends on more than the row."""
_HINT: Final = "A filter is a condition over the table's columns, as in WHERE: where = \"country = 'DE'\"."


def checked_rule(spark: SparkSession, table: TableSchema, keys: Sequence[str], settings: MirrorSettings) -> Transformed:
    """Return the table with its rule.

    Raises:
        ConfigError: the rule cannot be applied to this table.
    """
    rule = settings.rule_of((table.database, table.table))
    if rule.mode not in settings.format.modes:
        raise ConfigError(
            f"{table.name} would have the mode {rule.mode}, which format={settings.format.name} does not support.",
            hint=f'Give it a rule: rules={{"{table.name}": {{"mode": "{min(settings.format.modes)}"}}}}.',
        )
    if rule.named:
        _check_names(table, rule)
        _check_keys(table, keys, rule)
        _check_new_names(table, target_columns(table, settings.policy, rule))
        _check_hashes(table, rule)
    ruled = transformed_table(spark, table, settings)
    _check_masks(spark, ruled)
    return ruled


def transformed_table(spark: SparkSession, table: TableSchema, settings: MirrorSettings) -> Transformed:
    """Return a table with its rule, after `checked_rule` checked this definition."""
    rule = settings.rule_of((table.database, table.table))
    filtered: frozenset[str] = frozenset()
    if rule.where is not None:
        columns = image_type(target_columns(table, settings.policy))
        filtered = check_filter(spark, table.name, rule.where, columns)
    return Transformed(table, settings.policy, rule, settings.hash_key, filtered)


def _check_names(table: TableSchema, rule: TableRule) -> None:
    there = {column_key(column.name): column.name for column in table.columns}
    for name in rule.named:
        if column_key(name) not in there:
            near = difflib.get_close_matches(column_key(name), there, 1)
            raise ConfigError(
                f"the rule of {table.name} names the column {name}, which the table does not have.",
                hint=f"Did you mean {there[near[0]]}?" if near else f"Its columns are {', '.join(there.values())}.",
            )


def _check_keys(table: TableSchema, keys: Sequence[str], rule: TableRule) -> None:
    lost = folded((*rule.leave_out, *rule.mask))
    for name in keys:
        if column_key(name) in lost:
            raise ConfigError(
                f"the rule of {table.name} leaves out or masks {name}, which belongs to the key of the table.",
                hint="Hash it instead.",
            )


def _check_new_names(table: TableSchema, columns: Sequence[TargetColumn]) -> None:
    taken: dict[str, str] = {}
    for column in columns:
        other = taken.setdefault(spark_column_key(column.name), column.of)
        if other != column.of:
            raise ConfigError(
                f"the rule of {table.name} gives the columns {other} and {column.of} the same name, {column.name}.",
                hint="Choose another name.",
            )


def _check_hashes(table: TableSchema, rule: TableRule) -> None:
    hashes = folded(rule.hash)
    for column in table.columns:
        if column_key(column.name) in hashes and column.data_type not in HASHED:
            raise ConfigError(
                f"the rule of {table.name} hashes {column.name}, and a {column.data_type.upper()} has several texts.",
                hint="Leave it out, or mask it.",
            )


def _check_masks(spark: SparkSession, ruled: Transformed) -> None:
    from pyspark.sql import functions as f

    masks = {column_key(name): value for name, value in ruled.rule.mask.items() if value is not None}
    columns = [column for column in ruled.source_columns if column_key(column.name) in masks]
    if not columns:
        return
    tried = [f.lit(masks[column_key(column.name)]).try_cast(column.type).isNotNull() for column in columns]
    (answer,) = spark.range(1).select(f.array(*tried)).collect()
    for column, holds in zip(columns, answer[0], strict=True):
        if not holds:
            raise ConfigError(
                f"the rule of {ruled.table.name} masks {column.name} with {masks[column_key(column.name)]!r}, which is "
                f"not of the type {column.type}.",
                hint="Give a constant of the column's type, or None.",
            )


def check_filter(spark: SparkSession, table: str, where: str, columns: StructType) -> frozenset[str]:
    """Return the columns that a filter names.

    Raises:
        ConfigError: the text is no filter for rows with these columns.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import BooleanType

    try:
        asked = spark.createDataFrame([], columns).select(f.expr(where).alias("fits"))
        kind = asked.schema["fits"].dataType
    except PySparkException as error:
        told = first_line(error)
        raise ConfigError(f"the filter of {table}, {where}, is not understood: {told}", hint=_HINT) from None
    if not isinstance(kind, BooleanType):
        raise ConfigError(
            f"the filter of {table}, {where}, is not a condition but of type {kind.simpleString()}.", hint=_HINT
        )
    plan: Any = asked._jdf.queryExecution().analyzed()  # noqa: SLF001  (there is no public API for it)
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
