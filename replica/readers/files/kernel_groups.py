"""Kernel that walks event headers and checks lengths and CRC32, up to the end of a range.

It takes bytes of a binlog file in memory, addressed by file offset (`base` + offset is the address), and the state. It
returns the reason for stopping, and the state has the offset. It reads no byte at or after `end`, and decodes only what
shows the ends of groups (native/kernel_group.py). It does not refuse events that decoders refuse: such an event gets
its own range, so that everything before it is delivered first.
"""

from __future__ import annotations

from typing import Final

from replica.native.compile import helper, kernel
from replica.native.crc32 import crc32
from replica.native.kernel_group import (
    BEGIN,
    CONTROL,
    GTID_FIELDS,
    GTID_FLAGS_AT,
    HEADER,
    LENGTH_AT,
    LOG_POS_AT,
    LOST,
    MYSQL_BEGIN,
    NO_GROUP,
    REFUSED,
    STANDALONE,
    STATEMENT,
    STRANGER,
    UNDECIDED,
    event_length,
    event_type,
    group_step,
    is_ignorable,
    is_possible,
    is_whole,
    may_stand_outside,
    role_of,
)
from replica.native.memory import load_u1, load_u4, load_u8, store_u8
from replica.native.record import Record, word
from replica.protocol.constants import EventType, GtidFlag


class WalkState(Record):
    """State that the walk keeps between two calls; offsets count from the start of the file."""

    cursor = word("the event to look at next")
    start = word("where the range starts")
    cut = word("the last place where no group was open: where the range may end")
    target = word("a range ends at the last cut before this, or if there is none, at the first behind it")
    group = word("the open group: a state of the grouping rule")
    trailer = word("bytes of checksum after each event: 4 or 0")
    verify = word("1: compare checksums")
    apart = word("1: the group at hand gets a range of its own")
    cut_at_ddl = word("1: a range ends before a group that defines a table")
    aligned = word("1: the last GTID event's log_pos was its end in this file, so that of others will be")
    group_events = word("events seen since the last cut")


# Reasons for stopping.
NEED_BYTES = 0
REACHED = 1
BAD_LENGTH = 2
BAD_CHECKSUM = 3
DESCRIPTION = 4  # at the cursor, not passed
ENCRYPTION = 5
OUTSIDE = 6
BAD_GTID = 7
NO_EVENT = 8

_FDE: Final = int(EventType.FORMAT_DESCRIPTION)
_START_ENCRYPTION: Final = int(EventType.START_ENCRYPTION)
_FL_DDL: Final = int(GtidFlag.DDL)
_FL_COMPLETED_XA: Final = int(GtidFlag.COMPLETED_XA)


@helper
def is_strange(role: int) -> bool:
    """Return True if decoders refuse the type, or refuse it unless the event is IGNORABLE."""
    return role in (STRANGER, REFUSED, LOST)


@helper
def _stands(at: int, end: int) -> bool:
    """Return True if an event's position is its end, as in a file, or 0 (11.7 and later, inside a group)."""
    log_pos = load_u4(at + LOG_POS_AT)
    return log_pos in (0, end & 0xFFFFFFFF)


