"""Kernels for MySQL's event groups: from a GTID event to the first fields of a group record.

The record has domain 0, the server id of the event and the GTID's number. UUID and tag remain in the event
(protocol/mysql/gtid.py reads them).
"""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.kernel_header import HEADER, SERVER_AT, event_type
from replica.native.memory import load_u1, load_u4, load_u8, store_u8
from replica.protocol.constants import EventType
from replica.rows.scan.kernels.kernel_state import BAD_EVENT, DONE
from replica.rows.scan.records import GroupRecord

_TAGGED = int(EventType.GTID_TAGGED_LOG)
_FIXED = 25  # flags, uuid and number of GTID_LOG
_UUID_FIELD = 1
_GNO_FIELD = 2


@helper
def _varlen_size(p: int, end: int) -> int:
    """Return the bytes of the variable-length integer at `p`, 0 if it exceeds `end`."""
    if p >= end:
        return 0
    first = load_u1(p)
    size = 1
    while size < 9 and first & 1:
        first >>= 1
        size += 1
    return size if size <= end - p else 0


@helper
def _varlen(p: int, size: int) -> int:
    value = 0
    for i in range(size):
        if i < 8:
            value |= load_u1(p + i) << (8 * i)
    # With eight bytes, the last seven have all bits of the value; with nine bytes, the last eight.
    if size == 9:
        return load_u8(p + 1)
    if size == 8:
        return (value >> 8) & 0xFFFFFFFFFFFFFF
    return value >> size


@helper
def _tagged_number(body: int, end: int) -> int:
    """Read the number in a GTID_TAGGED_LOG event, -1 if it has none. Its fields are numbered, in ascending order."""
    p = body
    for _ in range(3):  # version, size, last field that must be known
        size = _varlen_size(p, end)
        if size == 0:
            return -1
        p += size
    while True:
        size = _varlen_size(p, end)
        if size == 0:
            return -1
        field = _varlen(p, size)
        p += size
        if field > _GNO_FIELD:
            return -1
        for _ in range(16 if field == _UUID_FIELD else 1):
            size = _varlen_size(p, end)
            if size == 0:
                return -1
            if field == _GNO_FIELD:
                return (_varlen(p, size) >> 1) & 0x7FFFFFFFFFFFFFFF
            p += size


@helper
def mysql_gtid_group(at: int, end: int, group: int) -> int:
    """Write the group fields of the GTID event between `at` (its header) and `end` (before its checksum).

    Return DONE or BAD_EVENT.
    """
    body = at + HEADER
    number = 0
    if event_type(at) == _TAGGED:
        number = _tagged_number(body, end)
        if number < 0:
            return BAD_EVENT
    elif end - body < _FIXED:
        return BAD_EVENT
    else:
        number = load_u8(body + 17)
    store_u8(group + GroupRecord.domain, 0)
    store_u8(group + GroupRecord.server, load_u4(at + SERVER_AT))
    store_u8(group + GroupRecord.sequence, number)
    store_u8(group + GroupRecord.flags, 0)
    store_u8(group + GroupRecord.extra, 0)
    store_u8(group + GroupRecord.commit_id, 0)
    store_u8(group + GroupRecord.xid, 0)
    store_u8(group + GroupRecord.thread, 0)
    return DONE
