"""The kernel's reasons to refuse an event, as typed errors that say where: the primary's file, the offset, the type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ChecksumError, ProtocolError, RelayError, ReplicaError, UnsupportedEventError
from replica.protocol.constants import event_name
from replica.relay_log.kernels import stops
from replica.relay_log.kernels.domains import MAX_DOMAINS
from replica.relay_log.kernels.stream_record import Cell

if TYPE_CHECKING:
    from replica.relay_log.files.state import StreamState

_AGAIN = "Reconnecting reads the event again; if it fails at the same place, the primary's file or its disk is damaged."


def refusal(reason: int, state: StreamState, primary_file: str) -> ReplicaError:
    """Make the error for a `reason` of the kernel; groups before the event are kept, the open one is not."""
    kind = event_name(state[Cell.event_type])
    size = state[Cell.event_size]
    where = f"after {primary_file or 'the start of the dump'}:{state[Cell.position]}"
    if reason == stops.BAD_CHECKSUM:
        return ChecksumError(f"The {kind} event of {size} bytes {where} does not match its CRC32.", hint=_AGAIN)
    if reason == stops.UNKNOWN_EVENT:
        return UnsupportedEventError(
            f"The event {where} has {kind}, which is not known here and must not be skipped.",
            hint="The primary is newer than this program: update, or switch off the feature that writes such events.",
        )
    if reason == stops.INCIDENT:
        return UnsupportedEventError(
            f"The INCIDENT event {where} says that the primary lost changes it should have written to its binlog.",
            hint="No replica can know them: take a new snapshot and start behind it.",
        )
    if reason == stops.ORPHAN:
        return ProtocolError(
            f"The {kind} event {where} belongs to a transaction, but none is open.",
            hint="The dump began inside a transaction; start at a GTID position.",
        )
    if reason == stops.TOO_MANY_DOMAINS:
        return RelayError(
            f"The position {where} names more than {MAX_DOMAINS} GTID domains.",
            hint="Each domain is kept in every position: use a few, one for each independent source.",
        )
    details = {
        stops.BAD_STATUS: f"a packet {where} is neither an event nor an ERR or EOF packet",
        stops.BAD_MAGIC: f"the event {where} does not carry the semi-synchronous header this connection asked for",
        stops.BAD_LENGTH: f"the event {where} has {kind} and {size} bytes, which its packet or its kind does not allow",
    }
    return ProtocolError(f"The stream is damaged: {details[reason]}.", hint=_AGAIN)
