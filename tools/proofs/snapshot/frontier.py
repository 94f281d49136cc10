"""Delivered part of each table, as the offset of a query records it.

In: the offset of a committed batch as JSON. Out: for each table, whether all of its rows are delivered, none, or the
rows up to a key. Only this module of the proof knows the format of a frontier in an offset. It uses no code of the
project.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.proofs.snapshot.tables import DATABASE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.proofs.snapshot.tables import Canonical, Table

MARKED, MARK_BYTES = b"\xff\xff", 10


class Delivered(NamedTuple):
    """What of a table is delivered: all of it, or what lies at or below `last`, or nothing where that is None.

    `known` is False where something is delivered, but up to where only the server could say.
    """

    whole: bool
    last: Any | None = None
    known: bool = True

    def has(self, table: Table, key: Canonical) -> bool | None:
        """Whether a key is in what is delivered; None if only the server could say."""
        if self.whole:
            return True
        if not self.known:
            return None
        return self.last is not None and bool(table.order(key) <= self.last)


WHOLE, NOTHING, UNKNOWN = Delivered(whole=True), Delivered(whole=False), Delivered(whole=False, known=False)


def delivered(
    offset: dict[str, Any], key_of: Callable[[str, list[bytes]], Canonical | None], table: Table
) -> Delivered:
    """What of a table an offset says is delivered; all of it where it says nothing of tables.

    `key_of` reads the image bytes of the key columns of a table.
    """
    frontier = offset.get("snapshot")
    if frontier is None:
        return WHOLE
    kept = {name: base64.b64decode(text) for database, name, text in frontier.get("open", ()) if database == DATABASE}
    if table.name not in kept:
        after = frontier.get("after")
        passed = frontier.get("done") or (after is not None and [DATABASE, table.name] <= after)
        return WHOLE if passed else NOTHING
    if not kept[table.name]:
        return NOTHING
    key = key_of(table.name, parts_of(kept[table.name])) if table.ordered else None
    return UNKNOWN if key is None else Delivered(whole=False, last=table.order(key))


def parts_of(kept: bytes) -> list[bytes]:
    """The image bytes of each key column.

    A mark of the key's columns stands before them: two bytes that are no length, and eight of a digest. Before each
    value stands its length in two bytes, the lower one first.
    """
    parts, at = [], MARK_BYTES if kept.startswith(MARKED) else 0
    while at < len(kept):
        start = at + 2
        at = start + int.from_bytes(kept[start - 2 : start], "little")
        assert start <= at <= len(kept), f"the offset has a key in a format that the judge does not know: {kept.hex()}"
        parts.append(kept[start:at])
    return parts


def reading_tables(offset: dict[str, Any]) -> bool:
    """Whether tables are still to be read behind this offset; also before the first one."""
    frontier = offset.get("snapshot")
    return not offset or (frontier is not None and (not frontier.get("done") or bool(frontier.get("open"))))
