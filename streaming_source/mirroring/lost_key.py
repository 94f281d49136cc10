"""A statement that may take away what tells the rows of a table apart.

In: its effect, the table's definition behind it, and the key by which the target's rows are found. Out: the reason why
the table has to be read again; None where the key stays. A primary key goes by a statement that changes the definition,
so this is about unique indexes, of which a definition says nothing: whichever index goes, it may be theirs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.blurred_key import blurred_names

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.schema.alteration import Alteration
    from replica.schema.effect import StatementEffect
    from replica.schema.table import TableSchema

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
