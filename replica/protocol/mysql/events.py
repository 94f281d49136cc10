"""Events that only MySQL writes: GTIDs, the GTIDs of earlier files, and compressed transactions.

A MySQL GTID is the uuid of the server that committed first, an optional tag (8.3+), and a number. The number counts up
for each uuid and tag. GTID_LOG, ANONYMOUS_GTID and GTID_TAGGED_LOG each open an event group. GTID_TAGGED_LOG has the
same fields in MySQL's serialization format: numbered fields in rising order, without the fields that have their default
value. PREVIOUS_GTIDS stands at the start of a file.

TRANSACTION_PAYLOAD has all events of a transaction after its GTID event, compressed together. The body has fields of
type, size and value, up to a type 0, and then the payload: whole events without checksums. The log_pos of these events
is meaningless. The decompressed events never take more memory than the size that the event claims. A claim beyond the
largest event, or beyond the maximum ratio of zstd, is refused before decompression.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import zstandard

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import MAX_EVENT_BYTES, EventType
from replica.protocol.header import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Cursor

# Variable-length integers and texts of MySQL's serialization library, in GTID_TAGGED_LOG events.
#
# The number of one bits at the low end of the first byte is the number of bytes that follow (0 to 8). The bits of the
# value are above them, little endian. Signed numbers have their sign in the lowest bit.

_MAX_MORE: Final = 8


def read_unsigned(cursor: Cursor) -> int:
    first = cursor.peek_rest()[:1]
    more = _ones(first[0]) if first else 0
    word = int.from_bytes(cursor.take(more + 1), "little")
    # If eight bytes follow, the first byte has no bits of the value, and no zero bit that ends the ones.
    return word >> 8 if more == _MAX_MORE else word >> (more + 1)


def read_signed(cursor: Cursor) -> int:
    value = read_unsigned(cursor)
    return ~(value >> 1) if value & 1 else value >> 1


def read_text(cursor: Cursor) -> str:
    """Read a size and UTF-8 text."""
    return cursor.text(read_unsigned(cursor))


def _ones(byte: int) -> int:
    """Return the number of one bits at the low end."""
    return (~byte & (byte + 1)).bit_length() - 1


_LOGICAL_TIMESTAMPS: Final = 2  # code that announces last_committed and sequence_number
_HAS_ORIGINAL_TIME: Final = 1 << 55
_HAS_ORIGINAL_VERSION: Final = 1 << 31
_SERIALIZATION_VERSION: Final = 1
_MAX_TAG: Final = 32


@dataclass(frozen=True, slots=True)
class MySqlGtid:
    """A GTID of MySQL: `uuid:gno` or `uuid:tag:gno`."""

    uuid: UUID
    gno: int
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.uuid}:{self.tag}:{self.gno}" if self.tag else f"{self.uuid}:{self.gno}"


@dataclass(frozen=True, slots=True)
class MySqlGtidEvent(Event):
    """Start of an event group. Fields are None if the server that wrote the event did not have them yet."""

    gtid: MySqlGtid | None
    """None in ANONYMOUS_GTID."""
    may_have_statements: bool
    """False: the group holds row changes only."""
    last_committed: int | None = None
    sequence_number: int | None = None
    immediate_commit_timestamp: int | None = None
    """Microseconds since 1970 on the server that wrote this log."""
    original_commit_timestamp: int | None = None
    """Microseconds since 1970 on the server that committed first."""
    transaction_length: int | None = None
    """Length of the whole group in bytes, including this event."""
    immediate_server_version: int | None = None
    """Version of the server that wrote this log, as a number: 90704 for 9.7.4."""
    original_server_version: int | None = None
    commit_group_ticket: int | None = None


@dataclass(frozen=True, slots=True)
class GtidInterval:
    """Numbers `first` to `last`, inclusive, of one uuid and tag."""

    uuid: UUID
    tag: str
    first: int
    last: int

    def __str__(self) -> str:
        numbers = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.uuid}:{self.tag}:{numbers}" if self.tag else f"{self.uuid}:{numbers}"


@dataclass(frozen=True, slots=True)
class PreviousGtidsEvent(Event):
    """GTIDs of all transactions in the files before this one."""

    intervals: tuple[GtidInterval, ...]


def decode_mysql_gtid(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> MySqlGtidEvent:
    """Decode GTID_LOG and ANONYMOUS_GTID. From 5.6 on, each server version appends more fields."""
    flags, uuid, gno = body.u8(), UUID(bytes=bytes(body.take(16))), int.from_bytes(body.take(8), "little", signed=True)
    gtid = None if header.event_type == EventType.ANONYMOUS_GTID else MySqlGtid(uuid, gno)
    found: dict[str, int] = {}
    if body and body.u8() == _LOGICAL_TIMESTAMPS:
        found["last_committed"], found["sequence_number"] = body.u64(), body.u64()
        if body.remaining >= 7:
            _read_commit(body, found)
    return MySqlGtidEvent(header, gtid, bool(flags & 1), **found)


def _read_commit(body: Cursor, found: dict[str, int]) -> None:
    immediate = int.from_bytes(body.take(7), "little")
    found["immediate_commit_timestamp"] = found["original_commit_timestamp"] = immediate & (_HAS_ORIGINAL_TIME - 1)
    if immediate & _HAS_ORIGINAL_TIME:
        found["original_commit_timestamp"] = int.from_bytes(body.take(7), "little")
    if body:
        found["transaction_length"] = body.lenenc()
    if body.remaining >= 4:
        version = body.u32()
        found["immediate_server_version"] = found["original_server_version"] = version & (_HAS_ORIGINAL_VERSION - 1)
        if version & _HAS_ORIGINAL_VERSION:
            found["original_server_version"] = body.u32()
    if body.remaining >= 8:
        found["commit_group_ticket"] = body.u64()


def decode_tagged_gtid(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> MySqlGtidEvent:
    start = body.offset
    version, size, last_needed = read_unsigned(body), read_unsigned(body), read_unsigned(body)
    if version != _SERIALIZATION_VERSION:
        raise ProtocolError(f"serialization version {version} of a GTID_TAGGED_LOG event, expected 1", offset=start)
    if size > body.offset - start + body.remaining:
        raise ProtocolError(f"a GTID_TAGGED_LOG message of {size} bytes in an event that is shorter", offset=start)
    if last_needed > len(_FIELDS):
        raise ProtocolError(
            f"GTID_TAGGED_LOG must be read with field {last_needed}, which this program does not know",
            offset=start,
            hint="The server is newer than this program supports.",
        )
    end = start + size
    found: dict[str, Any] = {}
    while body.offset < end:
        number = read_unsigned(body)
        if number >= len(_FIELDS):
            break  # fields of a later server, which it marks as ignorable
        name, read = _FIELDS[number]
        found[name] = read(body)
    return _tagged(header, found, start)


def _tagged(header: EventHeader, found: dict[str, Any], start: int) -> MySqlGtidEvent:
    uuid, gno = found.pop("uuid", None), found.pop("gno", 0)
    if uuid is None:
        raise ProtocolError("a GTID_TAGGED_LOG event without a uuid", offset=start)
    tag = found.pop("tag", "")
    if len(tag) > _MAX_TAG:
        raise ProtocolError(f"a GTID tag of {len(tag)} characters", offset=start)
    may_have_statements = bool(found.pop("flags", 0) & 1)
    for what in ("commit_timestamp", "server_version"):
        if f"immediate_{what}" in found:
            found.setdefault(f"original_{what}", found[f"immediate_{what}"])
    return MySqlGtidEvent(header, MySqlGtid(uuid, gno, tag), may_have_statements, **found)


def _uuid(body: Cursor) -> UUID:
    # An array of bytes is an array of numbers. Numbers above 127 take two bytes.
    at, numbers = body.offset, [read_unsigned(body) for _ in range(16)]
    if max(numbers) > 0xFF:
        raise ProtocolError("a uuid with a byte above 255", offset=at)
    return UUID(bytes=bytes(numbers))


_FIELDS: Final[tuple[tuple[str, Callable[[Cursor], Any]], ...]] = (
    ("flags", read_unsigned),
    ("uuid", _uuid),
    ("gno", read_signed),
    ("tag", read_text),
    ("last_committed", read_signed),
    ("sequence_number", read_signed),
    ("immediate_commit_timestamp", read_unsigned),
    ("original_commit_timestamp", read_unsigned),
    ("transaction_length", read_unsigned),
    ("immediate_server_version", read_unsigned),
    ("original_server_version", read_unsigned),
    ("commit_group_ticket", read_unsigned),
)
"""Fields by their number."""


def decode_previous_gtids(
    header: EventHeader, body: Cursor, _description: FormatDescriptionEvent
) -> PreviousGtidsEvent:
    """Decode PREVIOUS_GTIDS.

    If the highest byte of the first number is 1, the sets have tags (8.3+), and bits 8 to 55 hold the count.
    """
    word = body.u64()
    tagged = word >> 56 == 1
    count = word >> 8 & (1 << 48) - 1 if tagged else word
    intervals: list[GtidInterval] = []
    for _ in range(count):  # a damaged count stops at the end of the bytes
        uuid = UUID(bytes=bytes(body.take(16)))
        tag = read_text(body) if tagged else ""
        for _ in range(body.u64()):
            first, after_last = body.u64(), body.u64()
            intervals.append(GtidInterval(uuid, tag, first, after_last - 1))
    return PreviousGtidsEvent(header, tuple(intervals))


MAX_RATIO: Final = 1 << 15
"""Maximum ratio of zstd: a block of at least four bytes yields at most 128 KiB."""
MAX_WINDOW: Final = 1 << 27
"""Maximum history in bytes that a decompressor keeps. MySQL's levels 1 to 22 stay within it."""
_CHUNK: Final = 1 << 20


