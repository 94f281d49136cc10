"""The packets of a connection whose thread waits for them, out of one large buffer that is used again.

In: a source of bytes. Out: single payloads, and runs of whole rows without any Python per row. Bytes are received only
while the thread waits here, so what was given out is not overwritten before the next call.

Refused: payloads beyond what the caller expects, and rows beyond MAX_ROW_BYTES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from replica.errors import DisconnectedError, ProtocolError
from replica.native.arrays import address
from replica.protocol.packets.packets import MAX_PIECE, PACKET_HEADER_LENGTH, pack
from replica.snapshot.connection.kernel_packets import whole_rows
from replica.snapshot.connection.result_stream import RowStretch

if TYPE_CHECKING:
    from collections.abc import Callable

RECEIVE_BYTES: Final = 1 << 20
"""Asked for at once: more than a socket holds, so that one call takes all of it."""
STRETCH_BYTES: Final = 1 << 20
"""Rows that are given out at once: enough that Python costs nothing per row, and little enough for a core's cache."""
BUFFER_BYTES: Final = STRETCH_BYTES + PACKET_HEADER_LENGTH + MAX_PIECE + RECEIVE_BYTES
"""Room for the largest packet behind a stretch; without such packets most of it is never touched."""
MAX_ROW_BYTES: Final = 1 << 30
"""The bytes of a row: no packet of a client, and no event of a binlog, is larger (max_allowed_packet: 1 GB at most)."""


class ReceivedBytes(Protocol):
    """The bytes of a connection, plain or through a transport (transports.py)."""

    def send(self, data: bytes) -> None:
        """Write bytes; DisconnectedError where the connection has ended."""

    def pump(self, space: Callable[[], memoryview], took: Callable[[int], bool], *, gather: bool) -> None:
        """Receive into `space()` until `took`, which is told how many bytes came, says that it is enough.

        `gather`: much is to come, and may come a moment later.
        """

    def end(self, error: Exception) -> None:
        """End the connection; every later call raises `error`."""

    def interrupt(self, error: Exception) -> None:
        """Let the thread that waits in `pump`, or comes to wait, raise `error`; for any thread."""

    def close(self) -> None:
        """Give everything back."""


class PacketReceiver:
    """The receiving end of one connection. `early` are bytes that had already arrived: a few KB."""

    def __init__(self, source: ReceivedBytes, early: bytes = b"") -> None:
        self.source = source
        self._data = np.empty(BUFFER_BYTES, np.uint8)
        self._view = memoryview(self._data)  # type: ignore[arg-type]
        self._address = address(self._data)
        self._begin = self._scanned = 0
        self._end = len(early)
        self._view[: self._end] = early
        self._enough: Callable[[], bool] = bool  # no: nothing is expected yet

    def send(self, payload: bytes) -> None:
        """Write a command.

        Raises:
            DisconnectedError: the connection has ended.
        """
        self.source.send(pack(payload))

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
            self._wait(self._has_packet, gather=True)
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
        self._wait(self._has_rows, gather=True)
        begin = self._begin
        if self._scanned > begin:
            self._begin = self._scanned
            return RowStretch(self._data, begin, self._scanned, joined=False)
        return self._joined() if self._length() == MAX_PIECE else None

    def _joined(self) -> RowStretch | None:
        """Put a row together that was split over packets; None where it is no row."""
        self._wait(self._has_packet, gather=True)
        if self._view[self._begin + PACKET_HEADER_LENGTH]:
            return None
        row = bytearray()
        length = MAX_PIECE
        while length == MAX_PIECE:
            self._wait(self._has_packet, gather=True)
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

    def _wait(self, enough: Callable[[], bool], *, gather: bool = False) -> None:
        """Receive until there is enough."""
        if enough():
            return
        begin, count = self._begin, self._end - self._begin
        if begin:
            self._data[:count] = self._data[begin : self._end]
            self._begin, self._scanned, self._end = 0, max(self._scanned - begin, 0), count
        self._enough = enough
        self.source.pump(self._space, self._took, gather=gather)

    def _space(self) -> memoryview:
        return self._view[self._end : self._end + RECEIVE_BYTES]

    def _took(self, count: int) -> bool:
        self._end += count
        return self._enough()


def closed_by_server() -> DisconnectedError:
    return DisconnectedError("The server closed the connection.")


def lost(error: Exception | None) -> DisconnectedError:
    return DisconnectedError(f"The connection was lost{f': {error}' if error else ''}.")


def silent(seconds: float) -> DisconnectedError:
    return DisconnectedError(
        f"Nothing came from the server for {seconds:g} s while an answer was expected.",
        hint="The server hangs, or a firewall drops connections.",
    )
