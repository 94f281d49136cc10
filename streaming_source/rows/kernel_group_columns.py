"""Kernel of change_rows.py: copies numbers of a group to each of its rows, all columns in one pass."""

# ruff: noqa: C901  (one pass, one function)

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.kernel_group import LOG_POS_AT, event_length
from replica.native.memory import load_i4, load_u4, load_u8, prefetch, store_u8
from replica.rows.scan.records import GroupRecord

_U32 = 0xFFFFFFFF  # positions in a header have 32 bits and wrap around
_MICROSECONDS = 1_000_000
ROWS_AHEAD = 8
"""Number of rows in advance for which the GTID event of a group is prefetched. It was read long before, when the range
was scanned.
"""


@kernel
def take_numbers(
    groups: int,
    group: int,
    rows: int,
    data: int,
    starts: int,
    stride: int,
    domain: int,
    server: int,
    sequence: int,
    timestamp: int,
    xid: int,
    thread: int,
    position: int,
    present: int,
) -> int:
    """Write up to seven columns of numbers; return the number of rows.

    All arguments except `rows` and `stride` are addresses. `groups`: the GroupRecords. `group`: the int32 index of each
    row's group. `data`: the range. `starts`: offsets of groups in the range, `stride` bytes apart. `domain` to
    `position`: the int64 columns, 0 for those that are not needed. `present`: two int64 counts, of the rows with an xid
    and with a thread that is not 0. A position is where the group begins in the primary's file: log_pos in the GTID
    event's header minus the event's length.
    """
    before = -1
    domain_value, server_value, sequence_value, time_value, xid_value, thread_value, place = 0, 0, 0, 0, 0, 0, 0
    xids = 0
    threads = 0
    for row in range(rows):
        g = load_i4(group + row * 4)
        if g != before:
            before = g
            record = groups + g * GroupRecord.BYTES
            domain_value = load_u8(record + GroupRecord.domain)
            server_value = load_u8(record + GroupRecord.server)
            sequence_value = load_u8(record + GroupRecord.sequence)
            time_value = load_u8(record + GroupRecord.timestamp) * _MICROSECONDS
            xid_value = load_u8(record + GroupRecord.xid)
            thread_value = load_u8(record + GroupRecord.thread)
            if position:
                later = load_i4(group + min(row + ROWS_AHEAD, rows - 1) * 4)
                prefetch(data + load_u8(starts + later * stride))
                header = data + load_u8(starts + g * stride)
                place = (load_u4(header + LOG_POS_AT) - event_length(header)) & _U32
        xids += xid_value != 0
        threads += thread_value != 0
        at = row * 8
        if domain:
            store_u8(domain + at, domain_value)
        if server:
            store_u8(server + at, server_value)
        if sequence:
            store_u8(sequence + at, sequence_value)
        if timestamp:
            store_u8(timestamp + at, time_value)
        if xid:
            store_u8(xid + at, xid_value)
        if thread:
            store_u8(thread + at, thread_value)
        if position:
            store_u8(position + at, place)
    store_u8(present, xids)
    store_u8(present + 8, threads)
    return rows
