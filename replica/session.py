"""One dump, from the first byte to the last: the transport's bytes into the relay log, acknowledgements back.

In: a connection after COM_BINLOG_DUMP, detached from its driver, and an open `RelayWriter`. Nothing comes out of `run`
but the error that ended the stream: DisconnectedError where another attempt may help, anything else where it would not.
Per receive, in this order and in the loop's thread: kernel, write, fdatasync and ACK if one is wanted, progress.
Nothing else may stand between the receipt of a transaction and its ACK.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import (
    AuthenticationError,
    ConfigError,
    DisconnectedError,
    DuplicateServerIdError,
    PositionLostError,
    PrerequisiteError,
    ReplicaError,
    ServerError,
)
from replica.protocol.packets import ErrPacket
from replica.relay.receiver import Receiver
from replica.semisync.frame import ack_packet

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.protocol.gtid import BinlogPosition
    from replica.relay.writer import RelayWriter

# A link is dead after this many heartbeat periods of silence; one lost or late heartbeat is no reason to reconnect.
SILENT_HEARTBEATS = 3
# The server sends no heartbeat while it reads its way to our position, which takes minutes in a large file.
FIRST_READ_FACTOR = 10
MAX_RELAY_BYTES = 64 << 30  # stops a replica whose readers have stopped before it fills an ordinary disk
_RELAY_CHECK_BYTES = 16 << 20  # what may come in before the size of the log is looked at again
_RELAY_CHECK_S = 0.1


class _Meaning(NamedTuple):
    """What an ERR packet in a dump means: its code, words that stand in its text, our error, our advice."""

    code: int
    words: str
    kind: type[ReplicaError]
    hint: str


_PURGED = "Take a new snapshot and start behind it, or start at the server's oldest position and accept the gap."
_DAMAGED = "The primary cannot read its own binlog there: see its error log; go on with another server or a snapshot."
_GRANT = "GRANT REPLICATION SLAVE ON *.* to the account."
# sql_repl.cc sends almost everything as 1236 and says what it is in the text only. First match wins.
MEANINGS = (
    _Meaning(
        4052,
        "",
        DuplicateServerIdError,
        "Another replica uses our server id: give every replica its own; reconnecting would only throw that one out.",
    ),
    _Meaning(1236, "higher sequence numbers", PositionLostError, f"The server's history is another one. {_PURGED}"),
    _Meaning(
        1236,
        "not in the master's binlog",
        PositionLostError,
        "The server is behind this position, was reset, or is not of the same replication: check which server it is.",
    ),
    _Meaning(1236, "Could not find GTID state requested", PositionLostError, f"Its binlogs were purged. {_PURGED}"),
    _Meaning(1236, "is missing the GTID", PositionLostError, f"The server's binlog has a hole there. {_PURGED}"),
    _Meaning(1236, "impossible position", PositionLostError, _PURGED),
    _Meaning(1236, "Could not find first log file", PositionLostError, _PURGED),
    _Meaning(1236, "Binary log is not open", PrerequisiteError, "Start the server with log_bin and binlog_format=ROW."),
    _Meaning(1236, "Misconfigured", PrerequisiteError, "Set server_id on the server."),
    _Meaning(1236, "bogus data in log event", ServerError, _DAMAGED),
    _Meaning(1236, "exceeded max_allowed_packet", ServerError, _DAMAGED),
    _Meaning(1236, "I/O error reading log event", ServerError, _DAMAGED),
    _Meaning(1236, "binlog truncated", ServerError, _DAMAGED),
    _Meaning(1236, "did not pass crc check", ServerError, _DAMAGED),
    _Meaning(1236, "decryption failure", ServerError, _DAMAGED),
    _Meaning(1941, "", ConfigError, "Write the position as 0-1-4711,7-2-9."),
    _Meaning(1943, "", ConfigError, "Name each GTID domain once."),
    _Meaning(1045, "", AuthenticationError, _GRANT),
    _Meaning(1227, "", AuthenticationError, _GRANT),
    _Meaning(1053, "", DisconnectedError, ""),  # shutdown in progress
    _Meaning(1317, "", DisconnectedError, ""),  # query interrupted
    _Meaning(1927, "", DisconnectedError, ""),  # connection killed
)


def dump_error(packet: ErrPacket) -> ReplicaError:
    """The typed error for an ERR packet that ended a dump."""
    for meaning in MEANINGS:
        if packet.code == meaning.code and meaning.words in packet.message:
            text = f"The server ended the dump with error {packet.code}: {packet.message}."
            if issubclass(meaning.kind, ServerError):
                return meaning.kind(text, code=packet.code, sqlstate=packet.sqlstate, hint=meaning.hint)
            return meaning.kind(text, hint=meaning.hint)
    text = f"The server ended the dump with error {packet.code}: {packet.message}."
    return ServerError(text, code=packet.code, sqlstate=packet.sqlstate)


class Session(asyncio.BufferedProtocol):
    """Pumps one connection. `heartbeat_s` is the period the server was asked for; 0: silence proves nothing."""

    def __init__(
        self,
        relay: RelayWriter,
        *,
        semi_sync: bool,
        heartbeat_s: float,
        sync_before_ack: bool = True,
        max_relay_bytes: int = MAX_RELAY_BYTES,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        self.acknowledged: BinlogPosition | None = None
        self.received_bytes = 0
        self._relay = relay
        self._receiver = Receiver(relay, semi_sync=semi_sync)
        self._sync_before_ack = sync_before_ack
        self._max_relay_bytes = max_relay_bytes
        self._on_progress = on_progress
        self._limit_s = SILENT_HEARTBEATS * heartbeat_s
        self._groups_seen = False
        self._unchecked_bytes = 0
        self._full = False

    @property
    def primary(self) -> BinlogPosition | None:
        """The primary's end of the binlog when it last had nothing to send."""
        return self._receiver.primary

    async def run(self, transport: asyncio.Transport, leftover: bytes = b"") -> None:
        """Pump until the connection ends; always raises. Cancelling it closes the connection.

        Args:
            transport: of a connection whose next bytes are packets of a dump, with reading paused.
            leftover: bytes that were read from it already.
            The open group is dropped at the end: the server sends it again in full.

        Raises:
            DisconnectedError: the connection ended, or was silent for too long.
            ServerError: an ERR packet; its subclasses, ConfigError and PrerequisiteError where `MEANINGS` knows it.
            ProtocolError: damaged or unknown events; the groups before them are in the log.
            RelayError: the log cannot be written.

        """
        loop = asyncio.get_running_loop()
        self._loop, self._transport = loop, transport
        self._ended: asyncio.Future[None] = loop.create_future()
        self._last_receipt_s = loop.time()
        transport.set_protocol(self)
        watch = loop.create_task(self._watch())
        try:
            while leftover and not self._ended.done():
                space = self.get_buffer(-1)
                piece, leftover = leftover[: len(space)], leftover[len(space) :]
                space[: len(piece)] = piece
                self.buffer_updated(len(piece))
            if not self._full:
                transport.resume_reading()
            await self._ended
        finally:
            watch.cancel()
            transport.abort()
            self._relay.rollback()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._receiver.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended.done():
            return
        try:
            completed = self._receiver.received(nbytes)
            ack = self._receiver.take_ack()
            if ack is not None:
                if self._sync_before_ack:
                    self._relay.sync()
                self._transport.write(ack_packet(ack.file, ack.position))
                self.acknowledged = ack
        except ReplicaError as error:
            self._end(error)
            return
        self._last_receipt_s = self._loop.time()
        self.received_bytes += nbytes
        if completed:
            self._groups_seen = True
            if self._on_progress is not None:
                self._on_progress()
        packet = self._receiver.packet
        if packet is not None:
            gone = DisconnectedError("The server ended the dump: it was shut down, or the connection was killed.")
            self._end(dump_error(packet) if isinstance(packet, ErrPacket) else gone)
            return
        self._unchecked_bytes += nbytes
        if self._unchecked_bytes >= min(_RELAY_CHECK_BYTES, self._max_relay_bytes // 16):
            self._unchecked_bytes = 0
            self._hold_back()

    def eof_received(self) -> bool:
        self._end(DisconnectedError("The server closed the connection."))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None or isinstance(exc, OSError):
            self._end(DisconnectedError(f"The connection was lost{f': {exc}' if exc else ''}."))
        else:
            self._end(exc)

    def _end(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
            self._transport.pause_reading()

    def _hold_back(self) -> None:
        """Stop reading while the log is over its limit, if readers can bring it below by purging whole files."""
        relay = self._relay
        # Only files before the one with the last group can be purged: with none of them, waiting would be for ever.
        over = relay.has_older_files() and relay.total_bytes() > self._max_relay_bytes
        if over and not self._full:
            self._full = True
            self._transport.pause_reading()
        elif self._full and not over:
            self._full = False
            self._last_receipt_s = self._loop.time()
            self._transport.resume_reading()

    async def _watch(self) -> None:
        """Look for silence and for room in the log until the session ends."""
        while not self._ended.done():
            if self._full:
                await asyncio.sleep(_RELAY_CHECK_S)
                self._hold_back()
                continue
            started = self._groups_seen or self._receiver.primary is not None
            limit = self._limit_s if started else FIRST_READ_FACTOR * self._limit_s
            silent = self._loop.time() - self._last_receipt_s
            if self._limit_s and silent >= limit:
                self._end(
                    DisconnectedError(
                        f"Nothing came from the server for {silent:.1f} s, not even a heartbeat.",
                        hint="The server hangs, or a firewall drops idle connections.",
                    )
                )
                return
            # No longer than the short limit, which may have come into force meanwhile.
            await asyncio.sleep(max(min(limit - silent, self._limit_s), _RELAY_CHECK_S))
