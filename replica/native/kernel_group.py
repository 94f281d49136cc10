"""Grouping rule for kernels: how an event changes the open group, and whether it may occur outside of a group.

protocol/groups/groups.py has the rule in words, its Python form and its sources; protocol/constants.py has the roles of
event types. An event lies between `at`, its header, and `end`, the start of its checksum. The open group is one of
`event_row.Group`.
"""

from __future__ import annotations

import numpy as np

from replica.native.compile import helper, inlined
from replica.native.memory import load_u1, load_u2, load_u4, load_u8
from replica.protocol import constants
from replica.protocol.constants import EventType, Group, GtidFlag, HeaderFlag, Role

# Every kernel that walks event headers must take its lengths from here. Addresses are those of the header's first
# byte. Nothing beyond the header is read, except by `described_trailer`.


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


NO_GROUP = int(Group.NONE)
TRANSACTION = int(Group.TRANSACTION)
STANDALONE = int(Group.STANDALONE)
UNDECIDED = int(Group.UNDECIDED)

STRANGER = int(Role.STRANGER)
REFUSED = int(Role.REFUSED)
CONTROL = int(Role.CONTROL)
BEGIN = int(Role.BEGIN)
MYSQL_BEGIN = int(Role.MYSQL_BEGIN)
MEMBER = int(Role.MEMBER)
LOAD = int(Role.LOAD)
END = int(Role.END)
STATEMENT = int(Role.STATEMENT)
COMPRESSED_STATEMENT = int(Role.COMPRESSED_STATEMENT)
PAYLOAD = int(Role.PAYLOAD)
LOST = int(Role.LOST)

# A GTID event: sequence number, domain, flags.
GTID_SEQUENCE_AT = HEADER
GTID_DOMAIN_AT = HEADER + 8
GTID_FLAGS_AT = HEADER + 12
GTID_FIELDS = 13

# A QUERY: 13 bytes, the length of the database at 8 and of the status variables at 11; both; a NUL; the text.
QUERY_FIELDS = 13
_DATABASE_LENGTH_AT = HEADER + 8
_STATUS_LENGTH_AT = HEADER + 11

# Meaning of the first statement of a MySQL group.
WHOLE = 0  # the statement is the whole group
BEGINS = 1  # the statement begins a transaction
COMPLETES_XA = 2  # the statement is the whole group, and ends an XA transaction

_OUTSIDE = sum(1 << role for role in constants.OUTSIDE)
_IS_STANDALONE = int(GtidFlag.STANDALONE)
_QUERY = int(EventType.QUERY)
_USER_VAR = int(EventType.USER_VAR)

# Texts as little-endian numbers: the last bytes of a QUERY with the NUL before the text, or its first eight.
_COMMIT = int.from_bytes(b"\0COMMIT", "little")
_ROLLBACK = int.from_bytes(b"ROLLBACK", "little")
_BEGIN = int.from_bytes(b"\0BEGIN", "little")
_XA_START = int.from_bytes(b"XA START", "little")
_XA_COMMIT = int.from_bytes(b"XA COMMI", "little")
_XA_ROLLBACK = int.from_bytes(b"XA ROLLB", "little")
_DUMMY = int.from_bytes(b"# Dummy ", "little")

# Offset of the name's first character in a dummy USER_VAR, and that character: the name is "!dummyvar", cut to fit.
_NAME_AT = HEADER + 4
_MARK = ord("!")


@helper
def text_at(at: int) -> int:
    """Return the address of the text of a QUERY that has its fixed fields; it may be after the event's end."""
    return at + HEADER + QUERY_FIELDS + load_u2(at + _STATUS_LENGTH_AT) + load_u1(at + _DATABASE_LENGTH_AT) + 1


@helper
def commits(end: int) -> bool:
    """Return True if the text of the QUERY that ends here is exactly COMMIT."""
    return (load_u8(end - 8) >> 8) & 0xFFFFFFFFFFFFFF == _COMMIT


@helper
def rolls_back(end: int) -> bool:
    return load_u8(end - 8) == _ROLLBACK and load_u1(end - 9) == 0


@helper
def mysql_statement(at: int, end: int) -> int:
    """Return the meaning of the first QUERY of a MySQL group, which has its fixed fields: WHOLE, BEGINS or
    COMPLETES_XA.
    """
    if (load_u8(end - 8) >> 16) & 0xFFFFFFFFFFFF == _BEGIN:
        return BEGINS
    text = text_at(at)
    if end - text < 8:
        return WHOLE
    head = load_u8(text)
    if head == _XA_START:
        return BEGINS
    return COMPLETES_XA if head in (_XA_COMMIT, _XA_ROLLBACK) else WHOLE


@helper
def _after_statement(group: int, at: int, end: int) -> int:
    if group == STANDALONE:
        return NO_GROUP
    if end - at < HEADER + QUERY_FIELDS:
        return group
    if group == TRANSACTION:
        return NO_GROUP if commits(end) or rolls_back(end) else TRANSACTION
    return TRANSACTION if mysql_statement(at, end) == BEGINS else NO_GROUP


@inlined
def _group_change(group: int, role: int, at: int, end: int) -> int:
    """Return the result of `group_step` for an event that is not a plain member of a group."""
    if role == BEGIN:
        return STANDALONE if load_u1(at + GTID_FLAGS_AT) & _IS_STANDALONE else TRANSACTION
    if role == END:
        return STANDALONE if group == STANDALONE else NO_GROUP
    if role == STATEMENT:
        return NO_GROUP if group == NO_GROUP else _after_statement(group, at, end)
    if role == MYSQL_BEGIN:
        return UNDECIDED
    if (group == STANDALONE and role in (COMPRESSED_STATEMENT, LOST)) or (group == UNDECIDED and role == PAYLOAD):
        return NO_GROUP
    return group


@inlined
def group_step(group: int, role: int, at: int, end: int) -> int:
    """Return the group that is open after an event; NO_GROUP after the end of a group.

    The caller must check that a BEGIN event has its fields. It reads the fields of a GTID and the last nine bytes of a
    statement. In a MySQL group it also reads the first bytes of the text. Most events are plain members: they cost one
    comparison.
    """
    return group if role == MEMBER else _group_change(group, role, at, end)


@helper
def is_dummy(kind: int, at: int, end: int) -> bool:
    """Return True for an event that the server sent in place of one that its replica supposedly cannot read."""
    if kind == _USER_VAR:
        return end - at > _NAME_AT and load_u1(at + _NAME_AT) == _MARK
    if kind != _QUERY or end - at <= HEADER + QUERY_FIELDS:
        return False
    # A dummy has the length of the replaced event, so its text may be truncated.
    text = text_at(at)
    if text >= end:
        return False
    for i in range(min(end - text, 8)):  # noqa: SIM110  (numba has no all())
        if load_u1(text + i) != (_DUMMY >> (8 * i)) & 0xFF:
            return False
    return True


@helper
def belongs_outside(role: int) -> bool:
    """Return True if events with this role may occur outside of a group."""
    return (_OUTSIDE >> role) & 1 != 0


@helper
def may_stand_outside(kind: int, role: int, at: int, end: int) -> bool:
    """Return True if an event may occur outside of a group, by its role or because readers skip it there."""
    return belongs_outside(role) or is_ignorable(at) or is_dummy(kind, at, end)


@helper
def is_unreadable(role: int, at: int) -> bool:
    """Return True if readers must stop at an event because of its type.

    The Python form is `refuse_unreadable` in protocol/events/file_events.py.
    """
    return role == REFUSED or (role == STRANGER and not is_ignorable(at))
