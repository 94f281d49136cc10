"""Event groups: which events make one transaction.

The rule (queue_event of the server's own replica):
1. a GTID event opens a group; if one is open, that one was cut and is void;
2. a STANDALONE group ends with its first QUERY, compressed or not, or with an INCIDENT;
3. any other ends with XID, XA_PREPARE, or an uncompressed QUERY whose whole text is COMMIT or ROLLBACK;
4. events about the binlog itself are outside of every group, wherever they stand.

MySQL's groups open with a GTID event of their own, which does not tell how they end: after BEGIN or XA START as in 3,
else with the first statement, or with the TRANSACTION_PAYLOAD that holds all the rest.

A position may advance at END only. Group members outside of a group are refused: they belong to a transaction whose
start was missed. The exception are the dummy events that servers put in place of events an old replica cannot read.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.constants import HEADER_LENGTH, EventType, GtidFlag, HeaderFlag, event_name
from replica.protocol.gtid import Gtid
from replica.protocol.mysql_gtid import MYSQL_GTID_EVENTS
from replica.protocol.wire import Cursor

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader


class Place(Enum):
    """Where an event stands."""

    OUTSIDE = "outside"
    BEGIN = "begin"
    MEMBER = "member"
    END = "end"


NEVER_IN_A_GROUP: Final = frozenset(
    {
        EventType.FORMAT_DESCRIPTION,
        EventType.ROTATE,
        EventType.STOP,
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.BINLOG_CHECKPOINT,
        EventType.GTID_LIST,
        EventType.START_ENCRYPTION,
        EventType.PREVIOUS_GTIDS,
    }
)
ENDS_TRANSACTION: Final = frozenset({EventType.XID, EventType.XA_PREPARE})
ENDS_STANDALONE: Final = frozenset({EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.INCIDENT})
# The NUL is the end of the database name: the statement is COMMIT and nothing else, not a comment that ends so.
_COMMIT, _ROLLBACK, _BEGIN = b"\0COMMIT", b"\0ROLLBACK", b"\0BEGIN"
_XA_START: Final = b"XA START"
_DUMMY: Final = b"# Dummy "
_QUERY_FIXED: Final = 13


class GroupTracker:
    """Feed it every event in stream order."""

    __slots__ = ("_undecided", "cut_groups", "flags2", "gtid", "is_open")

    def __init__(self) -> None:
        self.gtid: Gtid | None = None
        """The group that is open, or was the last to be. None for a group of MySQL: its GTIDs are other things."""
        self.flags2 = 0
        self._undecided = False  # a group of MySQL before its first statement
        self.is_open = False
        self.cut_groups = 0
        """Groups that another GTID event interrupted: the server crashed while it wrote them."""

    def reset(self) -> None:
        """Forget the open group, as after a reconnect: the server will send it again in full."""
        self.is_open = False

    def feed(self, header: EventHeader, event: memoryview) -> Place:
        """`event` is the whole event with its header and WITHOUT its checksum."""
        kind = header.event_type
        if kind == EventType.GTID:
            body = Cursor(event, HEADER_LENGTH)
            seq_no, domain_id, flags2 = body.u64(), body.u32(), body.u8()
            self.cut_groups += self.is_open
            self.gtid, self.flags2, self.is_open = Gtid(domain_id, header.server_id, seq_no), flags2, True
            self._undecided = False
            return Place.BEGIN
        if kind in MYSQL_GTID_EVENTS:
            self.cut_groups += self.is_open
            self.gtid, self.flags2, self.is_open = None, 0, True
            self._undecided = True
            return Place.BEGIN
        if kind in NEVER_IN_A_GROUP:
            return Place.OUTSIDE
        if not self.is_open:
            if kind == EventType.INCIDENT or header.flags & HeaderFlag.IGNORABLE or is_dummy(header, event):
                return Place.OUTSIDE
            raise ProtocolError(
                f"{event_name(kind)} event outside of an event group",
                hint="The reading started inside a transaction; start at the beginning of a file or at a GTID.",
            )
        if kind == EventType.INCIDENT and not self.flags2 & GtidFlag.STANDALONE:
            return Place.OUTSIDE
        self.is_open = not self._ends(kind, event)
        return Place.MEMBER if self.is_open else Place.END

    def _ends(self, kind: int, event: memoryview) -> bool:
        if self._undecided and kind in (EventType.QUERY, EventType.TRANSACTION_PAYLOAD):
            self._undecided = False
            return kind == EventType.TRANSACTION_PAYLOAD or not _begins(event)
        if self.flags2 & GtidFlag.STANDALONE:
            return kind in ENDS_STANDALONE
        return kind in ENDS_TRANSACTION or (kind == EventType.QUERY and is_commit_or_rollback(event))


def _begins(event: memoryview) -> bool:
    """Whether a QUERY event, without its checksum, is BEGIN or XA START."""
    if event[-len(_BEGIN) :] == _BEGIN:
        return True
    return bytes(_statement(event)[: len(_XA_START)]) == _XA_START


def _statement(event: memoryview) -> memoryview:
    """The text of a QUERY event; empty if the event ends before it."""
    fixed = bytes(event[HEADER_LENGTH : HEADER_LENGTH + _QUERY_FIXED])
    if len(fixed) < _QUERY_FIXED:
        return event[:0]
    status = int.from_bytes(fixed[11:], "little")
    return event[HEADER_LENGTH + _QUERY_FIXED + status + fixed[8] + 1 :]


def is_commit_or_rollback(event: memoryview) -> bool:
    """Whether a QUERY event, without its checksum, says only COMMIT or ROLLBACK."""
    return event[-len(_COMMIT) :] == _COMMIT or event[-len(_ROLLBACK) :] == _ROLLBACK


def is_dummy(header: EventHeader, event: memoryview) -> bool:
    """Whether the event stands for one the server thought we could not read."""
    if header.event_type == EventType.QUERY:
        # It is as long as the event that it stands for, so its text may be cut after a few characters.
        text = bytes(_statement(event)[: len(_DUMMY)])
        return bool(text) and _DUMMY.startswith(text)
    return header.event_type == EventType.USER_VAR and bytes(event[HEADER_LENGTH + 4 : HEADER_LENGTH + 5]) == b"!"
