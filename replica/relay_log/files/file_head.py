"""The first bytes of a relay file: what a reader needs before it meets the first event group.

    magic, the primary's FORMAT_DESCRIPTION, an artificial ROTATE (the primary's file and the offset in it), and a
    GTID_LIST (the position before the first group).

In: the primary's event and the positions. Out: the bytes, or a `FileHead` read back from a file. Refuses a file that
does not begin this way: it is torn, or not ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ProtocolError, RelayError
from replica.protocol.constants import BINLOG_MAGIC, HEADER_LENGTH, EventType
from replica.protocol.events.decode import FormatDescriptionEvent, GtidListEvent, RotateEvent, decode
from replica.protocol.events.encode import encode_gtid_list, encode_rotate
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.protocol.header import parse_header
from replica.relay_log.kernels.domains import MAX_DOMAINS

if TYPE_CHECKING:
    from pathlib import Path

MAX_HEAD_BYTES = (64 << 10) + 16 * MAX_DOMAINS  # FORMAT_DESCRIPTION and ROTATE are below 1 KB each


class FileHead(NamedTuple):
    """The head of a relay file. `format` is the raw FORMAT_DESCRIPTION event; `data_start` is where the first group
    begins.
    """

    format: bytes
    checksum: bool
    primary: BinlogPosition
    position: GtidPosition
    data_start: int

    @property
    def server_id(self) -> int:
        """The id of the server whose binlog the file was copied from."""
        return parse_header(memoryview(self.format)).server_id

    @property
    def identity(self) -> tuple[str, bytes]:
        return file_identity(self.format, self.primary.file)


def file_identity(fde: bytes, primary_file: str) -> tuple[str, bytes]:
    """Return what is equal for two dumps of one binlog file: its name, and its FORMAT_DESCRIPTION without what a dump
    may change.

    The dump thread changes log_pos, the IN_USE flag and `created` when it starts inside a file
    (sql_repl.cc: send_format_descriptor_event), and with them the checksum. Server id and time stay.
    """
    created = HEADER_LENGTH + 2 + 50
    return primary_file, fde[:13] + fde[HEADER_LENGTH:created] + fde[created + 4 : -4]


def encode_file_head(fde: bytes, primary: BinlogPosition, position: GtidPosition) -> bytes:
    event = decode(memoryview(fde), None)
    if not isinstance(event, FormatDescriptionEvent):
        raise ProtocolError("the primary's file does not begin with a FORMAT_DESCRIPTION event")
    server_id = event.header.server_id
    return b"".join(
        (
            BINLOG_MAGIC,
            fde,
            encode_rotate(primary.file, primary.position, server_id=server_id, checksum=event.checksum),
            encode_gtid_list(position, server_id=server_id, checksum=event.checksum),
        )
    )


def read_file_head(path: Path) -> FileHead:
    """Read the head of a file; raise FileNotFoundError where there is no such file, RelayError where it does not begin
    as ours do.
    """
    with path.open("rb") as file:
        data = file.read(MAX_HEAD_BYTES)
    try:
        return _parse(data)
    except (ProtocolError, IndexError) as error:
        raise RelayError(
            f"{path} does not begin as a relay file does: {error}.",
            hint="It is torn or not ours; move it away and start from the last position.",
        ) from error


def _parse(data: bytes) -> FileHead:
    if not data.startswith(BINLOG_MAGIC):
        raise ProtocolError("no binlog magic", offset=0)
    view, offset = memoryview(data), len(BINLOG_MAGIC)
    events = []
    fde: FormatDescriptionEvent | None = None
    for expected in (EventType.FORMAT_DESCRIPTION, EventType.ROTATE, EventType.GTID_LIST):
        header = parse_header(view, offset)
        if header.event_type != expected or offset + header.event_length > len(data):
            raise ProtocolError(f"no complete {expected.name} event", offset=offset)
        event = decode(view[offset : offset + header.event_length], fde)
        if isinstance(event, FormatDescriptionEvent):
            fde = event
        events.append(event)
        offset += header.event_length
    _, rotate, gtids = events
    if fde is None or not isinstance(rotate, RotateEvent) or not isinstance(gtids, GtidListEvent):
        raise ProtocolError("events of the head do not decode as what they say they are")
    raw = data[len(BINLOG_MAGIC) : len(BINLOG_MAGIC) + fde.header.event_length]
    return FileHead(
        raw, bool(fde.checksum), BinlogPosition(rotate.file, rotate.position), GtidPosition.last_of(gtids.gtids), offset
    )
