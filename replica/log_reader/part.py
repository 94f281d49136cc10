"""Range of a binlog file or relay file, whose events are decoded on demand."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError
from replica.files.ranges import FileRange, relocated
from replica.protocol.constants import BINLOG_MAGIC, CHECKSUM_LENGTH, HEADER_LENGTH, ROLES, TYPE_AT, EventType, GtidFlag
from replica.protocol.event_row import Role
from replica.protocol.events.binlog_file import FileEvent
from replica.protocol.events.decode import decode, decode_description
from replica.protocol.header import parse_header
from replica.protocol.rows.table_map import TableMapEvent, parse_table_map
from replica.schema.definition.session import ServerRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.files.binlog import BinlogFile
    from replica.protocol.header import Event

_FLAGS2: Final = HEADER_LENGTH + 12


class Part(NamedTuple):
    """Range of one file. `lower_case`: whether the server that wrote it stores table names in lower case."""

    name: str
    binlog: BinlogFile
    piece: FileRange
    lower_case: bool = False

    @property
    def server(self) -> ServerRules:
        """Rules by which to read the statements of the range."""
        return ServerRules(self.piece.description.version_number, self.lower_case)

    @property
    def defines(self) -> bool:
        """Whether the range may contain DDL. Groups with DDL have their own ranges; MySQL's groups have no such
        mark.
        """
        data = self.piece.data
        if len(data) <= _FLAGS2 or ROLES[data[TYPE_AT]] is Role.MYSQL_BEGIN:
            return True
        return data[TYPE_AT] == EventType.GTID and bool(data[_FLAGS2] & GtidFlag.DDL)

    def cut(self, start: int, end: int) -> Part:
        """Return a part with only the groups in [start, end) of the range."""
        piece = self.piece
        return self._replace(piece=piece._replace(data=piece.data[start:end], offset=piece.offset + start))

    def walk(self) -> Iterator[FileEvent]:
        """Yield every event, undecoded, with its offset in the file."""
        data, origin, _, description, _ = self.piece
        at = len(BINLOG_MAGIC) if bytes(data[: len(BINLOG_MAGIC)]) == BINLOG_MAGIC else 0
        while at < len(data):
            header = parse_header(data, at)
            event = data[at : at + header.event_length]
            if header.event_type == EventType.FORMAT_DESCRIPTION:
                description = decode_description(event)
            yield FileEvent(origin + at, header, event, description)
            at += header.event_length

    def read(self, found: FileEvent) -> Event:
        """Decode one event of `walk`."""
        try:
            if found.header.event_type == EventType.TABLE_MAP:
                trailer = CHECKSUM_LENGTH if found.description.checksum else 0
                body = bytes(found.event[HEADER_LENGTH : len(found.event) - trailer])
                known = _table_map(body, found.description.post_header_length(EventType.TABLE_MAP))
                return replace(known, header=found.header)
            return decode(found.event, found.description)
        except ProtocolError as error:
            raise relocated(error, self.name, found.offset) from None


@lru_cache(maxsize=256)
def _table_map(body: bytes, post_header_length: int) -> TableMapEvent:
    """Decode and cache a table map: every statement repeats its maps, and with names and labels they are most of its
    bytes.
    """
    return parse_table_map(body, post_header_length)
