"""Rows events: the table, the columns that are present, and the undecoded row images.

In: the body of WRITE, UPDATE and DELETE rows events of version 1 (all MariaDB servers) and version 2 (MySQL), including
MariaDB's compressed forms and MySQL's PARTIAL_UPDATE. Out: a `RowsEvent`, whose `images` is a view of the event. Other
modules split the images into rows and values, with the table map. `mysql/partial_update.py` converts the images of a
PARTIAL_UPDATE to those of a plain UPDATE.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, MAX_COLUMNS, MAX_EVENT_BYTES, EventType, RowsFlag
from replica.protocol.header import Event, event_crc32, parse_header
from replica.protocol.wire import Cursor

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Buffer


# Extra information of MySQL's rows events: the partition, and data of NDB.
#
# The information is a list of chunks, each a type byte and a content. NDB: a length that includes itself and the
# format, the format, and data that only NDB reads. Partition: the number of the row's target partition, and with an
# UPDATE also that of its source partition. An unknown type ends the list, because its length is unknown.


class ExtraType(IntEnum):
    """Types of extra information (enum_extra_row_info_typecode)."""

    NDB = 0
    PARTITION = 1


@dataclass(frozen=True, slots=True)
class RowsExtra:
    """Extra information of a rows event. A field is None if the event does not have it."""

    partition: int | None = None
    source_partition: int | None = None
    """UPDATE only: partition of the rows before the change."""
    ndb_format: int | None = None
    ndb: bytes | None = None
    unknown: bytes = b""
    """The bytes from the first chunk of unknown type to the end."""


NO_EXTRA: Final = RowsExtra()


def read_rows_extra(data: Buffer, at: int = 0, *, update: bool = False) -> RowsExtra:
    """Parse the extra information.

    Args:
        data: the bytes after the length of the extra data.
        at: byte offset of `data` in the event, for errors.
        update: whether the event is an UPDATE.
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


DUMMY_TABLE_ID: Final = 0xFFFFFF
"""Table id of a rows event without rows that only ends the statement."""


class RowsKind(IntEnum):
    INSERT = 0
    UPDATE = 1
    DELETE = 2


ROWS_EVENTS: Final[dict[int, tuple[RowsKind, int, bool]]] = {
    EventType.WRITE_ROWS_V1: (RowsKind.INSERT, 1, False),
    EventType.UPDATE_ROWS_V1: (RowsKind.UPDATE, 1, False),
    EventType.DELETE_ROWS_V1: (RowsKind.DELETE, 1, False),
    EventType.WRITE_ROWS: (RowsKind.INSERT, 2, False),
    EventType.UPDATE_ROWS: (RowsKind.UPDATE, 2, False),
    EventType.DELETE_ROWS: (RowsKind.DELETE, 2, False),
    EventType.PARTIAL_UPDATE_ROWS: (RowsKind.UPDATE, 2, False),
    EventType.WRITE_ROWS_COMPRESSED_V1: (RowsKind.INSERT, 1, True),
    EventType.UPDATE_ROWS_COMPRESSED_V1: (RowsKind.UPDATE, 1, True),
    EventType.DELETE_ROWS_COMPRESSED_V1: (RowsKind.DELETE, 1, True),
    EventType.WRITE_ROWS_COMPRESSED: (RowsKind.INSERT, 2, True),
    EventType.UPDATE_ROWS_COMPRESSED: (RowsKind.UPDATE, 2, True),
    EventType.DELETE_ROWS_COMPRESSED: (RowsKind.DELETE, 2, True),
}
"""Event type -> (kind, version, compressed)."""


@dataclass(frozen=True, slots=True)
class RowsEvent(Event):
    """Row images of one table. In an UPDATE, before and after images alternate."""

    kind: RowsKind
    version: int
    table_id: int
    flags: int
    width: int
    """Number of columns of the table at the time of the change."""
    columns_before: bytes
    """Bit set of the columns present in before images; empty for INSERT."""
    columns_after: bytes
    """Bit set of the columns present in after images; empty for DELETE."""
    images: memoryview
    """Null bitmap and values of each image. With `compressed`, one compressed block."""
    compressed: bool
    extra: RowsExtra = NO_EXTRA
    """Version 2 only: MySQL's partition and NDB information."""

    @property
    def partial(self) -> bool:
        """Whether after images may hold JSON diffs."""
        return self.header.event_type == EventType.PARTIAL_UPDATE_ROWS

    @property
    def ends_statement(self) -> bool:
        return bool(self.flags & RowsFlag.STMT_END)

    @property
    def is_dummy(self) -> bool:
        return self.table_id == DUMMY_TABLE_ID and not self.images


