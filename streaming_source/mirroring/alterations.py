"""The effect that a statement on a mirrored table has on its target.

In: the statement as it was read, and the table's definition before it. Out: one of `Emptied`, `Dropped`, `Made`,
`Evolved` (with what to do to the target, nothing where only indexes or comments changed), or `NotInRows`: the statement
gave values to rows that were there, moved rows, or is not understood, and no row of the stream says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from replica.errors import ConfigError, SchemaError
from replica.rows.tables.widening import fits
from replica.rows.types.types import ValuePolicy, output_column
from replica.schema.from_catalog import table_of
from replica.schema.history import SchemaHistory
from replica.schema.statements import Verb, pairs
from streaming_source.mirroring.added_values import NULL, KnownValue, value_of
from streaming_source.mirroring.formats.target_format import (
    AddColumns,
    DropColumns,
    DropNotNull,
    RenameColumn,
    SetType,
)
from streaming_source.ruling.target_columns import WHOLE, target_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.schema.alteration import Alteration
    from replica.schema.definition import ColumnItem
    from replica.schema.effect import StatementEffect
    from replica.schema.known_tables import TableName
    from replica.schema.table import ColumnSchema, TableSchema
    from streaming_source.mirroring.formats.target_format import TargetAction
    from streaming_source.ruling.table_rules import TableRule
    from streaming_source.ruling.target_columns import TargetColumn

Policy = Literal["onTruncate", "onSwap", "onAlter"]

_COMPUTED: Final = frozenset({"AS", "GENERATED", "AUTO_INCREMENT", "SERIAL"})
"""Words that give each row a value of its own in a column that is added."""
_GENERATED: Final = frozenset({"AS", "GENERATED"})
"""Words that do so in a column that is changed."""
_UNTOLD: Final = "it was logged without the rows that it changed (binlog_format STATEMENT or MIXED)."
_SIZES: Final = ("octets", "fsp")
"""What may grow without a change of any value."""


@dataclass(frozen=True, slots=True)
class Emptied:
    """TRUNCATE: all rows are gone."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """DROP TABLE, or of its database."""


@dataclass(frozen=True, slots=True)
class Made:
    """CREATE TABLE. `always`: not only where there is none."""

    always: bool


@dataclass(frozen=True, slots=True)
class NotInRows:
    """Rows that no row of the stream tells. `policy`: the argument of `mirror()` that rules such statements."""

    why: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class ChangedUntold(NotInRows):
    """Rows that a statement changed which was logged without them."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """The definition behind the statement, and what to do to the target: actions in order, then the values of columns
    that were added, by name.
    """

    definition: TableSchema
    actions: tuple[TargetAction, ...] = ()
    values: tuple[tuple[str, KnownValue], ...] = ()


Asked: TypeAlias = Emptied | Dropped | Made | NotInRows | Evolved


def asked_of(effect: StatementEffect, before: TableSchema, policy: ValuePolicy, rule: TableRule = WHOLE) -> Asked:
    """Return what the statement asks of the target of the table `before`.

    Raises:
        ConfigError: another column has a name now that the table's rule is about.
    """
    try:
        return _untold(effect) or _asked(effect, before, policy, rule)
    except SchemaError as error:
        return NotInRows(error.message, "onAlter")


def changes_rows(effect: StatementEffect) -> bool:
    """Tell whether a statement changes rows, and no definition."""
    return isinstance(_untold(effect), ChangedUntold)


def _untold(effect: StatementEffect) -> NotInRows | None:
    if effect.changed is None or effect.changed.defines:
        return None
    if effect.head is None:
        return ChangedUntold(_UNTOLD, "onSwap")
    return NotInRows(_UNTOLD, "onSwap") if effect.verb is Verb.CREATE_TABLE else None  # … SELECT


def _asked(  # noqa: PLR0911  (one for each kind)
    effect: StatementEffect, before: TableSchema, policy: ValuePolicy, rule: TableRule
) -> Asked:
    name = (before.database, before.table)
    statement = effect.head
    if statement is None:  # a view
        return Evolved(before)
    match statement.verb:
        case Verb.TRUNCATE_TABLE:
            return Emptied()
        case Verb.DROP_TABLES | Verb.DROP_DATABASE:
            return Dropped()
        case Verb.CREATE_DATABASE if statement.or_replace:
            return Dropped()
        case Verb.RENAME_TABLES:
            return _moved({new: old for old, new in pairs(statement.tables)}, name, before)
        case Verb.CREATE_TABLE:
            return Made(always=not statement.conditional)
        case Verb.ALTER_TABLE:
            changed = effect.changed
            if changed is not None and (not changed.tables or name in changed.tables):
                why = "it moves or removes rows of partitions, which no row of the stream tells."
                return NotInRows(why, "onTruncate" if changed.removes else "onSwap")
            return _altered(effect, before, policy, rule, computed=not _COMPUTED.isdisjoint(effect.words))
        case _:
            return Evolved(before)


def _moved(names: Mapping[TableName, TableName], name: TableName, before: TableSchema) -> Asked:
    """Return what a statement that renames tables means for one name; `names`: the old ones by the new."""
    if name in names:
        return NotInRows("another table takes its name.", "onSwap")
    return Dropped() if name in names.values() else Evolved(before)


def _altered(
    effect: StatementEffect, before: TableSchema, policy: ValuePolicy, rule: TableRule, *, computed: bool
) -> Asked:
    name = (before.database, before.table)
    change = effect.alteration
    if change is None:
        return Evolved(before)
    if change.rename is not None or name not in effect.tables:
        return _moved({} if change.rename is None else {change.rename: effect.tables[0]}, name, before)
    if change.changed and not _GENERATED.isdisjoint(effect.words):
        raise SchemaError("it may make a generated column of one, and compute its values again.")
    history = SchemaHistory()
    history.known.define(name, table_of(before))
    history.apply(effect.sql, effect.context)
    after = history.table(*name)
    if after is None:
        raise SchemaError(history.reason(*name) or "it is not understood.")
    return _evolved(before, after, change, policy, rule, computed=computed)


def _evolved(
    before: TableSchema, after: TableSchema, change: Alteration, policy: ValuePolicy, rule: TableRule, *, computed: bool
) -> Evolved:
    if before.versioned != after.versioned:
        raise SchemaError("it changes whether the table is system-versioned.")
    names = _renamed(change)
    old = {column.name.casefold(): column for column in before.columns}
    came_from = {names.get(key, key): key for key in old if key not in change.dropped}
    _check_key(before, after)
    shown = {column.of: column for column in target_columns(after, policy, rule)}
    was = {column.of.casefold(): column for column in target_columns(before, policy, rule)}
    items = {item.column.name.casefold(): item for _, item in change.added}
    ruled = {named.casefold() for named in rule.named}
    kept, added = set(), []
    actions: list[TargetAction] = []
    values: list[tuple[str, KnownValue]] = []
    for column in after.columns:
        key = came_from.get(column.name.casefold())
        if key != column.name.casefold() in old and (rule.named or rule.where is not None):
            # Read again by the same names, what the rule hides would stand under another one.
            raise ConfigError(f"it puts another column in the place of {column.name}, and the table has a rule.")
        if key is None and column.name not in shown:
            continue
        if key is None:
            item = None if column.name.casefold() in ruled else items.get(column.name.casefold())
            value = None if item is None or computed else _added(column, item, shown[column.name].type, policy)
            if value is None:
                raise SchemaError(
                    f"it gives the new column {column.name} values in rows that were there, which no row of the stream "
                    "tells."
                )
            values += [(column.name, value)] * (value != NULL)
            added.append(shown[column.name])
            continue
        kept.add(key)
        if key in was or rule.where is not None:
            _check_values(old[key], column)
        if key in was and column.name in shown:
            actions += _kept(was[key], shown[column.name])
    gone = [column.name for key, column in was.items() if key not in kept]
    first: list[TargetAction] = [DropColumns(tuple(gone))] * bool(gone)
    last: list[TargetAction] = [AddColumns(tuple(added))] * bool(added)
    return Evolved(after, (*first, *actions, *last), tuple(values))


def _added(column: ColumnSchema, item: ColumnItem, kind: str, policy: ValuePolicy) -> KnownValue | None:
    """Return the value of rows that are there; None where it is not a constant."""
    if column.data_type == "timestamp" and item.column.nullable and item.default is None:
        return NULL  # said so; else the server's settings may make it NOT NULL, with the time of the statement
    return value_of(column, item.default, kind, policy)


def _renamed(change: Alteration) -> dict[str, str]:
    """Return the new names of columns by their old ones, both folded."""
    names = {old: new.casefold() for old, new in change.renamed.items()}
    return names | {old: item.column.name.casefold() for old, item in change.changed.items()}


def _check_key(before: TableSchema, after: TableSchema) -> None:
    def key(table: TableSchema) -> list[str]:
        return [table.columns[number].name.casefold() for number in table.primary_key]

    if key(before) != key(after):
        raise SchemaError("it changes the primary key.")


def _check_values(old: ColumnSchema, new: ColumnSchema) -> None:
    """Refuse what may change values of rows that were there: they come in no row of the stream."""
    grows = all((getattr(new, size) or 0) >= (getattr(old, size) or 0) for size in _SIZES)
    more_digits = old.scale == new.scale and (new.precision or 0) >= (old.precision or 0)
    labels = (new.labels or ())[: len(old.labels or ())] == (old.labels or ())
    same = old.data_type == new.data_type and old.unsigned == new.unsigned and old.charset == new.charset
    signs = old.unsigned or not new.unsigned
    integers = signs and bool(_integer(old) and _integer(new)) and fits(_integer(old), _integer(new))
    if not ((same or integers) and grows and more_digits and labels) or (old.nullable and not new.nullable):
        raise SchemaError(
            f"it may change values of the column {new.name}: {old.column_type} becomes {new.column_type}."
        )


def _integer(column: ColumnSchema) -> str:
    """Return Spark's type of an integer; '' for another type."""
    kinds = ("tinyint", "smallint", "mediumint", "int", "bigint")
    return output_column(column, ValuePolicy()).spark if column.data_type in kinds else ""


def _kept(was: TargetColumn, now: TargetColumn) -> list[TargetAction]:
    actions: list[TargetAction] = []
    if was.name != now.name:
        if was.name.casefold() == now.name.casefold():
            raise SchemaError(f"it changes only the case of the column {was.name}, and Spark does not tell them apart.")
        actions.append(RenameColumn(was.name, now.name))
    if was.type != now.type:
        actions.append(SetType(now.name, now.type))
    if now.nullable and not was.nullable:
        actions.append(DropNotNull(now.name))
    return actions
