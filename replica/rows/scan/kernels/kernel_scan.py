"""Scan kernel: one pass over the event headers of a range.

From whole events it writes group records, rows event records and distinct table maps (records.py). It stops with GROW
or MORE_SAVEPOINTS when a record array is full, and resumes at the same event with a larger array. It stops at the first
event that cannot be skipped, with a code and the event's offset. It never reads beyond the current event.

It records the savepoints of the open group, and stops with ROLLED_BACK at a ROLLBACK TO. The caller finds the
savepoint, drops the rows events after it, and resumes the kernel after the event (savepoints.py). The table ids of the
running statement end with the statement's last rows event (STMT_END), or with the group.
"""

from __future__ import annotations

from replica.native.compile import helper, inlined, kernel
from replica.native.kernel_group import (
    BEGIN,
    COMPLETES_XA,
    END,
    GTID_FIELDS,
    HEADER,
    LOST,
    MYSQL_BEGIN,
    NO_GROUP,
    PAYLOAD,
    QUERY_FIELDS,
    REFUSED,
    ROLES,
    SERVER_AT,
    STATEMENT,
    STRANGER,
    TRANSACTION,
    UNDECIDED,
    belongs_outside,
    commits,
    event_length,
    event_type,
    group_step,
    is_ignorable,
    is_unreadable,
    is_whole,
    may_stand_outside,
    mysql_statement,
)
from replica.native.kernel_statement import NO_SAVEPOINT, ROLLS_BACK_TO, savepoint_role
from replica.native.memory import load_u1, load_u4, load_u8, prefetch, store_u8
from replica.protocol.constants import EventType, GtidExtraFlag, GtidFlag
from replica.rows.scan.kernels.kernel_rows_events import (
    ENDS_STATEMENT,
    RECORDED,
    active_place,
    is_rows_event,
    map_slot,
    rows_event,
    table_id_at,
)
from replica.rows.scan.records import (
    BAD_EVENT,
    DONE,
    ENCRYPTED,
    ENDS_COMMIT,
    ENDS_ROLLBACK,
    ENDS_STANDALONE,
    ENDS_XA_PREPARE,
    ENDS_XID,
    GROW,
    HISTORICAL,
    INCIDENT,
    MAX_ACTIVE,
    MORE_SAVEPOINTS,
    NEEDS_EXPANSION,
    OPEN_GROUP,
    OUTSIDE_GROUP,
    ROLLED_BACK,
    SHORT_EVENT,
    TOO_MANY_MAPS,
    UNKNOWN_EVENT,
    ActiveRecord,
    EventRecord,
    GroupRecord,
    SavepointRecord,
    ScanState,
)

_GROUP_COMMIT = int(GtidFlag.GROUP_COMMIT_ID)
_XA = int(GtidFlag.PREPARED_XA | GtidFlag.COMPLETED_XA)
_MULTI_ENGINE = int(GtidExtraFlag.MULTI_ENGINE)
_ENDS_ALTER = int(GtidExtraFlag.COMMIT_ALTER | GtidExtraFlag.ROLLBACK_ALTER)
_THREAD_ID = int(GtidExtraFlag.THREAD_ID)


@inlined
def gtid_group(at: int, end: int, group: int) -> int:  # noqa: PLR0911  (one return a way that an event can be malformed)
    """Write the group fields of the GTID event between `at` (its header) and `end` (before its checksum).

    Return DONE or BAD_EVENT. Zeros after the last field are padding: the GTID event of a large transaction's file may
    have thousands of them.
    """
    body = at + HEADER
    if end - body < GTID_FIELDS:
        return BAD_EVENT
    flags = load_u1(body + 12)
    p = body + GTID_FIELDS
    commit_id = 0
    if flags & _GROUP_COMMIT:
        if end - p < 8:
            return BAD_EVENT
        commit_id = load_u8(p)
        p += 8
    if flags & _XA:  # format id, two lengths, two texts
        if end - p < 6:
            return BAD_EVENT
        p += 6 + load_u1(p + 4) + load_u1(p + 5)
        if p > end:
            return BAD_EVENT
    extra = 0
    thread = 0
    if p < end:
        extra = load_u1(p)
        p += 1 + (extra & _MULTI_ENGINE)
        if extra & _ENDS_ALTER:
            p += 8
        if extra & _THREAD_ID:
            if end - p < 4:
                return BAD_EVENT
            thread = load_u4(p)
        elif p > end:
            return BAD_EVENT
    store_u8(group + GroupRecord.domain, load_u4(body + 8))
    store_u8(group + GroupRecord.server, load_u4(at + SERVER_AT))
    store_u8(group + GroupRecord.sequence, load_u8(body))
    store_u8(group + GroupRecord.flags, flags)
    store_u8(group + GroupRecord.extra, extra)
    store_u8(group + GroupRecord.commit_id, commit_id)
    store_u8(group + GroupRecord.xid, 0)
    store_u8(group + GroupRecord.thread, thread)
    return DONE


