"""Facts about an event type: its decoder, its role in event groups, the servers that write it, and the sources.

`EventRow` defines the columns of the table, and `constants.EventType` is the table with one row for each event type.
All code that depends on the type derives from this table: the decoders (events/decode.py) and the grouping rule
(groups/groups.py). So do the arrays of the kernels (native/kernel_header.py) and the page docs/events.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Self


class Role(IntEnum):
    """Effect of an event on event groups.

    Source: MariaDB 10.11.18, sql/slave.cc, queue_event; sql/log_event.h, is_group_event; sql/log_event.cc,
    read_log_event (unknown types); MySQL 8.4, libs/mysql/binlog/event/binlog_event.h.
    """

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Self:
        role = int.__new__(cls, number)
        role._value_ = number
        role.meaning = meaning
        return role

    STRANGER = 0, "a type without a row, which is skipped only if its header says that it may be ignored"
    REFUSED = 1, "nothing writes it any more; never skipped, because it may hold changes"
    CONTROL = 2, "about the binlog itself: outside of every group, wherever it stands"
    PASSED = 3, "holds no change: allowed anywhere"
    BEGIN = 4, "opens a group, and says whether that is a transaction or a standalone statement"
    MYSQL_BEGIN = 5, "opens a group of MySQL, whose first statement says which of the two it is"
    MEMBER = 6, "part of a group, never its end"
    LOAD = 7, "part of a group that changes rows as a statement (LOAD DATA), never its end"
    END = 8, "ends a transaction"
    STATEMENT = 9, "ends a standalone group; a transaction too, if its whole text is COMMIT or ROLLBACK"
    COMPRESSED_STATEMENT = 10, "ends a standalone group only: the server never compresses COMMIT"
    PAYLOAD = 11, "holds the rest of MySQL's group, its end included"
    LOST = 12, "says that changes are missing: ends a standalone group, stands outside of any other; reading rows stops"


OUTSIDE: Final = frozenset({Role.CONTROL, Role.PASSED, Role.BEGIN, Role.MYSQL_BEGIN, Role.LOST})
"""Roles that may occur outside of a group. Other events may do so only with the IGNORABLE flag in their header."""


class Group(IntEnum):
    """Kind of the event group that is open."""

    NONE = 0
    TRANSACTION = 1
    STANDALONE = 2
    UNDECIDED = 3
    """A group of MySQL before its first statement."""


class Writers(NamedTuple):
    """First version of MariaDB and of MySQL that writes an event.

    "" means never. "read" means read but never written.
    """

    mariadb: str
    mysql: str


BOTH: Final = Writers("all", "all")
MARIADB: Final = Writers("all", "")
MYSQL: Final = Writers("", "all")
SINCE_10_2: Final = Writers("10.2", "")
READ: Final = Writers("read", "")
NOBODY: Final = Writers("", "")


ROWS_DECODER: Final = "rows.rows_event.decode_rows"


class EventRow(IntEnum):
    """An event type as a row: number, decoder ("module.function" of this package), role, writers, source.

    The decoder is a name and not an import, because the decoding modules import these numbers. FORMAT_DESCRIPTION has
    no decoder here, because the other events are decoded with it. `source` is a class of the server's code, or a full
    path.
    """

    decoder: str
    role: Role
    writers: Writers
    source: str

    def __new__(cls, number: int, decoder: str, role: Role, writers: Writers, source: str) -> Self:
        row = int.__new__(cls, number)
        row._value_ = number
        row.decoder, row.role, row.writers, row.source = decoder, role, writers, _whole(source, writers)
        return row

    @property
    def has_rows(self) -> bool:
        """Whether the event is a rows event, of any version, compressed or not."""
        return self.decoder == ROWS_DECODER


def _whole(source: str, writers: Writers) -> str:
    """Return the source with server, version and file before a bare class name."""
    if ", " in source:
        return source
    if writers.mysql and not writers.mariadb:
        file = "rows_event.h" if "ows_" in source else "control_events.h"
        return f"MySQL 8.4, libs/mysql/binlog/event/{file}, {source}"
    return f"MariaDB 10.11.18, sql/log_event.cc, {source}"
