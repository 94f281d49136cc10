"""Kernel that finds the statements that a range contains as text, from the event headers.

A server logs DDL as its own group (STANDALONE), or marks the group (DDL: CREATE TABLE … SELECT). In other groups a text
is either a row change logged as a statement, or the border of a transaction (COMMIT, SAVEPOINT, XA END). The kernel
skips borders. Of rows events only the header is read.
"""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.kernel_group import (
    BEGIN,
    COMPRESSED_STATEMENT,
    GTID_FIELDS,
    GTID_FLAGS_AT,
    HEADER,
    LOAD,
    MEMBER,
    MYSQL_BEGIN,
    NO_GROUP,
    STATEMENT,
    described_trailer,
    event_length,
    event_type,
    group_step,
    is_whole,
    role_of,
)
from replica.native.kernel_statement import is_border
from replica.native.memory import load_u1, load_u8, store_u8
from replica.native.record import Record, word
from replica.protocol.constants import EventType, GtidFlag
from replica.rows.scan.kernels.kernel_state import SearchState

_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_MARKED = int(GtidFlag.STANDALONE | GtidFlag.DDL)


class StatementRecord(Record):
    """One statement that the range contains as text; offsets count from the start of the range."""

    group = word("offset of its group's first byte")
    start = word("offset of the statement's event")
    end = word("offset after it")
    trailer = word("bytes of checksum after each event")
    marked = word("1: the server says it may be DDL")


@kernel
def find_statements(data: int, size: int, state: int, found: int, capacity: int, unmarked: int) -> int:
    """Write the first `capacity` records; return how many exist up to `size`, or up to a truncated event.

    If `unmarked` is 0, only statements in groups that the server marked count.
    """
    position = load_u8(state + SearchState.position)
    trailer = load_u8(state + SearchState.trailer)
    group = load_u8(state + SearchState.open)
    start = load_u8(state + SearchState.start)
    marked = load_u8(state + SearchState.chosen)
    count = load_u8(state + SearchState.found)
    while position < size:
        at = data + position
        if not is_whole(at, size - position, trailer):
            break
        length = event_length(at)
        role = role_of(at)
        if role == MEMBER:  # most events: no text, and no border of a group
            position += length
            continue
        end = at + length - trailer
        if role == BEGIN and end - at < HEADER + GTID_FIELDS:
            break
        if role in (BEGIN, MYSQL_BEGIN):
            marked = 1 if role == BEGIN and load_u1(at + GTID_FLAGS_AT) & _MARKED else 0
            start = position
        elif group != NO_GROUP and role in (STATEMENT, COMPRESSED_STATEMENT, LOAD):
            if (marked and role != LOAD) or (unmarked and not (role == STATEMENT and is_border(at, end))):
                if count < capacity:
                    record = found + count * StatementRecord.BYTES
                    store_u8(record + StatementRecord.group, start)
                    store_u8(record + StatementRecord.start, position)
                    store_u8(record + StatementRecord.end, position + length)
                    store_u8(record + StatementRecord.trailer, trailer)
                    store_u8(record + StatementRecord.marked, marked)
                count += 1
        elif event_type(at) == _DESCRIPTION:
            trailer = described_trailer(at, length)
        group = group_step(group, role, at, end)
        position += length
    store_u8(state + SearchState.position, position)
    store_u8(state + SearchState.trailer, trailer)
    store_u8(state + SearchState.open, group)
    store_u8(state + SearchState.start, start)
    store_u8(state + SearchState.chosen, marked)
    store_u8(state + SearchState.found, count)
    return count
