"""Finds the event groups that prepare or end XA transactions, from header to header: rows events are stepped over."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.memory import load_u1, load_u4, store_u8
from replica.native.record import Record, word
from replica.rows.scan.kernel_mysql import COMPLETES_XA, is_mysql_gtid, mysql_statement

HEADER = 19
GTID, QUERY, QUERY_COMPRESSED, FORMAT_DESCRIPTION, XA_PREPARE = 162, 2, 165, 15, 38
FLAGS_AT = HEADER + 12  # in a GTID event, after sequence number and domain
COMPLETED_XA = 128
QUERY_FIXED = 13


class XaRecord(Record):
    """One event group that prepares or ends an XA transaction; offsets count from the start of the range."""

    start = word("offset of the group's first byte")
    last = word("offset of its last event")
    end = word("offset after it")
    trailer = word("bytes of checksum after each event")
    completes = word("1: it ends the transaction, 0: it prepares it")


_NONE, _OTHER, _COMPLETES, _MYSQL = 0, 1, 2, 3  # the open group


@kernel
def find_xa(data: int, size: int, position: int, trailer: int, found: int, capacity: int) -> int:
    """Write the first `capacity` records; returns how many there are, or -1 - the offset of an event cut short."""
    count = 0
    opened = _NONE
    start = 0
    while position < size:
        at = data + position
        if size - position < HEADER + trailer:
            return -1 - position
        kind = load_u1(at + 4)
        length = load_u4(at + 9)
        if length < HEADER + trailer or length > size - position:
            return -1 - position
        ends = 0
        completes = 0
        if kind == GTID:
            if length <= FLAGS_AT:
                return -1 - position
            opened = _COMPLETES if load_u1(at + FLAGS_AT) & COMPLETED_XA else _OTHER
            start = position
        elif is_mysql_gtid(kind):
            opened = _MYSQL
            start = position
        elif kind == XA_PREPARE:
            ends = opened
        elif kind in (QUERY, QUERY_COMPRESSED):
            if opened == _COMPLETES:
                ends = completes = 1
            elif opened == _MYSQL and kind == QUERY:
                if length < HEADER + QUERY_FIXED + trailer:
                    return -1 - position
                if mysql_statement(at + HEADER, at + length - trailer) == COMPLETES_XA:
                    ends = completes = 1
        elif kind == FORMAT_DESCRIPTION:
            trailer = 4 if load_u1(at + length - 5) == 1 else 0
        if ends:
            if count < capacity:
                record = found + count * XaRecord.BYTES
                store_u8(record + XaRecord.start, start)
                store_u8(record + XaRecord.last, position)
                store_u8(record + XaRecord.end, position + length)
                store_u8(record + XaRecord.trailer, trailer)
                store_u8(record + XaRecord.completes, completes)
            count += 1
            opened = _NONE
        position += length
    return count
