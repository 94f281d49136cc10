"""The receiving end of a connection whose thread waits for it: packets out of one large buffer that is used again.

In: a transport that the login let go of, and the loop that it belongs to. Out: single payloads, and runs of whole rows
without any Python per row. The loop runs only while the thread waits here, so what was given out is not overwritten
before the next call; nothing is read meanwhile, and the server waits.

Refused: payloads beyond what the caller expects, rows beyond MAX_ROW_BYTES, silence of more than `silence_s`.
Thread-safe is `interrupt` alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import DisconnectedError, ProtocolError
from replica.native.arrays import address
from replica.protocol.packets import MAX_PIECE, PACKET_HEADER_LENGTH, pack
from replica.table_reader.kernel_packets import whole_rows
from replica.table_reader.result_stream import RowStretch

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.handshake.login import Detached

RECEIVE_BYTES: Final = 1 << 20
"""Asked for at once: more than a socket holds, so that one call takes all of it."""
STRETCH_BYTES: Final = 1 << 20
"""Rows that are given out at once: enough that Python costs nothing per row, and little enough for a core's cache."""
BUFFER_BYTES: Final = STRETCH_BYTES + PACKET_HEADER_LENGTH + MAX_PIECE + RECEIVE_BYTES
"""Room for the largest packet behind a stretch; without such packets most of it is never touched."""
MAX_ROW_BYTES: Final = 1 << 30
"""The bytes of a row: no packet of a client, and no event of a binlog, is larger (max_allowed_packet: 1 GB at most)."""


