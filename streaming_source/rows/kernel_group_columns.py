# ruff: noqa: C901  (one pass, one function)
"""Kernel of change_rows.py: the numbers of a group become numbers of each of its rows, all columns in one pass."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.kernel_header import LOG_POS_AT, event_length
from replica.native.memory import load_i4, load_u4, load_u8, prefetch, store_u8
from replica.rows.scan.records import GroupRecord

_U32 = 0xFFFFFFFF  # positions in a header have 32 bits, and begin at 0 again beyond
_MICROSECONDS = 1_000_000
ROWS_AHEAD = 8
"""How many rows ahead a group's GTID event is asked for: it was read long ago, when the range was scanned."""


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
    told: int,
) -> int:
    """Write up to seven columns of numbers; return how many rows there are.

    All arguments but `rows` and `stride` are addresses: of the GroupRecords, of the index of each row's group, of the
    range and of where its groups begin in it, `stride` bytes apart; then of the columns, 0 for those that no one wants;
    at last of two counts, of how many rows have an xid and a thread that is not 0. A position is where the group begins
    in the primary's file: of the GTID event's header, its log_pos less its length.
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
    store_u8(told, xids)
    store_u8(told + 8, threads)
    return rows
