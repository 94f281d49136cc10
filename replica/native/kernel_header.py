"""Event header for kernels: the length of an event, and the role of its type in groups.

Every kernel that walks event headers must take its lengths from here. Addresses are those of the header's first byte.
Nothing beyond the header is read, except by `described_trailer`.
"""

from __future__ import annotations

import numpy as np

from replica.native.compile import helper
from replica.native.memory import load_u1, load_u2, load_u4
from replica.protocol import constants
from replica.protocol.constants import HeaderFlag

HEADER = constants.HEADER_LENGTH
MAX_EVENT_BYTES = constants.MAX_EVENT_BYTES
CHECKSUM_BYTES = constants.CHECKSUM_LENGTH
TYPE_AT = constants.TYPE_AT
SERVER_AT = constants.SERVER_AT
LENGTH_AT = constants.LENGTH_AT
LOG_POS_AT = constants.LOG_POS_AT
FLAGS_AT = constants.FLAGS_AT

ROLES = np.array(constants.ROLES, np.int64)
"""Number of the Role of each event type, indexed by event type."""

_IGNORABLE = int(HeaderFlag.IGNORABLE)


@helper
def event_type(at: int) -> int:
    return load_u1(at + TYPE_AT)


@helper
def role_of(at: int) -> int:
    return ROLES[load_u1(at + TYPE_AT)]


@helper
def is_ignorable(at: int) -> bool:
    """Return True if the header allows a reader that does not know the type to skip the event."""
    return load_u2(at + FLAGS_AT) & _IGNORABLE != 0


@helper
def event_length(at: int) -> int:
    """Return the event's length from its header. Only `is_possible` or `is_whole` makes it trustworthy.

    They are separate functions, so that the step to the next event is one load without a branch. That saves a third of
    a walk's time.
    """
    return load_u4(at + LENGTH_AT)


@helper
def is_possible(at: int, trailer: int) -> bool:
    """Return True if an event may have the length in the header."""
    return HEADER + trailer <= load_u4(at + LENGTH_AT) <= MAX_EVENT_BYTES


@helper
def is_whole(at: int, left: int, trailer: int) -> bool:
    """Return True if an event of a possible length ends within the `left` bytes from `at` on."""
    return left >= HEADER and is_possible(at, trailer) and load_u4(at + LENGTH_AT) <= left


@helper
def described_trailer(at: int, length: int) -> int:
    """Return the checksum bytes of events after a FORMAT_DESCRIPTION: its algorithm byte precedes its own checksum."""
    return CHECKSUM_BYTES if load_u1(at + length - CHECKSUM_BYTES - 1) == 1 else 0
