"""Layout of the scan kernels' state and results: event groups, rows events and distinct table maps of a range.

It also has the kernels' return codes and limits. All offsets count bytes from the start of the scanned range.
"""

from __future__ import annotations

from typing import Final

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


class GroupRecord(Record):
    """One event group that ended inside the range."""

    domain = word("domain of its GTID")
    server = word("server of its GTID")
    sequence = word("sequence number of its GTID, 64 bits without a sign")
    timestamp = word("seconds, header of the event that ends the group: the commit, not the first statement")
    flags = word("GTID flags2")
    extra = word("GTID flags_extra")
    commit_id = word("the group commit it is a part of, 0 if none")
    xid = word("0 unless the group ends with XID")
    thread = word("0 where the server does not say (before 11.5)")
    start = word("offset of the GTID event")
    end = word("offset after the last event")
    first = word("first rows event of the group")
    last = word("one past its last rows event")
    ending = word("one of ENDS_*")


ENDS_XID: Final = 1
ENDS_COMMIT: Final = 2
ENDS_ROLLBACK: Final = 3
ENDS_XA_PREPARE: Final = 4
ENDS_STANDALONE: Final = 5


class EventRecord(Record):
    """One rows event that holds at least one byte of row images."""

    start = word("offset of the event")
    images = word("offset of the first row image")
    end = word("offset after the last one (before the CRC)")
    op = word("OP_*")
    slot = word("index of its table map among the distinct ones")
    group = word("index of its event group")
    width = word("columns of the table")
    before = word("offset of the bitmap of the columns in the before image (in the only image, where there is one)")
    after = word("the same for the after image of an UPDATE")
    sql = word("offset of the statement's text (ANNOTATE_ROWS), 0 if none")
    sql_end = word("offset after that text")
    form = word("FORM_*: how the images stand in the range")
    whole = word("1: every column is present in every image")
    flags = word("flags of the event, RowsFlag")


OP_INSERT: Final = 0
OP_UPDATE: Final = 1
OP_DELETE: Final = 2
OPERATIONS: Final = 3

ALL_OPERATIONS: Final = 7  # a set of operations has the bit 1 << OP_* of each
SKIP_UNCHANGED: Final = 8  # in the same mask: updates that change no column of the plan are only counted

FORM_PLAIN: Final = 0
FORM_COMPRESSED: Final = 1  # one compressed block (log_bin_compress)
FORM_PARTIAL: Final = 2  # MySQL's PARTIAL_UPDATE_ROWS: after images have differences of JSON values


class SavepointRecord(Record):
    """One SAVEPOINT statement of the open group."""

    start = word("offset of its QUERY event")
    end = word("offset after it")
    events = word("rows events of the range before it")


class ActiveRecord(Record):
    """One table that the running statement has mapped."""

    table_id = word("the number the server gave it")
    slot = word("index of its table map among the distinct ones")


class MapRecord(Record):
    """One distinct table map of the range."""

    start = word("offset of the first event that has this content")
    content = word("offset of the content: the body after table id and flags")
    size = word("bytes of the content")
    hash = word("hash of the content")
