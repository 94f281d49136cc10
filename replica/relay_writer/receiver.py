"""Receiver of a dump, which writes its bytes into the relay log: the loop around the kernel, without a socket.

The caller puts bytes into `space()` and calls `received(n)`, which writes group bytes and handles control events.
`publish` shows complete groups to readers, and `take_ack()` returns the position to acknowledge. A typed error ends the
stream; the groups before it stay in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replica.errors import ChecksumError, ProtocolError, RelayError, ReplicaError, UnsupportedEventError
from replica.native.kernel_group import NO_GROUP
from replica.protocol.constants import EventType, event_name
from replica.protocol.events.decode import (
    FormatDescriptionEvent,
    GtidEvent,
    GtidListEvent,
    HeartbeatEvent,
    RotateEvent,
    decode,
)
from replica.protocol.gtid import BinlogPosition
from replica.protocol.packets.packets import EofPacket, ErrPacket, parse_reply
from replica.relay_log.groups.order import out_of_order
from replica.relay_log.kernels import stream_record as stop
from replica.relay_log.kernels.stream_record import MAX_DOMAINS, Cell

if TYPE_CHECKING:
    from replica.errors import OutOfOrderGtidError
    from replica.relay_log.files.scan import StreamState
    from replica.relay_writer.writer import RelayWriter

MAX_FILE_NAME_BYTES = 512  # FN_REFLEN of the server
MAX_POSITION = 1 << 62  # larger than any file, and sizes can be added in signed 64-bit numbers
RECEIVE_BYTES = 2 << 20  # bytes per receive, kernel call and write; fits the second-level cache of a server core


class Receiver:
    """Stream of one connection.

    `packet` is the ERR or EOF packet that ended the stream, None before the end.
    """

    def __init__(
        self, relay: RelayWriter, *, semi_sync: bool, strict: bool = False, buffer_bytes: int = RECEIVE_BYTES
    ) -> None:
        relay.begin_stream(semi_sync=semi_sync, strict=strict)
        self.packet: ErrPacket | EofPacket | None = None
        self.primary: BinlogPosition | None = None
        self._relay = relay
        self._buffer = np.empty(buffer_bytes, np.uint8)
        self._view = self._buffer.data
        self._base = self._buffer.ctypes.data
        self._fill = 0
        self._unpublished = False
        self._ack: BinlogPosition | None = None
        self._semi_sync = semi_sync
        self._answered = BinlogPosition("", 0)
        self._description: FormatDescriptionEvent | None = None

    def space(self) -> memoryview:
        """Return the buffer for the next bytes, which is never empty.

        No event longer than STREAM_ABOVE_BYTES waits in the buffer.
        """
        return self._view[self._fill :]

    def received(self, count: int) -> bool:
        """Handle `count` bytes in `space()`; return True if groups were completed.

        Readers see these groups after `publish`.
        """
        relay, state, base = self._relay, self._relay.state, self._base
        begin, end = base, base + self._fill + count
        groups = state[Cell.groups]
        reason = stop.CONTROL
        while reason != stop.NEED_BYTES and self.packet is None:
            offset = state[Cell.offset]
            reason = state.run(begin, end)
            refused = reason == stop.DISCARD or reason >= stop.BAD_STATUS
            committed = state[Cell.committed_out]
            kept = (committed if refused else state[Cell.out]) - base
            if kept > begin - base:
                relay.append(self._view[begin - base : kept], offset)
            self._unpublished = committed != 0
            if state[Cell.ack_position] and state[Cell.group] == NO_GROUP:
                # While its semi-sync is off, the primary also asks after events between groups. Acknowledge whole
                # groups only.
                complete = min(state[Cell.ack_position], state[Cell.committed_position])
                # Never acknowledge a position before the last acknowledged one.
                already_answered = relay.primary_file == self._answered.file and complete < self._answered.position
                if complete and not already_answered:
                    self._ack = self._answered = BinlogPosition(relay.primary_file, complete)
                state[Cell.ack_position] = 0
            begin = state[Cell.cursor]
            if reason != stop.NEED_BYTES:
                self.publish()
                begin = self._stopped(reason, begin)
        rest = end - begin
        if begin != base:
            self._view[:rest] = self._view[begin - base : end - base]
        self._fill = rest
        return state[Cell.groups] != groups

    def publish(self) -> None:
        """Publish the complete groups, after their ACK, because a client's COMMIT waits for the ACK."""
        if self._unpublished:
            self._unpublished = False
            self._relay.commit()

    def take_ack(self) -> BinlogPosition | None:
        """Return the last position that the primary waits for and whose groups are written.

        The caller must sync the log before it sends the ACK.
        """
        ack, self._ack = self._ack, None
        return ack

    def _stopped(self, reason: int, cursor: int) -> int:
        """Handle the reason why the kernel stopped; return the address to continue at."""
        relay, state = self._relay, self._relay.state
        if reason in (stop.INDEX_FULL, stop.ENDS_FULL):
            return cursor
        if reason == stop.ROLL:
            relay.roll()
            return cursor
        if reason == stop.DISCARD:
            state.discard_group()
            relay.rollback()
            return cursor
        event = self._event()
        if reason == stop.CONTROL:
            self._control(event)
        elif reason == stop.PACKET:
            self._packet(event)
        elif reason == stop.OUT_OF_ORDER:
            raise self._out_of_order(event)
        else:
            raise refusal(reason, state, relay.primary_file)
        return cursor

    def _out_of_order(self, event: memoryview) -> OutOfOrderGtidError:
        found = decode(event, self._description)
        if not isinstance(found, GtidEvent):
            raise TypeError(found)
        last = self._relay.state.position()[found.gtid.domain_id]
        return out_of_order(found.gtid, last, f"at {self._relay.primary_file}:{self._relay.state[Cell.position]}")

    def _event(self) -> memoryview:
        start = self._relay.state[Cell.event] - self._base
        return self._view[start : start + self._relay.state[Cell.event_size]]

    def _control(self, data: memoryview) -> None:
        relay, state = self._relay, self._relay.state
        kind = state[Cell.event_type]
        if kind not in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.HEARTBEAT, EventType.GTID_LIST):
            return  # other events do not matter to a replica with whole groups and its own position
        event = decode(data, self._description)
        if isinstance(event, RotateEvent):
            if len(event.file.encode()) > MAX_FILE_NAME_BYTES:
                raise ProtocolError(f"a ROTATE event names a file with {len(event.file)} characters")
            if event.position > MAX_POSITION:
                raise ProtocolError(f"a ROTATE event continues at offset {event.position}, which no file has")
            relay.primary_file = event.file
            state[Cell.position] = event.position
        elif isinstance(event, FormatDescriptionEvent):
            self._description = event
            relay.begin_file(bytes(data))
        elif isinstance(event, HeartbeatEvent) and state[Cell.group] == NO_GROUP:
            self.primary = BinlogPosition(event.file, event.position)
            self._answer_unasked(self.primary)
        elif isinstance(event, GtidListEvent) and event.header.is_artificial:
            self._answer_unasked(BinlogPosition(relay.primary_file, event.header.log_pos))

    def _answer_unasked(self, scanned: BinlogPosition) -> None:
        """Acknowledge everything that the server has read: it has sent all earlier groups, or skipped them as ours.

        The ACK of a group may be lost with its connection. The next dump starts after that group, and none of its
        events asks for an ACK. The waiting session would then wait until rpl_semi_sync_master_timeout, and with
        AFTER_SYNC all later commits too. An artificial GTID_LIST ends the skipping, and a heartbeat means that the
        server has read everything.
        """
        last = self._answered
        ahead = scanned.position and (scanned.file != last.file or scanned.position > last.position)
        if self._semi_sync and ahead and self._relay.state[Cell.group] == NO_GROUP:
            self._ack = self._answered = scanned

    def _packet(self, payload: memoryview) -> None:
        reply = parse_reply(payload)
        if not isinstance(reply, ErrPacket | EofPacket):
            raise ProtocolError("an OK packet inside a dump")
        self.packet = reply


