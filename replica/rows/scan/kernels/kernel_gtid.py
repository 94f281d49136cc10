"""Kernel that fills the first fields of a group record from a MariaDB GTID event."""

# ruff: noqa: PLR0911  (one return a way that an event can be malformed)

from __future__ import annotations

from replica.native.compile import helper, inlined
from replica.native.kernel_group import GTID_FIELDS, HEADER, SERVER_AT, event_type
from replica.native.memory import load_u1, load_u4, load_u8, store_u8
from replica.protocol.constants import EventType, GtidExtraFlag, GtidFlag
from replica.rows.scan.kernels.kernel_state import BAD_EVENT, DONE
from replica.rows.scan.records import GroupRecord

_GROUP_COMMIT = int(GtidFlag.GROUP_COMMIT_ID)
_XA = int(GtidFlag.PREPARED_XA | GtidFlag.COMPLETED_XA)
_MULTI_ENGINE = int(GtidExtraFlag.MULTI_ENGINE)
_ENDS_ALTER = int(GtidExtraFlag.COMMIT_ALTER | GtidExtraFlag.ROLLBACK_ALTER)
_THREAD_ID = int(GtidExtraFlag.THREAD_ID)


@inlined
def gtid_group(at: int, end: int, group: int) -> int:
    """Write the group fields of the GTID event between `at` (its header) and `end` (before its checksum).

    Return DONE or BAD_EVENT. Zeros after the last field are padding: the GTID event of a large transaction's file may
    have thousands of them.
    """
    body = at + HEADER
    if end - body < GTID_FIELDS:
        return BAD_EVENT
    flags = load_u1(body + 12)
    p = body + GTID_FIELDS
    commit_id = 0
    if flags & _GROUP_COMMIT:
        if end - p < 8:
            return BAD_EVENT
        commit_id = load_u8(p)
        p += 8
    if flags & _XA:  # format id, two lengths, two texts
        if end - p < 6:
            return BAD_EVENT
        p += 6 + load_u1(p + 4) + load_u1(p + 5)
        if p > end:
            return BAD_EVENT
    extra = 0
    thread = 0
    if p < end:
        extra = load_u1(p)
        p += 1 + (extra & _MULTI_ENGINE)
        if extra & _ENDS_ALTER:
            p += 8
        if extra & _THREAD_ID:
            if end - p < 4:
                return BAD_EVENT
            thread = load_u4(p)
        elif p > end:
            return BAD_EVENT
    store_u8(group + GroupRecord.domain, load_u4(body + 8))
    store_u8(group + GroupRecord.server, load_u4(at + SERVER_AT))
    store_u8(group + GroupRecord.sequence, load_u8(body))
    store_u8(group + GroupRecord.flags, flags)
    store_u8(group + GroupRecord.extra, extra)
    store_u8(group + GroupRecord.commit_id, commit_id)
    store_u8(group + GroupRecord.xid, 0)
    store_u8(group + GroupRecord.thread, thread)
    return DONE


# The record has domain 0, the server id of the event and the GTID's number. UUID and tag remain in the event
# (protocol/mysql/gtid.py reads them).


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
