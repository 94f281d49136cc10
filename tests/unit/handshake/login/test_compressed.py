"""The compressed transport over a real socket: order, one write a message, a protocol that stops reading, the end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import zlib
from typing import TYPE_CHECKING

import pytest

from replica.errors import ChecksumError
from replica.handshake.login.compressed import CompressedTransport, compress
from replica.protocol.packets.compressed import frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def deflated(data: bytes) -> bytes:
    packed = zlib.compress(data)
    return len(packed).to_bytes(3, "little") + b"\0" + len(data).to_bytes(3, "little") + packed


class Taker(asyncio.BufferedProtocol):
    """Takes what comes in pieces of its own size, and may stop in the middle of a delivery."""

    def __init__(self, size: int = 1000) -> None:
        self.buffer = bytearray(size)
        self.taken = bytearray()
        self.stop_at = -1
        self.transport: asyncio.Transport | None = None
        self.ends: list[object] = []
        self.ended = asyncio.Event()

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.taken += self.buffer[:nbytes]
        if self.transport is not None and 0 <= self.stop_at <= len(self.taken):
            self.stop_at = -1
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ends.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)
        self.ended.set()


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter, socket.socket]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Our compressed end, and the socket of the other one."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(60)
    reader, writer = compress(*await asyncio.open_connection(sock=ours))
    yield reader, writer, theirs
    writer.transport.abort()
    theirs.close()


def switched(pair: Pair, taker: Taker) -> CompressedTransport:
    transport = pair[1].transport
    assert isinstance(transport, CompressedTransport)
    transport.pause_reading()
    transport.set_protocol(taker)
    taker.transport = transport
    return transport


async def until(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110  (sockets tell nobody)
            await asyncio.sleep(0.001)


async def send(theirs: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().run_in_executor(None, theirs.sendall, data)


async def test_streams_read_what_was_deflated(pair: Pair) -> None:
    reader, _, theirs = pair
    content = bytes(range(256)) * 4000
    sending = asyncio.create_task(send(theirs, deflated(content) + frames(b"tail")))
    assert await reader.readexactly(len(content) + 4) == content + b"tail"
    await sending


async def test_a_message_goes_out_in_one_write(pair: Pair) -> None:
    _, writer, theirs = pair
    writer.write(b"\x05\0\0\0hello")
    writer.write(b"")
    await writer.drain()
    assert theirs.recv(100) == b"\x09\0\0\0\0\0\0\x05\0\0\0hello"


async def test_bytes_that_came_before_the_switch_are_frames_too() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    await send(theirs, deflated(b"early" * 100)[:9])
    await until(lambda: reader._buffer)  # type: ignore[attr-defined]
    reader, writer = compress(reader, writer)
    await send(theirs, deflated(b"early" * 100)[9:])
    assert await reader.readexactly(500) == b"early" * 100
    writer.transport.abort()
    theirs.close()


async def test_a_protocol_that_pauses_gets_nothing_until_it_goes_on(pair: Pair) -> None:
    content = bytes(range(256)) * 2000
    taker = Taker()
    transport = switched(pair, taker)
    taker.stop_at = 3000
    transport.resume_reading()
    await send(pair[2], deflated(content))
    await until(lambda: len(taker.taken) >= 3000)
    assert not transport.is_reading()
    await asyncio.sleep(0.02)
    assert len(taker.taken) == 3000, "the rest of the frame waits"
    transport.resume_reading()
    await until(lambda: len(taker.taken) == len(content))
    assert bytes(taker.taken) == content


async def test_the_end_comes_after_what_came_before_it(pair: Pair) -> None:
    taker = Taker()
    transport = switched(pair, taker)
    taker.stop_at = 1000
    transport.resume_reading()
    await send(pair[2], deflated(b"x" * 5000))
    await until(lambda: len(taker.taken) == 1000)
    # Below, TLS reports an end even to those who do not read.
    transport.eof_received()
    transport.connection_lost(None)
    await asyncio.sleep(0.01)
    assert taker.ends == []
    transport.resume_reading()
    await asyncio.wait_for(taker.ended.wait(), 60)
    assert len(taker.taken) == 5000
    assert taker.ends == ["eof", None]


async def test_a_closed_connection_is_reported_once(pair: Pair) -> None:
    taker = Taker()
    switched(pair, taker).resume_reading()
    pair[2].shutdown(socket.SHUT_WR)
    await asyncio.wait_for(taker.ended.wait(), 60)
    await asyncio.sleep(0.01)
    assert taker.ends == ["eof", None]


async def test_an_abort_while_paused_ends_at_once(pair: Pair) -> None:
    taker = Taker()
    transport = switched(pair, taker)
    taker.stop_at = 1000
    transport.resume_reading()
    await send(pair[2], deflated(b"x" * 5000))
    await until(lambda: len(taker.taken) == 1000)
    transport.abort()
    await asyncio.wait_for(taker.ended.wait(), 60)
    assert len(taker.taken) == 1000
    assert transport.is_closing()


async def test_damage_ends_the_connection_with_its_reason(pair: Pair) -> None:
    reader, _, theirs = pair
    await send(theirs, deflated(b"good"))
    assert await reader.readexactly(4) == b"good"
    await send(theirs, b"\x03\0\0\0\x05\0\0abc")
    with pytest.raises(ChecksumError, match="inflated"):
        await reader.readexactly(1)
    with contextlib.suppress(ConnectionError):
        assert theirs.recv(1) == b""


async def test_what_the_transport_below_knows_is_passed_on(pair: Pair) -> None:
    _, writer, theirs = pair
    transport = writer.transport
    assert transport.get_extra_info("socket") is not None
    assert transport.get_extra_info("ssl_object") is None
    assert not transport.can_write_eof()
    assert transport.get_write_buffer_size() == 0
    await send(theirs, deflated(b"abc"))
    assert isinstance(transport, CompressedTransport)
    await until(lambda: transport.wire_bytes == len(deflated(b"abc")))
    transport.close()
    assert transport.is_closing()
