"""Reader of the statements that a part of the relay log has as text, with the start of their event groups.

`statements_between` yields statements that may be DDL, and `texts_between` yields all statements except transaction
borders. Files are mapped, and a kernel goes from event header to event header without looking at rows. The scan is
lazy.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError
from replica.protocol.events.decode import FormatDescriptionEvent, GtidEvent, decode
from replica.relay_log.directory.identity import stores_lower_case
from replica.relay_log.files.lookup import purged, read_file_head
from replica.relay_log.location import RelayLocation, relay_number, relay_path
from replica.rows.scan.statements import logged_statements, logged_texts
from replica.schema.definition.session import ServerRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.protocol.events.statement_events import QueryEvent
    from replica.protocol.gtid import Gtid
    from replica.relay_log.log import RelayLog, RelayRange
    from replica.schema.definition.session import Logged

# Mapped pages count as memory of the process while they are in use. A scan calls `release_before` to release the pages
# that it has processed. Another scan may read them again.


class MappedRelayRange:
    """Mapped range. Its bytes stay valid as long as `data` is referenced.

    Raises:
        DataLossError: The file was removed.
    """

    def __init__(self, part: RelayRange) -> None:
        try:
            with open(part.path, "rb") as file:  # noqa: PTH123  (as tasks open it)
                self._map = mmap.mmap(file.fileno(), part.end, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise purged(relay_number(Path(part.path))) from None
        self._start = part.start
        self._first = self._released_to = part.start // mmap.PAGESIZE * mmap.PAGESIZE
        self.data = memoryview(self._map)[part.start :]

    def release_before(self, offset: int) -> None:
        """Release the memory of the range before `offset`."""
        end = (self._start + offset) // mmap.PAGESIZE * mmap.PAGESIZE
        if end < self._released_to:  # another scan has started
            self._released_to = self._first
        if end > self._released_to:
            self._map.madvise(mmap.MADV_DONTNEED, self._released_to, end - self._released_to)
            self._released_to = end


STRETCH_BYTES: Final = 64 << 20
"""Bytes per scan; the scan of one batch is mostly a single range."""


class RelayStatement(NamedTuple):
    """Statement in the log that may be DDL.

    Attributes:
        location: Start of its group.
        gtid: GTID of its group.
        query: The statement.
        server: Rules by which to read the statement.
        rowless: Whether the group has no rows.
    """

    location: RelayLocation
    gtid: Gtid
    query: QueryEvent
    server: ServerRules
    rowless: bool = True


class RelayText(NamedTuple):
    """Any statement in the log.

    `location` is the start of its group, `begin` the first event of the group.
    """

    location: RelayLocation
    begin: GtidEvent
    statement: Logged
    server: ServerRules

    @property
    def gtid(self) -> Gtid:
        return self.begin.gtid


class _MappedGroups(NamedTuple):
    file: int
    start: int
    mapped: MappedRelayRange
    description: FormatDescriptionEvent
    server: ServerRules


def statements_between(log: RelayLog, start: RelayLocation, end: RelayLocation) -> Iterator[RelayStatement]:
    """Yield the statements in the groups [start, end), two group ends, that may be DDL.

    Raises:
        DataLossError: Groups of the part were purged.
        ProtocolError: The log is damaged.
    """
    for file, begin, mapped, description, server in _stretches(log, start, end):
        for found in logged_statements(mapped.data, description, mapped.release_before):
            location = RelayLocation(file, begin + found.start)
            yield RelayStatement(location, found.gtid, found.query, server, found.rowless)


def texts_between(log: RelayLog, start: RelayLocation, end: RelayLocation) -> Iterator[RelayText]:
    """Yield all statements in the groups [start, end) except transaction borders; errors as in `statements_between`."""
    for file, begin, mapped, description, server in _stretches(log, start, end):
        for found in logged_texts(mapped.data, description, mapped.release_before):
            if not isinstance(found.begin, GtidEvent):
                raise ProtocolError("an event group does not begin with a GTID", offset=begin + found.start)
            location = RelayLocation(file, begin + found.start)
            yield RelayText(location, found.begin, found.statement, server)


def _stretches(log: RelayLog, start: RelayLocation, end: RelayLocation) -> Iterator[_MappedGroups]:
    lower_case = stores_lower_case(log.directory)
    for number in range(start.file, end.file + 1):
        begin = max(start, RelayLocation(number, 0))
        limit = min(end, RelayLocation(number + 1, 0))
        description: FormatDescriptionEvent | None = None
        for part in log.ranges(begin, limit, STRETCH_BYTES):
            if description is None:
                description = _description(log, number)
            server = ServerRules(description.version_number, lower_case)
            yield _MappedGroups(number, part.start, MappedRelayRange(part), description, server)


def _description(log: RelayLog, number: int) -> FormatDescriptionEvent:
    event = decode(memoryview(read_file_head(relay_path(log.directory, number)).format), None)
    if not isinstance(event, FormatDescriptionEvent):
        raise ProtocolError("a relay file does not begin with a FORMAT_DESCRIPTION event")
    return event
