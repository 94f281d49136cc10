"""Keys that do not tell rows apart in a target, or not behind a statement.

In: the table's definition, its indexes or the effect of a statement, and the key by which the target's rows are found.
Out: the indexes that tell rows apart in a target too, and the reason why the table has to be read again, None where the
key stays.

An ENUM or SET with the label '' shows two values as one: no label at all looks the same. The server has two keys there,
and in a target one row would take the other's place. A primary key goes by a statement that changes the definition; a
definition says nothing of unique indexes, so whichever index goes, it may be theirs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from replica.schema.definition.alteration import Alteration
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.table import ColumnSchema, TableSchema
    from replica.snapshot.check.indexes import TableIndex

_INDEX: Final = frozenset({"INDEX", "KEY", "CONSTRAINT"})


def lost_key(effect: StatementEffect, after: TableSchema, keys: Collection[str]) -> str | None:
    """Return what the statement does to the key of a table; None: nothing."""
    columns = {column.name: column for column in after.columns}
    gone = [key for key in keys if key not in columns]
    if gone:
        return f"it takes away the key column {gone[0]}."
    blurred = blurred_names(columns[key] for key in keys)
    if blurred:
        return f"behind it the label '' of the key column {blurred[0]} looks like no label at all."
    primary = set(keys) == {after.columns[number].name for number in after.primary_key}
    return None if primary else _lost_unique(effect, after, keys)


def _lost_unique(effect: StatementEffect, after: TableSchema, keys: Collection[str]) -> str | None:
    """Return what the statement does to a unique index, whose columns are there behind it."""
    loose = [column.name for column in after.columns if column.name in keys and column.nullable]
    if loose:
        return f"behind it NULL may stand in the key column {loose[0]}, more than once."
    change = effect.alteration
    names = set() if change is None else _renamed(change)
    moved = [key for key in keys if change is not None and change.key(key) in names]
    if moved:
        return f"it gives the name of the key column {moved[0]} to another one."
    if keys and _drops_index(effect.words):
        return "it may take away the unique index that tells its rows apart."
    return None


def _renamed(change: Alteration) -> set[str]:
    """Return the keys of the names that columns have after an ALTER TABLE and did not have before it."""
    new = {name: item.column.name for name, item in change.changed.items()} | change.renamed
    added = {change.key(item.column.name) for old, item in change.added if old is None} - change.if_not_exists
    return {change.key(name) for old, name in new.items() if change.key(name) != old} | added


def _drops_index(words: Sequence[str]) -> bool:
    replaced = tuple(words[:3]) == ("CREATE", "OR", "REPLACE") and "INDEX" in words
    return replaced or any(one == "DROP" and other in _INDEX for one, other in pairwise(words))


def is_blurred(column: ColumnSchema) -> bool:
    """Tell whether two values of a column look the same in a target."""
    return column.data_type in {"enum", "set"} and "" in (column.labels or ())


def sharp_indexes(definition: TableSchema, indexes: Sequence[TableIndex]) -> list[TableIndex]:
    """Return the indexes without a column that shows two values as one."""
    blurred = {column_key(column.name) for column in definition.columns if is_blurred(column)}
    return [index for index in indexes if not any(column_key(part.column) in blurred for part in index.parts)]


def blurred_names(columns: Iterable[ColumnSchema]) -> list[str]:
    """Return the names of those columns that show two values as one."""
    return [column.name for column in columns if is_blurred(column)]
