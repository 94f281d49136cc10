"""Connections of a table reader to the other end of a socket pair, which says what a test likes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Literal

from replica.errors import DisconnectedError
from replica.handshake.login.driver import unread
from replica.handshake.login.login import Detached
from replica.options.values import Endpoint
from replica.protocol.packets.packets import pack
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.connection.packets import PacketReceiver, ReceivedBytes, SocketBytes, TransportBytes, end_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ENDPOINT = Endpoint("db", 3306)
PATIENCE_S = 60.0
Way = Literal["socket", "transport"]
WAYS: tuple[Way, ...] = ("socket", "transport")


class FarEnd:
    """The other end, which says pieces and then hangs up, if told to: one each turn of a loop, or from a thread."""

    def __init__(self, end: socket.socket, loop: asyncio.AbstractEventLoop | None) -> None:
        self.end = end
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._hang_up = False

    def says(self, *pieces: bytes, hang_up: bool = True) -> None:
        self._pieces, self._hang_up = iter(pieces), hang_up
        if self._loop is not None:
            self._loop.call_soon(self._say, self._loop)
        else:
            self._thread = threading.Thread(target=self._say_all)
            self._thread.start()

    def _say(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._say_one():
            loop.call_soon(self._say, loop)

    def _say_all(self) -> None:
        while self._say_one():
            pass

    def _say_one(self) -> bool:
        piece = next(self._pieces, None)
        if piece is None:
            if self._hang_up:
                self.end.shutdown(socket.SHUT_WR)
            return False
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # we hung up
            self.end.sendall(piece)
        return True

    def heard(self) -> bytes:
        """What has been said to it so far."""
        self.end.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return self.end.recv(1 << 16)
        return b""

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self.end.close()


@contextlib.contextmanager
def received(way: Way, silence_s: float = PATIENCE_S, early: bytes = b"") -> Iterator[tuple[PacketReceiver, FarEnd]]:
    """A receiver of a connection that the login let go of, in one way or the other."""
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    reader, writer = loop.run_until_complete(_opened(ours))
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    assert not unread(reader)
    detached = Detached(transport, early, writer)
    source: ReceivedBytes
    if way == "transport":
        source = TransportBytes(loop, detached, silence_s)
    else:
        source = SocketBytes(detached, silence_s)
        end_loop(loop)
    far = FarEnd(theirs, None if loop.is_closed() else loop)
    try:
        yield PacketReceiver(source, early), far
    finally:
        source.end(DisconnectedError("the test is over"))
        far.close()
        if not loop.is_closed() or way == "socket":
            source.close()


async def _opened(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(sock=end)


@contextlib.contextmanager
def connected(way: Way, *pieces: bytes, hang_up: bool = True) -> Iterator[tuple[TableConnection, FarEnd]]:
    """A connection that is logged in, to which these bytes are said."""
    with received(way) as (receiver, far):
        far.says(*pieces, hang_up=hang_up)
        yield TableConnection(ENDPOINT, receiver, isolation="tx_isolation"), far


def packets(payloads: Iterable[bytes], sequence: int = 1) -> bytes:
    return b"".join(pack(payload, sequence + number) for number, payload in enumerate(payloads))
