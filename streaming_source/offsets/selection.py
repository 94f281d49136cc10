"""The changes that a query asks for, as its checkpoint remembers them, and how that differs from what it asks for now.

In: the plan's tables and shape; the JSON of an earlier offset. Out: JSON of at most some KB, whatever the number of
patterns, and a `SelectionChange` that names what came and what went. An offset of an earlier version says nothing of
it: then what is asked for now is taken over. Refused: another table, or rows of another shape, because what the query
writes to holds rows of the first, and no row of the new one before this place would ever come.

    {"shape": "flat", "tables": ["shop.orders"]}
    {"shape": "variant", "tables": ["crm.customer", "shop.*"], "exclude": ["*.log"], "operations": ["insert"]}

Only what is not the default is written, and `unread` where the account cannot see all tables. Beyond some names the
lists are packed, and beyond some more only counted.
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
"""Characters that stand in an offset as they are, for people to read."""
MAX_PACKED: Final = 16 << 10
"""The bytes of packed lists: some 2 000 names. Spark writes each offset into a file, and shows it in each progress
report."""
MAX_INFLATED: Final = 4 << 20
"""The bytes of lists that were packed: a damaged checkpoint must not fill the memory."""
NAMED: Final = 20
"""Names of a kind in a message and in the progress."""

_ALL_OPERATIONS: Final = ("delete", "insert", "update")
"""What no `operations` stands for, sorted as all lists here."""
_NEW_CHECKPOINT = "Use a checkpoint of its own for every query"


@dataclass(frozen=True, slots=True)
class Selection:
    """The tables and operations of a query. `tables` and `exclude` are patterns, sorted; `operations` empty for all;
    `digest`: only that is known of them.

    `unread`: patterns of which the account could not see all tables; `change_to` says nothing of it.
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
        """Return the JSON value; equal selections give equal text."""
        value: dict[str, Any] = json.loads(_text(self))
        return value

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Read the JSON value of an offset as a selection.

        Raises:
            ValueError: it is damaged; as a KeyError or TypeError too.
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
        """Return what differs, None if nothing does.

        Raises:
            ConfigError: it is another table, or rows of another shape.
        """
        if self.shape != now.shape:
            raise ConfigError(
                f"the checkpoint is of a query with {_words(self)}, and this one has {_words(now)}.",
                hint=f"{_NEW_CHECKPOINT}, or give this one the options that it was written with.",
            )
        if self.shape != "variant" and self.tables != now.tables:
            raise ConfigError(
                f"the checkpoint is of a query of table {self.tables[0]}, and this one reads {now.tables[0]}.",
                hint=f"{_NEW_CHECKPOINT}; with tables, one query reads many, and more can be added later.",
            )
        added: tuple[str, ...] = ()
        removed: tuple[str, ...] = ()
        options: tuple[str, ...] = ()
        if self.digest is None:
            added = (*_beyond(now.tables, self.tables), *_left_out(self, now, now.tables))
            removed = (*_beyond(self.tables, now.tables), *_left_out(now, self, self.tables))
        elif self.digest != _digest(now):
            options = ("tables or excludeTables are others (there were too many to remember their names)",)
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
    """The difference of two selections. `added` and `removed`: patterns; those of excludeTables the other way round.
    `options`: in words.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    options: tuple[str, ...]

    def message(self, position: str, *, read: bool = False) -> str:
        """Return the line for the log, with where it begins to count. `read`: the rows of added tables are read."""
        parts = []
        if self.added and read:
            parts.append(f"{named(self.added)} came in: the rows of these tables are read first")
        elif self.added:
            parts.append(f"{named(self.added)} came in, without the changes up to {position or 'the beginning'}")
        if self.removed:
            parts.append(f"{named(self.removed)} went out")
        parts += self.options
        copy = ""
        if self.added and not read:
            copy = " Copy an added table first, where its rows are wanted, or start with startingPosition=initial."
        return (
            f"the query asks for other changes than its checkpoint knows: {'; '.join(parts)}. This counts behind "
            f"{position or 'the beginning'}: rows from before do not come again.{copy}"
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
    """Return a pattern of an offset as it is written now: older offsets have no backquotes around any name."""
    text = str(pattern)
    try:
        return str(table_pattern(text))
    except ValueError:
        database, _, table = text.partition(".")
        return table_text((database, table))


def _beyond(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns that the others do not include: one that another matches as a text is included in it."""
    covered = matcher(others)
    return tuple(name for name in names if not covered.covers(name))


def _left_out(one: Selection, other: Selection, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Return what only `one` excludes; a name that `tables` do not have makes no difference."""
    there = matcher(tables)
    return tuple(
        name for name in _beyond(one.exclude, other.exclude) if table_pattern(name).name is None or there.covers(name)
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
    """Return the patterns, as plainly as their number allows."""
    lists = {"tables": selection.tables, **({"exclude": selection.exclude} if selection.exclude else {})}
    plain = json.dumps(lists, separators=(",", ":"))
    if len(plain) <= MAX_PLAIN:
        return lists
    packed = base64.b64encode(zlib.compress(plain.encode(), 9)).decode()
    return {"packed": packed} if len(packed) <= MAX_PACKED else {"digest": _digest(selection)}


def _digest(selection: Selection) -> str:
    return hashlib.sha256(json.dumps([selection.tables, selection.exclude]).encode()).hexdigest()


def _words(selection: Selection) -> str:
    if selection.shape == "variant":
        return "tables (rows as VARIANT)"
    return f"table={selection.tables[0]} and rowShape={selection.shape}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value or _ALL_OPERATIONS)
    return str(value).lower()
