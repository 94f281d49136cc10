"""Effect of a statement on the target of a mirrored table.

`target_effect` returns `Emptied`, `Dropped`, `Made`, `Evolved` or `NotInRows`. `Evolved` has the actions on the target;
there are none if only indexes or comments changed. `NotInRows` means that the statement moved rows, or that values of
existing rows cannot be proved, and the stream has no row events for them. `statements_of` returns the statements of a
micro-batch that concern a table, in the order of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from replica.errors import ConfigError, SchemaError
from replica.rows.tables.plan import fits
from replica.schema.definition.definition import table_of
from replica.schema.effects.history import SchemaHistory
from replica.schema.statements.statements import Verb, pairs
from replica.schema.text.naming import column_key
from streaming_source.mirroring.reading.source_tables import views
from streaming_source.mirroring.statements.added_values import NULL, KnownValue, numbered, value_of
from streaming_source.mirroring.statements.alter_proof import Kept, columns_kept, proved
from streaming_source.mirroring.writers.target_format import AddColumns, DropColumns, DropNotNull, RenameColumn, SetType
from streaming_source.transforms.transformed_images import UNCHANGED, target_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from replica.rows.types.types import ValuePolicy
    from replica.schema.definition.alter import Alteration
    from replica.schema.definition.definition import ColumnItem
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.batch.batch_facts import BatchFacts, StatementRow
    from streaming_source.mirroring.statements.added_values import Defaults
    from streaming_source.mirroring.writers.target_format import TargetAction
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.transforms.table_rules import TableRule
    from streaming_source.transforms.transformed_images import TargetColumn


# Columns that swap names need a temporary name. Names that differ only by case are one name for Spark.


_PLACE: Final = "_renamed"
"""Prefix of temporary names."""


def renamed(names: Mapping[str, str], others: Collection[str] = ()) -> list[RenameColumn]:
    """Return the actions that rename columns.

    Args:
        names: the new names by the old ones.
        others: the columns that keep their names.
    """
    return [RenameColumn(old, new) for old, new in ordered(names, others)]


def ordered(names: Mapping[str, str], others: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return (old, new) names in an order in which each new name is free."""
    left = {old: new for old, new in names.items() if old != new}
    taken = {name.lower() for name in (*names, *others)}
    found: list[tuple[str, str]] = []
    while left:
        old = next((old for old, new in left.items() if new.lower() not in taken), None)
        if old is None:
            old = next(iter(left))
            number = next(n for n in range(len(taken) + 1) if f"{_PLACE}_{n}" not in taken)
            new = f"{_PLACE}_{number}"
            left[new] = left.pop(old)
        else:
            new = left.pop(old)
        found.append((old, new))
        taken = taken - {old.lower()} | {new.lower()}
    return found


def composed(names: Mapping[str, str], earlier: Mapping[str, str]) -> dict[str, str]:
    """Return the renames of two statements together. A rename maps the name after a statement to that before it.

    Args:
        names: for the second statement, the names before it by the names after it.
        earlier: the same for the first statement.
    """
    return {new: earlier[old] for new, old in names.items() if old in earlier}


Policy = Literal["onTruncate", "onSwap", "onAlter"]

_STATEMENT_DML: Final = "it was logged without the rows that it changed (binlog_format STATEMENT or MIXED)."


