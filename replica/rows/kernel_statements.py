"""Finds the statements that may be DDL, from header to header: only groups that a server marks are looked into.

A server logs DDL as a group of its own (STANDALONE), or marks the group (DDL: CREATE TABLE … SELECT). All else is
stepped over.
"""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.memory import load_u1, load_u4, store_u8

HEADER = 19
GTID, QUERY, QUERY_COMPRESSED, FORMAT_DESCRIPTION = 162, 2, 165, 15
FLAGS_AT = HEADER + 12  # in a GTID event, after sequence number and domain
STANDALONE, DDL = 1, 32

# A record: offsets of the group's first byte, of the statement, of the byte after it; bytes of checksum.
FOUND_GROUP, FOUND_START, FOUND_END, FOUND_TRAILER = 0, 8, 16, 24
FOUND_BYTES = 32


@kernel
def find_statements(data: int, size: int, position: int, trailer: int, found: int, capacity: int) -> int:
    """Write the first `capacity` records; returns how many there are, or -1 - the offset of an event cut short."""
    count = 0
    marked = False
    group = 0
    while position < size:
        at = data + position
        if size - position < HEADER + trailer:
            return -1 - position
        kind = load_u1(at + 4)
        length = load_u4(at + 9)
        if length < HEADER + trailer or length > size - position:
            return -1 - position
        if kind == GTID:
            if length <= FLAGS_AT:
                return -1 - position
            marked = load_u1(at + FLAGS_AT) & (STANDALONE | DDL) != 0
            group = position
        elif marked and kind in (QUERY, QUERY_COMPRESSED):
            if count < capacity:
                record = found + count * FOUND_BYTES
                store_u8(record + FOUND_GROUP, group)
                store_u8(record + FOUND_START, position)
                store_u8(record + FOUND_END, position + length)
                store_u8(record + FOUND_TRAILER, trailer)
            count += 1
        elif kind == FORMAT_DESCRIPTION:
            trailer = 4 if load_u1(at + length - 5) == 1 else 0
        position += length
    return count
