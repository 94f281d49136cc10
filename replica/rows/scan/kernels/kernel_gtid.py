# ruff: noqa: PLR0911  (one return a way that an event can be malformed)
"""Kernel that fills the first fields of a group record from a MariaDB GTID event."""

from __future__ import annotations

from replica.native.compile import inlined
from replica.native.kernel_group import GTID_FIELDS
from replica.native.kernel_header import HEADER, SERVER_AT
from replica.native.memory import load_u1, load_u4, load_u8, store_u8
from replica.protocol.constants import GtidExtraFlag, GtidFlag
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
