"""Kernels that search a range for some event groups, from the event headers: statements, XA transactions, savepoints.

Each kernel keeps a `SearchState` between two windows of the range (windows.py), and writes records of what it finds. Of
rows events only the header is read.

`find_statements`: a server logs DDL as its own group (STANDALONE), or marks the group (DDL: CREATE TABLE … SELECT). In
other groups a text is either a row change logged as a statement, or the border of a transaction (COMMIT, SAVEPOINT, XA
END). The kernel skips borders. `find_xa`: the groups that prepare or end XA transactions. `find_savepoints`: SAVEPOINT
and ROLLBACK TO of one group.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.kernel_group import (
    BEGIN,
    COMPLETES_XA,
    COMPRESSED_STATEMENT,
    END,
    GTID_FIELDS,
    GTID_FLAGS_AT,
    HEADER,
    LOAD,
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
from replica.native.kernel_statement import NO_SAVEPOINT, ROLLS_BACK_TO, is_border, savepoint_role
from replica.native.memory import load_u1, load_u8, store_u8
from replica.native.record import Record, word
from replica.protocol.constants import EventType, GtidFlag
from replica.rows.scan.records import SearchState

_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_MARKED = int(GtidFlag.STANDALONE | GtidFlag.DDL)


@helper
def keep_state(state: int, position: int, trailer: int, group: int, start: int, chosen: int, found: int) -> None:
    """Store the state of a search of groups after a window of the range."""
    store_u8(state + SearchState.position, position)
    store_u8(state + SearchState.trailer, trailer)
    store_u8(state + SearchState.open, group)
    store_u8(state + SearchState.start, start)
    store_u8(state + SearchState.chosen, chosen)
    store_u8(state + SearchState.found, found)


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
    keep_state(state, position, trailer, group, start, marked, count)
    return count


class SavepointMark(Record):
    """A SAVEPOINT or ROLLBACK TO statement; offsets count from the start of the group."""

    start = word("offset of its QUERY event")
    end = word("offset after it")
    rolls_back = word("1: ROLLBACK TO, 0: SAVEPOINT")


@kernel
def find_savepoints(data: int, size: int, state: int, found: int, capacity: int) -> int:
    """Write the first `capacity` records; return how many exist up to `size`, or up to a truncated event."""
    position = load_u8(state + SearchState.position)
    trailer = load_u8(state + SearchState.trailer)
    count = load_u8(state + SearchState.found)
    while position < size:
        at = data + position
        if not is_whole(at, size - position, trailer):
            break
        length = event_length(at)
        end = at + length - trailer
        if role_of(at) == STATEMENT and end - at >= HEADER + QUERY_FIELDS:
            what = savepoint_role(at, end)
            if what != NO_SAVEPOINT:
                if count < capacity:
                    record = found + count * SavepointMark.BYTES
                    store_u8(record + SavepointMark.start, position)
                    store_u8(record + SavepointMark.end, position + length)
                    store_u8(record + SavepointMark.rolls_back, 1 if what == ROLLS_BACK_TO else 0)
                count += 1
        position += length
    store_u8(state + SearchState.position, position)
    store_u8(state + SearchState.found, count)
    return count


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
    keep_state(state, position, trailer, group, start, completes, count)
    return count
