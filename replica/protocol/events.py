"""Event bytes in, event values out: the one table of decoders and the one function that uses it.

`decode` takes one whole event, header and checksum included. It refuses damaged events (ChecksumError, TruncatedError,
ProtocolError) and types it cannot read (UnsupportedEventError) unless their header says they may be ignored: those come
out as UnknownEvent, bytes kept, so that skipping them is the caller's own visible decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import ChecksumError, ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol import checksum as checksums
from replica.protocol.constants import (
    CHECKSUM_LENGTH,
    HEADER_LENGTH,
    HISTORICAL,
    ChecksumAlgorithm,
    EventType,
    HeaderFlag,
    event_name,
)
from replica.protocol.file_events import (
    BinlogCheckpointEvent,
    HeartbeatEvent,
    IncidentEvent,
    RotateEvent,
    StartEncryptionEvent,
    StopEvent,
    decode_binlog_checkpoint,
    decode_heartbeat,
    decode_heartbeat_v2,
    decode_incident,
    decode_rotate,
    decode_start_encryption,
    decode_stop,
)
from replica.protocol.format_description import (
    FormatDescriptionEvent,
    announced_checksum,
    decode_format_description,
)
from replica.protocol.header import HEADER, Event, EventHeader, parse_header
from replica.protocol.mysql_gtid import (
    MySqlGtidEvent,
    PreviousGtidsEvent,
    decode_mysql_gtid,
    decode_previous_gtids,
    decode_tagged_gtid,
)
from replica.protocol.partial_row_data import PartialRowDataEvent, decode_partial_row_data
from replica.protocol.query import QueryEvent, StatusVars, decode_query
from replica.protocol.rows_event import ROWS_EVENTS, RowsEvent, RowsKind, decode_rows
from replica.protocol.statement_events import (
    AnnotateRowsEvent,
    ExecuteLoadQueryEvent,
    IntvarEvent,
    LoadBlockEvent,
    RandEvent,
    RowsQueryEvent,
    UserVarEvent,
    decode_annotate_rows,
    decode_execute_load_query,
    decode_intvar,
    decode_load_block,
    decode_rand,
    decode_rows_query,
    decode_user_var,
)
from replica.protocol.table_map import ColumnDef, TableMapEvent, decode_table_map
from replica.protocol.transaction_events import (
    GtidEvent,
    GtidListEvent,
    XaId,
    XaPrepareEvent,
    XidEvent,
    decode_gtid,
    decode_gtid_list,
    decode_xa_prepare,
    decode_xid,
)
from replica.protocol.transaction_payload import TransactionPayloadEvent, decode_transaction_payload
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


@dataclass(frozen=True, slots=True)
class UnknownEvent(Event):
    """An event of a type without a decoder that may be skipped.

    Its IGNORABLE flag says so, or it is MySQL's own bookkeeping (of group replication) that holds no change.
    """

    body: bytes


def _decode_unknown(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> UnknownEvent:
    return UnknownEvent(header, bytes(body.rest()))


DECODERS: Final[dict[int, Callable[[EventHeader, Cursor, FormatDescriptionEvent], Event]]] = {
    EventType.QUERY: decode_query,
    EventType.STOP: decode_stop,
    EventType.ROTATE: decode_rotate,
    EventType.INTVAR: decode_intvar,
    EventType.APPEND_BLOCK: decode_load_block,
    EventType.RAND: decode_rand,
    EventType.USER_VAR: decode_user_var,
    EventType.XID: decode_xid,
    EventType.BEGIN_LOAD_QUERY: decode_load_block,
    EventType.DELETE_FILE: decode_load_block,
    EventType.EXECUTE_LOAD_QUERY: decode_execute_load_query,
    EventType.TABLE_MAP: decode_table_map,
    EventType.INCIDENT: decode_incident,
    EventType.HEARTBEAT: decode_heartbeat,
    EventType.ROWS_QUERY: decode_rows_query,
    EventType.XA_PREPARE: decode_xa_prepare,
    EventType.ANNOTATE_ROWS: decode_annotate_rows,
    EventType.BINLOG_CHECKPOINT: decode_binlog_checkpoint,
    EventType.GTID: decode_gtid,
    EventType.GTID_LIST: decode_gtid_list,
    EventType.START_ENCRYPTION: decode_start_encryption,
    EventType.QUERY_COMPRESSED: decode_query,
    EventType.IGNORABLE: _decode_unknown,
    EventType.GTID_LOG: decode_mysql_gtid,
    EventType.ANONYMOUS_GTID: decode_mysql_gtid,
    EventType.PREVIOUS_GTIDS: decode_previous_gtids,
    EventType.TRANSACTION_CONTEXT: _decode_unknown,
    EventType.VIEW_CHANGE: _decode_unknown,
    EventType.TRANSACTION_PAYLOAD: decode_transaction_payload,
    EventType.HEARTBEAT_V2: decode_heartbeat_v2,
    EventType.GTID_TAGGED_LOG: decode_tagged_gtid,
    EventType.PARTIAL_ROW_DATA: decode_partial_row_data,
    **dict.fromkeys(ROWS_EVENTS, decode_rows),
}
"""Event type: decoder of the body. FORMAT_DESCRIPTION is not here because the others are read by it."""


def decode(
    event: Buffer,
    description: FormatDescriptionEvent | None = None,
    *,
    checksum: ChecksumAlgorithm | None = None,
) -> Event:
    """Decode one event; `description` is the last FORMAT_DESCRIPTION event, None before the first.

    `checksum` overrides what the description says: an event carried over a change of binlog_checksum (the artificial
    ROTATE after it) still has the old file's algorithm. Before the first description only FORMAT_DESCRIPTION and ROTATE
    can be read; a ROTATE's checksum is then found by trying it, unless `checksum` is given.

    Offsets in errors count from the start of the event.
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
    if header.event_type in HISTORICAL:
        raise UnsupportedEventError(
            f"{event_name(header.event_type)} is an event of servers before MySQL 5.1",
            offset=0,
            hint="Nothing has written it since: the file was put together, or its bytes are damaged.",
        )
    if header.flags & HeaderFlag.IGNORABLE:
        return _decode_unknown(header, body, description)
    raise UnsupportedEventError(
        f"{event_name(header.event_type)} event cannot be read and must not be skipped",
        offset=0,
        hint="The stream comes from a newer or another kind of server than this program supports.",
    )


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
        raise TruncatedError(f"a FORMAT_DESCRIPTION event of {len(data)} bytes", offset=0)
    # Old servers leave garbage in the four bytes when the file has no checksums.
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
