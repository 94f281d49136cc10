"""The effect that a statement on a mirrored table has on its target.

In: the text of a DDL row, and the table's definition before it. Out: one of `Emptied`, `Dropped`, `Made`, `Renamed`,
`Evolved` (with what to do to the target, nothing where only indexes or comments changed). Raised: a SchemaError for
what the stream cannot tell: values that the statement gave to rows that were there, rows that it moved, text that is
not understood.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from replica.errors import SchemaError
from replica.rows.tables.widening import fits
from replica.rows.types.types import ValuePolicy, output_column
from replica.schema.alter import read_alteration
from replica.schema.changed_tables import changed_by
from replica.schema.from_catalog import table_of
from replica.schema.history import SchemaHistory
from replica.schema.session import StatementContext
from replica.schema.sql_tokens import tokenize
from replica.schema.statements import Verb, read_statement
from streaming_source.mirroring.target_columns import WHOLE, identifier, target_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.schema.alteration import Alteration
    from replica.schema.table import ColumnSchema, TableSchema
    from streaming_source.mirroring.table_rules import TableRule
    from streaming_source.mirroring.target_columns import TargetColumn

_FILLS: Final = frozenset({"DEFAULT", "AS", "GENERATED", "AUTO_INCREMENT", "SERIAL"})
"""Words that give values to a column that is added."""
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
    """CREATE TABLE. `again`: it takes the place of one that is there."""

    again: bool


@dataclass(frozen=True, slots=True)
class Renamed:
    """RENAME TABLE, to or from this name."""


@dataclass(frozen=True, slots=True)
class Evolved:
    """The definition behind the statement, and what to do to the target, as actions of ALTER TABLE."""

    definition: TableSchema
    actions: tuple[str, ...] = ()


Asked: TypeAlias = Emptied | Dropped | Made | Renamed | Evolved


def asked_of(  # noqa: PLR0911  (one for each kind)
    sql: str, before: TableSchema, policy: ValuePolicy, rule: TableRule = WHOLE
) -> Asked:
    """Return what the statement asks of the target of the table `before`.

    Raises:
        SchemaError: it changed values of rows that were there, or is not understood.
    """
    session = StatementContext(database=before.database)
    name = (before.database, before.table)
    words = [token.upper for token in tokenize(sql)]
    statement = read_statement(sql, session)
    changed = changed_by(sql, session)
    if changed is not None and changed.removes and words[:1] == ["TRUNCATE"]:
        return Emptied()
    if statement is None:  # an index, a view
        return Evolved(before)
    match statement.verb:
        case Verb.DROP_TABLES | Verb.DROP_DATABASE:
            return Dropped()
        case Verb.CREATE_DATABASE if statement.or_replace:
            return Dropped()
        case Verb.RENAME_TABLES:
            return Renamed()
        case Verb.CREATE_TABLE:
            return Made(again=not statement.conditional)
        case Verb.ALTER_TABLE:
            if changed is not None and (not changed.tables or name in changed.tables):
                raise SchemaError("it moves or removes rows of partitions, which no row of the stream tells.")
            return _altered(sql, before, policy, rule, fills=_fills(words))
        case _:
            return Evolved(before)


def _fills(words: Sequence[str]) -> bool:
    """Tell whether a statement of these words may give a new column values."""
    null = {place for place, pair in enumerate(pairwise(words)) if pair == ("DEFAULT", "NULL")}
    return any(word in _FILLS and place not in null for place, word in enumerate(words))


def _altered(sql: str, before: TableSchema, policy: ValuePolicy, rule: TableRule, *, fills: bool) -> Asked:
    session = StatementContext(database=before.database)
    name = (before.database, before.table)
    statement = read_statement(sql, session)
    if statement is None or name not in statement.tables:
        return Renamed()  # it is the other table that the statement names
    change = read_alteration(statement.tokens, session)
    if change.rename is not None:
        return Renamed()
    history = SchemaHistory()
    history.known.define(name, table_of(before))
    history.apply(sql, session)
    after = history.table(*name)
    if after is None:
        raise SchemaError(history.reason(*name) or "it is not understood.")
    return Evolved(after, tuple(_actions(before, after, change, policy, rule, fills=fills)))


def _actions(
    before: TableSchema, after: TableSchema, change: Alteration, policy: ValuePolicy, rule: TableRule, *, fills: bool
) -> list[str]:
    if before.versioned != after.versioned:
        raise SchemaError("it changes whether the table is system-versioned.")
    names = _renamed(change)
    old = {column.name.casefold(): column for column in before.columns}
    came_from = {names.get(key, key): key for key in old if key not in change.dropped}
    _check_key(before, after)
    shown = {column.of: column for column in target_columns(after, policy, rule)}
    was = {column.of.casefold(): column for column in target_columns(before, policy, rule)}
    kept, added = set(), []
    actions = []
    for column in after.columns:
        key = came_from.get(column.name.casefold())
        if key != column.name.casefold() in old and (rule.named or rule.where is not None):
            raise SchemaError(f"it puts another column in the place of {column.name}, and the table has a rule.")
        if key is None:
            _check_added(column, fills=fills)
            added.append(shown[column.name].nullable_sql)
            continue
        kept.add(key)
        if key in was or rule.where is not None:
            _check_values(old[key], column)
        if key in was and column.name in shown:
            actions += _kept(was[key], shown[column.name])
    gone = [column.name for key, column in was.items() if key not in kept]
    actions = [f"DROP COLUMNS ({', '.join(map(identifier, gone))})"] * bool(gone) + actions
    return actions + [f"ADD COLUMNS ({', '.join(added)})"] * bool(added)


def _renamed(change: Alteration) -> dict[str, str]:
    """Return the new names of columns by their old ones, both folded."""
    names = {old: new.casefold() for old, new in change.renamed.items()}
    return names | {old: item.column.name.casefold() for old, item in change.changed.items()}


def _check_key(before: TableSchema, after: TableSchema) -> None:
    def key(table: TableSchema) -> list[str]:
        return [table.columns[number].name.casefold() for number in table.primary_key]

    if key(before) != key(after):
        raise SchemaError("it changes the primary key.")


def _check_added(column: ColumnSchema, *, fills: bool) -> None:
    if fills or not column.nullable:
        raise SchemaError(
            f"it gives the new column {column.name} values in rows that were there, which no row of the stream tells."
        )


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


def _kept(was: TargetColumn, now: TargetColumn) -> list[str]:
    actions: Sequence[str] = ()
    if was.name != now.name:
        if was.name.casefold() == now.name.casefold():
            raise SchemaError(f"it changes only the case of the column {was.name}, and Spark does not tell them apart.")
        actions = (f"RENAME COLUMN {identifier(was.name)} TO {identifier(now.name)}",)
    name = identifier(now.name)
    if was.type != now.type:
        actions = (*actions, f"ALTER COLUMN {name} TYPE {now.type}")
    if now.nullable and not was.nullable:
        actions = (*actions, f"ALTER COLUMN {name} DROP NOT NULL")
    return list(actions)
