"""The walking kernel: from event header to event header, checking lengths and CRC32, up to where a range may end.

In: bytes of a binlog file in memory, addressed by their offset in the file (`base` + offset is the address), and the
state. Out: the reason for stopping; the state says where. It reads no byte at or beyond `end` and decodes nothing but
what tells where event groups end (protocol/groups.py has the rule for MariaDB; a MySQL group has a GTID of MySQL's and
ends, if no BEGIN or XA START comes first, with its first statement or its TRANSACTION_PAYLOAD).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replica.native.compile import helper, kernel
from replica.native.crc32 import crc32
from replica.native.memory import load_u1, load_u2, load_u4, load_u8, store_u8
from replica.protocol.constants import (
    CHECKSUM_LENGTH,
    HEADER_LENGTH,
    MAX_EVENT_BYTES,
    EventType,
    GtidFlag,
    HeaderFlag,
)
from replica.protocol.groups import ENDS_STANDALONE, ENDS_TRANSACTION, NEVER_IN_A_GROUP
from replica.rows.scan.kernel_dummy import is_dummy

if TYPE_CHECKING:
    from numpy.typing import NDArray

# State words; offsets count from the start of the file.
CURSOR = 0  # the event to look at next
BEGIN = 8  # where the range starts
CUT = 16  # the last place where no group was open: where the range may end
TARGET = 24  # a range ends at the last cut before this, or if there is none, at the first behind it
GROUP = 32
TRAILER = 40  # bytes of checksum after each event: 4 or 0
VERIFY = 48  # 1: compare checksums
APART = 56  # 1: the group at hand gets a range of its own
CUT_AT_DDL = 64
ALIGNED = 72  # 1: the last GTID event's log_pos was its end in this file, so that of others will be
GROUP_EVENTS = 80  # events seen since CUT
STATE_WORDS = 11

# GROUP
NO_GROUP = 0
TRANSACTION = 1
STANDALONE = 2
MYSQL_OPENED = 3  # nothing but a GTID yet

# Reasons
NEED_BYTES = 0
REACHED = 1
BAD_LENGTH = 2
BAD_CHECKSUM = 3
DESCRIPTION = 4  # at CURSOR, not passed
ENCRYPTION = 5
OUTSIDE = 6
BAD_GTID = 7
NO_EVENT = 8

# What an event means for groups: KINDS by type.
MEMBER, NEVER, BEGINS, MYSQL_BEGINS, _ENDS, _STATEMENT, _COMPRESSED_STATEMENT, _PAYLOAD, _PASSED, REFUSED = range(10)

_HEADER: Final = HEADER_LENGTH
_CHECKSUM: Final = CHECKSUM_LENGTH
_IGNORABLE: Final = int(HeaderFlag.IGNORABLE)
_IN_USE: Final = int(HeaderFlag.BINLOG_IN_USE)
_FDE: Final = int(EventType.FORMAT_DESCRIPTION)
_START_ENCRYPTION: Final = int(EventType.START_ENCRYPTION)
_FL_STANDALONE: Final = int(GtidFlag.STANDALONE)
_FL_DDL: Final = int(GtidFlag.DDL)
_FL_COMPLETED_XA: Final = int(GtidFlag.COMPLETED_XA)
_GTID_FIELDS: Final = 13  # sequence number, domain, flags2
_QUERY_FIELDS: Final = 13
# The last eight bytes of a QUERY event as a little-endian number, or less than eight where that is the whole text.
_COMMIT: Final = int.from_bytes(b"\0COMMIT", "little")
_ROLLBACK: Final = int.from_bytes(b"ROLLBACK", "little")
_BEGIN_TEXT: Final = int.from_bytes(b"\0BEGIN", "little")
_XA_START: Final = int.from_bytes(b"XA START", "little")


def _kinds() -> NDArray[np.int64]:
    kinds = np.full(256, REFUSED, np.int64)
    passed = (EventType.IGNORABLE, EventType.PREVIOUS_GTIDS, EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE)
    members = (
        *(EventType.INTVAR, EventType.RAND, EventType.USER_VAR, EventType.APPEND_BLOCK, EventType.DELETE_FILE),
        *(EventType.BEGIN_LOAD_QUERY, EventType.EXECUTE_LOAD_QUERY, EventType.TABLE_MAP, EventType.ANNOTATE_ROWS),
        *(EventType.ROWS_QUERY, EventType.PARTIAL_UPDATE_ROWS, EventType.PARTIAL_ROW_DATA),
        *range(EventType.WRITE_ROWS_V1, EventType.DELETE_ROWS_V1 + 1),
        *range(EventType.WRITE_ROWS, EventType.DELETE_ROWS + 1),
        *range(EventType.WRITE_ROWS_COMPRESSED_V1, EventType.DELETE_ROWS_COMPRESSED + 1),
    )
    for types, kind in (
        (passed, _PASSED),
        (members, MEMBER),
        (NEVER_IN_A_GROUP, NEVER),
        (ENDS_TRANSACTION, _ENDS),
        (ENDS_STANDALONE & {EventType.QUERY}, _STATEMENT),
        (ENDS_STANDALONE & {EventType.QUERY_COMPRESSED}, _COMPRESSED_STATEMENT),
        ((EventType.GTID,), BEGINS),
        ((EventType.GTID_LOG, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED_LOG), MYSQL_BEGINS),
        ((EventType.TRANSACTION_PAYLOAD,), _PAYLOAD),
    ):
        for member in types:
            kinds[member] = kind
    return kinds


KINDS = _kinds()


@helper
def _stands(at: int, end: int) -> bool:
    """Whether an event's position is that of its end, as it is in a file, or 0 (11.7+ inside a group)."""
    log_pos = load_u4(at + 13)
    return log_pos in (0, end & 0xFFFFFFFF)


