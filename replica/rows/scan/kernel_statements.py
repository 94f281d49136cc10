"""Finds the statements that stand in a range as text, from header to header.

A server logs DDL as a group of its own (STANDALONE), or marks the group (DDL: CREATE TABLE … SELECT). In all other
groups a text is a border of the transaction (COMMIT, SAVEPOINT, XA END), which is stepped over, or a change of rows
that was logged as a statement. Events of rows cost a look at the header.
"""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.memory import load_u1, load_u2, load_u4, load_u8, store_u8
from replica.native.record import Record, word

HEADER = 19
GTID, QUERY, QUERY_COMPRESSED, FORMAT_DESCRIPTION = 162, 2, 165, 15
EXECUTE_LOAD_QUERY = 18
MYSQL_ANONYMOUS, MYSQL_GTID, MYSQL_GTID_TAGGED = 34, 33, 42
FLAGS_AT = HEADER + 12  # in a GTID event, after sequence number and domain
STANDALONE, DDL = 1, 32

# A QUERY: 13 bytes, the length of the database at 8 and of the status variables at 11; both; a NUL; the text.
QUERY_FIXED = 13
DATABASE_LENGTH_AT = HEADER + 8
STATUS_LENGTH_AT = HEADER + 11
_COMM = int.from_bytes(b"COMM", "little")
_IT = int.from_bytes(b"IT", "little")
_BEGI = int.from_bytes(b"BEGI", "little")
_N = ord("N")
_XA = int.from_bytes(b"XA ", "little")
_ROLLBACK = int.from_bytes(b"ROLLBACK", "little")
_SAVEPOINT = int.from_bytes(b"SAVEPOIN", "little")
_CREA = int.from_bytes(b"crea", "little")
_DROP = int.from_bytes(b"drop", "little")
_SMALL = 0x20202020
_LONGEST_BORDER = 8  # bytes that tell one; the text after them is a name


class StatementRecord(Record):
    """One statement that stands in the range as text; offsets count from the start of the range."""

    group = word("offset of its group's first byte")
    start = word("offset of the statement's event")
    end = word("offset after it")
    trailer = word("bytes of checksum after each event")
    marked = word("1: the server says it may be DDL")


@kernel
def is_border(event: int, size: int) -> bool:
    """Whether a QUERY of `size` bytes, checksum left out, begins or ends a transaction or a part of one.

    The server itself writes these, always alike. What is cut short is none.
    """
    text = HEADER + QUERY_FIXED + 1
    if size < text:
        return False
    text += load_u1(event + DATABASE_LENGTH_AT) + load_u2(event + STATUS_LENGTH_AT)
    left = size - text
    at = event + text
    if left >= _LONGEST_BORDER:
        head = load_u8(at)
        return head in (_ROLLBACK, _SAVEPOINT) or head & 0xFFFFFF == _XA
    if left == 6:
        return load_u4(at) == _COMM and load_u2(at + 4) == _IT
    return left == 5 and load_u4(at) == _BEGI and load_u1(at + 4) == _N


@kernel
def defines(event: int, size: int) -> bool:
    """Whether the text of a QUERY, as above, begins with CREATE or DROP."""
    text = HEADER + QUERY_FIXED + 1
    if size < text:
        return False
    text += load_u1(event + DATABASE_LENGTH_AT) + load_u2(event + STATUS_LENGTH_AT)
    return size - text >= 4 and load_u4(event + text) | _SMALL in (_CREA, _DROP)


@kernel
def find_statements(data: int, size: int, position: int, trailer: int, found: int, capacity: int, unmarked: int) -> int:
    """Write the first `capacity` records; returns how many there are, or -1 - the offset of an event cut short.

    `unmarked` 0: only those of groups that the server marks.
    """
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
        elif kind in (QUERY, QUERY_COMPRESSED, EXECUTE_LOAD_QUERY):
            if (marked and kind != EXECUTE_LOAD_QUERY) or (
                unmarked and not (kind == QUERY and is_border(at, length - trailer))
            ):
                if count < capacity:
                    record = found + count * StatementRecord.BYTES
                    store_u8(record + StatementRecord.group, group)
                    store_u8(record + StatementRecord.start, position)
                    store_u8(record + StatementRecord.end, position + length)
                    store_u8(record + StatementRecord.trailer, trailer)
                    store_u8(record + StatementRecord.marked, 1 if marked else 0)
                count += 1
        elif kind == FORMAT_DESCRIPTION:
            trailer = 4 if load_u1(at + length - 5) == 1 else 0
        elif kind in (MYSQL_GTID, MYSQL_ANONYMOUS, MYSQL_GTID_TAGGED):
            marked = False
            group = position
        position += length
    return count
