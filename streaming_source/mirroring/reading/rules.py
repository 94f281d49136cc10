"""Check the rules and modes of a mirror at its start, against the source tables and the existing targets.

`check_rules` and `check_modes` raise one ConfigError that names each table with a fault. A fault is a rule that its
table does not allow, a pattern that no table matches, or a rule, hash key or mode that differs from that of an existing
target. A difference is no fault if the table is re-snapshot. A new mode that keeps ended rows has only those that end
after the re-snapshot. `checked_rule` checks one rule and returns the table with it.
"""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from replica.errors import ConfigError
from replica.schema.patterns import matcher, table_text
from replica.schema.text.naming import column_key
from streaming_source.mirroring.control.control_table import DROPPED, mirrored_tables
from streaming_source.mirroring.reading.source_tables import read_source_tables
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.sinks.queries import first_line
from streaming_source.transforms.hashes import HASHED
from streaming_source.transforms.table_rules import fingerprint_of_text, kept_rule
from streaming_source.transforms.transformed_images import Transformed, folded, image_type, target_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.transforms.table_rules import TableRule
    from streaming_source.transforms.transformed_images import TargetColumn


# A filter must give the same answer in every evaluation, because a repeated micro-batch must have the same rows. So
# conditions that depend on time, chance or other tables are refused. A mask has to be a constant of the column's type.


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
    columns = {column_key(column.name): column.name for column in table.columns}
    for name in rule.named:
        if column_key(name) not in columns:
            near = difflib.get_close_matches(column_key(name), columns, 1)
            raise ConfigError(
                f"the rule of {table.name} names the column {name}, which the table does not have.",
                hint=f"Did you mean {columns[near[0]]}?" if near else f"Its columns are {', '.join(columns.values())}.",
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
                f"the rule of {table.name} hashes {column.name}, and equal values of a "
                f"{column.data_type.upper()} may have different texts.",
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
    for column, constant in zip(columns, answer[0], strict=True):
        if not constant:
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
        filtered = spark.createDataFrame([], columns).select(f.expr(where).alias("fits"))
        kind = filtered.schema["fits"].dataType
    except PySparkException as error:
        reason = first_line(error)
        raise ConfigError(f"the filter of {table}, {where}, is not understood: {reason}", hint=_HINT) from None
    if not isinstance(kind, BooleanType):
        raise ConfigError(
            f"the filter of {table}, {where}, is not a condition but of type {kind.simpleString()}.", hint=_HINT
        )
    plan: Any = filtered._jdf.queryExecution().analyzed()  # noqa: SLF001  (there is no public API for it)
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


_SHOWN = 10
_log = logging.getLogger(__name__)


def check_rules(spark: SparkSession, settings: MirrorSettings) -> None:
    """Refuse rules that cannot be applied from this start on.

    If a table was created while the mirror was stopped and does not allow its rule, the mirror starts and logs the
    error.

    Raises:
        ConfigError: a rule is invalid for its table, or a rule or the hash key differs from that of a target.
    """
    rows = {row.name: row for row in mirrored_tables(spark, settings.names.control)}
    resnapshotted = {name for name, row in rows.items() if _is_resnapshotted(settings, row)}
    kept = [row for name, row in rows.items() if name not in resnapshotted]
    changed = [row for row in kept if row.rules != kept_rule(settings.rule_of(row.name), settings.hash_key)]
    if changed:
        _refuse_changes(settings, changed)
    if not settings.rules.given:
        return
    found = read_source_tables(settings.options).tables
    wrong: list[str] = []
    for name, table in sorted(found.items()):
        if name not in rows or name in resnapshotted:  # the columns of other tables follow from the stream
            try:
                checked_rule(spark, table.definition, table.keys, settings)
            except ConfigError as error:
                if rows and name not in resnapshotted:  # the table is suspended with its first rows
                    _log.error("%s", error)
                else:
                    wrong.append(str(error))
    if wrong:
        raise ConfigError("\n".join(wrong[:_SHOWN]))
    _check_used(settings, {*found, *rows})


def _is_resnapshotted(settings: MirrorSettings, row: ControlRow) -> bool:
    option = settings.options.resnapshot
    if option is None or option.word == row.again:
        return False
    return matcher(option.patterns).fits(row.name)


def _refuse_changes(settings: MirrorSettings, rows: list[ControlRow]) -> None:
    names = [table_text(row.name) for row in rows]
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    key = None if settings.hash_key is None else settings.hash_key.fingerprint
    only_key = all(
        fingerprint_of_text(row.rules) not in (None, key) and settings.rule_of(row.name).hash for row in rows
    )
    what = "hashKeyFile has another key than the one" if only_key else "the rules differ from those"
    raise ConfigError(
        f"{what} with which the targets of {shown} were created.",
        hint="Start with the earlier ones, or re-snapshot the tables with the new ones: "
        f"resnapshot={names[0]}@WORD, with a new word.",
    )


def _check_used(settings: MirrorSettings, names: Iterable[TableName]) -> None:
    used = {settings.rules.pattern_of(name) for name in names}
    for pattern, _ in settings.rules.given:
        if pattern not in used:
            raise ConfigError(
                f"the rule {pattern} applies to no table: none has that name, or an earlier pattern matches them all.",
                hint="Correct or remove it. A last pattern with * also applies to tables that are created later.",
            )


def check_modes(rows: Iterable[ControlRow], settings: MirrorSettings) -> None:
    """Refuse a mode that differs from the target's, unless the table is re-snapshot.

    Raises:
        ConfigError: there is such a table.
    """
    option = settings.options.resnapshot
    for row in rows:
        wanted = settings.rule_of(row.name).mode
        table = table_text(row.name)
        resnapshotted = option is not None and option.word != row.again and matcher(option.patterns).fits(row.name)
        if row.mode != wanted and row.state != DROPPED and not resnapshotted:
            raise ConfigError(
                f"{row.target} holds {table} in the mode {row.mode}, and its rule says {wanted}.",
                hint=f"Give it the mode {row.mode}, or create its target again in the other mode: start the mirror "
                f"with resnapshot={table}@WORD, with a new word. That deletes the rows of the target.",
            )
