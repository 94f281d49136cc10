"""The 19-byte header of every event, the base class of events, and the FORMAT_DESCRIPTION event.

`parse_header` reads a header. `FormatDescriptionEvent` has the checksum algorithm and the lengths of the fixed parts of
all events after it in its file. Decoders must take both from that event and never guess them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from replica.errors import ChecksumError, ProtocolError, TruncatedError
from replica.protocol.constants import (
    CHECKSUM_LENGTH,
    FLAGS_AT,
    HEADER_LENGTH,
    TYPE_AT,
    ChecksumAlgorithm,
    EventType,
    HeaderFlag,
    event_name,
)

if TYPE_CHECKING:
    from replica.protocol.wire import Buffer, Cursor

HEADER: Final = struct.Struct(
    "<"
    "I"  # timestamp       seconds since 1970; 0 in artificial events
    "B"  # event_type
    "I"  # server_id
    "I"  # event_length    header, body and checksum
    "I"  # log_pos         where the next event starts, low 32 bits
    "H"  # flags
)


class EventHeader(NamedTuple):
    """Header of an event.

    `log_pos` wraps at 4 GiB. It is 0 in artificial events and, in 11.7+, in most events inside a transaction.
    """

    timestamp: int
    event_type: int
    server_id: int
    event_length: int
    log_pos: int
    flags: int

    @property
    def is_artificial(self) -> bool:
        """Whether the event was made for this connection.

        Such an event is not in the primary's binlog, and its log_pos is no position.
        """
        return bool(self.flags & HeaderFlag.ARTIFICIAL)


@dataclass(frozen=True, slots=True)
class Event:
    """Base class of decoded events."""

    header: EventHeader


def parse_header(data: Buffer, offset: int = 0) -> EventHeader:
    """Parse the header at `offset`. The body need not be in the buffer yet.

    Raises:
        TruncatedError: fewer than 19 bytes are left.
        ProtocolError: the event length is shorter than the header.
    """
    if len(data) - offset < HEADER_LENGTH:
        raise TruncatedError(f"an event header has {HEADER_LENGTH} bytes, {len(data) - offset} are left", offset=offset)
    header = EventHeader._make(HEADER.unpack_from(data, offset))
    if header.event_length < HEADER_LENGTH:
        raise ProtocolError(
            f"{event_name(header.event_type)} event claims {header.event_length} bytes, less than its header",
            offset=offset,
        )
    return header


# FORMAT_DESCRIPTION is the first event of every file and of every file's part of a dump. It gives the length of the
# fixed part of each event type, which later servers may lengthen, and the checksum algorithm of all following events.

BINLOG_VERSION: Final = 4
_VERSION_LENGTH: Final = 50


@dataclass(frozen=True, slots=True)
class FormatDescriptionEvent(Event):
    """Description of the events of a file: server version, checksum algorithm, lengths of the fixed parts.

    `created` is the time of a server start in the first file after that start, and 0 in other files. A server start
    ends all temporary tables.
    """

    server_version: str
    created: int
    post_header_lengths: bytes
    """Length in bytes of the fixed part of type 1, 2, 3 ..."""
    checksum: ChecksumAlgorithm

    @property
    def is_mysql(self) -> bool:
        return "MariaDB" not in self.server_version

    @property
    def version_number(self) -> int:
        """The version as a number, as in executable comments: 11.8.3-MariaDB-log -> 110803."""
        major, minor, patch = (int(number) for number in re.findall(r"\d+", self.server_version)[:3])
        return major * 10_000 + minor * 100 + patch

    def post_header_length(self, event_type: int) -> int:
        if not 0 < event_type <= len(self.post_header_lengths):
            raise ProtocolError(f"the FORMAT_DESCRIPTION event does not describe {event_name(event_type)} events")
        return self.post_header_lengths[event_type - 1]


def decode_format_description(header: EventHeader, body: Cursor) -> FormatDescriptionEvent:
    """Decode a FORMAT_DESCRIPTION event. `body` ends before the four checksum bytes, which this event always has."""
    version = body.u16()
    if version != BINLOG_VERSION:
        raise ProtocolError(f"binlog format version {version}, expected 4", offset=body.offset - 2)
    raw_version = bytes(body.take(_VERSION_LENGTH)).partition(b"\0")[0]
    server_version = raw_version.decode("ascii", "replace")
    if not _has_checksum_field(server_version):
        raise ProtocolError(
            f"the binlog was written by server version {server_version!r}, older than checksums in binlogs",
            hint="Servers since MariaDB 5.3 and MySQL 5.6.1 can be read.",
        )
    created = body.u32()
    header_length = body.u8()
    if header_length != HEADER_LENGTH:
        raise ProtocolError(f"event headers of {header_length} bytes, expected 19", offset=body.offset - 1)
    lengths = bytes(body.take(max(body.remaining - 1, 0)))
    algorithm = body.u8()
    if algorithm not in (ChecksumAlgorithm.NONE, ChecksumAlgorithm.CRC32):
        raise ProtocolError(f"unknown checksum algorithm {algorithm}", offset=body.offset - 1)
    if len(lengths) < EventType.FORMAT_DESCRIPTION:
        raise ProtocolError(
            f"the FORMAT_DESCRIPTION event describes only {len(lengths)} event types", offset=body.offset
        )
    return FormatDescriptionEvent(header, server_version, created, lengths, ChecksumAlgorithm(algorithm))


def announced_checksum(event: memoryview) -> int:
    """Return the algorithm byte of an undecoded FORMAT_DESCRIPTION event, whose length the caller has checked."""
    return event[-CHECKSUM_LENGTH - 1]


def _has_checksum_field(server_version: str) -> bool:
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})", server_version)
    if not numbers:
        return False
    return tuple(map(int, numbers.groups())) >= ((5, 3, 0) if "MariaDB" in server_version else (5, 6, 1))


# The FORMAT_DESCRIPTION event of a file decides whether its events have a checksum; never guess. The
# FORMAT_DESCRIPTION event itself always has the four bytes, even if it announces that the rest of the file has no
# checksums.
#
# Source: the server's sql/log_event.cc (event_checksum_test, get_checksum_alg), 10.11 and 11.8; measured on the
# binlogs of 10.5, 10.11 and 11.8 in tests/vectors.


def event_crc32(data: memoryview) -> int:
    """Return the CRC32 of an event. `data` is the event without its last four bytes.

    For a FORMAT_DESCRIPTION event, BINLOG_IN_USE counts as cleared. The server sets that flag in its open file, and
    clears it at close without a new checksum (sql/log_event.cc: event_checksum_test, 10.11 and 11.8).
    """
    if data[TYPE_AT] != EventType.FORMAT_DESCRIPTION:
        return crc32(data)
    flags = data[FLAGS_AT] & ~HeaderFlag.BINLOG_IN_USE
    return crc32(data[FLAGS_AT + 1 :], crc32(bytes((flags,)), crc32(data[:FLAGS_AT])))


def strip(event: memoryview, algorithm: int) -> memoryview:
    """Check the checksum of an event and return the event without it. With NONE, return the event unchanged.

    Raises:
        TruncatedError: the event is too short to have a checksum.
        ChecksumError: the checksum does not match.
    """
    if algorithm == ChecksumAlgorithm.NONE:
        return event
    if len(event) < HEADER_LENGTH + CHECKSUM_LENGTH:
        raise TruncatedError(f"an event with a checksum has at least 23 bytes, this has {len(event)}", offset=0)
    content = event[:-CHECKSUM_LENGTH]
    stored, computed = int.from_bytes(event[-CHECKSUM_LENGTH:], "little"), event_crc32(content)
    if stored != computed:
        raise ChecksumError(
            f"event does not match its checksum: stored {stored:08x}, computed {computed:08x}",
            offset=0,
            hint="The bytes changed on the way or on disk; read the same position again, then check memory and disks.",
        )
    return content


def append(content: bytes) -> bytes:
    """Append the CRC32 to an event. The `event_length` in its header must include these four bytes."""
    return content + event_crc32(memoryview(content)).to_bytes(CHECKSUM_LENGTH, "little")