# The record has domain 0, the server id of the event and the GTID's number. UUID and tag remain in the event
# (protocol/mysql/events.py reads them).


_TAGGED = int(EventType.GTID_TAGGED_LOG)
_FIXED = 25  # flags, uuid and number of GTID_LOG
_UUID_FIELD = 1
_GNO_FIELD = 2


@helper
def _varlen_size(p: int, end: int) -> int:
    """Return the bytes of the variable-length integer at `p`, 0 if it exceeds `end`."""
    if p >= end:
        return 0
    first = load_u1(p)
    size = 1
    while size < 9 and first & 1:
        first >>= 1
        size += 1
    return size if size <= end - p else 0


@helper
def _varlen(p: int, size: int) -> int:
    value = 0
    for i in range(size):
        if i < 8:
            value |= load_u1(p + i) << (8 * i)
    # With eight bytes, the last seven have all bits of the value; with nine bytes, the last eight.
    if size == 9:
        return load_u8(p + 1)
    if size == 8:
        return (value >> 8) & 0xFFFFFFFFFFFFFF
    return value >> size


@helper
def _tagged_number(body: int, end: int) -> int:
    """Read the number in a GTID_TAGGED_LOG event, -1 if it has none. Its fields are numbered, in ascending order."""
    p = body
    for _ in range(3):  # version, size, last field that must be known
        size = _varlen_size(p, end)
        if size == 0:
            return -1
        p += size
    while True:
        size = _varlen_size(p, end)
        if size == 0:
            return -1
        field = _varlen(p, size)
        p += size
        if field > _GNO_FIELD:
            return -1
        for _ in range(16 if field == _UUID_FIELD else 1):
            size = _varlen_size(p, end)
            if size == 0:
                return -1
            if field == _GNO_FIELD:
                return (_varlen(p, size) >> 1) & 0x7FFFFFFFFFFFFFFF
            p += size


@helper
def mysql_gtid_group(at: int, end: int, group: int) -> int:
    """Write the group fields of the GTID event between `at` (its header) and `end` (before its checksum).

    Return DONE or BAD_EVENT.
    """
    body = at + HEADER
    number = 0
    if event_type(at) == _TAGGED:
        number = _tagged_number(body, end)
        if number < 0:
            return BAD_EVENT
    elif end - body < _FIXED:
        return BAD_EVENT
    else:
        number = load_u8(body + 17)
    store_u8(group + GroupRecord.domain, 0)
    store_u8(group + GroupRecord.server, load_u4(at + SERVER_AT))
    store_u8(group + GroupRecord.sequence, number)
    store_u8(group + GroupRecord.flags, 0)
    store_u8(group + GroupRecord.extra, 0)
    store_u8(group + GroupRecord.commit_id, 0)
    store_u8(group + GroupRecord.xid, 0)
    store_u8(group + GroupRecord.thread, 0)
    return DONE


COMPLETED_XA = int(GtidFlag.COMPLETED_XA)  # of a MariaDB GTID event; set for MySQL's XA COMMIT and ROLLBACK too
_QUERY = int(EventType.QUERY)
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_XID = int(EventType.XID)
_TABLE_MAP = int(EventType.TABLE_MAP)
_IGNORABLE = int(EventType.IGNORABLE)
_ROWS_QUERY = int(EventType.ROWS_QUERY)
_ANNOTATE_ROWS = int(EventType.ANNOTATE_ROWS)
_START_ENCRYPTION = int(EventType.START_ENCRYPTION)
_PARTIAL_ROW_DATA = int(EventType.PARTIAL_ROW_DATA)
BYTES_AHEAD = 1024
"""Prefetch distance in bytes: about four small events per memory latency. It makes a scan of them a tenth faster."""


