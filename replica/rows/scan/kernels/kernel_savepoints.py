"""Kernel that finds the SAVEPOINT and ROLLBACK TO statements of a group from the event headers."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.kernel_group import HEADER, QUERY_FIELDS, STATEMENT, event_length, is_whole, role_of
from replica.native.kernel_statement import NO_SAVEPOINT, ROLLS_BACK_TO, savepoint_role
from replica.native.memory import load_u8, store_u8
from replica.native.record import Record, word
from replica.rows.scan.kernels.kernel_state import SearchState


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
