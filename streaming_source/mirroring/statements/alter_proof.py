"""Proof that an ALTER TABLE keeps the stored values.

`proved` returns a proof for each column after the statement. `Kept` is a column of the old table with every value
unchanged. `New` is an added column, whose value `added_values.py` finds. Every other old column is dropped. If the
statement may change a value, a SchemaError has the reason, and the table is re-snapshot. `dropped_key` returns what a
statement does to the key of a table. The tests compare each proof with the rows of a server (`test_alter_rows.py`). Add
a rule only with such a test.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from replica.errors import SchemaError
from replica.protocol.charset import charset_key
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from replica.schema.definition.alter import Alteration
    from replica.schema.definition.definition import ColumnItem
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.table import ColumnSchema, TableSchema
    from replica.snapshot.check.facts import TableIndex

_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_LENGTH: Final = re.compile(r"[a-z]+\((\d+)\)")
_COMPRESSED: Final = " /*M!100301 COMPRESSED*/"

_DISTINCT_SCRIPTS: Final = ("CYRILLIC", "GREEK", "CJK UNIFIED", "HANGUL SYLLABLE")
"""Letters that collations distinguish, apart from case and accents."""


class Kept(NamedTuple):
    """Column with the values of the column `old`."""

    old: ColumnSchema


class New(NamedTuple):
    """Column that is added, with its declaration."""

    item: ColumnItem


Proof: TypeAlias = Kept | New


def columns_kept(before: TableSchema, change: Alteration) -> dict[str, ColumnSchema]:
    """Return the old columns that the statement keeps, by their new names (folded)."""
    names = {old: change.key(new) for old, new in change.renamed.items()}
    names |= {old: change.key(item.column.name) for old, item in change.changed.items()}
    old = {change.key(column.name): column for column in before.columns}
    return {names.get(key, key): column for key, column in old.items() if key not in change.dropped}


def proved(
    before: TableSchema,
    after: TableSchema,
    change: Alteration,
    *,
    numbered: Collection[str] = (),
    unseen: Collection[str] = (),
) -> dict[str, Proof]:
    """Return the proof of each column after the statement, by its name.

    Args:
        before: the table before the statement.
        after: the table after it.
        change: the parsed statement.
        numbered: the AUTO_INCREMENT columns of `before`.
        unseen: columns whose values the target does not need.

    Raises:
        SchemaError: the statement may change values of rows, or which rows there are.
    """
    if change.unproven:
        raise SchemaError(f"it may change rows: {change.unproven[0]}.")
    _check_table(before, after)
    both = next((name for name in change.changed if name in change.renamed or name in change.dropped), None)
    if both is not None:
        raise SchemaError(f"it changes the column {both} twice.")
    kept = columns_kept(before, change)
    _check_key(before, after, kept, change)
    _check_declared(change, {change.key(name) for name in numbered})
    items = {change.key(item.column.name): item for old, item in change.added if old is None}
    computed = next((column.name for column in before.columns if column.computed), None)
    existing = {change.key(column.name) for column in before.columns}
    found: dict[str, Proof] = {}
    for column in after.columns:
        old = kept.get(change.key(column.name))
        if computed and change.key(column.name) in existing and (old is None or not _same_name(old, column)):
            raise SchemaError(f"the generated column {computed} may use another column {column.name} now.")
        if old is None:
            item = items.get(change.key(column.name))
            if item is None:  # WITH SYSTEM VERSIONING adds undeclared columns
                raise SchemaError(f"it adds the column {column.name}, which it does not declare.")
            found[column.name] = New(item)
            continue
        if old.name not in unseen:
            _check_values(old, column)
        if computed and not _same(old, column):
            raise SchemaError(f"the generated column {computed} may use {old.name}, which it changes.")
        found[column.name] = Kept(old)
    return found


def _check_table(before: TableSchema, after: TableSchema) -> None:
    """Refuse an ALTER that changes system versioning, and every ALTER of a table with FLOAT(M,D) or DOUBLE(M,D)."""
    if before.versioned != after.versioned:
        raise SchemaError("it changes whether the table is system-versioned.")
    limited = next((column.name for column in before.columns if _is_limited(column)), None)
    if limited is not None:
        raise SchemaError(f"it may cut values of {limited}, which an earlier ALTER left with more digits.")


def _check_values(old: ColumnSchema, new: ColumnSchema) -> None:
    """Refuse a change of a column that may change a stored value, because the stream has no row for it.

    Raises:
        SchemaError: the change may alter a stored value.
    """
    if not _keeps_values(old, new):
        raise SchemaError(
            f"it may change values of the column {new.name}: {old.column_type} becomes {new.column_type}."
        )


def _check_key(before: TableSchema, after: TableSchema, kept: Mapping[str, ColumnSchema], change: Alteration) -> None:
    """Refuse a change of the primary key, including a key of other columns with the same names."""
    old = [before.columns[number].name for number in before.primary_key]
    new = [after.columns[number].name for number in after.primary_key]
    sources = [column.name if (column := kept.get(change.key(name))) is not None else "" for name in new]
    if [change.key(name) for name in old] != [change.key(name) for name in new] or old != sources:
        raise SchemaError("it changes the primary key.")


def _check_declared(change: Alteration, numbered: Collection[str]) -> None:
    """Refuse attributes of a declared column that may change values."""
    for old, item in (*change.changed.items(), *change.added):
        if item.unproven:
            raise SchemaError(f"the column {item.column.name} has the attribute {item.unproven}.")
        if old is None:
            continue
        if item.numbered and old not in numbered:
            raise SchemaError(f"it makes {item.column.name} AUTO_INCREMENT, which gives a number to rows that have 0.")
        if item.column.computed:
            raise SchemaError(f"it may make {item.column.name} a generated column, and compute its values again.")


def _is_limited(column: ColumnSchema) -> bool:
    """Return True for FLOAT(M,D) and DOUBLE(M,D).

    An ALTER that adds (M,D) leaves values with more digits, and the next ALTER that copies the table cuts them.
    """
    return column.data_type in ("float", "double") and "," in column.column_type


def _same(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return True if every expression has the same value for both columns; name, nullability and comment may differ."""
    return replace(old, name="", nullable=True, key=False, comment="") == replace(
        new, name="", nullable=True, key=False, comment=""
    )


