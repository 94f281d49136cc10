"""Kernel that records a complete group: the last GTID of its domain, an index entry at intervals, and its end on
request.

`end_group` takes the address of a stream's state (`Cell`). If a sequence number is not above the last one of its
domain, all later index entries are marked. The state also keeps the highest number before such a step back.
"""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.crc32 import crc32
from replica.native.kernel_group import NO_GROUP
from replica.native.memory import copy, load_u4, load_u8, store_u4, store_u8
from replica.native.memory import load_u8 as get  # a cell of the state
from replica.native.memory import store_u8 as put
from replica.relay_log.kernels import stops
from replica.relay_log.kernels.domains import MAX_DOMAINS
from replica.relay_log.kernels.stream_record import Cell, DomainRow, EntryHead, GroupEnd

INDEX_EVERY_BYTES = 64 << 10  # a lookup reads at most this many bytes after an entry
UNORDERED_FLAG = 2  # in an index entry
XA_FLAG = 4
ENTRY_CRC_BYTES = 4
MAX_ENTRY_BYTES = EntryHead.BYTES + DomainRow.BYTES * MAX_DOMAINS + ENTRY_CRC_BYTES

_SIGN = -(1 << 63)  # with this bit inverted, signed numbers sort as unsigned ones


@kernel
def _above(one: int, other: int) -> bool:
    """Return True if `one` is above `other`, as unsigned 64-bit sequence numbers."""
    return (one ^ _SIGN) > (other ^ _SIGN)


@kernel
def _row_of(state: int, domain: int) -> int:
    """Return a domain's row in the table, or the row after the last if there is none; the last group's row is tried
    first.
    """
    domains, count = get(state + Cell.domain_table), get(state + Cell.domains)
    row = get(state + Cell.last_domain)
    if row >= count or load_u4(domains + DomainRow.BYTES * row + DomainRow.domain) != domain:
        row = 0
        while row < count and load_u4(domains + DomainRow.BYTES * row + DomainRow.domain) != domain:
            row += 1
    return row


@kernel
def goes_back(state: int, domain: int, seq: int) -> bool:
    """Return True if a group is not above the last one of its domain."""
    row = _row_of(state, domain)
    last = get(state + Cell.domain_table) + DomainRow.BYTES * row
    return row < get(state + Cell.domains) and not _above(seq, load_u8(last + DomainRow.sequence))


@kernel
def _write_entry(state: int) -> None:
    """Append the index entry for the group that just ended (layout: relay_log/files/index.py)."""
    begin = get(state + Cell.index_arena) + get(state + Cell.index_fill)
    count = get(state + Cell.domains)
    size = EntryHead.BYTES + DomainRow.BYTES * count + ENTRY_CRC_BYTES
    store_u4(begin + EntryHead.length, size)
    store_u4(begin + EntryHead.flags, UNORDERED_FLAG * get(state + Cell.unordered) + XA_FLAG * get(state + Cell.xa))
    store_u8(begin + EntryHead.end, get(state + Cell.committed_offset))
    store_u8(begin + EntryHead.primary_position, get(state + Cell.committed_position))
    store_u4(begin + EntryHead.timestamp, get(state + Cell.committed_timestamp))
    store_u4(begin + EntryHead.domains, count)
    store_u4(begin + EntryHead.last_domain, get(state + Cell.last_domain))
    copy(begin + EntryHead.BYTES, get(state + Cell.domain_table), DomainRow.BYTES * count)
    store_u4(begin + size - ENTRY_CRC_BYTES, crc32(begin, size - ENTRY_CRC_BYTES, 0))
    put(state + Cell.index_fill, get(state + Cell.index_fill) + size)
    put(state + Cell.last_entry, get(state + Cell.committed_offset))
    put(state + Cell.xa, 0)


@kernel
def end_group(state: int, out: int, offset: int) -> int:
    """Add a complete group to the domain table, the index and the group ends; return the reason to stop, or
    NEED_BYTES.
    """
    seq = get(state + Cell.group_seq)
    row, count = _row_of(state, get(state + Cell.group_domain)), get(state + Cell.domains)
    entered = get(state + Cell.domain_table) + DomainRow.BYTES * row
    if row == MAX_DOMAINS:
        return stops.TOO_MANY_DOMAINS
    if row == count:
        put(state + Cell.domains, count + 1)
        store_u8(entered + DomainRow.sequence, 0)
    last = load_u8(entered + DomainRow.sequence)
    if not _above(seq, last):
        put(state + Cell.unordered, 1)
        highest = get(state + Cell.highest_table) + 8 * row
        if _above(last, load_u8(highest)):
            store_u8(highest, last)
            put(state + Cell.highest_grew, 1)
    store_u4(entered + DomainRow.domain, get(state + Cell.group_domain))
    store_u4(entered + DomainRow.server, get(state + Cell.group_server))
    store_u8(entered + DomainRow.sequence, seq)
    put(state + Cell.last_domain, row)
    put(state + Cell.xa, get(state + Cell.xa) | get(state + Cell.group_xa))
    put(state + Cell.statements, get(state + Cell.statements) + get(state + Cell.group_statements))
    put(state + Cell.group, NO_GROUP)
    put(state + Cell.groups, get(state + Cell.groups) + 1)
    put(state + Cell.committed_offset, offset)
    put(state + Cell.committed_out, out)
    put(state + Cell.committed_position, get(state + Cell.position))
    put(state + Cell.committed_timestamp, get(state + Cell.event_timestamp))
    reason = stops.NEED_BYTES
    rows = get(state + Cell.ends_rows)
    if rows > 0:
        fill = get(state + Cell.ends_fill)
        end = get(state + Cell.ends_table) + GroupEnd.BYTES * fill
        store_u8(end + GroupEnd.offset, offset)
        store_u8(end + GroupEnd.domain, get(state + Cell.group_domain))
        store_u8(end + GroupEnd.server, get(state + Cell.group_server))
        store_u8(end + GroupEnd.sequence, seq)
        store_u8(end + GroupEnd.timestamp, get(state + Cell.event_timestamp))
        store_u8(end + GroupEnd.position, get(state + Cell.position))
        put(state + Cell.ends_fill, fill + 1)
        if fill + 1 == rows:
            reason = stops.ENDS_FULL
    if offset - get(state + Cell.last_entry) >= INDEX_EVERY_BYTES:
        _write_entry(state)
        if get(state + Cell.index_arena_bytes) - get(state + Cell.index_fill) < MAX_ENTRY_BYTES:
            reason = stops.INDEX_FULL
    return stops.ROLL if offset >= get(state + Cell.roll_at) else reason
