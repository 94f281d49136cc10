"""Events about the binlog itself: ROTATE, STOP, HEARTBEAT (V2), BINLOG_CHECKPOINT, START_ENCRYPTION, INCIDENT.

These events belong to no transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError, UnsupportedEventError
from replica.protocol.constants import ROLES, HeaderFlag, Role, event_name
from replica.protocol.header import Event
from replica.protocol.plain_text import has_control

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Cursor

_HEARTBEAT_FILE: Final = 1
_HEARTBEAT_POSITION: Final = 2


@dataclass(frozen=True, slots=True)
class RotateEvent(Event):
    """Name of the next file. An artificial ROTATE starts every file of a dump and names the current file."""

    position: int
    file: str


@dataclass(frozen=True, slots=True)
class StopEvent(Event):
    """Mark of a clean shutdown of the server. A reader continues with the next file."""


@dataclass(frozen=True, slots=True)
class HeartbeatEvent(Event):
    """The primary's end of the binlog, sent after an idle heartbeat period. A heartbeat never moves a GTID position."""

    file: str
    position: int


@dataclass(frozen=True, slots=True)
class BinlogCheckpointEvent(Event):
    """The oldest file that the server needs for crash recovery. A replica ignores it."""

    file: str


@dataclass(frozen=True, slots=True)
class StartEncryptionEvent(Event):
    """Start of an encrypted stream.

    In a file, the events after it are encrypted. On the wire (IGNORABLE flag), the server has decrypted them.
    """

    scheme: int
    key_version: int
    nonce: bytes


@dataclass(frozen=True, slots=True)
class IncidentEvent(Event):
    """Loss of events on the primary (incident 1 = LOST_EVENTS). A replica that continues differs from its primary."""

    incident: int
    message: str


def _file_name(body: Cursor) -> str:
    """Return the rest of the body as a file name.

    Control characters are refused, because the name is printed and compared with file names.
    """
    at = body.offset
    name = body.text(body.remaining)
    if has_control(name):
        raise ProtocolError(f"the name of a binlog file has control characters: {name!r}", offset=at)
    return name


def decode_rotate(header: EventHeader, body: Cursor, description: FormatDescriptionEvent | None) -> RotateEvent:
    """Decode a ROTATE event.

    The artificial one that opens a dump comes before any FORMAT_DESCRIPTION. Its fixed part has 8 bytes.
    """
    with body.restrict(description.post_header_length(header.event_type) if description else 8):
        position = body.u64()
        body.rest()
    return RotateEvent(header, position, _file_name(body))


def decode_stop(header: EventHeader, _body: Cursor, _description: FormatDescriptionEvent) -> StopEvent:
    return StopEvent(header)


def decode_heartbeat(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> HeartbeatEvent:
    # For a position beyond 32 bits, the header has 0 and the body has the full position before the name.
    position = header.log_pos or body.u64()
    return HeartbeatEvent(header, _file_name(body), position)


def decode_heartbeat_v2(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> HeartbeatEvent:
    """Decode MySQL's heartbeat (8.0.26+): fields of type, size and value, up to a type 0.

    Types of later servers are ignored.
    """
    file, position = "", 0
    while field := body.lenenc():
        with body.restrict(body.lenenc()):
            if field == _HEARTBEAT_FILE:
                file = body.text(body.remaining)
            elif field == _HEARTBEAT_POSITION:
                position = body.lenenc()
            body.rest()
    return HeartbeatEvent(header, file, position)


def decode_binlog_checkpoint(
    header: EventHeader, body: Cursor, _description: FormatDescriptionEvent
) -> BinlogCheckpointEvent:
    return BinlogCheckpointEvent(header, body.text(body.u32()))


def decode_start_encryption(
    header: EventHeader, body: Cursor, _description: FormatDescriptionEvent
) -> StartEncryptionEvent:
    return StartEncryptionEvent(header, body.u8(), body.u32(), bytes(body.take(12)))


def decode_incident(header: EventHeader, body: Cursor, description: FormatDescriptionEvent) -> IncidentEvent:
    with body.restrict(description.post_header_length(header.event_type)):
        incident = body.u16()
        body.rest()
    message = bytes(body.take(body.u8())) if body else b""
    return IncidentEvent(header, incident, message.decode("utf-8", "replace"))


# An UnknownEvent may be skipped; the caller decides.


@dataclass(frozen=True, slots=True)
class UnknownEvent(Event):
    """An event of a type without a decoder, which may be skipped.

    Either it has the IGNORABLE flag, or it is bookkeeping of MySQL's group replication and holds no change.
    """

    body: bytes


def decode_unknown(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> UnknownEvent:
    return UnknownEvent(header, bytes(body.rest()))


def refuse_unreadable(header: EventHeader) -> None:
    """Raise an UnsupportedEventError for an event that cannot be read and must not be skipped.

    Source: MariaDB 10.11.18, sql/log_event.cc, Log_event::read_log_event. The server skips every event with the
    IGNORABLE flag. We do not skip events that may hold changes (Role.REFUSED).
    """
    role = ROLES[header.event_type]
    if role is Role.REFUSED:
        raise UnsupportedEventError(
            f"{event_name(header.event_type)} is an event of servers before MySQL 5.1",
            offset=0,
            hint="No later server writes it: the file was assembled from parts, or its bytes are damaged.",
        )
    if role is Role.STRANGER and not header.flags & HeaderFlag.IGNORABLE:
        raise UnsupportedEventError(
            f"{event_name(header.event_type)} event cannot be read and must not be skipped",
            offset=0,
            hint="The stream comes from a server that is newer or of another kind than this program supports.",
        )
