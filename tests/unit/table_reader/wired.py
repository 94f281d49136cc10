"""Connections of a table reader to the other end of a socket pair, which says what a test likes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from replica.handshake.driver import unread
from replica.handshake.login import Detached
from replica.option_values import Endpoint
from replica.protocol.packets import pack
from replica.table_reader.connection import TableConnection
from replica.table_reader.receiver import PacketReceiver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ENDPOINT = Endpoint("db", 3306)
PATIENCE_S = 60.0


class FarEnd:
    """The other end: each turn of the loop it says one of the pieces, and then hangs up, if told to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: socket.socket) -> None:
        self.end = end
        self._loop = loop
        self._pieces: Iterator[bytes] = iter(())
        self._hang_up = False

    def says(self, *pieces: bytes, hang_up: bool = True) -> None:
        self._pieces, self._hang_up = iter(pieces), hang_up
        self._loop.call_soon(self._say)

    def _say(self) -> None:
        piece = next(self._pieces, None)
        if piece is not None:
            if piece:
                with contextlib.suppress(BrokenPipeError):  # we hung up
                    self.end.sendall(piece)
            self._loop.call_soon(self._say)
        elif self._hang_up:
            self.end.close()

    def heard(self) -> bytes:
        """What has been said to it so far."""
        self.end.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return self.end.recv(1 << 16)
        return b""


@contextlib.contextmanager
def received(silence_s: float = PATIENCE_S, leftover: bytes = b"") -> Iterator[tuple[PacketReceiver, FarEnd]]:
    """A receiver with a loop of its own."""
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    reader, writer = loop.run_until_complete(_opened(ours))
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    assert not unread(reader)
    receiver = PacketReceiver(loop, Detached(transport, leftover, writer), silence_s)
    try:
        yield receiver, FarEnd(loop, theirs)
    finally:
        if not loop.is_closed():  # a connection closes it with itself
            transport.abort()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
        theirs.close()


async def _opened(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(sock=end)


@contextlib.contextmanager
def connected(*pieces: bytes, hang_up: bool = True) -> Iterator[tuple[TableConnection, FarEnd]]:
    """A connection that is logged in, to which these bytes are said."""
    with received() as (receiver, far):
        connection = TableConnection(receiver._loop, ENDPOINT, receiver, isolation="tx_isolation")
        far.says(*pieces, hang_up=hang_up)
        yield connection, far


def packets(payloads: Iterable[bytes], sequence: int = 1) -> bytes:
    return b"".join(pack(payload, sequence + number) for number, payload in enumerate(payloads))
