"""Kernel that finds the event groups that prepare or end XA transactions, from the event headers."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.kernel_group import (
    BEGIN,
    COMPLETES_XA,
    END,
    GTID_FIELDS,
    GTID_FLAGS_AT,
    HEADER,
    MEMBER,
    MYSQL_BEGIN,
    NO_GROUP,
    QUERY_FIELDS,
    STATEMENT,
    UNDECIDED,
    described_trailer,
    event_length,
    event_type,
    group_step,
    is_whole,
    mysql_statement,
    role_of,
)
from replica.native.memory import load_u1, load_u8, store_u8
from replica.native.record import Record, word
from replica.protocol.constants import EventType, GtidFlag
from replica.rows.scan.kernels.kernel_state import SearchState

_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_XA_PREPARE = int(EventType.XA_PREPARE)
_COMPLETED_XA = int(GtidFlag.COMPLETED_XA)


class XaRecord(Record):
    """One event group that prepares or ends an XA transaction; offsets count from the start of the range."""

    start = word("offset of the group's first byte")
    last = word("offset of its last event")
    end = word("offset after it")
    trailer = word("bytes of checksum after each event")
    completes = word("1: it ends the transaction, 0: it prepares it")


@kernel
def find_xa(data: int, size: int, state: int, found: int, capacity: int) -> int:
    """Write the first `capacity` records; return how many exist up to `size`, or up to a truncated event."""
    position = load_u8(state + SearchState.position)
    trailer = load_u8(state + SearchState.trailer)
    group = load_u8(state + SearchState.open)
    start = load_u8(state + SearchState.start)
    completes = load_u8(state + SearchState.chosen)  # 1: the open group ends an XA transaction
    count = load_u8(state + SearchState.found)
    while position < size:
        at = data + position
        if not is_whole(at, size - position, trailer):
            break
        length = event_length(at)
        role = role_of(at)
        if role == MEMBER:  # most events, which end no group
            position += length
            continue
        kind = event_type(at)
        end = at + length - trailer
        if role == BEGIN and end - at < HEADER + GTID_FIELDS:
            break
        if role in (BEGIN, MYSQL_BEGIN):
            completes = 1 if role == BEGIN and load_u1(at + GTID_FLAGS_AT) & _COMPLETED_XA else 0
            start = position
        elif group == UNDECIDED and role == STATEMENT:
            if end - at < HEADER + QUERY_FIELDS:
                break
            completes = 1 if mysql_statement(at, end) == COMPLETES_XA else 0
        elif kind == _DESCRIPTION:
            trailer = described_trailer(at, length)
        left = group_step(group, role, at, end)
        if group != NO_GROUP and left == NO_GROUP and (kind == _XA_PREPARE or (completes and role != END)):
            if count < capacity:
                record = found + count * XaRecord.BYTES
                store_u8(record + XaRecord.start, start)
                store_u8(record + XaRecord.last, position)
                store_u8(record + XaRecord.end, position + length)
                store_u8(record + XaRecord.trailer, trailer)
                store_u8(record + XaRecord.completes, 0 if kind == _XA_PREPARE else completes)
            count += 1
        group = left
        position += length
    store_u8(state + SearchState.position, position)
    store_u8(state + SearchState.trailer, trailer)
    store_u8(state + SearchState.open, group)
    store_u8(state + SearchState.start, start)
    store_u8(state + SearchState.chosen, completes)
    store_u8(state + SearchState.found, count)
    return count
