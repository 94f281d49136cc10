"""Common interface of event group logs, with the ranges and answers that it returns.

`LogReader` answers searches for positions. A log on disk is a `StoredLog`, which also returns its bytes and single
groups. `following.py` follows a relay log that grows. `replica/readers/primary.py` reads a primary through a temporary
relay log, which receives as much of the binlog as the search needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from replica.errors import ProtocolError
from replica.protocol.constants import (
    BINLOG_MAGIC,
    CHECKSUM_LENGTH,
    HEADER_LENGTH,
    ROLES,
    TYPE_AT,
    EventType,
    GtidFlag,
    Role,
)
from replica.protocol.events.binlog_file import FileEvent
from replica.protocol.events.decode import decode, decode_description
from replica.protocol.gtid import BinlogPosition
from replica.protocol.header import parse_header
from replica.protocol.rows.table_map import TableMapEvent, parse_table_map
from replica.readers.files.ranges import FileRange, relocated
from replica.schema.definition.session import ServerRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.protocol.gtid import Gtid, GtidPosition
    from replica.protocol.header import Event
    from replica.readers.files.binlog import BinlogFile
    from replica.relay_log.groups.groups import GtidSearch, LogGroup


class LogReader(Protocol):
    """Interface that maps times, places and transactions to GTID positions."""

    def at_time(self, time_s: int) -> FoundPosition:
        """Return the position before the first group committed at `time_s` or later, or the end of the log."""

    def at_place(self, place: BinlogPosition) -> FoundPosition:
        """Return the position of a place in the primary's binlog.

        For a place inside an event group, return the position before that group.
        """

    def after_group(self, gtid: Gtid) -> FoundPosition:
        """Return the position, in all domains, after the event group of a GTID."""


class StoredLog(LogReader, Protocol):
    """Interface of a log on disk, which also returns its bytes."""

    def find(self, search: GtidSearch) -> Part | None:
        """Return a part with exactly the group that `search` looks for; otherwise `search` has its neighbours."""

    def xa_parts(self) -> Iterator[Part]:
        """Yield all parts that may prepare or end XA transactions, in order; none if the log can be read only once."""


_FLAGS2: Final = HEADER_LENGTH + 12


class Part(NamedTuple):
    """Range of one file.

    With `lower_case`, the server that wrote the file stores table names in lower case.
    """

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
        """Whether the range may contain DDL.

        MariaDB marks the GTID event of a group with DDL, and such a group is a range of its own. MySQL has no such
        mark, so every range of its groups may contain DDL.
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
    """Decode and cache a table map.

    Every statement repeats its table maps, which are most of its bytes if they have names and labels.
    """
    return parse_table_map(body, post_header_length)


@dataclass(frozen=True, slots=True)
class NextGroup:
    """Event group after a position.

    `time_s` is the commit time in seconds since 1970. `place` is the start of the first event, None if it is unknown.
    """

    gtid: Gtid
    time_s: int | None = None
    place: BinlogPosition | None = None

    @classmethod
    def of(cls, group: LogGroup) -> NextGroup:
        """Describe a group of a relay log, which may lack annotations.

        The place is known only if the group directly follows the previous one.
        """
        place = BinlogPosition(group.after.primary.file, group.begins)
        return cls(group.gtid, group.after.timestamp, place if place == group.before.primary else None)

    @classmethod
    def of_complete(cls, group: LogGroup) -> NextGroup:
        """Describe a group of which every event was received."""
        place = BinlogPosition(group.after.primary.file, group.begins)
        return cls(group.gtid, group.after.timestamp, place)


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """Answer to a search.

    Attributes:
        position: Position after all earlier groups.
        next: First group after the position; None at the end of the log.
        resume: Earlier position from which a reader also gets the rows of prepared XA transactions; None if there are
            none.
        inside: Whether the searched place is inside `next`.
    """

    position: GtidPosition
    next: NextGroup | None
    resume: GtidPosition | None = None
    inside: bool = False
