"""Decoding of binlog events: the decoders by event type, and `decode`, which calls them.

`decode` takes one whole event with header and checksum. It refuses damaged events (ChecksumError, TruncatedError,
ProtocolError) and types that it cannot read (UnsupportedEventError). An unreadable event with the IGNORABLE flag
becomes an UnknownEvent with its bytes, so that only the caller decides to skip an event.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

from replica.errors import ChecksumError, ProtocolError, TruncatedError
from replica.protocol import header as checksums
from replica.protocol.constants import (
    CHECKSUM_LENGTH,
    HEADER_LENGTH,
    ChecksumAlgorithm,
    EventType,
    event_name,
)
from replica.protocol.events.file_events import (
    BinlogCheckpointEvent,
    HeartbeatEvent,
    IncidentEvent,
    RotateEvent,
    StartEncryptionEvent,
    StopEvent,
    UnknownEvent,
    decode_rotate,
    decode_unknown,
    refuse_unreadable,
)
from replica.protocol.events.statement_events import (
    AnnotateRowsEvent,
    ExecuteLoadQueryEvent,
    IntvarEvent,
    LoadBlockEvent,
    QueryEvent,
    RandEvent,
    RowsQueryEvent,
    StatusVars,
    UserVarEvent,
)
from replica.protocol.events.transaction_events import (
    GtidEvent,
    GtidListEvent,
    XaId,
    XaPrepareEvent,
    XidEvent,
)
from replica.protocol.header import (
    HEADER,
    Event,
    EventHeader,
    FormatDescriptionEvent,
    announced_checksum,
    decode_format_description,
    parse_header,
)
from replica.protocol.mysql.events import (
    MySqlGtidEvent,
    PreviousGtidsEvent,
    TransactionPayloadEvent,
)
from replica.protocol.rows.rows_event import PartialRowDataEvent, RowsEvent, RowsKind
from replica.protocol.rows.table_map import ColumnDef, TableMapEvent
from replica.protocol.wire import Buffer, Cursor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "DECODERS",
    "HEADER",
    "AnnotateRowsEvent",
    "BinlogCheckpointEvent",
    "ColumnDef",
    "Event",
    "EventHeader",
    "ExecuteLoadQueryEvent",
    "FormatDescriptionEvent",
    "GtidEvent",
    "GtidListEvent",
    "HeartbeatEvent",
    "IncidentEvent",
    "IntvarEvent",
    "LoadBlockEvent",
    "MySqlGtidEvent",
    "PartialRowDataEvent",
    "PreviousGtidsEvent",
    "QueryEvent",
    "RandEvent",
    "RotateEvent",
    "RowsEvent",
    "RowsKind",
    "RowsQueryEvent",
    "StartEncryptionEvent",
    "StatusVars",
    "StopEvent",
    "TableMapEvent",
    "TransactionPayloadEvent",
    "UnknownEvent",
    "UserVarEvent",
    "XaId",
    "XaPrepareEvent",
    "XidEvent",
    "decode",
    "decode_description",
    "parse_header",
]


Decoder: TypeAlias = "Callable[[EventHeader, Cursor, FormatDescriptionEvent], Event]"


def _decoder(name: str) -> Decoder:
    module, _, function = name.rpartition(".")
    found: Decoder = getattr(import_module(f"replica.protocol.{module}"), function)
    return found


DECODERS: Final[dict[int, Decoder]] = {row: _decoder(row.decoder) for row in EventType if row.decoder}
"""Event type -> decoder of the body, from the table `constants.EventType`."""


def decode(
    event: Buffer,
    description: FormatDescriptionEvent | None = None,
    *,
    checksum: ChecksumAlgorithm | None = None,
) -> Event:
    """Decode one event.

    Args:
        event: the whole event, with header and checksum.
        description: the last FORMAT_DESCRIPTION event; None before the first one, when only FORMAT_DESCRIPTION and
            ROTATE can be decoded.
        checksum: the checksum algorithm, if it differs from the description's. After a change of binlog_checksum, the
            artificial ROTATE still has the algorithm of the old file. If `description` and `checksum` are None, the
            algorithm of a ROTATE is found by trial.

    Raises:
        ProtocolError: the event is damaged or not supported. Offsets in errors count from the start of the event.
    """
    data = memoryview(event)
    header = parse_header(data)
    _check_length(header, data)
    if header.event_type == EventType.FORMAT_DESCRIPTION:
        return _description(header, data)
    if description is None and header.event_type != EventType.ROTATE:
        raise ProtocolError(f"{event_name(header.event_type)} event before any FORMAT_DESCRIPTION event", offset=0)
    content = checksums.strip(data, _algorithm(data, description) if checksum is None else checksum)
    body = Cursor(content, HEADER_LENGTH)
    if description is None:
        return decode_rotate(header, body, None)
    decoder = DECODERS.get(header.event_type)
    if decoder is not None:
        return decoder(header, body, description)
    refuse_unreadable(header)
    return decode_unknown(header, body, description)


def decode_description(event: Buffer) -> FormatDescriptionEvent:
    """Decode an event that must be a FORMAT_DESCRIPTION."""
    header = parse_header(event)
    if header.event_type != EventType.FORMAT_DESCRIPTION:
        raise ProtocolError(f"{event_name(header.event_type)} event before any FORMAT_DESCRIPTION event", offset=0)
    data = memoryview(event)
    _check_length(header, data)
    return _description(header, data)


def _check_length(header: EventHeader, data: memoryview) -> None:
    if header.event_length != len(data):
        kind = TruncatedError if len(data) < header.event_length else ProtocolError
        raise kind(f"{event_name(header.event_type)} event of {header.event_length} bytes, got {len(data)}", offset=0)


def _description(header: EventHeader, data: memoryview) -> FormatDescriptionEvent:
    if len(data) < HEADER_LENGTH + 1 + CHECKSUM_LENGTH:
        raise TruncatedError(f"a FORMAT_DESCRIPTION event of {len(data)} bytes is too short", offset=0)
    # Old servers leave garbage in the four bytes if the file has no checksums.
    if announced_checksum(data) == ChecksumAlgorithm.CRC32:
        checksums.strip(data, ChecksumAlgorithm.CRC32)
    return decode_format_description(header, Cursor(data, HEADER_LENGTH, len(data) - CHECKSUM_LENGTH))


def _algorithm(data: memoryview, description: FormatDescriptionEvent | None) -> ChecksumAlgorithm:
    if description is not None:
        return description.checksum
    try:
        checksums.strip(data, ChecksumAlgorithm.CRC32)
    except (ChecksumError, TruncatedError):
        return ChecksumAlgorithm.NONE
    return ChecksumAlgorithm.CRC32
