"""The facts about an event type: its decoder, its part in event groups, which servers write it, and where that is
written down.

`EventRow` is the form of the table, `constants.EventType` is the table: a row an event type. Everything that depends on
the type is made from it: the decoders (events.py), the grouping rule (groups.py), the arrays of the kernels
(native/kernel_header.py) and the page docs/events.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Self


class Role(IntEnum):
    """The effect of an event on event groups.

    Source: MariaDB 10.11.18, sql/slave.cc, queue_event; sql/log_event.h, is_group_event; sql/log_event.cc,
    read_log_event (unknown types); MySQL 8.4, libs/mysql/binlog/event/binlog_event.h.
    """

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Self:
        role = int.__new__(cls, number)
        role._value_ = number
        role.meaning = meaning
        return role

    STRANGER = 0, "a type without a row, which is skipped only where its header says that it may be ignored"
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
"""What may stand where no group is open; all else only if its header says that it may be ignored."""


class Group(IntEnum):
    """The event group that is open."""

    NONE = 0
    TRANSACTION = 1
    STANDALONE = 2
    UNDECIDED = 3
    """A group of MySQL before its first statement."""


class Writers(NamedTuple):
    """Since which version MariaDB and MySQL write an event; "" is never, "read" is read and never written."""

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

    The decoder is named and not imported: the modules that decode need the numbers themselves. FORMAT_DESCRIPTION has
    none because the others are read by it. `source` is a class of the server's own code, or a whole place.
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
        """Whether it is a rows event, of any version, compressed or not."""
        return self.decoder == ROWS_DECODER


def _whole(source: str, writers: Writers) -> str:
    """Put the server, its version and its file before the name of a class."""
    if ", " in source:
        return source
    if writers.mysql and not writers.mariadb:
        file = "rows_event.h" if "ows_" in source else "control_events.h"
        return f"MySQL 8.4, libs/mysql/binlog/event/{file}, {source}"
    return f"MariaDB 10.11.18, sql/log_event.cc, {source}"
