"""The bytes of a connection with TLS or compression, read through asyncio's transport by a thread that waits.

In: a connection that the login let go of, and the loop that it belongs to. The loop runs only while the thread waits
here, so nothing is read meanwhile, and the server waits.

Refused: silence of more than `silence_s`; damaged frames, with the transport's own error. Thread-safe is `interrupt`
alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from replica.snapshot.connection.packets import closed_by_server, lost, silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.handshake.login.login import Detached

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