# Typed errors for the kernel's reasons to refuse an event, with the primary's file, the offset and the event type.

_AGAIN = "Reconnecting reads the event again; if it fails at the same place, the primary's file or its disk is damaged."


def refusal(reason: int, state: StreamState, primary_file: str) -> ReplicaError:
    """Return the error for a kernel's `reason`; groups before the event are kept, and the open group is discarded."""
    kind = event_name(state[Cell.event_type])
    size = state[Cell.event_size]
    where = f"after {primary_file or 'the start of the dump'}:{state[Cell.position]}"
    if reason == stop.BAD_CHECKSUM:
        return ChecksumError(f"The {kind} event of {size} bytes {where} does not match its CRC32.", hint=_AGAIN)
    if reason == stop.UNKNOWN_EVENT:
        return UnsupportedEventError(
            f"The event {where} has {kind}, which this version does not know and must not skip.",
            hint="The primary is newer than this program: update, or switch off the feature that writes such events.",
        )
    if reason == stop.INCIDENT:
        return UnsupportedEventError(
            f"The INCIDENT event {where} says that the primary lost changes it should have written to its binlog.",
            hint="No replica can know them: take a new snapshot and start after it.",
        )
    if reason == stop.ORPHAN:
        return ProtocolError(
            f"The {kind} event {where} belongs to a transaction, but none is open.",
            hint="The dump began inside a transaction; start at a GTID position.",
        )
    if reason == stop.TOO_MANY_DOMAINS:
        return RelayError(
            f"The position {where} has more than {MAX_DOMAINS} GTID domains.",
            hint="Each domain is kept in every position: use a few, one for each independent source.",
        )
    details = {
        stop.BAD_STATUS: f"a packet {where} is neither an event nor an ERR or EOF packet",
        stop.BAD_MAGIC: f"the event {where} does not carry the semi-synchronous header this connection asked for",
        stop.BAD_LENGTH: f"the event {where} has {kind} and {size} bytes, which its packet or its kind does not allow",
    }
    return ProtocolError(f"The stream is damaged: {details[reason]}.", hint=_AGAIN)
