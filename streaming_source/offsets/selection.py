"""Selection of tables and changes as a checkpoint keeps it, and the difference from an earlier selection.

`Selection` is written to offsets as JSON of at most some KB, whatever the number of patterns. `Selection.change_to`
returns a `SelectionChange` with the added and removed patterns. An offset without a selection accepts the query's
current one. Another table or another row shape is an error: the sink has rows of the old table, and earlier rows of the
new table would never arrive.

    {"shape": "flat", "tables": ["shop.orders"]}
    {"shape": "variant", "tables": ["crm.customer", "shop.*"], "exclude": ["*.log"], "operations": ["insert"]}

The JSON has only values that differ from the default, and `unread` if the account cannot see all tables. Long lists are
packed, and still longer ones are replaced by a digest.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from replica.errors import ConfigError
from replica.schema.patterns import matcher, table_pattern, table_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_PLAIN: Final = 1 << 10
"""Most characters of lists that an offset has unpacked, for people to read."""
MAX_PACKED: Final = 16 << 10
"""Most bytes of packed lists, some 2000 names. Spark writes each offset to a file and shows it in each progress
report.
"""
MAX_INFLATED: Final = 4 << 20
"""Most bytes of unpacked lists, so that a damaged checkpoint cannot fill the memory."""
NAMED: Final = 20
"""Most names of a kind in a message and in the progress."""

_ALL_OPERATIONS: Final = ("delete", "insert", "update")
"""The meaning of an empty `operations`, sorted like all lists here."""
_NEW_CHECKPOINT = "Use a separate checkpoint for every query"


@dataclass(frozen=True, slots=True)
class Selection:
    """Tables and operations of a query.

    Attributes:
        tables: sorted patterns.
        exclude: sorted patterns.
        operations: empty means all.
        digest: the digest of the patterns, if only the digest is known.
        unread: patterns of which the account could not see all tables; `change_to` ignores them.
    """

    shape: str
    tables: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    shadows: bool = False
    operations: tuple[str, ...] = ()
    skip_unchanged: bool = False
    digest: str | None = None
    unread: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return the JSON value. Equal selections give equal text."""
        value: dict[str, Any] = json.loads(_text(self))
        return value

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Read the JSON value of an offset as a selection.

        Raises:
            ValueError, KeyError, TypeError: the value is damaged.
        """
        names = value
        if "packed" in value:
            try:
                packed = base64.b64decode(value["packed"], validate=True)
                names = json.loads(zlib.decompressobj().decompress(packed, MAX_INFLATED))
            except (zlib.error, binascii.Error) as error:
                raise ValueError(str(error)) from None
        digest = None if "digest" not in value else str(value["digest"])
        return cls(
            str(value["shape"]),
            () if digest else tuple(map(_stored, names["tables"])),
            () if digest else tuple(map(_stored, names.get("exclude", ()))),
            bool(value.get("shadows", False)),
            tuple(map(str, value.get("operations", ()))),
            bool(value.get("skipUnchanged", False)),
            digest,
            tuple(map(_stored, value.get("unread", ()))),
        )

    def change_to(self, now: Selection) -> SelectionChange | None:
        """Return the difference, or None if there is none.

        Raises:
            ConfigError: the table or the row shape differs.
        """
        if self.shape != now.shape:
            raise ConfigError(
                f"the checkpoint belongs to a query with {_described(self)}, and this query has {_described(now)}.",
                hint=f"{_NEW_CHECKPOINT}, or give this query the options that the checkpoint was written with.",
            )
        if self.shape != "variant" and self.tables != now.tables:
            raise ConfigError(
                f"the checkpoint belongs to a query of table {self.tables[0]}, and this query reads {now.tables[0]}.",
                hint=f"{_NEW_CHECKPOINT}. With tables, one query reads many tables, and more can be added later.",
            )
        added: tuple[str, ...] = ()
        removed: tuple[str, ...] = ()
        options: tuple[str, ...] = ()
        if self.digest is None:
            added = (*_beyond(now.tables, self.tables), *_left_out(self, now, now.tables))
            removed = (*_beyond(self.tables, now.tables), *_left_out(now, self, self.tables))
        elif self.digest != _digest(now):
            options = ("tables or excludeTables changed (the checkpoint does not keep so many names)",)
        options += tuple(
            f"{name} was {_value(before)} and is {_value(after)}"
            for name, before, after in (
                ("includeShadowTables", self.shadows, now.shadows),
                ("operations", self.operations, now.operations),
                ("skipUnchanged", self.skip_unchanged, now.skip_unchanged),
            )
            if before != after
        )
        return SelectionChange(added, removed, options) if added or removed or options else None


class SelectionChange(NamedTuple):
    """Difference of two selections.

    Attributes:
        added: patterns, including removed exclusions.
        removed: patterns, including added exclusions.
        options: texts of changed options.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    options: tuple[str, ...]

    def message(self, position: str, *, read: bool = False) -> str:
        """Return the line for the log.

        Args:
            position: where the new selection begins.
            read: whether the rows of added tables are read.
        """
        parts = []
        if self.added and read:
            parts.append(f"added {named(self.added)}: the rows of these tables are read first")
        elif self.added:
            parts.append(f"added {named(self.added)}, without the changes up to {position or 'the beginning'}")
        if self.removed:
            parts.append(f"removed {named(self.removed)}")
        parts += self.options
        copy = ""
        if self.added and not read:
            copy = " If the rows of an added table are needed, copy it first, or start with startingPosition=initial."
        return (
            f"the query selects other changes than its checkpoint: {'; '.join(parts)}. The new selection applies "
            f"after {position or 'the beginning'}: earlier rows are not delivered again.{copy}"
        )

    def json(self, position: str) -> dict[str, Any]:
        """Return the value for the progress."""
        value = {"added": self.added[:NAMED], "removed": self.removed[:NAMED], "options": self.options}
        return {"behind": position, **{name: list(texts) for name, texts in value.items() if texts}}