class PacketReceiver(asyncio.BufferedProtocol):
    """The protocol of one detached connection.

    Args:
        loop: the loop of the transport; it runs while a method of this object waits, and at no other time.
        detached: the connection.
        silence_s: how long the server may say nothing while something is expected of it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, detached: Detached, silence_s: float) -> None:
        self._loop = loop
        self._detached = detached  # its writer keeps the transport
        self._transport = detached.transport
        self._silence_s = silence_s
        self._data = np.empty(BUFFER_BYTES, np.uint8)
        self._view = memoryview(self._data)  # type: ignore[arg-type]
        self._address = address(self._data)
        self._begin = self._scanned = self._end = 0
        self._heard = self._waiting = False
        self._enough: Callable[[], bool] = bool  # no: nothing is expected yet
        self._gone: Exception | None = None
        self._take(detached.leftover)
        self._transport.set_protocol(self)

    def _take(self, early: bytes) -> None:
        # The login reads replies of a few KB; no more than its reader's limit is left over.
        self._view[: len(early)] = early
        self._end = len(early)

    # -- for the thread that owns the connection ------------------------------------------------------------------

    def send(self, payload: bytes) -> None:
        """Write a command.

        Raises:
            DisconnectedError: the connection has ended.
        """
        if self._gone is not None:
            raise self._gone
        self._transport.write(pack(payload))

    def payload(self, most: int) -> bytes:
        """Wait for the next payload, of `most` bytes at most, and return a copy.

        Raises:
            DisconnectedError: the connection ended, was silent for too long, or was interrupted.
            ProtocolError: the payload is longer, or empty.
        """
        joined = bytearray()
        length = MAX_PIECE
        while length == MAX_PIECE:
            self._wait(self._has_header)
            length = self._length()
            if len(joined) + length > most:
                raise ProtocolError(
                    f"a reply of more than {most} bytes",
                    hint="No MariaDB server says so much here: find out what listens there.",
                )
            self._wait(self._has_packet)
            start = self._begin + PACKET_HEADER_LENGTH
            joined += self._view[start : start + length]
            self._begin = self._scanned = start + length
        if not joined:
            raise ProtocolError("an empty packet where a reply is expected")
        return bytes(joined)

    def rows(self) -> RowStretch | None:
        """Wait for rows; None where the next packet is no row.

        Raises:
            DisconnectedError: the connection ended, was silent for too long, or was interrupted.
            ProtocolError: a row is longer than MAX_ROW_BYTES.
        """
        self._wait(self._has_rows)
        begin = self._begin
        if self._scanned > begin:
            self._begin = self._scanned
            return RowStretch(self._data, begin, self._scanned, joined=False)
        return self._joined() if self._length() == MAX_PIECE else None

    def _joined(self) -> RowStretch | None:
        """Put a row together that was split over packets; None where it is no row."""
        self._wait(self._has_packet)
        if self._view[self._begin + PACKET_HEADER_LENGTH]:
            return None
        row = bytearray()
        length = MAX_PIECE
        while length == MAX_PIECE:
            self._wait(self._has_packet)
            length = self._length()
            if len(row) + length > MAX_ROW_BYTES:
                raise ProtocolError(
                    f"a row of more than {MAX_ROW_BYTES} bytes",
                    hint="No transaction can carry such a row to a replica either: make its values smaller.",
                )
            start = self._begin + PACKET_HEADER_LENGTH
            row += self._view[start : start + length]
            self._begin = self._scanned = start + length
        return RowStretch(np.frombuffer(row, np.uint8), 0, len(row), joined=True)

    def end(self, error: Exception) -> None:
        """End the connection; every later call raises `error`."""
        self._gone = self._gone or error
        self._transport.abort()

    # -- for any thread -------------------------------------------------------------------------------------------

    def interrupt(self, error: Exception) -> None:
        """Let the thread that waits here, or comes to wait, raise `error`. The loop must not be closed yet."""
        self._gone = self._gone or error
        self._loop.call_soon_threadsafe(self._stop)

    # -- what is there ---------------------------------------------------------------------------------------------

    def _length(self) -> int:
        return int.from_bytes(self._view[self._begin : self._begin + 3], "little")

    def _has_header(self) -> bool:
        return self._end - self._begin >= PACKET_HEADER_LENGTH

    def _has_packet(self) -> bool:
        return self._has_header() and self._end - self._begin >= PACKET_HEADER_LENGTH + self._length()

    def _has_rows(self) -> bool:
        """Tell whether a stretch is full, or ends before a packet that is no row or is continued."""
        self._scanned = scanned = whole_rows(self._address, max(self._scanned, self._begin), self._end)
        if scanned - self._begin >= STRETCH_BYTES:
            return True
        if self._end - scanned < PACKET_HEADER_LENGTH:
            return False
        length = int.from_bytes(self._view[scanned : scanned + 3], "little")
        return length == MAX_PIECE or self._end - scanned >= PACKET_HEADER_LENGTH + length

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, enough: Callable[[], bool]) -> None:
        """Let the loop run until there is enough."""
        if enough():
            return
        self._move_to_front()
        self._enough, self._heard = enough, False
        self._alarm = self._loop.call_later(self._silence_s, self._listen)
        try:
            while not enough():
                if self._gone is not None:
                    raise self._gone
                self._transport.resume_reading()
                self._waiting = True
                self._loop.run_forever()
        finally:
            self._waiting = False
            self._alarm.cancel()
            self._transport.pause_reading()

    def _move_to_front(self) -> None:
        begin, count = self._begin, self._end - self._begin
        if begin:
            self._data[:count] = self._data[begin : self._end]
            self._begin, self._scanned, self._end = 0, max(self._scanned - begin, 0), count

    def _listen(self) -> None:
        if self._heard:
            self._heard = False
            self._alarm = self._loop.call_later(self._silence_s, self._listen)
            return
        self.end(
            DisconnectedError(
                f"Nothing came from the server for {self._silence_s:g} s while rows were expected.",
                hint="The server hangs, or a firewall drops connections.",
            )
        )
        self._stop()

    # -- what the transport calls, while the loop runs -------------------------------------------------------------

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._view[self._end : self._end + RECEIVE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._heard = True
        if self._enough():
            # At once: a compressed connection, and TLS, go on giving what they hold.
            self._transport.pause_reading()
            self._stop()

    def eof_received(self) -> bool:
        self._lost(DisconnectedError("The server closed the connection."))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None or isinstance(exc, OSError):
            self._lost(DisconnectedError(f"The connection was lost{f': {exc}' if exc else ''}."))
        else:
            self._lost(exc)

    def _lost(self, error: Exception) -> None:
        self._gone = self._gone or error
        self._stop()

    def _stop(self) -> None:
        if self._waiting:  # else it runs for the sake of its end
            self._loop.stop()
