"""Reader of binlog and relay files, over their bytes in memory or mapped. The caller opens the files.

A file is the magic, a FORMAT_DESCRIPTION event, and further events without gaps. It may end with a ROTATE or STOP
event; after a crash, and while it is written, it ends anywhere. `walk` finds the events without decoding them, and
`decode_file` decodes them. Refused: another magic, files encrypted by the server, and an event that exceeds the end
(TruncatedError, whose offset is the start of the torn tail).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import BINLOG_MAGIC, FIRST_POSITION, EventType, HeaderFlag, event_name
from replica.protocol.events.decode import FormatDescriptionEvent, decode, decode_description
from replica.protocol.header import EventHeader, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.protocol.header import Event
    from replica.protocol.wire import Buffer


class FileEvent(NamedTuple):
    """An event in its file."""

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