@dataclass(frozen=True, slots=True)
class Emptied:
    """TRUNCATE: all rows are deleted."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """DROP TABLE, or DROP DATABASE of its database."""


@dataclass(frozen=True, slots=True)
class Made:
    """CREATE TABLE.

    Attributes:
        always: the statement creates the table even if one of this name exists.
    """

    always: bool


@dataclass(frozen=True, slots=True)
class NotInRows:
    """Change of rows for which the stream has no row events.

    Attributes:
        policy: the argument of `mirror()` that decides about such statements.
        definition: the table after an ALTER whose effect on the definition is known.
        names: the names of columns before the statement, by their names after it. Added columns are missing.
    """

    why: str
    policy: Policy
    definition: TableSchema | None = None
    names: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class StatementDmlChange(NotInRows):
    """Rows that a statement changed, which was logged as a statement and not as row events."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """Change of a definition, with what it does to the target.

    Attributes:
        definition: the table after the statement.
        actions: the actions on the target, in order.
        values: the values of added columns, by name. They are filled in after the actions.
        names: as in `NotInRows`.
    """

    definition: TableSchema
    actions: tuple[TargetAction, ...] = ()
    values: tuple[tuple[str, KnownValue], ...] = ()
    names: Mapping[str, str] | None = None


TargetEffect: TypeAlias = Emptied | Dropped | Made | NotInRows | Evolved


def target_effect(
    effect: StatementEffect,
    before: TableSchema,
    policy: ValuePolicy,
    rule: TableRule = UNCHANGED,
    defaults: Defaults | None = None,
) -> TargetEffect:
    """Return the effect of the statement on the target of the table `before`; `defaults`: the defaults of its columns.

    Raises:
        ConfigError: the table's rule names a column, and another column takes its name.
    """
    try:
        return _statement_dml(effect) or _effect_of_verb(effect, before, policy, rule, defaults or {})
    except SchemaError as error:
        return NotInRows(error.message, "onAlter")


def changes_rows(effect: StatementEffect) -> bool:
    """Return True if a statement changes rows without changing a definition."""
    return isinstance(_statement_dml(effect), StatementDmlChange)


def _statement_dml(effect: StatementEffect) -> NotInRows | None:
    if effect.changed is None or effect.changed.defines:
        return None
    if effect.head is None:
        return StatementDmlChange(_STATEMENT_DML, "onSwap")
    return NotInRows(_STATEMENT_DML, "onSwap") if effect.verb is Verb.CREATE_TABLE else None  # CREATE TABLE … SELECT


def _effect_of_verb(  # noqa: PLR0911  (one return for each kind)
    effect: StatementEffect, before: TableSchema, policy: ValuePolicy, rule: TableRule, defaults: Defaults
) -> TargetEffect:
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
            return _renamed_table({new: old for old, new in pairs(statement.tables)}, name, before)
        case Verb.CREATE_TABLE:
            return Made(always=not statement.conditional)
        case Verb.ALTER_TABLE:
            changed = effect.changed
            if changed is not None and (not changed.tables or name in changed.tables):
                why = "it moves or removes rows of partitions, without row events in the binlog."
                return NotInRows(why, "onTruncate" if changed.removes else "onSwap")
            return _altered(effect, before, policy, rule, defaults)
        case _:
            return Evolved(before)


def _renamed_table(names: Mapping[TableName, TableName], name: TableName, before: TableSchema) -> TargetEffect:
    """Return the effect of a RENAME on one table.

    Args:
        names: the old names by the new names.
        name: the table.
        before: the definition of the table before the statement.
    """
    if name in names:
        return NotInRows("another table takes its name.", "onSwap")
    return Dropped() if name in names.values() else Evolved(before)


def _altered(
    effect: StatementEffect, before: TableSchema, policy: ValuePolicy, rule: TableRule, defaults: Defaults
) -> TargetEffect:
    name = (before.database, before.table)
    change = effect.alteration
    if change is None:
        return Evolved(before)
    if change.rename is not None or name not in effect.tables:
        return _renamed_table({} if change.rename is None else {change.rename: effect.tables[0]}, name, before)
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
        evolved = _evolved(before, after, change, policy, rule, defaults)
    except SchemaError as error:
        return NotInRows(error.message, "onAlter", after, names)
    return replace(evolved, names=names)


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
                    f"it gives the new column {name} values in existing rows, without row events in the binlog."
                )
            values += [(name, value)] * (value != NULL)
            added.append(now)
    dropped = tuple(column.name for column in was.values() if column.name not in kept)
    first: list[TargetAction] = [DropColumns(dropped)] if dropped else []
    last: list[TargetAction] = [AddColumns(tuple(added))] if added else []
    return Evolved(after, (*first, *renamed(kept), *changes, *last), tuple(values))


def _check_rule(before: TableSchema, after: TableSchema, change: Alteration, rule: TableRule) -> None:
    """Refuse a column that takes the name of another column of a table with a rule.

    A rule names columns. After a re-snapshot, the values to hide would be in a column with another name, and the rule
    would not hide them.

    Raises:
        ConfigError: the table has a rule, and there is such a column.
    """
    if not rule.named and rule.where is None:
        return
    existing = {change.key(column.name) for column in before.columns}
    kept = columns_kept(before, change)
    for column in after.columns:
        key = change.key(column.name)
        old = kept.get(key)
        if key in existing and (old is None or change.key(old.name) != key):
            raise ConfigError(f"it puts another column in the place of {column.name}, and the table has a rule.")


def _names(before: TableSchema, after: TableSchema, change: Alteration) -> dict[str, str]:
    """Return the names of columns before the statement, by their names after it."""
    kept = columns_kept(before, change)
    names = {column.name: kept.get(change.key(column.name)) for column in after.columns}
    return {new: old.name for new, old in names.items() if old is not None}


def _ruled(rule: TableRule) -> set[str]:
    return {column_key(name) for name in rule.named}


def _added(after: TableSchema, item: ColumnItem, kind: str, policy: ValuePolicy) -> KnownValue | None:
    """Return the value of existing rows in an added column; None if it is not a constant."""
    column = next(column for column in after.columns if column.name == item.column.name)
    if item.column.computed or item.numbered:
        return None
    if column.data_type == "timestamp" and item.column.nullable and item.default is None:
        return NULL  # declared NULL; without NULL, the server may make it NOT NULL and fill in the statement's time
    return value_of(column, item.default, kind, policy)


def _changes(was: TargetColumn, now: TargetColumn) -> list[TargetAction]:
    """Return the actions that lead from one column of the target to another of the same name.

    Raises:
        SchemaError: the old Spark type cannot be changed to the new one.
    """
    if not fits(was.type, now.type):
        raise SchemaError(f"the column {now.name} is {was.type} in the target and would become {now.type}.")
    changes: list[TargetAction] = [SetType(now.name, now.type)] if was.type != now.type else []
    return [*changes, DropNotNull(now.name)] if now.nullable and not was.nullable else changes


# A statement concerns a table if it names the table or its database, if it names no table clearly, or if its session
# has no database. DML through a view names only the view, so it concerns every table of its database.


NO_DATABASE = ""


def statements_of(facts: BatchFacts, name: TableName) -> list[StatementRow]:
    """Return the statements of a micro-batch that concern a table, in order, without duplicates."""
    if not (facts.statements or facts.databases):
        return []  # called for each table, and most micro-batches have none
    databases = (facts.databases.get(database, ()) for database in (name[0], NO_DATABASE))
    found = [*facts.statements.get(name, ()), *(one for statements in databases for one in statements)]
    return sorted(dict.fromkeys(found), key=lambda one: one[1:3])


def widen_views(options: SourceOptions, facts: BatchFacts, unknown: Collection[TableName]) -> None:
    """Make DML through a view a statement on the database of the view.

    Temporary tables, and objects that were dropped meanwhile, are left out.

    Args:
        options: the options of the stream.
        facts: the facts of the micro-batch. The function changes them.
        unknown: names in the micro-batch that are not known as tables.
    """
    changed = [name for name in unknown if any(changes_rows(one.effect) for one in facts.statements.get(name, ()))]
    for name in views(options, changed) if changed else ():
        facts.databases.setdefault(name[0], []).extend(facts.statements[name])