class _Field(IntEnum):
    END = 0
    SIZE = 1
    COMPRESSION = 2
    UNCOMPRESSED_SIZE = 3


class Compression(IntEnum):
    """Compression algorithms (transaction::compression::type)."""

    ZSTD = 0
    NONE = 255


@dataclass(frozen=True, slots=True)
class TransactionPayloadEvent(Event):
    compression: int
    """A `Compression`, or the code of an algorithm that this program does not know."""
    uncompressed_size: int
    payload: memoryview

    def events(self, *, limit: int = MAX_EVENT_BYTES) -> bytes | memoryview:
        """Return the decompressed events without gaps. `limit` is the maximum size in bytes that the caller accepts.

        Raises:
            ProtocolError: the payload is damaged or larger than `limit`.
        """
        size = self.uncompressed_size
        if size > limit:
            raise ProtocolError(f"a transaction of {size} bytes in a payload; at most {limit} are allowed", offset=0)
        if self.compression == Compression.NONE:
            if len(self.payload) != size:
                raise ProtocolError(f"a payload of {len(self.payload)} bytes that claims {size}", offset=0)
            return self.payload
        if self.compression != Compression.ZSTD:
            raise UnsupportedEventError(
                f"a transaction is compressed with the unknown algorithm {self.compression}", offset=0
            )
        if size > MAX_RATIO * len(self.payload):
            raise ProtocolError(f"a payload of {len(self.payload)} bytes claims to hold {size}", offset=0)
        return _decompress(self.payload, size)


