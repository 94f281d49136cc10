"""State that the scan kernel keeps between two calls, its limits, and its return codes."""

from __future__ import annotations

from replica.native.record import Record, word


class ScanState(Record):
    """State that the scan kernel keeps between two calls, and its counts for the range."""

    position = word("offset of the next event")
    trailer = word("bytes of checksum after each event: 4 or 0")
    groups = word("groups that ended so far")
    events = word("rows events so far")
    maps = word("distinct table maps so far")
    open = word("the open group, one of protocol.event_row.Group")
    active = word("table ids of the running statement")
    sql = word("offset of the running statement's text, 0 if none")
    sql_end = word("offset after that text")
    fault = word("out: offset of the event that stopped the scan")
    detail = word("out: its type")
    cut = word("groups that a later GTID event cut short (the server crashed while it wrote them)")
    savepoints = word("savepoints of the open group so far")
    xa = word("groups that prepare or complete an XA transaction")
    skipped = word("per event type, the events that were passed because they are flagged IGNORABLE", count=256)


class SearchState(Record):
    """State that a search for some groups of a range keeps between two windows."""

    position = word("offset of the next event")
    trailer = word("bytes of checksum after each event: 4 or 0")
    open = word("the open group, one of protocol.event_row.Group")
    start = word("offset of the group's first byte")
    chosen = word("1: of what the group holds something is found")
    found = word("how many there are so far")


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
NEEDS_EXPANSION = 12  # an event that contains other events
ROLLED_BACK = 13  # at a ROLLBACK TO of the open group: no error
MORE_SAVEPOINTS = 14  # no space for another savepoint of the open group: no error

# A statement that changes more tables needs more table locks than servers are configured for.
MAX_ACTIVE = 4096
# MariaDB's own limit (MAX_FIELDS).
MAX_COLUMNS = 4096
STMT_END = 1
HINTS = 64  # entries of the cache from table id to its last slot
