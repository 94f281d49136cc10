"""The extra information of MySQL's rows events: which partition, and what NDB has to say.

A list of chunks, each a type byte and what the type says. NDB: a length that counts itself and the format, the format,
data that only NDB reads. Partition: the number of the partition (the one the row goes to), and with an UPDATE also the
one it comes from. An unknown type ends the list: its length is not told.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from replica.errors import ProtocolError
from replica.protocol.wire import Buffer, Cursor


class ExtraType(IntEnum):
    """The types of extra information (enum_extra_row_info_typecode)."""

    NDB = 0
    PARTITION = 1


@dataclass(frozen=True, slots=True)
class RowsExtra:
    """The extra information; None where the event does not say."""

    partition: int | None = None
    source_partition: int | None = None
    """UPDATE only: where the rows were before."""
    ndb_format: int | None = None
    ndb: bytes | None = None
    unknown: bytes = b""
    """The bytes from the first chunk of a type that is not known, to the end."""


NO_EXTRA: Final = RowsExtra()


def read_rows_extra(data: Buffer, at: int = 0, *, update: bool = False) -> RowsExtra:
    """Read the extra information. `data`: what follows the length of the extra data; `at`: where it starts, for
    errors.
    """
    cursor = Cursor(data)
    partition = source = ndb_format = ndb = None
    while cursor:
        start = cursor.offset
        kind = cursor.u8()
        if kind == ExtraType.NDB:
            length = cursor.u8()
            if length < 2:
                raise ProtocolError(f"NDB information of {length} bytes, less than its own head", offset=at + start)
            ndb_format, ndb = cursor.u8(), bytes(cursor.take(length - 2))
        elif kind == ExtraType.PARTITION:
            partition = cursor.u16()
            source = cursor.u16() if update else None
        else:
            return RowsExtra(partition, source, ndb_format, ndb, bytes(data[start:]))
    return RowsExtra(partition, source, ndb_format, ndb)
