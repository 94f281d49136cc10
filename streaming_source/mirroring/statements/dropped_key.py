"""Keys that are no key in a target, or no key after a statement.

In: the table's definition, its indexes or a statement, and the key by which the rows of the target are matched. Out:
the indexes that are a key in a target too, and the reason for a re-snapshot, or None if the key stays.

An ENUM or SET with the label '' has two values that look alike: the label '' and no label. The server has two keys, and
in a target one row would overwrite the other. A definition includes the primary key, so a DROP of it shows there. It
does not include unique indexes, so each dropped index may be the key.
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


def dropped_key(effect: StatementEffect, after: TableSchema, keys: Collection[str]) -> str | None:
    """Return what the statement does to the key of a table, or None if the key stays."""
    columns = {column.name: column for column in after.columns}
    gone = [key for key in keys if key not in columns]
    if gone:
        return f"it drops the key column {gone[0]}."
    ambiguous = ambiguous_names(columns[key] for key in keys)
    if ambiguous:
        return f"after it, the label '' of the key column {ambiguous[0]} looks like an invalid value."
    primary = set(keys) == {after.columns[number].name for number in after.primary_key}
    return None if primary else _lost_unique(effect, after, keys)


def _lost_unique(effect: StatementEffect, after: TableSchema, keys: Collection[str]) -> str | None:
    """Return what the statement does to a unique index whose columns still exist after it, or None."""
    loose = [column.name for column in after.columns if column.name in keys and column.nullable]
    if loose:
        return f"after it, several rows may have NULL in the key column {loose[0]}."
    change = effect.alteration
    names = set() if change is None else _renamed(change)
    moved = [key for key in keys if change is not None and change.key(key) in names]
    if moved:
        return f"it gives the name of the key column {moved[0]} to another column."
    if keys and _drops_index(effect.words):
        return "it may drop the unique index that identifies its rows."
    return None


def _renamed(change: Alteration) -> set[str]:
    """Return the keys of the names that columns have after an ALTER TABLE and did not have before it."""
    new = {name: item.column.name for name, item in change.changed.items()} | change.renamed
    added = {change.key(item.column.name) for old, item in change.added if old is None} - change.if_not_exists
    return {change.key(name) for old, name in new.items() if change.key(name) != old} | added


def _drops_index(words: Sequence[str]) -> bool:
    replaced = tuple(words[:3]) == ("CREATE", "OR", "REPLACE") and "INDEX" in words
    return replaced or any(one == "DROP" and other in _INDEX for one, other in pairwise(words))


def is_ambiguous(column: ColumnSchema) -> bool:
    """Return True if two values of a column look alike in a target."""
    return column.data_type in {"enum", "set"} and "" in (column.labels or ())


def sharp_indexes(definition: TableSchema, indexes: Sequence[TableIndex]) -> list[TableIndex]:
    """Return the indexes without a column of which two values look alike."""
    ambiguous = {column_key(column.name) for column in definition.columns if is_ambiguous(column)}
    return [index for index in indexes if not any(column_key(part.column) in ambiguous for part in index.parts)]


def ambiguous_names(columns: Iterable[ColumnSchema]) -> list[str]:
    """Return the names of columns of which two values look alike."""
    return [column.name for column in columns if is_ambiguous(column)]
