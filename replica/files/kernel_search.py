"""Kernel that searches for the next event after damage, byte by byte, among events outside of groups or that begin one.

A found event has a possible length and type. Its position must be right, if positions in this file are, and it must
match its checksum. In a file without checksums, several valid events must follow it. Bytes are addressed as in
kernel_groups.py.
"""

from __future__ import annotations

from typing import Final

from replica.files.kernel_groups import is_strange
from replica.native.compile import helper, kernel
from replica.native.crc32 import crc32
from replica.native.kernel_group import BEGIN, CONTROL, MYSQL_BEGIN
from replica.native.kernel_header import HEADER, LENGTH_AT, LOG_POS_AT, event_length, is_possible, is_whole, role_of
from replica.native.memory import load_u4

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
