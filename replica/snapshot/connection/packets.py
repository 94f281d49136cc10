"""Packets of a blocking connection, received into one large reusable buffer, and the byte sources below.

`PacketReceiver` returns single payloads, or runs of complete rows without any Python work per row. Bytes are received
only while the thread waits here. A returned run therefore stays intact until the next call. Payloads above the caller's
limit and rows above MAX_ROW_BYTES are refused.

The byte sources are `SocketBytes` for plain connections, and `TransportBytes` for TLS and compression. A thread of
`SocketBytes` blocks in the socket and receives many bytes per system call. With asyncio, each 16 KB write of the server
costs one turn of the event loop, as much as the bytes themselves. SO_RCVLOWAT and SO_RCVTIMEO let the kernel gather
bytes for a moment, so the thread wakes up a tenth as often. A silence longer than `silence_s` is an error. Only
`interrupt` is thread-safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from replica.errors import DisconnectedError, ProtocolError
from replica.native.arrays import address
from replica.protocol.packets.packets import MAX_PIECE, PACKET_HEADER_LENGTH, pack
from replica.snapshot.connection.kernel_packets import whole_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from replica.handshake.login.login import Detached
    from replica.protocol.packets.results import ResultColumn


class RowStretch(NamedTuple):
    """Run of rows of a binary protocol result, as received.

    If `joined` is False, `data[start:end]` holds whole packets: per row a header of 4 bytes and the payload. If
    `joined` is True, it holds the payload of exactly one row that was longer than a packet, without headers. The
    receiver owns the memory and reuses it for the next run.
    """

    data: npt.NDArray[np.uint8]
    start: int
    end: int
    joined: bool


class ResultStream:
    """Result of one statement; `stretches` yields its rows once.

    Args:
        columns: Column definitions from the server.
        take: Returns the next run of rows, or None at the end; raises the error that ends the result.
    """

    def __init__(self, columns: tuple[ResultColumn, ...], take: Callable[[], RowStretch | None]) -> None:
        self.columns = columns
        self._take = take

    def stretches(self) -> Iterator[RowStretch]:
        """Yield runs of rows until the end of the result; each run is valid until the next one.

        The caller must read the result to its end, or else the connection becomes unusable.

        Raises:
            ServerError: The statement failed midway; the connection accepts the next statement.
            DisconnectedError: The connection ended, or another thread closed it.
            ProtocolError: The received data is no row.
        """
        while (stretch := self._take()) is not None:
            yield stretch


RECEIVE_BYTES: Final = 1 << 20
"""Bytes to request per receive: more than a socket buffer holds, so that one call empties it."""
STRETCH_BYTES: Final = 1 << 20
"""Bytes of rows to return at once: enough to make Python's cost per row negligible, and small enough for a core's
cache.
"""
BUFFER_BYTES: Final = STRETCH_BYTES + PACKET_HEADER_LENGTH + MAX_PIECE + RECEIVE_BYTES
"""Buffer size: a run of rows, the largest packet after it and one receive. Without large packets most of it stays
untouched.
"""
MAX_ROW_BYTES: Final = 1 << 30
"""Maximum bytes of a row. No client packet and no binlog event is larger, because max_allowed_packet is at most 1
GB.
"""


class ReceivedBytes(Protocol):
    """Byte source of a connection, plain or through a transport (`SocketBytes`, `TransportBytes`)."""

    def send(self, data: bytes) -> None:
        """Write bytes; raise DisconnectedError if the connection has ended."""

    def pump(self, space: Callable[[], memoryview], took: Callable[[int], bool], *, gather: bool) -> None:
        """Receive into `space()` until `took`, called with the number of received bytes, returns True.

        `gather` means that many bytes are expected and that a short delay is acceptable.
        """

    def end(self, error: Exception) -> None:
        """End the connection; every later call raises `error`."""

    def interrupt(self, error: Exception) -> None:
        """Raise `error` in the thread that waits in `pump` or enters it; callable from any thread."""

    def close(self) -> None:
        """Release all resources."""


class PacketReceiver:
    """Receiving side of one connection. `early`: bytes received before the receiver was created, a few KB."""

    def __init__(self, source: ReceivedBytes, early: bytes = b"") -> None:
        self.source = source
        self._data = np.empty(BUFFER_BYTES, np.uint8)
        self._view = memoryview(self._data)  # type: ignore[arg-type]
        self._address = address(self._data)
        self._begin = self._scanned = 0
        self._end = len(early)
        self._view[: self._end] = early
        self._enough: Callable[[], bool] = bool  # bool() is False: nothing is expected yet

    def send(self, payload: bytes) -> None:
        """Write a command.

        Raises:
            DisconnectedError: The connection has ended.
        """
        self.source.send(pack(payload))

    def payload(self, most: int) -> bytes:
        """Wait for the next payload, of at most `most` bytes, and return a copy.

        Raises:
            DisconnectedError: The connection ended, was silent for too long, or was interrupted.
            ProtocolError: The payload is longer, or empty.
        """
        joined = bytearray()
        length = MAX_PIECE
        while length == MAX_PIECE:
            self._wait(self._has_header)
            length = self._length()
            if len(joined) + length > most:
                raise ProtocolError(
                    f"a reply of more than {most} bytes",
                    hint="A MariaDB server does not send such a reply. Check which program listens on that port.",
                )
            self._wait(self._has_packet, gather=True)
            start = self._begin + PACKET_HEADER_LENGTH
            joined += self._view[start : start + length]
            self._begin = self._scanned = start + length
        if not joined:
            raise ProtocolError("an empty packet where a reply is expected")
        return bytes(joined)

    def rows(self) -> RowStretch | None:
        """Wait for rows; return None if the next packet is no row.

        Raises:
            DisconnectedError: The connection ended, was silent for too long, or was interrupted.
            ProtocolError: A row is longer than MAX_ROW_BYTES.
        """
        self._wait(self._has_rows, gather=True)
        begin = self._begin
        if self._scanned > begin:
            self._begin = self._scanned
            return RowStretch(self._data, begin, self._scanned, joined=False)
        return self._joined() if self._length() == MAX_PIECE else None

    def _joined(self) -> RowStretch | None:
        """Join a row that is split over several packets; return None if the packets are no row."""
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
                    hint="Make its values smaller: no transaction can replicate such a row.",
                )
            start = self._begin + PACKET_HEADER_LENGTH
            row += self._view[start : start + length]
            self._begin = self._scanned = start + length
        return RowStretch(np.frombuffer(row, np.uint8), 0, len(row), joined=True)

    # -- buffer contents -------------------------------------------------------------------------------------------

    def _length(self) -> int:
        return int.from_bytes(self._view[self._begin : self._begin + 3], "little")

    def _has_header(self) -> bool:
        return self._end - self._begin >= PACKET_HEADER_LENGTH

    def _has_packet(self) -> bool:
        return self._has_header() and self._end - self._begin >= PACKET_HEADER_LENGTH + self._length()

    def _has_rows(self) -> bool:
        """Return True if a run is full, or ends before a packet that is no row or is continued."""
        self._scanned = scanned = whole_rows(self._address, max(self._scanned, self._begin), self._end)
        if scanned - self._begin >= STRETCH_BYTES:
            return True
        if self._end - scanned < PACKET_HEADER_LENGTH:
            return False
        length = int.from_bytes(self._view[scanned : scanned + 3], "little")
        return length == MAX_PIECE or self._end - scanned >= PACKET_HEADER_LENGTH + length

    def _wait(self, enough: Callable[[], bool], *, gather: bool = False) -> None:
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
    """Return the error for a connection that the server has closed."""
    return DisconnectedError("The server closed the connection.")


def lost(error: Exception | None) -> DisconnectedError:
    """Return the error for a connection that failed; `error` is the cause, if known."""
    return DisconnectedError(f"The connection was lost{f': {error}' if error else ''}.")


def silent(seconds: float) -> DisconnectedError:
    """Return the error for a server that sent nothing for `seconds` seconds."""
    return DisconnectedError(
        f"The server sent nothing for {seconds:g} s while an answer was expected.",
        hint="Check whether the server hangs, or a firewall drops connections.",
    )


GATHERED_BYTES: Final = 256 << 10
"""Bytes that wake the thread: half a millisecond of rows from a fast server."""
GATHERING_S: Final = 0.002
"""Maximum time in seconds for which the kernel gathers bytes, and by which the end of a result may be late."""
_TIME: Final = struct.Struct("@ll")  # struct timeval


class SocketBytes:
    """Byte source of a plain connection."""

    def __init__(self, detached: Detached, silence_s: float) -> None:
        end = detached.transport.get_extra_info("socket")
        self._socket = socket.socket(fileno=os.dup(end.fileno()))
        self._socket.setblocking(True)
        self._set_time(socket.SO_SNDTIMEO, silence_s)
        self._silence_s = silence_s
        self._gathering: bool | None = None
        self._ended_by: Exception | None = None
        detached.transport.abort()  # closes the transport's own descriptor and not the connection

    def send(self, data: bytes) -> None:
        self._refuse_if_ended()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._ended_by or lost(error) from None

    def pump(self, space: Callable[[], memoryview], took: Callable[[int], bool], *, gather: bool) -> None:
        """Receive into `space()` until `took`, called with the number of received bytes, returns True.

        Raises:
            DisconnectedError: The connection ended, was silent for too long, or was interrupted.
        """
        self._refuse_if_ended()
        if gather != self._gathering:
            self._gathering = gather
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, GATHERED_BYTES if gather else 1)
            self._set_time(socket.SO_RCVTIMEO, GATHERING_S if gather else self._silence_s)
        heard_s = time.monotonic()
        enough = False
        while not enough:
            count = self._receive(space(), heard_s)
            if count:
                heard_s = time.monotonic()
                enough = took(count)

    def _receive(self, space: memoryview, heard_s: float) -> int:
        """Receive once; return 0 if nothing arrives within the kernel's timeout."""
        try:
            count = self._socket.recv_into(space)
        except BlockingIOError:
            self._refuse_if_ended()
            if time.monotonic() - heard_s < self._silence_s:
                return 0
            error = silent(self._silence_s)
            self.end(error)
            raise error from None
        except OSError as error:
            raise self._ended_by or lost(error) from None
        if not count:
            raise self._ended_by or closed_by_server()
        return count

    def end(self, error: Exception) -> None:
        """End the connection; every later call raises `error`."""
        self._ended_by = self._ended_by or error
        with contextlib.suppress(OSError):  # the connection has already ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def interrupt(self, error: Exception) -> None:
        """Raise `error` in the thread that waits here or starts to wait."""
        self.end(error)

    def close(self) -> None:
        """Close the socket; no other method may be called afterwards."""
        self._socket.close()

    def _refuse_if_ended(self) -> None:
        if self._ended_by is not None:
            raise self._ended_by

    def _set_time(self, option: int, seconds: float) -> None:
        micros = round(seconds * 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, option, _TIME.pack(micros // 1_000_000, micros % 1_000_000))


# TransportBytes reads a connection with TLS or compression through the asyncio transport of the login. Its event loop
# runs only while the thread waits for bytes. At other times nothing is received, and the server waits. A damaged frame
# raises the transport's own error.

_TURNS: Final = 3  # turns of the loop until a transport's end has passed through TLS and frames


class TransportBytes(asyncio.BufferedProtocol):
    """Byte source of a connection over a transport, and the transport's protocol."""

    def __init__(self, loop: asyncio.AbstractEventLoop, detached: Detached, silence_s: float) -> None:
        self._loop = loop
        self._detached = detached  # its writer keeps the transport
        self._transport = detached.transport
        self._silence_s = silence_s
        self._heard = self._waiting = self._enough = False
        self._ended_by: Exception | None = None
        self._space: Callable[[], memoryview]
        self._took: Callable[[int], bool]
        self._transport.set_protocol(self)

    def send(self, data: bytes) -> None:
        if self._ended_by is not None:
            raise self._ended_by
        self._transport.write(data)

    def pump(self, space: Callable[[], memoryview], took: Callable[[int], bool], *, gather: bool) -> None:  # noqa: ARG002
        """Receive into `space()` until `took`, called with the number of received bytes, returns True.

        Raises:
            DisconnectedError: The connection ended, was silent for too long, or was interrupted.
        """
        self._space, self._took = space, took
        self._enough = self._heard = False
        self._alarm = self._loop.call_later(self._silence_s, self._listen)
        try:
            while not self._enough:
                if self._ended_by is not None:
                    raise self._ended_by
                self._transport.resume_reading()
                self._waiting = True
                self._loop.run_forever()
        finally:
            self._waiting = False
            self._alarm.cancel()
            self._transport.pause_reading()

    def end(self, error: Exception) -> None:
        """End the connection; every later call raises `error`."""
        self._ended_by = self._ended_by or error
        self._transport.abort()

    def interrupt(self, error: Exception) -> None:
        """Raise `error` in the thread that waits here or starts to wait; not callable after `close`."""
        self._ended_by = self._ended_by or error
        self._loop.call_soon_threadsafe(self._stop)

    def close(self) -> None:
        """Close the transport and the loop; no other method may be called afterwards."""
        self._transport.abort()
        end_loop(self._loop)

    def _listen(self) -> None:
        if self._heard:
            self._heard = False
            self._alarm = self._loop.call_later(self._silence_s, self._listen)
            return
        self.end(silent(self._silence_s))
        self._stop()

    def _stop(self) -> None:
        if self._waiting:  # otherwise the loop runs to end the transport
            self._loop.stop()

    # -- called by the transport while the loop runs ---------------------------------------------------------------

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._space()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self._took(nbytes):
            self._enough = True
            # Pause at once: frames and TLS would otherwise deliver their buffered bytes.
            self._transport.pause_reading()
            self._stop()

    def eof_received(self) -> bool:
        self._lose(closed_by_server())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(lost(exc) if exc is None or isinstance(exc, OSError) else exc)

    def _lose(self, error: Exception) -> None:
        self._ended_by = self._ended_by or error
        self._stop()


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop after its transports were closed or aborted."""
    for _ in range(_TURNS):
        loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
