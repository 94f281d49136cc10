"""Head of a relay file, which a reader needs before the first event group.

The head starts with the magic and the primary's FORMAT_DESCRIPTION. An artificial ROTATE with the primary's file and
offset follows, and then a GTID_LIST with the position before the first group. `encode_file_head` writes the head, and
`read_file_head` reads it back as a `FileHead`. A file with another beginning is torn or foreign, and is refused.
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

MAX_HEAD_BYTES = (64 << 10) + 16 * MAX_DOMAINS  # FORMAT_DESCRIPTION and ROTATE have less than 1 KB each


class FileHead(NamedTuple):
    """Head of a relay file. `format`: raw FORMAT_DESCRIPTION event; `data_start`: offset of the first group."""

    format: bytes
    checksum: bool
    primary: BinlogPosition
    position: GtidPosition
    data_start: int

    @property
    def server_id(self) -> int:
        """Id of the server from whose binlog the file was copied."""
        return parse_header(memoryview(self.format)).server_id

    @property
    def identity(self) -> tuple[str, bytes]:
        return file_identity(self.format, self.primary.file)


def file_identity(fde: bytes, primary_file: str) -> tuple[str, bytes]:
    """Return what is equal in two dumps of one binlog file: its name, and the constant part of its FORMAT_DESCRIPTION.

    If a dump starts inside a file, the dump thread changes log_pos, the IN_USE flag, `created` and the checksum
    (sql_repl.cc: send_format_descriptor_event). Server id and time stay.
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
    """Read the head of a relay file.

    Raises:
        FileNotFoundError: The file does not exist.
        RelayError: The file does not begin with a relay file head.
    """
    with path.open("rb") as file:
        data = file.read(MAX_HEAD_BYTES)
    try:
        return _parse(data)
    except (ProtocolError, IndexError) as error:
        raise RelayError(
            f"{path} does not begin like a relay file: {error}.",
            hint="It is incomplete, or not a relay file. Move it away and start from the last position.",
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
        raise ProtocolError("events at the start of the file do not have the format of their type")
    raw = data[len(BINLOG_MAGIC) : len(BINLOG_MAGIC) + fde.header.event_length]
    return FileHead(
        raw, bool(fde.checksum), BinlogPosition(rotate.file, rotate.position), GtidPosition.last_of(gtids.gtids), offset
    )
