"""Binlog and relay files: a reader of their bytes, and encoders of the events that we write into relay files.

A file is the magic, a FORMAT_DESCRIPTION event, and further events without gaps. It may end with a ROTATE or STOP
event. After a crash, and while it is written, a file may end anywhere. `walk` finds the events without decoding them,
and `decode_file` decodes them. Refused: another magic, files encrypted by the server, and an event that exceeds the end
(TruncatedError, whose offset is the start of the torn tail).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol import header as checksums
from replica.protocol.constants import (
    BINLOG_MAGIC,
    CHECKSUM_LENGTH,
    FIRST_POSITION,
    HEADER_LENGTH,
    ChecksumAlgorithm,
    EventType,
    HeaderFlag,
    event_name,
)
from replica.protocol.events.decode import FormatDescriptionEvent, decode, decode_description
from replica.protocol.header import HEADER, EventHeader, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replica.protocol.gtid import Gtid
    from replica.protocol.header import Event
    from replica.protocol.wire import Buffer


class FileEvent(NamedTuple):
    """Undecoded event and its place in the file."""

    offset: int
    header: EventHeader
    event: memoryview
    """Header, body and checksum."""
    description: FormatDescriptionEvent
    """The last FORMAT_DESCRIPTION at or before the event, which describes how to decode it."""

    @property
    def end(self) -> int:
        return self.offset + self.header.event_length


def walk(
    data: Buffer, start: int = FIRST_POSITION, description: FormatDescriptionEvent | None = None
) -> Iterator[FileEvent]:
    """Yield every event of a file.

    Args:
        data: the whole file. The yielded memoryviews refer to this buffer.
        start: byte offset where an event starts.
        description: the FORMAT_DESCRIPTION that applies at `start`, if that is not the first event.

    Raises:
        ProtocolError: the file is refused. Offsets in errors count from the start of `data`.
    """
    view = memoryview(data)
    if bytes(view[: len(BINLOG_MAGIC)]) != BINLOG_MAGIC:
        raise ProtocolError("this is not a binlog file: the magic FE 62 69 6E is missing", offset=0)
    offset = start
    while offset < len(view):
        header = parse_header(view, offset)
        end = offset + header.event_length
        if end > len(view):
            raise TruncatedError(
                f"{event_name(header.event_type)} event of {header.event_length} bytes, "
                f"but only {len(view) - offset} are left in the file",
                offset=offset,
            )
        event = view[offset:end]
        if description is None or header.event_type == EventType.FORMAT_DESCRIPTION:
            try:
                description = decode_description(event)
            except ProtocolError as error:
                raise _at(error, offset) from None
        if header.event_type == EventType.START_ENCRYPTION and not header.flags & HeaderFlag.IGNORABLE:
            raise UnsupportedEventError(
                "the file is encrypted",
                offset=offset,
                hint="Read it from the server, which decrypts what it sends, or turn encrypt_binlog off.",
            )
        yield FileEvent(offset, header, event, description)
        offset = end


def decode_file(data: Buffer, start: int = FIRST_POSITION) -> Iterator[tuple[FileEvent, Event]]:
    """Yield every event with its decoded value. Offsets in errors count from the start of the file."""
    for found in walk(data, start):
        try:
            yield found, decode(found.event, found.description)
        except ProtocolError as error:
            raise _at(error, found.offset) from None


def _at(error: ProtocolError, offset: int) -> ProtocolError:
    """Return the same error with its offset counted from the start of the file."""
    message = error.placeless
    return type(error)(message, offset=offset + (error.offset or 0), hint=error.hint)


# Encoded events equal the server's own byte for byte, so that MariaDB's tools can read the files. The encoders compute
# the lengths; the caller knows the file and gives `log_pos`.


_GTID = struct.Struct(
    "<"
    "I"  # domain_id
    "I"  # server_id
    "Q"  # seq_no
)


def encode_event(
    event_type: int,
    body: bytes,
    *,
    server_id: int,
    checksum: ChecksumAlgorithm,
    timestamp: int = 0,
    log_pos: int = 0,
    flags: int = 0,
) -> bytes:
    """Encode one event. `log_pos` may be a 64-bit position; the header keeps its low 32 bits."""
    has_checksum = checksum == ChecksumAlgorithm.CRC32
    length = HEADER_LENGTH + len(body) + (CHECKSUM_LENGTH if has_checksum else 0)
    event = HEADER.pack(timestamp, event_type, server_id, length, log_pos & 0xFFFFFFFF, flags) + body
    return checksums.append(event) if has_checksum else event


def encode_rotate(
    file: str,
    position: int,
    *,
    server_id: int,
    checksum: ChecksumAlgorithm,
    timestamp: int = 0,
    log_pos: int = 0,
    flags: int = HeaderFlag.ARTIFICIAL,
) -> bytes:
    """Encode a ROTATE event, which names the file and the offset of the events after it.

    By default the event is artificial, like the one with which a dump starts.
    """
    body = struct.pack("<Q", position) + file.encode()
    return encode_event(
        EventType.ROTATE,
        body,
        server_id=server_id,
        checksum=checksum,
        timestamp=timestamp,
        log_pos=log_pos,
        flags=flags,
    )


def encode_gtid_list(
    gtids: Iterable[Gtid],
    *,
    server_id: int,
    checksum: ChecksumAlgorithm,
    timestamp: int = 0,
    log_pos: int = 0,
    flags: int = 0,
) -> bytes:
    """Encode a GTID_LIST event, the binlog state at this place of the file.

    A `GtidPosition` is an iterable of GTIDs.
    """
    entries = [_GTID.pack(*gtid) for gtid in gtids]
    # The server refuses a GTID_LIST that is shorter than a GTID event of version 10.0. An empty list is padded by 2
    # bytes.
    body = struct.pack("<I", len(entries)) + (b"".join(entries) or b"\0\0")
    return encode_event(
        EventType.GTID_LIST,
        body,
        server_id=server_id,
        checksum=checksum,
        timestamp=timestamp,
        log_pos=log_pos,
        flags=flags,
    )
