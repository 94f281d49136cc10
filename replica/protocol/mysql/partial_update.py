"""Conversion of PARTIAL_UPDATE_ROWS: from row images with JSON diffs to the images of a plain UPDATE.

In: alternating before and after images. After each before image come the value options and, if they include
PARTIAL_JSON, one bit for every JSON column of the table. A bit of 1 means that the after image holds diffs in place of
the value: a length of four bytes and that many bytes of diffs.

Out: alternating before and after images as in UPDATE_ROWS. Every JSON value is text after a length of four bytes, as
for a reader that treats JSON as text. Refused: unknown value options, and diffs of a column that the before image lacks
(binlog_row_image=MINIMAL), because the binlog does not contain the value before the change.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ProtocolError
from replica.protocol.constants import ColumnType
from replica.protocol.mysql.binary_json import MAX_DEPTH, Json, json_text, parse_json
from replica.protocol.rows.table_map import value_extent
from replica.protocol.wire import Buffer, Cursor, is_set

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.protocol.rows.table_map import ColumnDef

PARTIAL_JSON: Final = 1
"""The only bit of binlog_row_value_options."""
_JSON_PREFIX: Final = 4  # bytes of the length before a JSON value


def apply_partial_update(
    images: Buffer,
    columns_before: bytes,
    columns_after: bytes,
    columns: Sequence[ColumnDef],
    *,
    wanted: Collection[int] | None = None,
) -> bytes:
    """Convert the images of a PARTIAL_UPDATE_ROWS event to those of an UPDATE_ROWS event, with JSON as text.

    Args:
        images: the row images of the event.
        columns_before: the event's bit set of the columns in before images.
        columns_after: the event's bit set of the columns in after images.
        columns: the columns of the table map.
        wanted: indexes of the columns whose values are needed; None for all. A diff of another column that cannot be
            applied becomes the text `null` instead of an error.

    Raises:
        ProtocolError: the images are refused. Offsets in errors count from the start of `images`.
    """
    cursor = Cursor(images)
    before = [index for index in range(len(columns)) if is_set(columns_before, index)]
    after = [index for index in range(len(columns)) if is_set(columns_after, index)]
    json_columns = [index for index, column in enumerate(columns) if column.type == ColumnType.JSON]
    out = bytearray()
    while cursor:
        known: dict[int, Json] = {}
        _copy(cursor, before, columns, out, known, frozenset(), wanted)
        partial = _partial_columns(cursor, json_columns)
        _copy(cursor, after, columns, out, known, partial, wanted)
    return bytes(out)


def _partial_columns(cursor: Cursor, json_columns: Sequence[int]) -> frozenset[int]:
    at = cursor.offset
    options = cursor.lenenc()
    if options & ~PARTIAL_JSON:
        raise ProtocolError(f"unknown value options {options} of a PARTIAL_UPDATE_ROWS event", offset=at)
    if not options:
        return frozenset()
    bits = cursor.bits(len(json_columns))
    return frozenset(index for number, index in enumerate(json_columns) if is_set(bits, number))


def _copy(
    cursor: Cursor,
    present: Sequence[int],
    columns: Sequence[ColumnDef],
    out: bytearray,
    known: dict[int, Json],
    partial: Collection[int],
    wanted: Collection[int] | None,
) -> None:
    """Copy one image to `out` with JSON values as text.

    Values of the before image are kept in `known` for the diffs.
    """
    nulls = cursor.bits(len(present))
    out += nulls
    for number, index in enumerate(present):
        if is_set(nulls, number):
            continue
        column = columns[index]
        at = cursor.offset
        if column.type != ColumnType.JSON:
            out += _plain(cursor, column)
            continue
        value = cursor.take(cursor.u32())
        if wanted is not None and index not in wanted:
            text = b"null"
        else:
            try:
                known[index] = _after(value, index, known) if index in partial else parse_json(value)
            except ProtocolError as error:
                message = error.placeless
                raise ProtocolError(
                    f"column {column.name or index + 1}: {message}", offset=at, hint=error.hint
                ) from None
            text = json_text(known[index]).encode()
        out += len(text).to_bytes(_JSON_PREFIX, "little") + text


def _after(diffs: Buffer, index: int, known: dict[int, Json]) -> Json:
    if index not in known:
        raise ProtocolError(
            "a JSON diff lacks the value that it applies to",
            hint="Set binlog_row_image=FULL, or leave PARTIAL_JSON out of binlog_row_value_options.",
        )
    return apply_diffs(known[index], read_diffs(diffs))


def _plain(cursor: Cursor, column: ColumnDef) -> memoryview:
    """Return length prefix and bytes of one value, unchanged."""
    width, prefix = value_extent(column)
    if not prefix:
        return cursor.take(width)
    size = int.from_bytes(cursor.peek_rest()[:prefix], "little")
    return cursor.take(prefix + size)


# With binlog_row_value_options=PARTIAL_JSON, an UPDATE logs a list of diffs, which are applied in order. A diff is an
# operation, a path and, except for REMOVE, a new binary value. A diff that does not fit the document was made for
# another row than the before image. That is a ProtocolError, because the after image cannot be determined.

MAX_MOVED: Final = 1 << 28
"""Maximum number of elements that array insertions and removals may move, which takes about a second.