@kernel
def walk(base: int, end: int, state: int) -> int:
    """Walk from the cursor on; return the reason for stopping. `state` is a WalkState."""
    cursor = load_u8(state + WalkState.cursor)
    begin = load_u8(state + WalkState.start)
    cut = load_u8(state + WalkState.cut)
    target = load_u8(state + WalkState.target)
    group = load_u8(state + WalkState.group)
    trailer = load_u8(state + WalkState.trailer)
    verify = load_u8(state + WalkState.verify)
    apart = load_u8(state + WalkState.apart)
    at_ddl = load_u8(state + WalkState.cut_at_ddl)
    aligned = load_u8(state + WalkState.aligned)
    group_events = load_u8(state + WalkState.group_events)
    reason = NEED_BYTES
    while end - cursor >= HEADER:
        at = base + cursor
        length = event_length(at)
        if not is_possible(at, trailer):
            reason = BAD_LENGTH
            break
        if cursor + length > target and cut > begin:
            reason = REACHED
            break
        if length > end - cursor:
            break
        kind = event_type(at)
        if kind == _FDE:
            reason = DESCRIPTION
            break
        body_end = at + length - trailer
        if trailer and verify and load_u4(body_end) != crc32(at, length - trailer, 0):
            reason = BAD_CHECKSUM
            break
        if kind == _START_ENCRYPTION and not is_ignorable(at):
            reason = ENCRYPTION
            break
        role = role_of(at)
        if role == BEGIN and body_end - at < HEADER + GTID_FIELDS:
            reason = BAD_GTID
            break
        left = group_step(group, role, at, body_end)
        if role in (BEGIN, MYSQL_BEGIN):
            alone = 0
            if role == BEGIN and at_ddl:
                flags2 = load_u1(at + GTID_FLAGS_AT)
                if flags2 & _FL_DDL or (left == STANDALONE and flags2 & _FL_COMPLETED_XA == 0):
                    alone = 1
            if alone and cut > begin:
                apart = 0
                reason = REACHED
                break
            apart = alone
            aligned = 0
            if load_u4(at + LOG_POS_AT) == (cursor + length) & 0xFFFFFFFF:
                aligned = 1
        elif is_strange(role):
            if trailer == 0 and aligned and not _stands(at, cursor + length):
                reason = NO_EVENT  # detected by its position, because there is no checksum
                break
            if apart == 0 and (role != STRANGER or not is_ignorable(at)):
                # The decoder will stop here, so the range ends before this group.
                apart = 1
                if cut > begin:
                    reason = REACHED
                    break
        elif group == NO_GROUP:
            if not may_stand_outside(kind, role, at, body_end):
                reason = OUTSIDE
                break
        elif group == UNDECIDED and left == NO_GROUP and role == STATEMENT and at_ddl:
            # Only this event shows that the group is DDL: its range starts with the group.
            if apart == 0 and cut > begin:
                apart = 1
                reason = REACHED
                break
            apart = 1
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
    store_u8(state + WalkState.cursor, cursor)
    store_u8(state + WalkState.cut, cut)
    store_u8(state + WalkState.group, group)
    store_u8(state + WalkState.apart, apart)
    store_u8(state + WalkState.aligned, aligned)
    store_u8(state + WalkState.group_events, group_events)
    return reason


# A found event has a possible length and type. Its position must be right, if positions in this file are, and it must
# match its checksum. In a file without checksums, several valid events must follow it. Bytes are addressed as in
# kernel_groups.py.


# Outside of groups no server writes a larger event, except a GTID_LIST of thousands of servers. `find_start` accepts no
# larger event, so that a check of damaged bytes is cheap.
MAX_START_BYTES = 64 << 10
_UNALIGNED_START_BYTES: Final = 8 << 10  # only the checksum identifies these, and each try reads the whole event
_CHAIN: Final = 4  # consecutive events that must look valid in a file without checksums


@helper
def _looks_right(base: int, offset: int, end: int, trailer: int) -> bool:
    """Return True if a header at `offset` can belong to an event that ends at or before `end`."""
    at = base + offset
    return is_whole(at, end - offset, trailer) and not is_strange(role_of(at))


@kernel
def find_start(base: int, begin: int, end: int, trailer: int, aligned: int) -> int:
    """Return the first offset in [begin, end) of an event that begins a group or is outside of any, or -1.

    With checksums the event must match its own; without, several events must follow.
    """
    largest = MAX_START_BYTES if aligned else _UNALIGNED_START_BYTES
    for offset in range(begin, end - HEADER - trailer + 1):
        at = base + offset
        if role_of(at) not in (CONTROL, BEGIN, MYSQL_BEGIN):
            continue
        length = event_length(at)
        if not is_possible(at, trailer) or length > largest or length > end - offset:
            continue
        if aligned and load_u4(at + LOG_POS_AT) != (offset + length) & 0xFFFFFFFF:
            continue
        if trailer:
            # The FORMAT_DESCRIPTION of an open file does not match. It is the first event, before any damage.
            if load_u4(at + length - trailer) == crc32(at, length - trailer, 0):
                return offset
            continue
        following = offset + length
        chain = 1
        while chain < _CHAIN and following < end and _looks_right(base, following, end, trailer):
            following += load_u4(base + following + LENGTH_AT)
            chain += 1
        if chain == _CHAIN or following == end:
            return offset
    return -1
