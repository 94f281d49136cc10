"""One dump, from the first byte to the last: the transport's bytes go into the relay log, acknowledgements go back.

In: a connection after COM_BINLOG_DUMP, detached from its driver, and an open `RelayWriter`. Nothing comes out of `run`
but the error that ended the stream: DisconnectedError where another attempt may help, anything else where it would not.
Per receive, in this order and in the loop's thread: kernel, write, fdatasync and ACK if one is wanted, counters.
Nothing else may stand between the receipt of a transaction and its ACK.

With `Agreed.sync_before_ack` an ACK says that the transaction is on our disk; without, that it is in our memory: a
power cut here and the loss of the primary together then lose transactions that clients were told are safe.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import DisconnectedError, ReplicaError
from replica.handshake.start.dump_error import dump_error
from replica.live.backpressure import Backpressure
from replica.live.progress import Progress
from replica.native.kernel_group import NO_GROUP
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import BinlogPosition
from replica.protocol.packets.packets import ErrPacket
from replica.relay_log.kernels.stream_record import Cell
from replica.relay_writer.receiver import Receiver
from replica.semisync.frame import ack_packet

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.live.progress import PauseReason
    from replica.relay_writer.writer import RelayWriter

SILENT_HEARTBEATS = 3
"""A link is dead after this many heartbeat periods of silence; one lost or late heartbeat is no reason to reconnect."""
NUDGE_HEARTBEATS = 2
"""The periods of silence after which a semi-synchronous primary is asked for a sign of life, while there is time
left."""
FIRST_READ_FACTOR = 10
"""The server sends no heartbeat while it reads its way to our position, which takes minutes in a large file."""
_TICK_S = 1.0  # how late a dead link is noticed, and a relay file closed that is old enough
_PAUSED_TICK_S = 0.1  # how late receiving goes on once there is room


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """The terms that a dump was begun with.

    `semi_sync`: every event comes with the semi-sync header. `heartbeat_s`: the period the server was asked for; 0:
    silence proves nothing. `strict`: the session ends before a group whose sequence number is not above the last one of
    its domain. `sync_before_ack`: fdatasync before each ACK.
    """

    semi_sync: bool
    heartbeat_s: float
    strict: bool = False
    sync_before_ack: bool = True


class Session(asyncio.BufferedProtocol):
    """The pump of one connection.

    Args:
        relay: where it goes; this session is its only user while it runs.
        agreed: what the dump was begun with.
        room: when to stand still; by default only a relay log of MAX_RELAY_BYTES does that.
        progress: where to count; its state is "streaming" or "paused" while this runs.
        on_progress: called after every chunk that completed a group.
        on_pause: called with the reason when receiving begins to stand still, with "" when it goes on.
    """

    def __init__(
        self,
        relay: RelayWriter,
        agreed: Agreed,
        *,
        room: Backpressure | None = None,
        progress: Progress | None = None,
        on_progress: Callable[[], None] | None = None,
        on_pause: Callable[[PauseReason], None] | None = None,
    ) -> None:
        self.progress = progress or Progress()
        self._relay = relay
        self._receiver = Receiver(relay, semi_sync=agreed.semi_sync, strict=agreed.strict)
        self._agreed = agreed
        self.room = room or Backpressure(relay)
        self._on_progress = on_progress
        self._on_pause = on_pause
        self._groups_seen = False
        self._acknowledged: BinlogPosition | None = None
        self._nudged_at_s = float("-inf")
        self._unchecked_bytes = 0
        self._primary: BinlogPosition | None = None
        # The writer counts since its own start, which may have been after ours or before.
        state, had = relay.state, self.progress
        self._groups = had.groups - state[Cell.groups]
        self._events_before = state[Cell.events]
        self._events = had.events - self._events_before
        self._ignored = had.ignored_events - state[Cell.ignored]
        self._discarded = had.discarded_groups - state[Cell.discarded]
        self._statements = had.statement_dml - state[Cell.statements]

    async def run(self, transport: asyncio.Transport, leftover: bytes = b"") -> None:
        """Pump until the connection ends; always raises. Cancelling it closes the connection.

        Args:
            transport: of a connection whose next bytes are packets of a dump, with reading paused.
            leftover: bytes that were read from it already.
            The open group is dropped at the end: the server sends it again in full.

        Raises:
            DisconnectedError: the connection ended, or was silent for too long.
            ServerError: an ERR packet; its subclasses, ConfigError and PrerequisiteError where its text is known.
            ProtocolError: damaged or unknown events; the groups before them are in the log.
            OutOfOrderGtidError: with `strict`; the groups before it are in the log.
            DiskFullError: no room for more; the groups before it are in the log.
            RelayError: the log cannot be written.
        """
        loop = asyncio.get_running_loop()
        self._loop, self._transport = loop, transport
        self._ended: asyncio.Future[None] = loop.create_future()
        self._last_receipt_s = loop.time()
        self._paused_at_s: float | None = None
        self.progress.state = "streaming"
        transport.set_protocol(self)
        watch = loop.create_task(self._watch())
        watch.add_done_callback(self._watched)
        try:
            while leftover and not self._ended.done():
                space = self.get_buffer(-1)
                piece, leftover = leftover[: len(space)], leftover[len(space) :]
                space[: len(piece)] = piece
                self.buffer_updated(len(piece))
            self._hold_back()
            if self._paused_at_s is None:
                transport.resume_reading()
            await self._ended
        finally:
            watch.cancel()
            transport.abort()
            self._finish()

    def leave(self, why: str) -> None:
        """End the connection from our side: `run` raises a DisconnectedError that says why."""
        self._end(DisconnectedError(why))

    def _finish(self) -> None:
        self._count(0)
        self._count_pause()
        if self._relay.state[Cell.group] != NO_GROUP:
            self.progress.discarded_groups += 1
        self.progress.pause = ""
        self._relay.rollback()

    # -- per receive ---------------------------------------------------------------------------------------------

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._receiver.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended.done():
            return
        received_at_s = time.perf_counter()  # the loop's own clock may tick in milliseconds
        progress = self.progress
        try:
            completed = self._receiver.received(nbytes)
            ack = self._receiver.take_ack()
            if ack is not None:
                if self._agreed.sync_before_ack:
                    self._relay.sync()
                    progress.syncs += 1
                else:
                    self._relay.names.ensure_named()
                self._transport.write(ack_packet(ack.file, ack.position))
                progress.ack_latency.add(time.perf_counter() - received_at_s)
                progress.acks += 1
                self._acknowledged = progress.acknowledged = ack
            self._receiver.publish()
            self._count(nbytes)
            if completed:
                self._groups_seen = True
                if self._on_progress is not None:
                    self._on_progress()
            self._unchecked_bytes += nbytes
            if self._unchecked_bytes >= self.room.look_every_bytes:
                self._hold_back()
        except ReplicaError as error:
            self._end(error)
            return
        self._last_receipt_s = self._loop.time()
        packet = self._receiver.packet
        if packet is not None:
            gone = DisconnectedError("The server ended the dump: it was shut down, or the connection was killed.")
            self._end(dump_error(packet) if isinstance(packet, ErrPacket) else gone)

    def _count(self, nbytes: int) -> None:
        progress, state = self.progress, self._relay.state
        progress.groups = self._groups + state[Cell.groups]
        progress.events = self._events + state[Cell.events]
        progress.ignored_events = self._ignored + state[Cell.ignored]
        progress.discarded_groups = self._discarded + state[Cell.discarded]
        progress.statement_dml = self._statements + state[Cell.statements]
        if nbytes:
            progress.received_bytes += nbytes
            progress.last_receipt_at = time.time()
        primary = self._receiver.primary
        if primary is not self._primary:
            self._primary = progress.primary = primary
            progress.heartbeats += 1

    # -- ends of the connection ----------------------------------------------------------------------------------

    def eof_received(self) -> bool:
        self._end(DisconnectedError("The server closed the connection."))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None or isinstance(exc, OSError):
            self._end(DisconnectedError(f"The connection was lost{f': {exc}' if exc else ''}."))
        else:
            self._end(exc)

    def pause_writing(self) -> None:
        """Drop a connection on which thousands of acknowledgements lie unread: the primary's ACK receiver has dropped
        us, and a new dump enrols again.

        The transport calls it when its buffer is over its high-water mark (asyncio: 64 KiB).
        """
        self._end(DisconnectedError("The server no longer reads our acknowledgements."))

    def _end(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
            self._transport.pause_reading()

    # -- between receives ----------------------------------------------------------------------------------------

    def _hold_back(self) -> None:
        """Stop reading while there is no room, go on when there is."""
        self._unchecked_bytes = 0
        reason = self.room.lacking(paused=self._paused_at_s is not None)
        progress = self.progress
        if reason == progress.pause:
            return
        progress.pause, progress.state = reason, "paused" if reason else "streaming"
        now = self._loop.time()
        if not reason:
            self._count_pause()
            self._paused_at_s, self._last_receipt_s = None, now
            self._transport.resume_reading()
        elif self._paused_at_s is None:
            self._paused_at_s = now
            self._transport.pause_reading()
        if self._on_pause is not None:
            self._on_pause(reason)

    def _count_pause(self) -> None:
        if self._paused_at_s is not None:
            now = self._loop.time()
            self.progress.paused_s += now - self._paused_at_s
            self._paused_at_s = now

    async def _watch(self) -> None:
        """Look for silence, for room and for a relay file that is old enough to be closed, until the session ends."""
        rolled_at_s = self._loop.time()
        while not self._ended.done():
            now = self._loop.time()
            if now - rolled_at_s >= _TICK_S and self._relay.state[Cell.group] == NO_GROUP:
                rolled_at_s = now
                self._relay.roll_if_old()
            if self._paused_at_s is not None:
                await asyncio.sleep(_PAUSED_TICK_S)
                self._count_pause()
                self._hold_back()
            else:
                await asyncio.sleep(min(self._listen_for_life(), _TICK_S))

    def _listen_for_life(self) -> float:
        """Return the seconds until it has to be looked at again whether the link is dead."""
        if not self._agreed.heartbeat_s:
            return _TICK_S
        started = self._groups_seen or self._primary is not None
        limit = SILENT_HEARTBEATS * self._agreed.heartbeat_s * (1 if started else FIRST_READ_FACTOR)
        silent = self._loop.time() - self._last_receipt_s
        if silent >= limit:
            raise DisconnectedError(
                f"Nothing came from the server for {silent:.1f} s, not even a heartbeat.",
                hint="The server hangs, or a firewall drops idle connections.",
            )
        ask = NUDGE_HEARTBEATS * self._agreed.heartbeat_s
        if self._agreed.semi_sync and silent >= ask:
            self._nudge()
        # No longer than the short limit, which may have come into force meanwhile.
        return min(
            limit - silent, ask - silent if silent < ask else limit, SILENT_HEARTBEATS * self._agreed.heartbeat_s
        )

    def _nudge(self) -> None:
        """Repeat the last acknowledgement, once a silence: it acknowledges nothing new.

        A primary that ended our dump, because another replica came with our server id, says so only when its ACK
        receiver wakes, and that sleeps until one of its replicas sends something (10.11 and later, seen to last for
        minutes). Taken for a dead link we would come back and throw the other one out.
        """
        if self._nudged_at_s > self._last_receipt_s or self._relay.state[Cell.events] == self._events_before:
            return
        self._nudged_at_s = self._loop.time()
        ack = self._acknowledged
        if ack is None:
            # Its current file's beginning: whatever stands before that came before, in this connection or an earlier.
            ack = BinlogPosition(self._relay.primary_file, FIRST_POSITION)
        if self._agreed.sync_before_ack:
            self._relay.sync()
        else:
            self._relay.names.ensure_named()
        self._transport.write(ack_packet(ack.file, ack.position))

    def _watched(self, watch: asyncio.Task[None]) -> None:
        error = None if watch.cancelled() else watch.exception()
        if error is not None:
            self._end(error)