def _same_name(old: ColumnSchema, new: ColumnSchema) -> bool:
    return column_key(old.name) == column_key(new.name)


def _keeps_values(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return True if every value of the old column is the same value of the new column, also in a target."""
    other = (old.computed, old.period, old.hidden) != (new.computed, new.period, new.hidden)
    if other or (old.nullable and not new.nullable):  # NULL becomes 0 or ''
        return False
    if old.data_type in _BITS and new.data_type in _BITS:
        (low, high), (lowest, highest) = _range(old), _range(new)
        return lowest <= low and high <= highest
    was, now = ((one.data_type, one.unsigned, charset_key(one.charset)) for one in (old, new))
    if was != now:
        return False
    if old.labels is not None:
        return _keeps_labels(old, new)
    if old.data_type in _TEXTS and old.charset is None:
        return False  # the character sets are unknown
    return _declared(old) == _declared(new) or _grows(old, new)


def _declared(column: ColumnSchema) -> str:
    return column.column_type.replace(_COMPRESSED, "").lower()


def _grows(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return True if the new type holds all values of the old type, unchanged."""
    match old.data_type:
        case "decimal":
            filled = "zerofill" in _declared(old) or "zerofill" in _declared(new)
            return not filled and old.scale == new.scale and (old.precision or 0) <= (new.precision or 0)
        case "bit":
            return (old.precision or 1) <= (new.precision or 1)
        case "datetime" | "timestamp":  # a TIME is text in a target, with its digits
            return (old.fsp or 0) <= (new.fsp or 0)
        case "char" | "varchar" | "varbinary":  # a BINARY is padded to its length
            was, now = (_LENGTH.fullmatch(_declared(column)) for column in (old, new))
            return was is not None and now is not None and int(was[1]) <= int(now[1])
        case _:
            return False


def _range(column: ColumnSchema) -> tuple[int, int]:
    bits = _BITS[column.data_type]
    return (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _keeps_labels(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return True if labels are only added at the end.

    The server looks labels up by the collation. If two labels may be equal in the collation, or the collation changes,
    a value may become another label.
    """
    was, now = old.labels or (), new.labels or ()
    if was == now and old.collation == new.collation:
        return True
    plain = [_folded(label) for label in now]
    same = old.charset is not None and old.collation == new.collation
    return same and now[: len(was)] == was and None not in plain and len(set(plain)) == len(plain)


def _folded(label: str) -> str | None:
    """Return a label without parts that a collation may ignore (case, accents, punctuation).

    Returns:
        None if the label has letters that some collation takes for other letters.
    """
    plain = ""
    for letter in unicodedata.normalize("NFKD", label).casefold():
        if letter.isalnum():
            if not letter.isascii() and not unicodedata.name(letter, "").startswith(_DISTINCT_SCRIPTS):
                return None
            plain += letter
    return plain


# Keys that survive a statement. An ENUM or SET with the label '' has two values that look alike in a target: the label,
# and no label. So one row would overwrite the other. A definition has the primary key but no unique indexes, so each
# dropped index may be the key.


_INDEX: Final = frozenset({"INDEX", "KEY", "CONSTRAINT"})


def dropped_key(effect: StatementEffect, after: TableSchema, keys: Collection[str]) -> str | None:
    """Return what the statement does to the key of a table, or None if the key stays."""
    columns = {column.name: column for column in after.columns}
    dropped = [key for key in keys if key not in columns]
    if dropped:
        return f"it drops the key column {dropped[0]}."
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
    reused = [key for key in keys if change is not None and change.key(key) in names]
    if reused:
        return f"it gives the name of the key column {reused[0]} to another column."
    if keys and _drops_index(effect.words):
        return "it may drop the unique index that identifies its rows."
    return None


def _renamed(change: Alteration) -> set[str]:
    """Return the folded names that an ALTER TABLE gives to columns, by a rename or by adding a column."""
    new = {name: item.column.name for name, item in change.changed.items()} | change.renamed
    added = {change.key(item.column.name) for old, item in change.added if old is None} - change.if_not_exists
    return {change.key(name) for old, name in new.items() if change.key(name) != old} | added


def _drops_index(tokens: Sequence[str]) -> bool:
    replaced = tuple(tokens[:3]) == ("CREATE", "OR", "REPLACE") and "INDEX" in tokens
    return replaced or any(one == "DROP" and other in _INDEX for one, other in pairwise(tokens))


def is_ambiguous(column: ColumnSchema) -> bool:
    """Return True if two values of a column look alike in a target."""
    return column.data_type in {"enum", "set"} and "" in (column.labels or ())


def sharp_indexes(definition: TableSchema, indexes: Sequence[TableIndex]) -> list[TableIndex]:
    """Return the indexes over columns whose values all look different in a target."""
    ambiguous = {column_key(column.name) for column in definition.columns if is_ambiguous(column)}
    return [index for index in indexes if not any(column_key(part.column) in ambiguous for part in index.parts)]


def ambiguous_names(columns: Iterable[ColumnSchema]) -> list[str]:
    """Return the names of columns with two values that look alike in a target."""
    return [column.name for column in columns if is_ambiguous(column)]
