"""The effect that a statement on a mirrored table has on its target.

In: the statement as it was read, and the table's definition before it. Out: one of `Emptied`, `Dropped`, `Made`,
`Evolved` (with what to do to the target, nothing where only indexes or comments changed), or `NotInRows`: the statement
moved rows, or it is not proved that the values of those that were there are known, and no row of the stream says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from replica.errors import ConfigError, SchemaError
from replica.rows.tables.widening import fits
from replica.schema.definition.from_catalog import table_of
from replica.schema.effects.history import SchemaHistory
from replica.schema.statements.statements import Verb, pairs
from replica.schema.text.naming import column_key
from streaming_source.mirroring.statements.added_values import NULL, KnownValue, value_of
from streaming_source.mirroring.statements.alter_proof import Kept, moved_columns, proved
from streaming_source.mirroring.statements.column_defaults import numbered
from streaming_source.mirroring.statements.column_names import renamed
from streaming_source.mirroring.writers.target_format import AddColumns, DropColumns, DropNotNull, SetType
from streaming_source.ruling.target_columns import WHOLE, target_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.rows.types.types import ValuePolicy
    from replica.schema.definition.alteration import Alteration
    from replica.schema.definition.definition import ColumnItem
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.statements.column_defaults import Defaults
    from streaming_source.mirroring.writers.target_format import TargetAction
    from streaming_source.ruling.table_rules import TableRule
    from streaming_source.ruling.target_columns import TargetColumn

Policy = Literal["onTruncate", "onSwap", "onAlter"]

_UNTOLD: Final = "it was logged without the rows that it changed (binlog_format STATEMENT or MIXED)."


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
    """Rows that no row of the stream tells. `policy`: the argument of `mirror()` that rules such statements.

    `definition`: the table after an ALTER that is understood but for its rows; `names`: what its columns are called
    before the statement, by their names after it, without those that are added.
    """

    why: str
    policy: Policy
    definition: TableSchema | None = None
    names: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ChangedUntold(NotInRows):
    """Rows that a statement changed which was logged without them."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """The definition after the statement, and what to do to the target: actions in order, then the values of
    columns that were added, by name. `names`: as in `NotInRows`.
    """

    definition: TableSchema
    actions: tuple[TargetAction, ...] = ()
    values: tuple[tuple[str, KnownValue], ...] = ()
    names: Mapping[str, str] | None = None


Asked: TypeAlias = Emptied | Dropped | Made | NotInRows | Evolved


def asked_of(
    effect: StatementEffect,
    before: TableSchema,
    policy: ValuePolicy,
    rule: TableRule = WHOLE,
    defaults: Defaults | None = None,
) -> Asked:
    """Return what the statement asks of the target of the table `before`, whose columns have these defaults.

    Raises:
        ConfigError: another column has a name now that the table's rule is about.
    """
    try:
        return _untold(effect) or _asked(effect, before, policy, rule, defaults or {})
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
    effect: StatementEffect, before: TableSchema, policy: ValuePolicy, rule: TableRule, defaults: Defaults
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
        case Verb.REPAIR_TABLES:
            return NotInRows("it removes rows that are damaged.", "onAlter")
        case Verb.RENAME_TABLES:
            return _moved({new: old for old, new in pairs(statement.tables)}, name, before)
        case Verb.CREATE_TABLE:
            return Made(always=not statement.conditional)
        case Verb.ALTER_TABLE:
            changed = effect.changed
            if changed is not None and (not changed.tables or name in changed.tables):
                why = "it moves or removes rows of partitions, which no row of the stream tells."
                return NotInRows(why, "onTruncate" if changed.removes else "onSwap")
            return _altered(effect, before, policy, rule, defaults)
        case _:
            return Evolved(before)


def _moved(names: Mapping[TableName, TableName], name: TableName, before: TableSchema) -> Asked:
    """Return what a statement that renames tables means for one name; `names`: the old ones by the new."""
    if name in names:
        return NotInRows("another table takes its name.", "onSwap")
    return Dropped() if name in names.values() else Evolved(before)


def _altered(
    effect: StatementEffect, before: TableSchema, policy: ValuePolicy, rule: TableRule, defaults: Defaults
) -> Asked:
    name = (before.database, before.table)
    change = effect.alteration
    if change is None:
        return Evolved(before)
    if change.rename is not None or name not in effect.tables:
        return _moved({} if change.rename is None else {change.rename: effect.tables[0]}, name, before)
    history = SchemaHistory()
    history.known.define(name, table_of(before))
    history.apply(effect.sql, effect.context)
    after = history.table(*name)
    if after is None:
        raise SchemaError(history.reason(*name) or "it is not understood.")
    _check_rule(before, after, change, rule)
    names = _names(before, after, change)
    if effect.head is not None and effect.head.ignores:
        return NotInRows("ALTER IGNORE may remove rows.", "onAlter", after, names)
    try:
        asked = _evolved(before, after, change, policy, rule, defaults)
    except SchemaError as error:
        return NotInRows(error.message, "onAlter", after, names)
    return replace(asked, names=names)


def _evolved(
    before: TableSchema,
    after: TableSchema,
    change: Alteration,
    policy: ValuePolicy,
    rule: TableRule,
    defaults: Defaults,
) -> Evolved:
    shown = {column.of: column for column in target_columns(after, policy, rule)}
    was = {column.of: column for column in target_columns(before, policy, rule)}
    unseen = {column.name for column in before.columns if rule.where is None and column.name not in was}
    proofs = proved(before, after, change, numbered=numbered(defaults), unseen=unseen)
    added: list[TargetColumn] = []
    values: list[tuple[str, KnownValue]] = []
    kept: dict[str, str] = {}
    changes: list[TargetAction] = []
    for name, proof in proofs.items():
        now = shown.get(name)
        if isinstance(proof, Kept):
            old = was.get(proof.old.name)
            if old is not None and now is not None:
                kept[old.name] = now.name
                changes += _changes(old, now)
        elif now is not None:
            item = proof.item
            value = None if column_key(name) in _ruled(rule) else _added(after, item, now.type, policy)
            if value is None:
                raise SchemaError(
                    f"it gives the new column {name} values in rows that were there, which no row of the stream tells."
                )
            values += [(name, value)] * (value != NULL)
            added.append(now)
    gone = tuple(column.name for column in was.values() if column.name not in kept)
    first: list[TargetAction] = [DropColumns(gone)] if gone else []
    last: list[TargetAction] = [AddColumns(tuple(added))] if added else []
    return Evolved(after, (*first, *renamed(kept), *changes, *last), tuple(values))


def _check_rule(before: TableSchema, after: TableSchema, change: Alteration, rule: TableRule) -> None:
    """Refuse a column that takes the name of another one: read again by the same names, what the rule hides would
    stand under another one.

    Raises:
        ConfigError: the table has a rule, and there is one.
    """
    if not rule.named and rule.where is None:
        return
    there = {change.key(column.name) for column in before.columns}
    moved = moved_columns(before, change)
    for column in after.columns:
        key = change.key(column.name)
        old = moved.get(key)
        if key in there and (old is None or change.key(old.name) != key):
            raise ConfigError(f"it puts another column in the place of {column.name}, and the table has a rule.")


def _names(before: TableSchema, after: TableSchema, change: Alteration) -> dict[str, str]:
    """Return what columns are called before the statement, by their names after it."""
    moved = moved_columns(before, change)
    names = {column.name: moved.get(change.key(column.name)) for column in after.columns}
    return {new: old.name for new, old in names.items() if old is not None}


def _ruled(rule: TableRule) -> set[str]:
    return {column_key(name) for name in rule.named}


def _added(after: TableSchema, item: ColumnItem, kind: str, policy: ValuePolicy) -> KnownValue | None:
    """Return the value of rows that are there; None where it is not a constant."""
    column = next(column for column in after.columns if column.name == item.column.name)
    if item.column.computed or item.numbered:
        return None
    if column.data_type == "timestamp" and item.column.nullable and item.default is None:
        return NULL  # said so; else the server's settings may make it NOT NULL, with the time of the statement
    return value_of(column, item.default, kind, policy)


def _changes(was: TargetColumn, now: TargetColumn) -> list[TargetAction]:
    """Return what to do to a column of the target that has its name of after the statement.

    Raises:
        SchemaError: Spark's type of before does not become that of after.
    """
    if not fits(was.type, now.type):
        raise SchemaError(f"the column {now.name} is {was.type} in the target and would be {now.type}.")
    changes: list[TargetAction] = [SetType(now.name, now.type)] if was.type != now.type else []
    return [*changes, DropNotNull(now.name)] if now.nullable and not was.nullable else changes
