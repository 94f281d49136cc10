"""One dump, from the first byte to the last: bytes of the transport go into the relay log, acknowledgements go back.

In: a connection after COM_BINLOG_DUMP, detached from its driver, and an open `RelayWriter`. `run` ends only with an
error: a DisconnectedError if a retry may help, another type if not. For each receive, in this order and in the loop's
thread: kernel, write, fdatasync and ACK if one is requested, counters. No other work may come between the receipt of a
transaction and its ACK.

With `Agreed.sync_before_ack` an ACK means that the transaction is on our disk. Without it, the transaction is only in
memory. A power cut here together with the loss of the primary then loses transactions that clients believe to be safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import DisconnectedError, ReplicaError
from replica.handshake.login.login import log_in
from replica.handshake.start.dump_error import dump_error
from replica.handshake.start.start import latest_position
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

    from structlog.typing import FilteringBoundLogger

    from replica.live.progress import PauseReason
    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.relay_writer.writer import RelayWriter

SILENT_HEARTBEATS = 3
"""Number of silent heartbeat periods after which a link is dead.

One lost or late heartbeat is no reason to reconnect.
"""
NUDGE_HEARTBEATS = 2
"""Number of silent heartbeat periods after which a semi-synchronous primary is asked for a sign of life."""
FIRST_READ_FACTOR = 10
"""Factor by which the silence limit is longer before the first event. The server sends no heartbeat while it searches
our position, which takes minutes in a large file.
"""
_TICK_S = 1.0  # maximum delay of detecting a dead link, and of closing an old relay file
_PAUSED_TICK_S = 0.1  # maximum delay of resuming once there is space


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """Terms of a dump.

    `semi_sync`: every event has the semi-sync header. `heartbeat_s`: the requested period; with 0, silence proves
    nothing. `strict`: the session ends before a group whose sequence number is not above the last one of its domain.
    `sync_before_ack`: fdatasync before each ACK.
    """

    semi_sync: bool
    heartbeat_s: float
    strict: bool = False
    sync_before_ack: bool = True


class Session(asyncio.BufferedProtocol):
    """Data flow of one connection.

    Args:
        relay: the writer; this session is its only user while it runs.
        agreed: the terms of the dump.
        backpressure: decides when to pause. By default only a relay log of MAX_RELAY_BYTES pauses.
        progress: counters; the state is "streaming" or "paused" while the session runs.
        on_progress: called after every chunk that completed a group.
        on_pause: called with the reason when receiving pauses, and with "" when it resumes.
    """

    def __init__(
        self,
        relay: RelayWriter,
        agreed: Agreed,
        *,
        backpressure: Backpressure | None = None,
        progress: Progress | None = None,
        on_progress: Callable[[], None] | None = None,
        on_pause: Callable[[PauseReason], None] | None = None,
    ) -> None:
        self.progress = progress or Progress()
        self._relay = relay
        self._receiver = Receiver(relay, semi_sync=agreed.semi_sync, strict=agreed.strict)
        self._agreed = agreed
        self.backpressure = backpressure or Backpressure(relay)
        self._on_progress = on_progress
        self._on_pause = on_pause
        self._groups_seen = False
        self._acknowledged: BinlogPosition | None = None
        self._nudged_at_s = float("-inf")
        self._unchecked_bytes = 0
        self._primary: BinlogPosition | None = None
        # The counters of the writer and of `progress` began at different times.
        state, had = relay.state, self.progress
        self._groups = had.groups - state[Cell.groups]
        self._events_before = state[Cell.events]
        self._events = had.events - self._events_before
        self._ignored = had.ignored_events - state[Cell.ignored]
        self._discarded = had.discarded_groups - state[Cell.discarded]
        self._statements = had.statement_dml - state[Cell.statements]

    async def run(self, transport: asyncio.Transport, leftover: bytes = b"") -> None:
        """Receive until the connection ends; always raises. Cancelling the task closes the connection.

        At the end the open group is dropped, because the server sends it again in full.

        Args:
            transport: a connection whose next bytes are packets of a dump, with reading paused.
            leftover: bytes that were read from it already.

        Raises:
            DisconnectedError: the connection ended, or was silent for too long.
            ServerError: an ERR packet. If its text is known, a subclass, a ConfigError or a PrerequisiteError.
            ProtocolError: damaged or unknown events; the groups before them are in the log.
            OutOfOrderGtidError: with `strict`; the groups before it are in the log.
            DiskFullError: the disk is full; the groups before it are in the log.
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
            self._pause_or_resume()
            if self._paused_at_s is None:
                transport.resume_reading()
            await self._ended
        finally:
            watch.cancel()
            transport.abort()
            self._finish()

    def disconnect(self, why: str) -> None:
        """End the connection from our side. `run` then raises a DisconnectedError with this reason."""
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
            if self._unchecked_bytes >= self.backpressure.check_every_bytes:
                self._pause_or_resume()
        except ReplicaError as error:
            self._end(error)
            return
        self._last_receipt_s = self._loop.time()
        packet = self._receiver.packet
        if packet is not None:
            ended = DisconnectedError("The server ended the dump: it was shut down, or the connection was killed.")
            self._end(dump_error(packet) if isinstance(packet, ErrPacket) else ended)

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
        """Drop a connection with thousands of unread acknowledgements.

        The primary's ACK receiver has dropped us, and a new dump registers us there again. The transport calls this
        method when its buffer exceeds its high-water mark (asyncio: 64 KiB).
        """
        self._end(DisconnectedError("The server no longer reads our acknowledgements."))

    def _end(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
            self._transport.pause_reading()

    # -- between receives ----------------------------------------------------------------------------------------

    def _pause_or_resume(self) -> None:
        """Pause reading while space is lacking, and resume when there is space."""
        self._unchecked_bytes = 0
        reason = self.backpressure.lacking(paused=self._paused_at_s is not None)
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
        """Check for silence, for space, and for a relay file that is old enough to be closed, until the end."""
        rolled_at_s = self._loop.time()
        while not self._ended.done():
            now = self._loop.time()
            if now - rolled_at_s >= _TICK_S and self._relay.state[Cell.group] == NO_GROUP:
                rolled_at_s = now
                self._relay.roll_if_old()
            if self._paused_at_s is not None:
                await asyncio.sleep(_PAUSED_TICK_S)
                self._count_pause()
                self._pause_or_resume()
            else:
                await asyncio.sleep(min(self._listen_for_life(), _TICK_S))

    def _listen_for_life(self) -> float:
        """Return the seconds until the next check whether the link is dead."""
        if not self._agreed.heartbeat_s:
            return _TICK_S
        started = self._groups_seen or self._primary is not None
        limit = SILENT_HEARTBEATS * self._agreed.heartbeat_s * (1 if started else FIRST_READ_FACTOR)
        silent = self._loop.time() - self._last_receipt_s
        if silent >= limit:
            raise DisconnectedError(
                f"The server sent nothing for {silent:.1f} s, not even a heartbeat.",
                hint="The server hangs, or a firewall drops idle connections.",
            )
        ask = NUDGE_HEARTBEATS * self._agreed.heartbeat_s
        if self._agreed.semi_sync and silent >= ask:
            self._nudge()
        # At most the short limit, which is valid as soon as the first event arrives.
        return min(
            limit - silent, ask - silent if silent < ask else limit, SILENT_HEARTBEATS * self._agreed.heartbeat_s
        )

    def _nudge(self) -> None:
        """Repeat the last acknowledgement once per silence, to make the primary answer. The repetition acknowledges
        nothing new.

        A primary that ended our dump, because another replica connected with our server id, reports it only when its
        ACK receiver wakes. The receiver sleeps until one of its replicas sends something (10.11 and later, seen to last
        for minutes). If the silence counted as a dead link, we would reconnect and disconnect the other replica.
        """
        if self._nudged_at_s > self._last_receipt_s or self._relay.state[Cell.events] == self._events_before:
            return
        self._nudged_at_s = self._loop.time()
        ack = self._acknowledged
        if ack is None:
            # The beginning of its current file: everything before it was received earlier, in this connection or
            # another.
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


# After RESET MASTER a server keeps its dump connections and sends heartbeats, but never another transaction. A
# heartbeat means that the server has nothing left to send. So if two heartbeats arrive after the server reported
# another position than ours, the connection is useless. It is ended, and the next connection checks the server's
# history. Each reported position ends at most one connection, because a server may have reasons that are not known
# here.
#
# Source: measured on 10.5, 10.11 and 11.8 (tests/integration/daemon/test_reset_master.py).


QUIET_S: Final = 30.0
"""Seconds without a transaction after which the primary is asked, which takes a login of some milliseconds."""
ANSWER_TIMEOUT_S: Final = 10.0
PROOF_HEARTBEATS: Final = 2
"""Number of heartbeats after the answer. The first one may have been sent before the answer."""

_STALE_TICK_S: Final = 0.25


class StaleStreamCheck:
    """Detector of a stream that became stale, as after RESET MASTER. Call `run` beside each session of the replica.

    Args:
        position: returns the position up to which groups were received.
        progress: counts the heartbeats.
        log: receives events with key-value pairs.
        quiet_s: seconds without a transaction before the primary is asked.
    """

    def __init__(
        self,
        position: Callable[[], GtidPosition],
        progress: Progress,
        *,
        log: FilteringBoundLogger,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._position = position
        self._progress = progress
        self._log = log
        self._quiet_s = quiet_s
        self._known: tuple[str, str] | None = None

    async def run(self, config: ReplicaConfig, endpoint: Endpoint, disconnect: Callable[[str], None]) -> None:
        """Watch a session until it ends, or call `disconnect` with a reason.

        The caller cancels this coroutine together with the session.
        """
        while config.heartbeat_s:
            ours = self._position()
            if not await self._silent(ours, self._quiet_s, heartbeats=1):
                continue
            theirs = await self._server_position(config, endpoint)
            if theirs is None or theirs == ours or (str(ours), str(theirs)) == self._known:
                continue
            if await self._silent(ours, 0.0, heartbeats=PROOF_HEARTBEATS):
                self._known = str(ours), str(theirs)
                disconnect(
                    f"the primary reports that it has nothing to send and is at {theirs or 'no position'}, but "
                    f"{ours} was received: it may have been reset."
                )
                return

    async def _silent(self, ours: GtidPosition, seconds: float, *, heartbeats: int) -> bool:
        """Wait for `seconds` and `heartbeats`; return False as soon as a transaction arrives."""
        loop = asyncio.get_running_loop()
        until, seen = loop.time() + seconds, self._progress.heartbeats + heartbeats
        while loop.time() < until or self._progress.heartbeats < seen:
            await asyncio.sleep(_STALE_TICK_S)
            if self._position() != ours:
                return False
        return True

    async def _server_position(self, config: ReplicaConfig, endpoint: Endpoint) -> GtidPosition | None:
        """Return the primary's position, or None if it cannot be asked now."""
        try:
            async with asyncio.timeout(config.connect_timeout_s + ANSWER_TIMEOUT_S):
                login = await log_in(config, endpoint)
                with contextlib.closing(login):
                    return await login.run(latest_position())
        except (ReplicaError, OSError, TimeoutError) as error:
            self._log.debug("quiet primary not asked", reason=str(error))
            return None
