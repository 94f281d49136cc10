"""Conversion of the scan kernel's code for an event that cannot be skipped to an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import HEADER_LENGTH, event_name
from replica.rows.scan.kernels import kernel_state as s

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from replica.native.record import Records


def scan_fault(status: int, data: npt.NDArray[np.uint8], state: Records) -> ProtocolError:
    """Make the error from the kernel's state. Its offset is that of the event, from the start of `data`."""
    offset, kind = int(state["fault"]), int(state["detail"])
    if status in (s.SHORT_EVENT, s.OPEN_GROUP):
        what = "the bytes end inside an event" if status == s.SHORT_EVENT else "the last event group has no end"
        return TruncatedError(what, offset=offset, hint="The relay file is torn, or the range was cut wrongly.")
    if status in (s.UNKNOWN_EVENT, s.HISTORICAL, s.ENCRYPTED):
        text, hint = {
            s.UNKNOWN_EVENT: (
                f"event type {kind} is unknown and not marked as ignorable",
                "The server is newer than this replica, or the bytes are not a binlog.",
            ),
            s.HISTORICAL: (
                f"{event_name(kind)} is an event of servers before MySQL 5.1",
                "No later server writes it: the file was assembled from parts, or its bytes are damaged.",
            ),
            s.ENCRYPTED: ("the binlog file is encrypted", "Read it from the server, or with its key file."),
        }[status]
        return UnsupportedEventError(text, offset=offset, hint=hint)
    if status == s.INCIDENT:
        return ProtocolError(
            f"the primary lost events here (INCIDENT): {_incident(data, offset, int(state['trailer']))}",
            offset=offset,
            hint="Compare the tables with the primary, then start from a position after the incident.",
        )
    text = {
        s.OUTSIDE_GROUP: f"{event_name(kind)} is outside of an event group",
        s.NO_TABLE_MAP: "a rows event without its table map",
        s.BAD_EVENT: f"malformed event ({event_name(kind)})",
        s.TOO_MANY_MAPS: f"one statement maps more than {s.MAX_ACTIVE} tables",
    }[status]
    return ProtocolError(text, offset=offset)


def _incident(data: npt.NDArray[np.uint8], offset: int, trailer: int) -> str:
    """Return the number and message that the primary wrote into the INCIDENT event at `offset`."""
    length = int.from_bytes(data[offset + 9 : offset + 13].tobytes(), "little")
    body = data[offset + HEADER_LENGTH : offset + length - trailer].tobytes()
    number, message = int.from_bytes(body[:2], "little"), body[3 : 3 + body[2]] if len(body) > 2 else b""
    text = message.decode("utf-8", "replace")
    return f"incident {number}, {text!r}" if text else f"incident {number}, without a message"
