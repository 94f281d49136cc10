"""Byte sources of a blocking connection: `SocketBytes` for plain connections, `TransportBytes` for TLS and compression.

A thread of `SocketBytes` blocks in the socket and receives many bytes per system call. With asyncio, each 16 KB write
of the server costs one turn of the event loop, as much as the bytes themselves. SO_RCVLOWAT and SO_RCVTIMEO let the
kernel gather bytes for a moment, so the thread wakes up a tenth as often. A silence longer than `silence_s` is an
error. Only `interrupt` is thread-safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Final

from replica.snapshot.connection.packets import closed_by_server, lost, silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.handshake.login.login import Detached

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
