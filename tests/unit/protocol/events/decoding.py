"""Decoding one event from bytes written down in a test: `body("GTID", "..hex..")`."""

from __future__ import annotations

from typing import TypeVar

from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.events.decode import Event, FormatDescriptionEvent, decode
from tests.vectors.load import raw_events

_Event = TypeVar("_Event", bound=Event)


def description(version: str = "11.8") -> FormatDescriptionEvent:
    """The FORMAT_DESCRIPTION of a real server's binlog without checksums."""
    event = decode(raw_events(version, "minimal_image")[0])
    assert isinstance(event, FormatDescriptionEvent)
    assert event.checksum is ChecksumAlgorithm.NONE
    return event


DESCRIPTION = description()


def decode_body(
    kind: type[_Event],
    event_type: EventType,
    body: str | bytes,
    *,
    flags: int = 0,
    log_pos: int = 0,
    server_id: int = 1,
) -> _Event:
    """The event with this body (hex or bytes), which must come out as a `kind`."""
    data = bytes.fromhex(body) if isinstance(body, str) else body
    raw = encode_event(
        event_type, data, server_id=server_id, checksum=ChecksumAlgorithm.NONE, flags=flags, log_pos=log_pos
    )
    event = decode(raw, DESCRIPTION)
    assert isinstance(event, kind)
    return event
