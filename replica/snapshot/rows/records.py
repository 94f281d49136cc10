"""Records shared by the result row kernel and Python: a column, the state of a block, and the reasons for refusing a
row.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from replica.native.record import Record, word


class ResultColumnRecord(Record):
    """Column of a result, for the kernel that writes row images."""

    transcoding = word("types.Transcoding")
    came = word("bytes of a number in the result")
    width = word("bytes in the row image, or minus the bytes of the length prefix")
    most = word("the most bytes of a counted value; DECIMAL: digits before the point; times: bytes of the fraction")
    scale = word("DECIMAL: digits after the point")
    key = word("which part of the key it is, -1: none")


class BlockState(Record):
    """Block of row images that the kernel fills."""

    position = word("offset of the next row in the stretch")
    images = word("address of the row images")
    images_used = word("bytes of them")
    images_room = word("bytes there is room for")
    ends = word("address of the ends of the images, int64 a row")
    key_ends = word("the same of the key bytes")
    rows = word("rows so far")
    rows_room = word("rows there is room for")
    keys = word("address of the key bytes")
    keys_used = word("bytes of them")
    keys_room = word("bytes there is room for")
    need = word("GROW_*: bytes that the next row needs")
    column = word("the column that a row was refused for, -1: none")


class RowOutcome(IntEnum):
    """Outcome of a kernel run: done, more memory needed, or the row at `position` is refused."""

    DONE = 0
    GROW_IMAGES = 1
    GROW_ROWS = 2
    GROW_KEYS = 3
    TORN = 4
    NO_ROW = 5
    SHORT = 6
    LONG = 7
    TOO_LONG = 8
    NO_VALUE = 9
    NULL_KEY = 10
    OUT_OF_ORDER = 11


SLACK: Final = 64
"""Bytes after a row that may be overwritten, because short strings are copied in whole words."""