def named(names: Sequence[str]) -> str:
    """Return names for a message, the first of many."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _stored(pattern: object) -> str:
    """Return a pattern of an offset in its current form, because older offsets have names without backquotes."""
    text = str(pattern)
    try:
        return str(table_pattern(text))
    except ValueError:
        database, _, table = text.partition(".")
        return table_text((database, table))


def _beyond(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns of `names` that `others` do not include.

    A pattern includes others that it matches as text.
    """
    covered = matcher(others)
    return tuple(name for name in names if not covered.covers(name))


def _left_out(one: Selection, other: Selection, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the exclusions that only `one` has, without names that `tables` do not match."""
    selected = matcher(tables)
    return tuple(
        name
        for name in _beyond(one.exclude, other.exclude)
        if table_pattern(name).name is None or selected.covers(name)
    )


@lru_cache(maxsize=16)
def _text(selection: Selection) -> str:
    value: dict[str, Any] = {"shape": selection.shape}
    if selection.digest is not None:
        value["digest"] = selection.digest
    else:
        value |= _lists(selection)
    if selection.shadows:
        value["shadows"] = True
    if selection.operations:
        value["operations"] = selection.operations
    if selection.skip_unchanged:
        value["skipUnchanged"] = True
    if selection.unread:
        value["unread"] = selection.unread if len(selection.unread) <= NAMED else ["*.*"]
    return json.dumps(value)


def _lists(selection: Selection) -> dict[str, Any]:
    """Return the patterns as lists, packed or as a digest, depending on their size."""
    lists = {"tables": selection.tables, **({"exclude": selection.exclude} if selection.exclude else {})}
    plain = json.dumps(lists, separators=(",", ":"))
    if len(plain) <= MAX_PLAIN:
        return lists
    packed = base64.b64encode(zlib.compress(plain.encode(), 9)).decode()
    return {"packed": packed} if len(packed) <= MAX_PACKED else {"digest": _digest(selection)}


def _digest(selection: Selection) -> str:
    return hashlib.sha256(json.dumps([selection.tables, selection.exclude]).encode()).hexdigest()


def _described(selection: Selection) -> str:
    if selection.shape == "variant":
        return "tables (rows as VARIANT)"
    return f"table={selection.tables[0]} and rowShape={selection.shape}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value or _ALL_OPERATIONS)
    return str(value).lower()
