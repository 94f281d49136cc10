"""The scan kernel: one pass over the events of a range, from header to header.

In: the range's bytes (whole events). Out: group records, rows event records, distinct table maps (records.py). The
kernel stops with GROW when a record array is full and resumes at the same event with a larger one. It stops at the
first event it must not pass, with a code and that event's offset; it reads no byte beyond the event at hand.

The table ids of the running statement are forgotten at the statement's last rows event (STMT_END) and the group's end.
"""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.memory import load_u1, load_u2, load_u4, load_u8, store_u8
from replica.rows.scan.kernel_dummy import is_dummy
from replica.rows.scan.kernel_gtid import gtid_group
from replica.rows.scan.kernel_maps import active_place, map_slot, table_id_at
from replica.rows.scan.kernel_mysql import COMPLETES_XA, STATEMENT, is_mysql_gtid, mysql_gtid_group, mysql_statement
from replica.rows.scan.kernel_rows_events import ENDS_STATEMENT, RECORDED, is_rows_event, rows_event
from replica.rows.scan.kernel_state import (
    BAD_EVENT,
    DONE,
    ENCRYPTED,
    GROW,
    HEADER,
    HISTORICAL,
    IGNORABLE,
    INCIDENT,
    MAX_ACTIVE,
    NEEDS_EXPANSION,
    OPEN_GROUP,
    OUTSIDE_GROUP,
    SHORT_EVENT,
    TOO_MANY_MAPS,
    UNKNOWN_EVENT,
    ScanState,
)
from replica.rows.scan.records import (
    ENDS_COMMIT,
    ENDS_ROLLBACK,
    ENDS_STANDALONE,
    ENDS_XA_PREPARE,
    ENDS_XID,
    ActiveRecord,
    EventRecord,
    GroupRecord,
)

