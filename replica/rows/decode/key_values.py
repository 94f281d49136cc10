"""The columns of a key as one table map has them, for the kernel that writes their canonical bytes, and its plain twin.

In: the columns of a table map, with signs and character sets told, and the numbers of those of the key, in key order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replica.protocol.constants import ColumnType
from replica.rows.decode.kernel_key_values import KEY_BYTES, KEY_INTEGER, KeyColumnRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.native.record import Records
    from replica.protocol.column_def import ColumnDef

_INTEGERS: Final = frozenset(
    (ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG, ColumnType.YEAR)
)


def key_parts(columns: Sequence[ColumnDef], indexes: Sequence[int]) -> Records:
    """Return a KeyColumnRecord for each column of the key."""
    made: Records = np.zeros(len(indexes), KeyColumnRecord.dtype)
    for record, index in zip(made, indexes, strict=True):
        column = columns[index]
        integer = column.type in _INTEGERS
        record["column"] = index
        record["form"] = KEY_INTEGER if integer else KEY_BYTES
        record["size"] = column.length if integer else 0
        record["sign"] = int(integer and not column.unsigned)
    return made


def plain_key(columns: Sequence[ColumnDef], indexes: Sequence[int], values: Sequence[bytes]) -> bytes:
    """Return the canonical bytes of a key; `values`: those of its columns in a row image, without a length in front."""
    made = b""
    for index, value in zip(indexes, values, strict=True):
        column = columns[index]
        if column.type in _INTEGERS:
            turned = bytearray(reversed(value))
            turned[0] ^= 0 if column.unsigned else 0x80
            made += bytes(turned)
        else:
            made += value.replace(b"\0", b"\0\xff") + b"\0\0"
    return made
