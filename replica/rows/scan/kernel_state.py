"""What the scan kernel keeps between two calls, its limits, and how it returns."""

from __future__ import annotations

# State words, kept between two calls.
POSITION = 0
TRAILER = 8  # bytes of checksum after each event: 4 or 0
GROUPS = 16
EVENTS = 24
MAPS = 32
OPEN = 40  # 0 between groups, 1 in a transaction, 2 in a standalone group, 3 in one of MySQL before its first QUERY
ACTIVE = 48  # table ids of the running statement
SQL = 56
SQL_END = 64
FAULT = 72  # offset of the event that stopped the scan
DETAIL = 80  # its type
CUT = 88  # groups that a later GTID event cut short (the server crashed while it wrote them)
XA = 96  # groups that prepare or complete an XA transaction
SKIPPED = 256  # 256 words: per event type, the events that nobody knows and that are flagged IGNORABLE
STATE_WORDS = (SKIPPED >> 3) + 256

DONE = 0
GROW = 1
SHORT_EVENT = 2
UNKNOWN_EVENT = 3
OUTSIDE_GROUP = 4
NO_TABLE_MAP = 5
INCIDENT = 6
BAD_EVENT = 7
TOO_MANY_MAPS = 8
OPEN_GROUP = 9
HISTORICAL = 10
ENCRYPTED = 11
NEEDS_EXPANSION = 12  # an event that holds other events

# A statement that changes more tables than this holds more table locks than servers are run with.
MAX_ACTIVE = 4096
# MariaDB's own limit (MAX_FIELDS).
MAX_COLUMNS = 4096
HEADER = 19
IGNORABLE = 0x80
STMT_END = 1
HINTS = 64  # table ids whose last slot is remembered
