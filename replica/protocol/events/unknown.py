"""Events whose bytes are kept and not decoded, and the refusal of those that must not be skipped.

An UnknownEvent may be skipped; the caller decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import UnsupportedEventError
from replica.protocol.constants import ROLES, HeaderFlag, event_name
from replica.protocol.event_row import Role
from replica.protocol.header import Event

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Cursor


@dataclass(frozen=True, slots=True)
class UnknownEvent(Event):
    """An event of a type without a decoder, which may be skipped.

    Either it has the IGNORABLE flag, or it is bookkeeping of MySQL's group replication and holds no change.
    """

    body: bytes


def decode_unknown(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> UnknownEvent:
    return UnknownEvent(header, bytes(body.rest()))


def refuse_unreadable(header: EventHeader) -> None:
    """Raise an UnsupportedEventError for an event that cannot be read and must not be skipped.

    Source: MariaDB 10.11.18, sql/log_event.cc, Log_event::read_log_event. The server skips every event with the
    IGNORABLE flag. We do not skip events that may hold changes (Role.REFUSED).
    """
    role = ROLES[header.event_type]
    if role is Role.REFUSED:
        raise UnsupportedEventError(
            f"{event_name(header.event_type)} is an event of servers before MySQL 5.1",
            offset=0,
            hint="No later server writes it: the file was assembled from parts, or its bytes are damaged.",
        )
    if role is Role.STRANGER and not header.flags & HeaderFlag.IGNORABLE:
        raise UnsupportedEventError(
            f"{event_name(header.event_type)} event cannot be read and must not be skipped",
            offset=0,
            hint="The stream comes from a server that is newer or of another kind than this program supports.",
        )
