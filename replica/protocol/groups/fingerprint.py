"""Fingerprints that identify the same event group on every server, whichever server wrote the copy.

In: the events of one group as one server wrote them, from the GTID event on. Out: a `Fingerprint`, short enough for an
offset. Two fingerprints show whether two servers mean the same transaction by one GTID.

A replica and a Galera node write their own copies, with other table ids, threads, flags and event borders. On Galera
the commit times differ too. Each copy has its own row images (binlog_row_image), metadata and compression. All copies
share the start times of the statements, their tables, and the values of images that have the same columns. A statement
as text, such as DDL, may have another text in a copy. For such a group only the time of the first statement counts.
Only the beginning of a group is read, so that a huge transaction costs no more than a small one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from zlib import crc32

from replica.errors import ProtocolError, UnsupportedColumnError
from replica.protocol.compression import inflate
from replica.protocol.constants import HEADER_LENGTH, EventType
from replica.protocol.events.decode import QueryEvent, RowsEvent, TableMapEvent, decode
from replica.protocol.gtid import Gtid
from replica.protocol.header import parse_header
from replica.protocol.rows.rows_event import ROWS_EVENTS, decode_rows
from replica.protocol.wire import Cursor

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Buffer

ROW_BYTES: Final = 4096
"""Number of bytes of row images that are compared. They hold dozens of rows and take a millisecond to parse."""
LONGEST_EVENT: Final = 64 << 10
"""Event length in bytes above which rows are not compared (one huge row, or a raised binlog_row_event_max_size)."""
STATEMENT_BYTES: Final = 256
"""Bytes of ROW_BYTES that a statement uses in addition to its rows, because parsing its events takes time."""
_ENDS: Final = frozenset({b"COMMIT", b"ROLLBACK"})
_READ: Final = frozenset({EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.TABLE_MAP})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identity of an event group.

    `time` is the start of the first statement in seconds since 1970, or 0 without a statement. The other fields are
    CRC32s, or 0 if there is nothing to compare.
    """

    gtid: Gtid
    time: int
    tables: int
    """CRC32 of the times and tables of the statements."""
    layout: int
    """CRC32 of the columns in the row images. Rows can be compared only if this value is equal."""
    rows: int

    def __str__(self) -> str:
        return f"{self.gtid} {self.time} {self.tables:08x} {self.layout:08x} {self.rows:08x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a fingerprint.

        Raises:
            ValueError: the text is no fingerprint.
            ConfigError: its GTID is invalid.
        """
        gtid, time, *sums = text.split(" ")
        tables, layout, rows = (int(one, 16) for one in sums)
        return cls(Gtid.parse(gtid), int(time), tables, layout, rows)

    def difference(self, other: Self) -> str:
        """Describe why the two fingerprints cannot be of the same transaction; '' if they can."""
        found = ""
        if self.gtid != other.gtid:
            found = f"it is {other.gtid}"
        elif not self.time or not other.time:
            pass  # a copy without statements: filtered, or nothing but a commit
        elif self.time != other.time:
            found = f"it was made at {other.time} and not at {self.time} (seconds since 1970)"
        elif not self.tables or not other.tables:
            pass
        elif self.tables != other.tables:
            found = "it changed other tables"
        elif self.layout and self.layout == other.layout and self.rows != other.rows:
            found = "it changed other rows"
        return found


class FingerprintBuilder:
    """Builder of a fingerprint. Feed it the events of one group in order, until `done` is True."""

    def __init__(self, gtid: Gtid) -> None:
        self.done = False
        self._gtid = gtid
        self._time = self._tables = self._layout = self._rows = self._bytes = 0
        self._text = False
        self._maps: dict[int, TableMapEvent] = {}
        self._last: tuple[int, int] | None = None

    def feed(self, event: Buffer, description: FormatDescriptionEvent) -> None:
        """Add one event. If the event is longer than LONGEST_EVENT, `event` may hold only its beginning."""
        header = parse_header(event)
        kind = header.event_type
        if kind not in _READ and kind not in ROWS_EVENTS:
            return
        try:
            self._take(header, event, description)
        except (ProtocolError, UnsupportedColumnError):
            # A column type that we do not know, in a table that no query selects, must not stop the reader.
            self._only_time(header)

    def _take(self, header: EventHeader, event: Buffer, description: FormatDescriptionEvent) -> None:
        if header.event_length > LONGEST_EVENT:
            self._long(header, event, description)
            return
        value = decode(event, description)
        if isinstance(value, QueryEvent):
            self._statement(value)
        elif isinstance(value, TableMapEvent):
            self._maps[value.table_id] = value
        elif isinstance(value, RowsEvent) and not value.is_dummy:
            self._images(value)

    def result(self) -> Fingerprint:
        if self._text:
            return Fingerprint(self._gtid, self._time, 0, 0, 0)
        return Fingerprint(self._gtid, self._time, self._tables, self._layout, self._rows)

    def _statement(self, event: QueryEvent) -> None:
        if bytes(event.query) not in _ENDS:
            self._only_time(event.header)

    def _long(self, header: EventHeader, event: Buffer, description: FormatDescriptionEvent) -> None:
        self.done = True
        if header.event_type in ROWS_EVENTS:
            self._begin(decode_rows(header, Cursor(memoryview(event), HEADER_LENGTH), description))
            self._layout = self._rows = 0
        else:
            self._only_time(header)

    def _only_time(self, header: EventHeader) -> None:
        self._time = self._time or header.timestamp
        self._text = self.done = True

    def _begin(self, event: RowsEvent) -> bool:
        """Record the statement that a rows event begins or continues; return False if its table is unknown."""
        table, time = self._maps.get(event.table_id), event.header.timestamp
        if table is None:
            return False
        self._time = self._time or time
        if self._last != (event.table_id, event.kind):
            self._last = (event.table_id, event.kind)
            named = f"{time} {event.kind.name} {table.database}.{table.table};".encode()
            self._tables = crc32(named, self._tables)
            columns = b"".join(bytes((one.type,)) + one.metadata for one in table.columns)
            present = _present(event.columns_before, event.width) + _present(event.columns_after, event.width)
            self._layout = crc32(columns + present, self._layout)
            self._bytes += STATEMENT_BYTES
        return True

    def _images(self, event: RowsEvent) -> None:
        if not self._begin(event):
            return
        images = inflate(event.images) if event.compressed else event.images
        images = images[: max(0, ROW_BYTES - self._bytes)]
        self._rows = crc32(images, self._rows)
        self._bytes += len(images)
        self.done = self._bytes >= ROW_BYTES
        if event.ends_statement:
            self._last = None
            self._maps.clear()


def _present(bits: bytes, width: int) -> bytes:
    """Clear the bits after the last column, which servers leave undefined (10.5)."""
    return (int.from_bytes(bits, "little") & ((1 << width) - 1)).to_bytes(len(bits), "little")