@helper
def _refusal(role: int, at: int) -> int:
    """Return DONE, or the reason why reading stops at an event of this type."""
    if role == LOST:
        return INCIDENT
    if not is_unreadable(role, at):
        return DONE
    return HISTORICAL if role == REFUSED else UNKNOWN_EVENT


@helper
def _ending(opened: int, kind: int, role: int, end: int) -> int:
    """Return the ending of a group that was open before an event and is closed after it."""
    if role == STATEMENT and opened == TRANSACTION:
        return ENDS_COMMIT if commits(end) else ENDS_ROLLBACK
    if role == END:
        return ENDS_XID if kind == _XID else ENDS_XA_PREPARE
    return ENDS_STANDALONE


@kernel
def scan_range(
    data: int,
    size: int,
    state: int,
    groups: int,
    groups_capacity: int,
    events: int,
    events_capacity: int,
    maps: int,
    maps_capacity: int,
    table: int,
    table_mask: int,
    active: int,
    hints: int,
    savepoints: int,
    savepoints_capacity: int,
) -> int:
    """Scan from the state's position. All arguments are addresses or counts.

    Return DONE, an error code, or what the caller must do before it resumes (GROW, MORE_SAVEPOINTS, ROLLED_BACK).
    """
    position = load_u8(state + ScanState.position)
    trailer = load_u8(state + ScanState.trailer)
    n_groups = load_u8(state + ScanState.groups)
    n_events = load_u8(state + ScanState.events)
    n_maps = load_u8(state + ScanState.maps)
    opened = load_u8(state + ScanState.open)
    n_active = load_u8(state + ScanState.active)
    sql = load_u8(state + ScanState.sql)
    sql_end = load_u8(state + ScanState.sql_end)
    cut = load_u8(state + ScanState.cut)
    n_savepoints = load_u8(state + ScanState.savepoints)
    xa = load_u8(state + ScanState.xa)
    status = DONE
    kind = 0
    while position < size:
        at = data + position
        kind = event_type(at) if size - position >= HEADER else 0
        if not is_whole(at, size - position, trailer):
            status = SHORT_EVENT
            break
        if n_groups == groups_capacity or n_events == events_capacity or n_maps == maps_capacity:
            status = GROW
            break
        length = event_length(at)
        prefetch(at + BYTES_AHEAD)
        role = ROLES[kind]
        body = at + HEADER
        end = at + length - trailer
        room = end - body
        group = groups + n_groups * GroupRecord.BYTES

        if opened == NO_GROUP and not belongs_outside(role):
            status = _refusal(role, at)
            if status == DONE and not may_stand_outside(kind, role, at, end):
                status = OUTSIDE_GROUP
            if status != DONE:
                break
            if is_ignorable(at):
                store_u8(state + ScanState.skipped + kind * 8, load_u8(state + ScanState.skipped + kind * 8) + 1)
            position += length
            continue

        if is_rows_event(kind):
            event = events + n_events * EventRecord.BYTES
            found = rows_event(data, body, end, kind, active, n_active, event)
            if found < 0:
                status = -found
                break
            if found & RECORDED:
                store_u8(event + EventRecord.start, position)
                store_u8(event + EventRecord.group, n_groups)
                store_u8(event + EventRecord.sql, sql)
                store_u8(event + EventRecord.sql_end, sql_end)
                n_events += 1
            if found & ENDS_STATEMENT:
                n_active = 0
                sql = 0
                sql_end = 0

        elif kind == _TABLE_MAP:
            if room < 9:
                status = BAD_EVENT
                break
            slot = map_slot(data, position, body, room - 8, maps, n_maps, table, table_mask, hints)
            n_maps = max(n_maps, slot + 1)
            place = active_place(active, n_active, table_id_at(body))
            if place == MAX_ACTIVE:
                status = TOO_MANY_MAPS
                break
            mapped = active + place * ActiveRecord.BYTES
            store_u8(mapped + ActiveRecord.table_id, table_id_at(body))
            store_u8(mapped + ActiveRecord.slot, slot)
            n_active = max(n_active, place + 1)

        elif role in (BEGIN, MYSQL_BEGIN):
            if opened != NO_GROUP:  # a crash of the server truncated the open group: its rows do not count
                n_events = load_u8(group + GroupRecord.first)
                cut += 1
                opened = NO_GROUP
            status = gtid_group(at, end, group) if role == BEGIN else mysql_gtid_group(at, end, group)
            if status != DONE:
                break
            store_u8(group + GroupRecord.start, position)
            store_u8(group + GroupRecord.first, n_events)
            n_savepoints = 0
            n_active = 0
            sql = 0
            sql_end = 0

        elif kind == _QUERY:
            if room < QUERY_FIELDS:
                status = BAD_EVENT
                break
            if opened == UNDECIDED and mysql_statement(at, end) == COMPLETES_XA:
                store_u8(group + GroupRecord.flags, COMPLETED_XA)
            what = savepoint_role(at, end) if opened == TRANSACTION else NO_SAVEPOINT
            if what == ROLLS_BACK_TO:
                status = ROLLED_BACK
                break
            if what != NO_SAVEPOINT:
                if n_savepoints == savepoints_capacity:
                    status = MORE_SAVEPOINTS
                    break
                savepoint = savepoints + n_savepoints * SavepointRecord.BYTES
                store_u8(savepoint + SavepointRecord.start, position)
                store_u8(savepoint + SavepointRecord.end, position + length)
                store_u8(savepoint + SavepointRecord.events, n_events)
                n_savepoints += 1

        elif kind == _XID:
            if room < 8:
                status = BAD_EVENT
                break

        elif kind == _ANNOTATE_ROWS:
            sql = body - data
            sql_end = end - data

        elif kind == _ROWS_QUERY:  # an unused byte, and the text
            sql = min(body + 1, end) - data
            sql_end = end - data

        elif kind == _FORMAT_DESCRIPTION:  # ends with the algorithm byte, and always four bytes of CRC
            if length < HEADER + 57 + 5:
                status = BAD_EVENT
                break
            algorithm = load_u1(at + length - 5)
            # Table maps and rows events with 4-byte table ids, of old servers, are refused. Current MySQL declares a
            # length of 0 for version 1 of rows events, because it does not write them.
            if algorithm > 1 or (room >= 57 + 25 and (load_u1(body + 75) != 8 or load_u1(body + 79) not in (0, 8))):
                status = BAD_EVENT
                break
            trailer = algorithm * 4

        elif role == PAYLOAD or kind == _PARTIAL_ROW_DATA:
            status = NEEDS_EXPANSION
            break

        elif kind == _START_ENCRYPTION:
            # IGNORABLE if the server sent the event (then the events are plain); not IGNORABLE in a file.
            if not is_ignorable(at):
                status = ENCRYPTED
                break

        else:
            status = _refusal(role, at)
            if status != DONE:
                break
            if role == STRANGER or kind == _IGNORABLE:
                store_u8(state + ScanState.skipped + kind * 8, load_u8(state + ScanState.skipped + kind * 8) + 1)

        left = group_step(opened, role, at, end)
        if opened != NO_GROUP and left == NO_GROUP:
            ends = _ending(opened, kind, role, end)
            if ends == ENDS_XID:
                store_u8(group + GroupRecord.xid, load_u8(body))
            if ends == ENDS_ROLLBACK:
                # The server logs a rolled-back transaction if a part of it cannot be rolled back (CREATE TEMPORARY
                # TABLE). Rows of non-transactional tables are logged in separate groups, so all rows here are undone.
                n_events = load_u8(group + GroupRecord.first)
            if ends == ENDS_XA_PREPARE or load_u8(group + GroupRecord.flags) & COMPLETED_XA:
                xa += 1
            store_u8(group + GroupRecord.timestamp, load_u4(at))
            store_u8(group + GroupRecord.end, position + length)
            store_u8(group + GroupRecord.last, n_events)
            store_u8(group + GroupRecord.ending, ends)
            n_groups += 1
            n_active = 0
            n_savepoints = 0
        opened = left
        position += length

    if status == DONE and opened:
        status = OPEN_GROUP
    store_u8(state + ScanState.position, position)
    store_u8(state + ScanState.trailer, trailer)
    store_u8(state + ScanState.groups, n_groups)
    store_u8(state + ScanState.events, n_events)
    store_u8(state + ScanState.maps, n_maps)
    store_u8(state + ScanState.open, opened)
    store_u8(state + ScanState.active, n_active)
    store_u8(state + ScanState.sql, sql)
    store_u8(state + ScanState.sql_end, sql_end)
    store_u8(state + ScanState.fault, position)
    store_u8(state + ScanState.detail, kind)
    store_u8(state + ScanState.cut, cut)
    store_u8(state + ScanState.savepoints, n_savepoints)
    store_u8(state + ScanState.xa, xa)
    return status
