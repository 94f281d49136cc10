"""PARTIAL_UPDATE_ROWS: the row images of a MySQL UPDATE with JSON diffs -> the images of a plain UPDATE.

After each before image stand the value options and, if they say PARTIAL_JSON, one bit for every JSON column of the
table: 1 where the after image holds diffs in place of the value. The column of a 1 is read as a length of four bytes
and that many bytes of diffs.

Out: before and after images alternating as in UPDATE_ROWS, in which every JSON value is text behind a length of four
bytes, ready for a reader that takes JSON for text. Refused: unknown value options, and diffs of a column that the
before image lacks (binlog_row_image=MINIMAL): the value before is nowhere in the binlog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.binary_json import Json, json_text, parse_json
from replica.protocol.column_def import value_extent
from replica.protocol.constants import ColumnType
from replica.protocol.json_diff import apply_diffs, read_diffs
from replica.protocol.wire import Buffer, Cursor, is_set

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.protocol.column_def import ColumnDef

PARTIAL_JSON: Final = 1
"""The one bit of binlog_row_value_options."""
_JSON_PREFIX: Final = 4  # bytes of the length in front of a JSON value


def apply_partial_update(
    images: Buffer,
    columns_before: bytes,
    columns_after: bytes,
    columns: Sequence[ColumnDef],
    *,
    wanted: Collection[int] | None = None,
) -> bytes:
    """Turn the images of a PARTIAL_UPDATE_ROWS event into those of an UPDATE_ROWS event, JSON as text.

    `columns_before` and `columns_after` are the event's bit sets. `wanted`: indexes of the columns whose values count
    (None: all); diffs of others that cannot be applied become the text `null` instead of an error. Offsets in errors
    count from the start of `images`.
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
    """Copy one image; JSON values become text and, in the before image, are kept in `known` for the diffs."""
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
            "a JSON diff without the value it applies to",
            hint="Set binlog_row_image=FULL, or leave PARTIAL_JSON out of binlog_row_value_options.",
        )
    return apply_diffs(known[index], read_diffs(diffs))


def _plain(cursor: Cursor, column: ColumnDef) -> memoryview:
    """Return length prefix and bytes of one value, as they stand."""
    width, prefix = value_extent(column)
    if not prefix:
        return cursor.take(width)
    size = int.from_bytes(cursor.peek_rest()[:prefix], "little")
    return cursor.take(prefix + size)
