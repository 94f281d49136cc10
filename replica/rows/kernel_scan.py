"""The scan kernel: one pass over the events of a range, from header to header.

In: the range's bytes (whole events). Out: group records, rows event records, distinct table maps (records.py). The
kernel stops with GROW when a record array is full and resumes at the same event with a larger one. It stops at the
first event it must not pass, with a code and that event's offset; it reads no byte beyond the event at hand.

A table map is known by its content, never by its table id: ids are reused, and every statement sends its maps again.
The ids of the running statement stand in a short list that the statement's last rows event (STMT_END) and the group's
end clear.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import load_u1, load_u2, load_u4, load_u8, store_u8
from replica.rows.records import (
    ENDS_COMMIT,
    ENDS_ROLLBACK,
    ENDS_STANDALONE,
    ENDS_XA_PREPARE,
    ENDS_XID,
    EVENT_AFTER,
    EVENT_BEFORE,
    EVENT_BYTES,
    EVENT_END,
    EVENT_GROUP,
    EVENT_IMAGES,
    EVENT_OP,
    EVENT_SLOT,
    EVENT_SQL,
    EVENT_SQL_END,
    EVENT_START,
    EVENT_WIDTH,
    GROUP_BYTES,
    GROUP_COMMIT_ID,
    GROUP_DOMAIN,
    GROUP_END,
    GROUP_ENDING,
    GROUP_EXTRA,
    GROUP_FIRST,
    GROUP_FLAGS,
    GROUP_LAST,
    GROUP_SEQUENCE,
    GROUP_SERVER,
    GROUP_START,
    GROUP_THREAD,
    GROUP_TIMESTAMP,
    GROUP_XID,
    MAP_BYTES,
    MAP_CONTENT,
    MAP_HASH,
    MAP_SIZE,
    MAP_START,
)

# State words, kept between two calls.
POSITION = 0
TRAILER = 8  # bytes of checksum after each event: 4 or 0
GROUPS = 16
EVENTS = 24
MAPS = 32
OPEN = 40  # 0 between groups, 1 in a transaction, 2 in a standalone group
ACTIVE = 48  # table ids of the running statement
SQL = 56
SQL_END = 64
FAULT = 72  # offset of the event that stopped the scan
DETAIL = 80  # its type
CUT = 88  # groups that a later GTID event cut short (the server crashed while it wrote them)
STATE_WORDS = 12

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
COMPRESSED = 10
ENCRYPTED = 11

# A statement that changes more tables than this holds more table locks than servers are run with.
MAX_ACTIVE = 4096
# MariaDB's own limit (MAX_FIELDS).
MAX_COLUMNS = 4096
HEADER = 19
IGNORABLE = 0x80
STMT_END = 1
DUMMY_TABLE = 0xFFFFFF
# The last eight bytes of a QUERY that ends a transaction, as little-endian numbers.
COMMIT_TEXT = int.from_bytes(b"\0COMMIT", "little")
ROLLBACK_TEXT = int.from_bytes(b"ROLLBACK", "little")
HINTS = 64  # table ids whose last slot is remembered


@helper
def same_bytes(left: int, right: int, size: int) -> bool:
    whole = size & ~7
    for i in range(0, whole, 8):
        if load_u8(left + i) != load_u8(right + i):
            return False
    for i in range(whole, size):  # noqa: SIM110  (numba has no any())
        if load_u1(left + i) != load_u1(right + i):
            return False
    return True


@helper
def content_hash(address: int, size: int) -> int:
    value = size
    whole = size & ~7
    for i in range(0, whole, 8):
        value = (value ^ load_u8(address + i)) * 0x9E3779B97F4A7C1
        value ^= value >> 29
    for i in range(whole, size):
        value = (value ^ load_u1(address + i)) * 0x100000001B3
    return value ^ (value >> 32)


@helper
def find_map(data: int, offset: int, size: int, maps: int, hashed: int, table: int, mask: int) -> int:
    """The slot of this content, or -1 - (place in the hash table where it belongs)."""
    place = hashed & mask
    while True:
        slot = load_u8(table + place * 8) - 1
        if slot < 0:
            return -1 - place
        record = maps + slot * MAP_BYTES
        if (
            load_u8(record + MAP_HASH) == hashed
            and load_u8(record + MAP_SIZE) == size
            and same_bytes(data + load_u8(record + MAP_CONTENT), data + offset, size)
        ):
            return slot
        place = (place + 1) & mask


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
) -> int:
    """Scan from the state's position; returns DONE, GROW or an error code. All arguments are addresses or counts."""
    position = load_u8(state + POSITION)
    trailer = load_u8(state + TRAILER)
    n_groups = load_u8(state + GROUPS)
    n_events = load_u8(state + EVENTS)
    n_maps = load_u8(state + MAPS)
    opened = load_u8(state + OPEN)
    n_active = load_u8(state + ACTIVE)
    sql = load_u8(state + SQL)
    sql_end = load_u8(state + SQL_END)
    cut = load_u8(state + CUT)
    status = DONE
    kind = 0
    while position < size:
        at = data + position
        kind = 0
        if size - position < HEADER:
            status = SHORT_EVENT
            break
        kind = load_u1(at + 4)
        length = load_u4(at + 9)
        if length < HEADER + trailer or length > size - position:
            status = SHORT_EVENT
            break
        if n_groups == groups_capacity or n_events == events_capacity or n_maps == maps_capacity:
            status = GROW
            break
        body = at + HEADER
        end = at + length - trailer
        room = end - body
        group = groups + n_groups * GROUP_BYTES
        ends = 0

        if 23 <= kind <= 25 or 30 <= kind <= 32:  # WRITE, UPDATE, DELETE rows, v1 and v2
            if opened == 0:
                status = OUTSIDE_GROUP
                break
            if room < 9:
                status = BAD_EVENT
                break
            table_id = load_u4(body) | (load_u2(body + 4) << 32)
            flags = load_u2(body + 6)
            p = body + 8
            op = kind - 23
            if kind >= 30:
                op = kind - 30
                p += load_u2(p)  # v2: extra data, its length counts itself
                if p < body + 10 or p >= end:
                    status = BAD_EVENT
                    break
            width = load_u1(p)
            p += 1
            if width == 252 and end - p >= 2:
                width = load_u2(p)
                p += 2
            elif width > 250:
                status = BAD_EVENT
                break
            bitmap = (width + 7) >> 3
            before = p
            after = p
            p += bitmap
            if op == 1:
                after = p
                p += bitmap
            if width > MAX_COLUMNS or p > end:
                status = BAD_EVENT
                break
            if p < end:
                slot = -1
                for i in range(n_active - 1, -1, -1):
                    if load_u8(active + i * 16) == table_id:
                        slot = load_u8(active + i * 16 + 8)
                        break
                if slot < 0:
                    status = NO_TABLE_MAP
                    break
                event = events + n_events * EVENT_BYTES
                store_u8(event + EVENT_START, position)
                store_u8(event + EVENT_IMAGES, p - data)
                store_u8(event + EVENT_END, end - data)
                store_u8(event + EVENT_OP, op)
                store_u8(event + EVENT_SLOT, slot)
                store_u8(event + EVENT_GROUP, n_groups)
                store_u8(event + EVENT_WIDTH, width)
                store_u8(event + EVENT_BEFORE, before - data)
                store_u8(event + EVENT_AFTER, after - data)
                store_u8(event + EVENT_SQL, sql)
                store_u8(event + EVENT_SQL_END, sql_end)
                n_events += 1
            if flags & STMT_END:
                n_active = 0
                sql = 0
                sql_end = 0

        elif kind == 19:  # TABLE_MAP
            if opened == 0:
                status = OUTSIDE_GROUP
                break
            if room < 9:
                status = BAD_EVENT
                break
            table_id = load_u4(body) | (load_u2(body + 4) << 32)
            content = body + 8 - data
            room -= 8
            hint = hints + (table_id & (HINTS - 1)) * 8
            slot = load_u8(hint) - 1
            known = False
            if slot >= 0:
                record = maps + slot * MAP_BYTES
                known = load_u8(record + MAP_SIZE) == room and same_bytes(
                    data + load_u8(record + MAP_CONTENT), data + content, room
                )
            if not known:
                hashed = content_hash(data + content, room)
                slot = find_map(data, content, room, maps, hashed, table, table_mask)
                if slot < 0:
                    store_u8(table + (-1 - slot) * 8, n_maps + 1)
                    slot = n_maps
                    record = maps + slot * MAP_BYTES
                    store_u8(record + MAP_START, position)
                    store_u8(record + MAP_CONTENT, content)
                    store_u8(record + MAP_SIZE, room)
                    store_u8(record + MAP_HASH, hashed)
                    n_maps += 1
                store_u8(hint, slot + 1)
            place = n_active
            for i in range(n_active):
                if load_u8(active + i * 16) == table_id:  # redefined: the later map counts
                    place = i
                    break
            if place == MAX_ACTIVE:
                status = TOO_MANY_MAPS
                break
            store_u8(active + place * 16, table_id)
            store_u8(active + place * 16 + 8, slot)
            n_active = max(n_active, place + 1)

        elif kind == 162:  # GTID
            if room < 13:
                status = BAD_EVENT
                break
            if opened:  # a crash cut the open group: the server writes it again or never
                n_events = load_u8(group + GROUP_FIRST)
                cut += 1
            flags = load_u1(body + 12)
            p = body + 13
            commit_id = 0
            if flags & 2:
                if end - p < 8:
                    status = BAD_EVENT
                    break
                commit_id = load_u8(p)
                p += 8
            if flags & 192:  # XA: format id, two lengths, two texts
                if end - p < 6:
                    status = BAD_EVENT
                    break
                p += 6 + load_u1(p + 4) + load_u1(p + 5)
                if p > end:
                    status = BAD_EVENT
                    break
            extra = 0
            thread = 0
            if p < end:
                extra = load_u1(p)
                p += 1 + (extra & 1)
                if extra & 12:
                    p += 8
                if extra & 16:
                    if end - p < 4:
                        status = BAD_EVENT
                        break
                    thread = load_u4(p)
                elif p > end:
                    status = BAD_EVENT
                    break
            store_u8(group + GROUP_DOMAIN, load_u4(body + 8))
            store_u8(group + GROUP_SERVER, load_u4(at + 5))
            store_u8(group + GROUP_SEQUENCE, load_u8(body))
            store_u8(group + GROUP_FLAGS, flags)
            store_u8(group + GROUP_EXTRA, extra)
            store_u8(group + GROUP_COMMIT_ID, commit_id)
            store_u8(group + GROUP_XID, 0)
            store_u8(group + GROUP_THREAD, thread)
            store_u8(group + GROUP_START, position)
            store_u8(group + GROUP_FIRST, n_events)
            opened = 1 + (flags & 1)
            n_active = 0
            sql = 0
            sql_end = 0

        elif kind == 16:  # XID
            if opened == 0 or room < 8:
                status = OUTSIDE_GROUP if opened == 0 else BAD_EVENT
                break
            if opened == 1:
                store_u8(group + GROUP_XID, load_u8(body))
                ends = ENDS_XID

        elif kind == 2:  # QUERY
            if opened == 0 or room < 13:
                status = OUTSIDE_GROUP if opened == 0 else BAD_EVENT
                break
            if opened == 2:
                ends = ENDS_STANDALONE
            else:
                tail = load_u8(end - 8)
                if (tail >> 8) & 0xFFFFFFFFFFFFFF == COMMIT_TEXT:
                    ends = ENDS_COMMIT
                elif tail == ROLLBACK_TEXT and load_u1(end - 9) == 0:
                    ends = ENDS_ROLLBACK

        elif kind == 160:  # ANNOTATE_ROWS
            sql = body - data
            sql_end = end - data

        elif kind == 165:  # QUERY_COMPRESSED: ends standalone groups only, its text is nobody's business here
            if opened == 2:
                ends = ENDS_STANDALONE

        elif kind == 38:  # XA_PREPARE
            if opened == 0:
                status = OUTSIDE_GROUP
                break
            if opened == 1:
                ends = ENDS_XA_PREPARE

        elif kind == 15:  # FORMAT_DESCRIPTION: the algorithm byte, then always four bytes of CRC
            if length < HEADER + 57 + 5:
                status = BAD_EVENT
                break
            algorithm = load_u1(at + length - 5)
            # Table maps and rows events with the fixed parts of ancient servers (4-byte table ids) are not read.
            if algorithm > 1 or (room >= 57 + 25 and (load_u1(body + 75) != 8 or load_u1(body + 79) != 8)):
                status = BAD_EVENT
                break
            trailer = algorithm * 4

        elif 166 <= kind <= 171:
            status = COMPRESSED
            break
        elif kind == 26:
            status = INCIDENT
            break
        elif kind == 164:
            # START_ENCRYPTION: flagged IGNORABLE when the server sent it (then the events are plain), not so in a file
            if load_u2(at + 17) & IGNORABLE == 0:
                status = ENCRYPTED
                break
        elif (
            # STOP ROTATE INTVAR, blocks of LOAD DATA, RAND USER_VAR, HEARTBEAT, BINLOG_CHECKPOINT, GTID_LIST
            kind not in (3, 4, 5, 9, 11, 13, 14, 17, 18, 27, 161, 163)
            # IGNORABLE ROWS_QUERY PREVIOUS_GTIDS TRANSACTION_CONTEXT VIEW_CHANGE HEARTBEAT_V2: MariaDB passes them too
            and kind not in (28, 29, 35, 36, 37, 41)
            and load_u2(at + 17) & IGNORABLE == 0
        ):
            status = UNKNOWN_EVENT
            break

        if ends:
            if ends == ENDS_ROLLBACK:
                # The server logs a transaction that it rolled back when it did something that cannot be rolled back
                # (CREATE TEMPORARY TABLE). In row format, changes of tables without transactions are groups of their
                # own, so all rows here are undone.
                n_events = load_u8(group + GROUP_FIRST)
            store_u8(group + GROUP_TIMESTAMP, load_u4(at))
            store_u8(group + GROUP_END, position + length)
            store_u8(group + GROUP_LAST, n_events)
            store_u8(group + GROUP_ENDING, ends)
            n_groups += 1
            opened = 0
            n_active = 0
        position += length

    if status == DONE and opened:
        status = OPEN_GROUP
    store_u8(state + POSITION, position)
    store_u8(state + TRAILER, trailer)
    store_u8(state + GROUPS, n_groups)
    store_u8(state + EVENTS, n_events)
    store_u8(state + MAPS, n_maps)
    store_u8(state + OPEN, opened)
    store_u8(state + ACTIVE, n_active)
    store_u8(state + SQL, sql)
    store_u8(state + SQL_END, sql_end)
    store_u8(state + FAULT, position)
    store_u8(state + DETAIL, kind)
    store_u8(state + CUT, cut)
    return status