A statement that changes a thousand places of an array of a hundred thousand elements stays below the limit.
"""

_NAME: Final = re.compile(r"\.(?:(\"(?:[^\"\\]|\\.)*\")|([^\s.\[\]\"*]+))")
_INDEX: Final = re.compile(r"\[(\d{1,10})\]")


class DiffOperation(IntEnum):
    """Operations of a diff (enum_json_diff_operation)."""

    REPLACE = 0
    INSERT = 1
    REMOVE = 2


@dataclass(frozen=True, slots=True)
class JsonDiff:
    operation: DiffOperation
    path: str
    """Path in MySQL's notation: $.name."another name"[3]"""
    value: Json = None
    """The new value; None for REMOVE."""

    @property
    def legs(self) -> tuple[str | int, ...]:
        """Member names and array indexes, from the root on."""
        return _legs(self.path)


def read_diffs(data: Buffer) -> tuple[JsonDiff, ...]:
    """Parse the diffs of one column. There are none if the UPDATE did not change the column."""
    cursor = Cursor(data)
    diffs = []
    while cursor:
        at = cursor.offset
        code = cursor.u8()
        if code > DiffOperation.REMOVE:
            raise ProtocolError(f"{code} is not an operation of a JSON diff", offset=at)
        operation = DiffOperation(code)
        path = cursor.text(cursor.lenenc())
        value = None if operation is DiffOperation.REMOVE else parse_json(cursor.take(cursor.lenenc()))
        diffs.append(JsonDiff(operation, path, value))
    return tuple(diffs)


def apply_diffs(document: Json, diffs: Sequence[JsonDiff]) -> Json:
    """Return the document after the diffs. The given document may be modified."""
    patient = _Document(document)
    for diff in diffs:
        if not patient.apply(diff):
            raise ProtocolError(
                f"the JSON diff {diff.operation.name} {diff.path[:80]!r} does not fit the value before it",
                hint="The row was changed by something that is not in the binlog, or the bytes are damaged.",
            )
    return patient.result()


class _Document:
    """A document while diffs are applied to it."""

    def __init__(self, document: Json) -> None:
        self._root: list[Any] = [document]
        self._unsorted: dict[int, dict[str, Json]] = {}  # objects with new members, by id
        self._moved_elements = 0

    def apply(self, diff: JsonDiff) -> bool:
        """Apply one diff; return False if the document has no place for it."""
        *parents, last = 0, *diff.legs
        place: Any = self._root
        for leg in parents:
            if not _has(place, leg):
                return False
            place = place[leg]
        if diff.operation is DiffOperation.INSERT:
            return place is not self._root and self._insert(place, last, diff.value)
        if not _has(place, last):
            return False
        if diff.operation is DiffOperation.REPLACE:
            place[last] = diff.value
            return True
        if place is self._root:
            return False
        if isinstance(place, list):
            self._move(place)
        del place[last]
        return True

    def result(self) -> Json:
        for members in self._unsorted.values():
            ordered = sorted(members.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))
            members.clear()
            members.update(ordered)
        found: Json = self._root[0]
        return found

    def _insert(self, place: Any, leg: str | int, value: Json) -> bool:
        if isinstance(leg, int):
            if not isinstance(place, list):
                return False
            self._move(place)
            place.insert(leg, value)  # an index beyond the end appends, as in MySQL
            return True
        if not isinstance(place, dict) or leg in place:
            return False
        place[leg] = value
        self._unsorted[id(place)] = place
        return True

    def _move(self, place: list[Any]) -> None:
        self._moved_elements += len(place)
        if self._moved_elements > MAX_MOVED:
            raise ProtocolError(f"the JSON diffs of one value move more than {MAX_MOVED} elements")


def _has(place: Any, leg: str | int) -> bool:
    if isinstance(leg, int):
        return isinstance(place, list) and leg < len(place)
    return isinstance(place, dict) and leg in place


def _legs(path: str) -> tuple[str | int, ...]:
    if not path.startswith("$"):
        raise ProtocolError(f"{path[:80]!r} is not a path into a JSON document")
    legs: list[str | int] = []
    at = 1
    while at < len(path):
        if found := _INDEX.match(path, at):
            legs.append(int(found[1]))
        elif found := _NAME.match(path, at):
            legs.append(found[2] if found[1] is None else _unquoted(found[1]))
        else:
            raise ProtocolError(f"{path[:80]!r} is not a path into a JSON document")
        at = found.end()
        if len(legs) > MAX_DEPTH:
            raise ProtocolError(f"a path of more than {MAX_DEPTH} steps into a JSON document")
    return tuple(legs)


def _unquoted(text: str) -> str:
    try:
        name: str = json.loads(text, strict=False)
    except ValueError:
        raise ProtocolError(f"{text[:80]!r} is not a member name of a JSON document") from None
    return name