def _decompress(payload: memoryview, size: int) -> bytes:
    out = bytearray()
    try:
        with zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(payload) as reader:
            while piece := reader.read(min(_CHUNK, size + 1 - len(out))):
                out += piece
    except zstandard.ZstdError as error:
        raise ProtocolError(f"a transaction payload cannot be decompressed: {error}", offset=0) from None
    if len(out) != size:
        raise ProtocolError(f"a transaction payload does not decompress to the {size} bytes it claims", offset=0)
    return bytes(out)


def decode_transaction_payload(
    header: EventHeader, body: Cursor, _description: FormatDescriptionEvent
) -> TransactionPayloadEvent:
    return read_transaction_payload(header, body)


def read_transaction_payload(header: EventHeader, body: Cursor) -> TransactionPayloadEvent:
    found: dict[int, int] = {}
    start = body.offset
    while kind := body.lenenc():
        with body.restrict(body.lenenc()):
            if kind in (_Field.SIZE, _Field.COMPRESSION, _Field.UNCOMPRESSED_SIZE):
                found[kind] = body.lenenc()
            body.rest()
    compression = found.get(_Field.COMPRESSION, Compression.NONE)
    payload = body.rest()
    claimed = found.get(_Field.SIZE, len(payload))
    if claimed > len(payload):
        raise TruncatedError(f"a payload of {claimed} bytes, {len(payload)} are left", offset=start)
    payload = payload[:claimed]
    return TransactionPayloadEvent(header, compression, found.get(_Field.UNCOMPRESSED_SIZE, len(payload)), payload)