# The last eight bytes of a QUERY that ends a transaction, as little-endian numbers.
COMMIT_TEXT = int.from_bytes(b"\0COMMIT", "little")
ROLLBACK_TEXT = int.from_bytes(b"ROLLBACK", "little")
COMPLETED_XA = 128  # of a MariaDB GTID event's flags; set for MySQL's ScanState.xa COMMIT and ROLLBACK too


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
    xa = load_u8(state + ScanState.xa)
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
        group = groups + n_groups * GroupRecord.BYTES
        ends = 0

        if is_rows_event(kind):
            if opened == 0:
                status = OUTSIDE_GROUP
                break
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

        elif kind == 19:  # TABLE_MAP
            if opened == 0:
                status = OUTSIDE_GROUP
                break
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

        elif kind == 162:  # GTID
            if opened:  # a crash cut the open group: the server writes it again or never
                n_events = load_u8(group + GroupRecord.first)
                cut += 1
                opened = 0
            status = gtid_group(at, end, group)
            if status != DONE:
                break
            store_u8(group + GroupRecord.start, position)
            store_u8(group + GroupRecord.first, n_events)
            opened = 1 + (load_u1(body + 12) & 1)
            n_active = 0
            sql = 0
            sql_end = 0

        elif is_mysql_gtid(kind):
            if opened:
                n_events = load_u8(group + GroupRecord.first)
                cut += 1
                opened = 0
            status = mysql_gtid_group(at, end, group)
            if status != DONE:
                break
            store_u8(group + GroupRecord.start, position)
            store_u8(group + GroupRecord.first, n_events)
            opened = 3
            n_active = 0
            sql = 0
            sql_end = 0

        elif kind == 16:  # XID
            if opened == 0 or room < 8:
                status = OUTSIDE_GROUP if opened == 0 else BAD_EVENT
                break
            if opened != 2:
                store_u8(group + GroupRecord.xid, load_u8(body))
                ends = ENDS_XID

        elif kind == 2:  # QUERY
            if opened == 0 and is_dummy(kind, at, end):
                position += length
                continue
            if opened == 0 or room < 13:
                status = OUTSIDE_GROUP if opened == 0 else BAD_EVENT
                break
            if opened == 2:
                ends = ENDS_STANDALONE
            elif opened == 3:
                statement = mysql_statement(body, end)
                if statement in (STATEMENT, COMPLETES_XA):
                    ends = ENDS_STANDALONE
                    store_u8(group + GroupRecord.flags, COMPLETED_XA if statement == COMPLETES_XA else 0)
                else:
                    opened = 1
            else:
                tail = load_u8(end - 8)
                if (tail >> 8) & 0xFFFFFFFFFFFFFF == COMMIT_TEXT:
                    ends = ENDS_COMMIT
                elif tail == ROLLBACK_TEXT and load_u1(end - 9) == 0:
                    ends = ENDS_ROLLBACK

        elif kind == 160:  # ANNOTATE_ROWS
            sql = body - data
            sql_end = end - data

        elif kind == 29:  # ROWS_QUERY: a byte that means nothing, and the text
            sql = min(body + 1, end) - data
            sql_end = end - data

        elif kind == 165:  # QUERY_COMPRESSED: ends standalone groups only, its text is nobody's business here
            if opened == 2:
                ends = ENDS_STANDALONE

        elif kind == 38:  # XA_PREPARE
            if opened == 0:
                status = OUTSIDE_GROUP
                break
            if opened != 2:
                ends = ENDS_XA_PREPARE

        elif kind == 15:  # FORMAT_DESCRIPTION: the algorithm byte, then always four bytes of CRC
            if length < HEADER + 57 + 5:
                status = BAD_EVENT
                break
            algorithm = load_u1(at + length - 5)
            # Table maps and rows events with the fixed parts of ancient servers (4-byte table ids) are not read; of the
            # first version of rows events, today's MySQL says 0: it does not write them.
            if algorithm > 1 or (room >= 57 + 25 and (load_u1(body + 75) != 8 or load_u1(body + 79) not in (0, 8))):
                status = BAD_EVENT
                break
            trailer = algorithm * 4

        elif kind in (40, 172):  # TRANSACTION_PAYLOAD, PARTIAL_ROW_DATA
            status = OUTSIDE_GROUP if opened == 0 else NEEDS_EXPANSION
            break
        elif kind == 26:
            status = INCIDENT
            break
        elif kind == 164:
            # START_ENCRYPTION: flagged IGNORABLE when the server sent it (then the events are plain), not so in a file
            if load_u2(at + 17) & IGNORABLE == 0:
                status = ENCRYPTED
                break
        elif kind in (1, 6, 7, 8, 10, 12, 20, 21, 22):  # LOAD DATA before 5.0, rows before 5.1: never in these groups
            status = HISTORICAL
            break
        elif (
            # STOP ROTATE INTVAR, blocks of LOAD DATA, RAND USER_VAR, HEARTBEAT, BINLOG_CHECKPOINT, GTID_LIST
            kind not in (3, 4, 5, 9, 11, 13, 14, 17, 18, 27, 161, 163)
            # PREVIOUS_GTIDS TRANSACTION_CONTEXT VIEW_CHANGE HEARTBEAT_V2: MariaDB passes them too
            and kind not in (35, 36, 37, 41)
        ):
            if kind != 28 and load_u2(at + 17) & IGNORABLE == 0:
                status = UNKNOWN_EVENT
                break
            store_u8(state + ScanState.skipped + kind * 8, load_u8(state + ScanState.skipped + kind * 8) + 1)

        if ends:
            if ends == ENDS_ROLLBACK:
                # The server logs a transaction that it rolled back when it did something that cannot be rolled back
                # (CREATE TEMPORARY TABLE). In row format, changes of tables without transactions are groups of their
                # own, so all rows here are undone.
                n_events = load_u8(group + GroupRecord.first)
            if ends == ENDS_XA_PREPARE or load_u8(group + GroupRecord.flags) & COMPLETED_XA:
                xa += 1
            store_u8(group + GroupRecord.timestamp, load_u4(at))
            store_u8(group + GroupRecord.end, position + length)
            store_u8(group + GroupRecord.last, n_events)
            store_u8(group + GroupRecord.ending, ends)
            n_groups += 1
            opened = 0
            n_active = 0
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
    store_u8(state + ScanState.xa, xa)
    return status
