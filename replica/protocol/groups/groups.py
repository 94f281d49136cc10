"""Grouping rule: the events that form one transaction.

The rule, in terms of the roles of event types (constants.py):
1. BEGIN opens a group. If a group is open, it was cut off and is void.
2. A STANDALONE group ends with its first STATEMENT, compressed or not, or with an event that reports LOST changes.
3. Any other group ends with END (XID, XA_PREPARE), or an uncompressed QUERY whose whole text is COMMIT or ROLLBACK.
4. CONTROL events are about the binlog itself and belong to no group, wherever they occur.

MySQL's groups open with their own GTID event, which does not show how they end. After BEGIN or XA START they end as in
3. Else they end with the first statement, or with the PAYLOAD that holds the rest.

A position may advance at END only. Group members outside of a group are refused unless they have the IGNORABLE flag,
because they belong to a transaction whose start was missed. The exception are the dummy events that servers write in
place of events that an old replica cannot read.

This module is the rule in plain Python. Kernels use native/kernel_group.py, and a test compares the implementations.

Sources: MariaDB 10.11.18, sql/slave.cc, queue_event (1 to 4); sql/log_event_server.cc,
Query_log_event::peek_is_commit_rollback (3); sql/log_event.cc, Log_event::read_log_event (what may be ignored),
Query_log_event::dummy_event and User_var_log_event (dummies); MySQL 8.4, measured on its binlogs (tests/vectors/mysql).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.constants import (
    HEADER_LENGTH,
    OUTSIDE,
    ROLES,
    EventType,
    Group,
    GtidFlag,
    HeaderFlag,
    Role,
    event_name,
)
from replica.protocol.events.file_events import refuse_unreadable
from replica.protocol.gtid import Gtid
from replica.protocol.wire import Cursor

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader


class Place(Enum):
    """Place of an event relative to event groups."""

    OUTSIDE = "outside"
    BEGIN = "begin"
    MEMBER = "member"
    END = "end"


# The NUL ends the database name, so the whole statement is COMMIT, and not a comment that ends with COMMIT.
_COMMIT, _ROLLBACK, _BEGIN = b"\0COMMIT", b"\0ROLLBACK", b"\0BEGIN"
_XA_START: Final = b"XA START"
_DUMMY: Final = b"# Dummy "
_QUERY_FIXED: Final = 13


class GroupTracker:
    """The grouping rule as a state machine. Feed it every event in stream order."""

    __slots__ = ("cut_groups", "flags2", "group", "gtid")

    def __init__(self) -> None:
        self.gtid: Gtid | None = None
        """GTID of the open or last group. None for a group of MySQL, whose GTIDs have another form."""
        self.flags2 = 0
        self.group = Group.NONE
        self.cut_groups = 0
        """Number of groups that another GTID event interrupted, because the server crashed while it wrote them."""

    @property
    def is_open(self) -> bool:
        return self.group is not Group.NONE

    def reset(self) -> None:
        """Forget the open group after a reconnect, because the server sends it again from its start."""
        self.group = Group.NONE

    def feed(self, header: EventHeader, event: memoryview) -> Place:
        """Return the place of the next event. `event` is the event WITHOUT its checksum.

        Raises:
            UnsupportedEventError: the event cannot be read and must not be skipped.
            ProtocolError: the event is a group member outside of a group.
        """
        refuse_unreadable(header)
        role = ROLES[header.event_type]
        if role in (Role.BEGIN, Role.MYSQL_BEGIN):
            self.cut_groups += self.is_open
            self.gtid, self.flags2, self.group = None, 0, Group.UNDECIDED
            if role is Role.BEGIN:
                body = Cursor(event, HEADER_LENGTH)
                seq_no, domain_id, self.flags2 = body.u64(), body.u32(), body.u8()
                self.gtid = Gtid(domain_id, header.server_id, seq_no)
                self.group = Group.STANDALONE if self.flags2 & GtidFlag.STANDALONE else Group.TRANSACTION
            return Place.BEGIN
        if role is Role.CONTROL:
            return Place.OUTSIDE
        if not self.is_open:
            if role in OUTSIDE or header.flags & HeaderFlag.IGNORABLE or is_dummy(header, event):
                return Place.OUTSIDE
            raise ProtocolError(
                f"{event_name(header.event_type)} event outside of an event group",
                hint="The reading started inside a transaction; start at the beginning of a file or at a GTID.",
            )
        if role is Role.LOST and self.group is not Group.STANDALONE:
            return Place.OUTSIDE
        self.group = _after(self.group, role, event)
        return Place.MEMBER if self.is_open else Place.END


def _after(group: Group, role: Role, event: memoryview) -> Group:
    """Return the kind of group that is open after a member with this role."""
    if group is Group.STANDALONE:
        ends = role in (Role.STATEMENT, Role.COMPRESSED_STATEMENT, Role.LOST)
    elif role is Role.STATEMENT and len(event) >= HEADER_LENGTH + _QUERY_FIXED:
        if group is Group.UNDECIDED and _begins(event):
            return Group.TRANSACTION
        ends = group is Group.UNDECIDED or is_commit_or_rollback(event)
    else:
        ends = role is Role.END or (role is Role.PAYLOAD and group is Group.UNDECIDED)
    return Group.NONE if ends else group


def _begins(event: memoryview) -> bool:
    """Return True if a QUERY event, without its checksum, is BEGIN or XA START."""
    if event[-len(_BEGIN) :] == _BEGIN:
        return True
    return bytes(_statement(event)[: len(_XA_START)]) == _XA_START


def _statement(event: memoryview) -> memoryview:
    """Return the text of a QUERY event, or no bytes if the event ends before its text."""
    fixed = bytes(event[HEADER_LENGTH : HEADER_LENGTH + _QUERY_FIXED])
    if len(fixed) < _QUERY_FIXED:
        return event[:0]
    status = int.from_bytes(fixed[11:], "little")
    return event[HEADER_LENGTH + _QUERY_FIXED + status + fixed[8] + 1 :]


def is_commit_or_rollback(event: memoryview) -> bool:
    """Return True if the whole text of a QUERY event, without its checksum, is COMMIT or ROLLBACK."""
    return event[-len(_COMMIT) :] == _COMMIT or event[-len(_ROLLBACK) :] == _ROLLBACK


def is_dummy(header: EventHeader, event: memoryview) -> bool:
    """Return True if the server wrote the event in place of one that it assumed we cannot read."""
    if header.event_type == EventType.QUERY:
        # A dummy is as long as the event that it replaces, so its text may end after a few characters.
        text = bytes(_statement(event)[: len(_DUMMY)])
        return bool(text) and _DUMMY.startswith(text)
    return header.event_type == EventType.USER_VAR and bytes(event[HEADER_LENGTH + 4 : HEADER_LENGTH + 5]) == b"!"