@helper
def _statement_ends(group: int, at: int, end: int) -> int:
    """What an uncompressed QUERY does to the group it stands in: the group it leaves, NO_GROUP at its end."""
    if group == STANDALONE:
        return NO_GROUP
    if end - at < _HEADER + _QUERY_FIELDS:
        return group
    tail = load_u8(end - 8)
    if group == TRANSACTION:
        commits = (tail >> 8) & 0xFFFFFFFFFFFFFF == _COMMIT or (tail == _ROLLBACK and load_u1(end - 9) == 0)
        return NO_GROUP if commits else TRANSACTION
    text = at + _HEADER + _QUERY_FIELDS + load_u2(at + _HEADER + 11) + load_u1(at + _HEADER + 8) + 1
    begins = (tail >> 16) & 0xFFFFFFFFFFFF == _BEGIN_TEXT or (end - text >= 8 and load_u8(text) == _XA_START)
    return TRANSACTION if begins else NO_GROUP


@kernel
def walk(base: int, end: int, state: int) -> int:
    """Walk from CURSOR; returns the reason for stopping. See the words of the state above."""
    cursor = load_u8(state + CURSOR)
    begin = load_u8(state + BEGIN)
    cut = load_u8(state + CUT)
    target = load_u8(state + TARGET)
    group = load_u8(state + GROUP)
    trailer = load_u8(state + TRAILER)
    verify = load_u8(state + VERIFY)
    apart = load_u8(state + APART)
    at_ddl = load_u8(state + CUT_AT_DDL)
    aligned = load_u8(state + ALIGNED)
    group_events = load_u8(state + GROUP_EVENTS)
    reason = NEED_BYTES
    while end - cursor >= _HEADER:
        at = base + cursor
        length = load_u4(at + 9)
        kind = load_u1(at + 4)
        flags = load_u2(at + 17)
        if length < _HEADER + trailer or length > MAX_EVENT_BYTES:
            reason = BAD_LENGTH
            break
        if cursor + length > target and cut > begin:
            reason = REACHED
            break
        if length > end - cursor:
            break
        if kind == _FDE:
            reason = DESCRIPTION
            break
        body_end = at + length - trailer
        if trailer and verify and load_u4(body_end) != crc32(at, length - trailer, 0):
            reason = BAD_CHECKSUM
            break
        if kind == _START_ENCRYPTION and flags & _IGNORABLE == 0:
            reason = ENCRYPTION
            break
        meaning = KINDS[kind]
        left = group
        if meaning in (BEGINS, MYSQL_BEGINS):
            left = MYSQL_OPENED
            alone = 0
            if meaning == BEGINS:
                if body_end - at < _HEADER + _GTID_FIELDS:
                    reason = BAD_GTID
                    break
                flags2 = load_u1(at + _HEADER + 12)
                left = TRANSACTION
                if flags2 & _FL_STANDALONE:
                    left = STANDALONE
                if at_ddl and (flags2 & _FL_DDL or (left == STANDALONE and flags2 & _FL_COMPLETED_XA == 0)):
                    alone = 1
            if alone and cut > begin:
                apart = 0
                reason = REACHED
                break
            apart = alone
            aligned = 0
            if load_u4(at + 13) == (cursor + length) & 0xFFFFFFFF:
                aligned = 1
        elif meaning == REFUSED and trailer == 0 and aligned and not _stands(at, cursor + length):
            reason = NO_EVENT  # no checksum tells, but its position does
            break
        elif meaning == REFUSED and flags & _IGNORABLE == 0 and apart == 0:
            # Whoever decodes will stop here: what stands before is to be delivered first.
            apart = 1
            if cut > begin:
                reason = REACHED
                break
        elif group == NO_GROUP:
            passes = meaning in (NEVER, _PASSED, REFUSED) or flags & _IGNORABLE != 0
            if not passes and not is_dummy(kind, at, body_end):
                reason = OUTSIDE
                break
        elif meaning == _ENDS:
            if group != STANDALONE:
                left = NO_GROUP
        elif meaning == _STATEMENT:
            left = _statement_ends(group, at, body_end)
            if group == MYSQL_OPENED and left == NO_GROUP and at_ddl:
                # Known to be a DDL group only now: its range starts with it.
                if apart == 0 and cut > begin:
                    apart = 1
                    reason = REACHED
                    break
                apart = 1
        elif (meaning == _COMPRESSED_STATEMENT and group == STANDALONE) or (
            meaning == _PAYLOAD and group == MYSQL_OPENED
        ):
            left = NO_GROUP
        if kind == 26 and group == STANDALONE:  # INCIDENT
            left = NO_GROUP
        group = left
        cursor += length
        group_events += 1
        if group == NO_GROUP:
            cut = cursor
            group_events = 0
            if apart or cut >= target:
                apart = 0
                reason = REACHED
                break
    store_u8(state + CURSOR, cursor)
    store_u8(state + CUT, cut)
    store_u8(state + GROUP, group)
    store_u8(state + APART, apart)
    store_u8(state + ALIGNED, aligned)
    store_u8(state + GROUP_EVENTS, group_events)
    return reason