def decode_rows(header: EventHeader, body: Cursor, description: FormatDescriptionEvent) -> RowsEvent:
    kind, version, compressed = ROWS_EVENTS[header.event_type]
    fixed = description.post_header_length(header.event_type)
    with body.restrict(fixed):
        table_id = body.u32() if fixed == 6 else body.u48()
        flags = body.u16()
        extra_length = body.u16() if version == 2 else 2
        body.rest()
    if extra_length < 2:
        raise ProtocolError("the extra data of a rows event is shorter than its own length field", offset=body.offset)
    at = body.offset
    extra = read_rows_extra(body.take(extra_length - 2), at, update=kind is RowsKind.UPDATE)
    at = body.offset
    width = body.lenenc()
    if width > MAX_COLUMNS:
        raise ProtocolError(f"a rows event of {width} columns; tables have at most {MAX_COLUMNS}", offset=at)
    before = after = b""
    if kind is RowsKind.INSERT:
        after = body.bits(width)
    else:
        before = body.bits(width)
        if kind is RowsKind.UPDATE:
            after = body.bits(width)
    return RowsEvent(header, kind, version, table_id, flags, width, before, after, body.rest(), compressed, extra)


# A PARTIAL_ROW_DATA event (MariaDB 12.3) is a fragment of a large rows event. Each fragment has the number of fragments
# and its own number; the first one also has the total size. The joined chunks are the rows event with its header, and
# its table map is before the first fragment. The rows event may be compressed, and may end with its own checksum, which
# its length then includes.
#
# The code follows the documented layout and is not tested with a server that writes these events.


HAS_ORIGINAL_SIZE: Final = 1
"""Flag of a fragment that has the total size (the server's FL_ORIG_EVENT_SIZE)."""


@dataclass(frozen=True, slots=True)
class PartialRowDataEvent(Event):
    total: int
    """Number of fragments of this rows event."""
    number: int
    """Number of this fragment, from 1."""
    size: int | None
    """Size of the rows event in bytes. Only the first fragment has it."""
    chunk: memoryview


def decode_partial_row_data(
    header: EventHeader, body: Cursor, _description: FormatDescriptionEvent
) -> PartialRowDataEvent:
    return read_partial_row_data(header, body)


def read_partial_row_data(header: EventHeader, body: Cursor) -> PartialRowDataEvent:
    at = body.offset
    total, number, flags = body.u32(), body.u32(), body.u8()
    if not 0 < number <= total:
        raise ProtocolError(f"fragment {number} of {total} of a rows event", offset=at)
    size = body.u64() if flags & HAS_ORIGINAL_SIZE else None
    return PartialRowDataEvent(header, total, number, size, body.rest())


class Assembler:
    """Assembler of fragments. Feed it the fragments in order; `add` returns the rows event with the last fragment."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._total = 0
        self._size = 0
        self._next = 0
        self._event = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether fragments are missing."""
        return self._next > 0

    def add(self, fragment: PartialRowDataEvent) -> bytes | None:
        """Add a fragment; return the whole rows event after the last one, else None.

        The returned event has its header and no checksum.
        """
        if fragment.number == 1 and not self.is_open:
            if fragment.size is None:
                raise ProtocolError("the first fragment of a rows event does not contain its size")
            if not HEADER_LENGTH <= fragment.size <= self._limit:
                raise ProtocolError(
                    f"a rows event of {fragment.size} bytes in fragments; at most {self._limit} are allowed"
                )
            self._total, self._size, self._next, self._event = fragment.total, fragment.size, 1, bytearray()
        if (fragment.number, fragment.total) != (self._next, self._total):
            raise ProtocolError(
                f"fragment {fragment.number} of {fragment.total} of a rows event, "
                f"expected {max(self._next, 1)} of {self._total or fragment.total}",
                hint="Fragments are missing: start before the first of them.",
            )
        if len(self._event) + len(fragment.chunk) > self._size:
            raise ProtocolError(f"the fragments of a rows event have more than the {self._size} bytes it claims")
        self._event += fragment.chunk
        if self._next < self._total:
            self._next += 1
            return None
        self._next = 0
        if len(self._event) != self._size:
            raise ProtocolError(
                f"the fragments of a rows event have {len(self._event)} bytes, {self._size} are claimed"
            )
        return _without_checksum(bytes(self._event))


def _without_checksum(event: bytes) -> bytes:
    """Return the rows event without its checksum, with the length in its header adjusted."""
    header = parse_header(event)
    length = len(event)
    if header.event_type not in ROWS_EVENTS or header.event_length not in (length, length + CHECKSUM_LENGTH):
        raise ProtocolError(
            "the fragments of a rows event do not form a rows event",
            hint="Without the event's own header, an INSERT and a DELETE look the same.",
        )
    content = event
    if header.event_length == length and length >= HEADER_LENGTH + CHECKSUM_LENGTH:
        stored = int.from_bytes(event[-CHECKSUM_LENGTH:], "little")
        if stored == event_crc32(memoryview(event)[:-CHECKSUM_LENGTH]):
            content = event[:-CHECKSUM_LENGTH]
    return content[:9] + len(content).to_bytes(4, "little") + content[13:]
