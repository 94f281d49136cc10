"""Transports of a connection that reads tables: `SocketBytes` without TLS and compression, `TransportBytes` with them.

A thread of `SocketBytes` blocks in the socket, and one system call brings much. asyncio would cost as much as the bytes
do: servers write 16 KB at a time, and each is a turn of its loop. Here the kernel gathers them (SO_RCVLOWAT) for a
moment (SO_RCVTIMEO), so that the thread wakes up a tenth as often.

Refused: silence of more than `silence_s`. Thread-safe is `interrupt` alone.
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
"""The bytes that a thread is woken for: half a millisecond of a fast server's rows."""
GATHERING_S: Final = 0.002
"""How long the kernel waits for so many: the most that the end of a result comes late."""
_TIME: Final = struct.Struct("@ll")  # struct timeval


class SocketBytes:
    """The byte source of one plain connection."""

    def __init__(self, detached: Detached, silence_s: float) -> None:
        end = detached.transport.get_extra_info("socket")
        self._socket = socket.socket(fileno=os.dup(end.fileno()))
        self._socket.setblocking(True)
        self._set_time(socket.SO_SNDTIMEO, silence_s)
        self._silence_s = silence_s
        self._gathering: bool | None = None
        self._gone: Exception | None = None
        detached.transport.abort()  # its own descriptor, not the connection

    def send(self, data: bytes) -> None:
        self._refuse_if_gone()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._gone or lost(error) from None

    def pump(self, space: Callable[[], memoryview], took: Callable[[int], bool], *, gather: bool) -> None:
        """Receive into `space()` until `took`, which is told how many bytes came, says that it is enough.

        Raises:
            DisconnectedError: the connection ended, was silent for too long, or was interrupted.
        """
        self._refuse_if_gone()
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
        """Receive once; 0 where nothing came in the time that the kernel was given."""
        try:
            count = self._socket.recv_into(space)
        except BlockingIOError:
            self._refuse_if_gone()
            if time.monotonic() - heard_s < self._silence_s:
                return 0
            error = silent(self._silence_s)
            self.end(error)
            raise error from None
        except OSError as error:
            raise self._gone or lost(error) from None
        if not count:
            raise self._gone or closed_by_server()
        return count

    def end(self, error: Exception) -> None:
        """End the connection; every later call raises `error`."""
        self._gone = self._gone or error
        with contextlib.suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def interrupt(self, error: Exception) -> None:
        """Let the thread that waits here, or comes to wait, raise `error`."""
        self.end(error)

    def close(self) -> None:
        """Give the socket back; nothing else is called afterwards."""
        self._socket.close()

    def _refuse_if_gone(self) -> None:
        if self._gone is not None:
            raise self._gone

    def _set_time(self, option: int, seconds: float) -> None:
        micros = round(seconds * 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, option, _TIME.pack(micros // 1_000_000, micros % 1_000_000))


# The bytes of a connection with TLS or compression, read through asyncio's transport by a thread that waits.
#
# In: a connection that the login let go of, and the loop that it belongs to. The loop runs only while the thread
# waits here, so nothing is read meanwhile, and the server waits.
#
# Refused: silence of more than `silence_s`; damaged frames, with the transport's own error. Thread-safe is
# `interrupt` alone.

_TURNS: Final = 3  # of the loop until the end of a transport has gone through TLS and frames


class TransportBytes(asyncio.BufferedProtocol):
    """The byte source of one connection over a transport, and the transport's protocol."""

    def __init__(self, loop: asyncio.AbstractEventLoop, detached: Detached, silence_s: float) -> None:
        self._loop = loop
        self._detached = detached  # its writer keeps the transport
        self._transport = detached.transport
        self._silence_s = silence_s
        self._heard = self._waiting = self._enough = False
        self._gone: Exception | None = None
        self._space: Callable[[], memoryview]
        self._took: Callable[[int], bool]
        self._transport.set_protocol(self)

    def send(self, data: bytes) -> None:
        if self._gone is not None:
            raise self._gone
        self._transport.write(data)

    def pump(self, space: Callable[[], memoryview], took: Callable[[int], bool], *, gather: bool) -> None:  # noqa: ARG002
        """Receive into `space()` until `took`, which is told how many bytes came, says that it is enough.

        Raises:
            DisconnectedError: the connection ended, was silent for too long, or was interrupted.
        """
        self._space, self._took = space, took
        self._enough = self._heard = False
        self._alarm = self._loop.call_later(self._silence_s, self._listen)
        try:
            while not self._enough:
                if self._gone is not None:
                    raise self._gone
                self._transport.resume_reading()
                self._waiting = True
                self._loop.run_forever()
        finally:
            self._waiting = False
            self._alarm.cancel()
            self._transport.pause_reading()

    def end(self, error: Exception) -> None:
        """End the connection; every later call raises `error`."""
        self._gone = self._gone or error
        self._transport.abort()

    def interrupt(self, error: Exception) -> None:
        """Let the thread that waits here, or comes to wait, raise `error`. Not after `close`."""
        self._gone = self._gone or error
        self._loop.call_soon_threadsafe(self._stop)

    def close(self) -> None:
        """Give transport and loop back; nothing else is called afterwards."""
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
        if self._waiting:  # else it runs for the sake of its end
            self._loop.stop()

    # -- what the transport calls, while the loop runs -------------------------------------------------------------

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._space()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self._took(nbytes):
            self._enough = True
            # At once: frames and TLS go on giving what they hold.
            self._transport.pause_reading()
            self._stop()

    def eof_received(self) -> bool:
        self._lose(closed_by_server())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(lost(exc) if exc is None or isinstance(exc, OSError) else exc)

    def _lose(self, error: Exception) -> None:
        self._gone = self._gone or error
        self._stop()


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop whose transports have been told to end."""
    for _ in range(_TURNS):
        loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
