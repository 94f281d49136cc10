"""The search for the next event after damage: byte by byte, for events that stand outside of groups or open one.

In: bytes of a binlog file, addressed as kernel_groups.py has it. Out: an offset, or -1. What is found has a length and
a type that can be, the right position if positions in this file are, and matches its checksum; in a file without
checksums others follow it.
"""

from __future__ import annotations

from typing import Final

from replica.files.kernel_groups import is_strange
from replica.native.compile import helper, kernel
from replica.native.crc32 import crc32
from replica.native.kernel_group import BEGIN, CONTROL, MYSQL_BEGIN
from replica.native.kernel_header import HEADER, LENGTH_AT, LOG_POS_AT, event_length, is_possible, is_whole, role_of
from replica.native.memory import load_u4

# Outside of groups no server writes a larger event, but for a GTID_LIST of thousands of servers: what `find_start`
# believes to be an event is no larger, so that one look at damaged bytes costs little.
MAX_START_BYTES = 64 << 10
_UNALIGNED_START_BYTES: Final = 8 << 10  # nothing but the checksum tells these, and each try reads them all
_CHAIN: Final = 4  # events in a row that have to look right where there are no checksums


@helper
def _looks_right(base: int, offset: int, end: int, trailer: int) -> bool:
    """Tell whether a header at `offset` could be one of an event that ends at or before `end`."""
    at = base + offset
    return is_whole(at, end - offset, trailer) and not is_strange(role_of(at))


@kernel
def find_start(base: int, begin: int, end: int, trailer: int, aligned: int) -> int:
    """Find the first offset in [begin, end) where an event stands that begins a group or is outside of any, or -1.

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
            # A FORMAT_DESCRIPTION of an open file does not match: it stands at the start of a file, where none is lost.
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
