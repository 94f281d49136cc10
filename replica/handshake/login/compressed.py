"""Compressed connection: an asyncio.Transport over another one, with frames in between.

In: the transport of a connection, plain or TLS, whose two sides have just agreed on CLIENT_COMPRESS. Out: the same
interface, so that driver and session need not know of frames. Every `write` becomes frames in a single write of the
transport below, because a semi-synchronous primary depends on that. The protocol above may pause reading at any byte.
This transport then holds back the inflated bytes and the end of the connection.

Refused: damaged frames. The protocol above then loses its connection with the ChecksumError.

Source: see protocol/packets/compressed.py. An acknowledgement outside of a frame is lost (measured on 10.11 and 11.8).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from replica.errors import ChecksumError
from replica.handshake.login.driver import unread
from replica.protocol.packets.compressed import READ_BYTES, FrameReader, frames

if TYPE_CHECKING:
    from asyncio import BaseProtocol, StreamReader, StreamWriter

    from replica.protocol.wire import Buffer


class CompressedTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """Transport for the protocol above, and protocol for the transport below.

    It keeps a reference to `writer`, because a StreamWriter closes its transport when it is collected.
    """

    def __init__(self, writer: StreamWriter, protocol: BaseProtocol) -> None:
        super().__init__()
        self._writer = writer
        self._transport: asyncio.Transport = writer.transport  # type: ignore[assignment]
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._piece = memoryview(bytearray(0))
        self._paused = False
        self._aborted = False
        self._eof = False
        self._lost = False
        self._reason: Exception | None = None
        self._end_reported = False
        self._transport.set_protocol(self)

    # -- the transport, seen from above --------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if len(data):
            self._transport.write(frames(data))

    def pause_reading(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            # Not at once: the caller may be in the middle of processing earlier data.
            self._loop.call_soon(self._go_on)

    def is_reading(self) -> bool:
        return not self._paused

    def set_protocol(self, protocol: BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._aborted = True
        self._transport.close()

    def abort(self) -> None:
        self._aborted = True
        self._transport.abort()

    def can_write_eof(self) -> bool:
        return False  # as with TLS: no one half-closes this protocol

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    @property
    def wire_bytes(self) -> int:
        """Number of compressed bytes received from the network."""
        return self._reader.wire_bytes

    # -- the protocol, seen from below ---------------------------------------------------------------------------

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.received(nbytes)
        self._deliver()

    def eof_received(self) -> bool:
        self._eof = True
        self._deliver()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost, self._reason = True, self._reason or exc
        self._deliver()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # -- from below to above -------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if not self._paused:
            self._deliver()
        if not self._paused and not self._lost:
            self._transport.resume_reading()

    def _deliver(self) -> None:
        """Pass complete data up while the protocol above reads, then the end of the connection if it was received."""
        try:
            while not self._paused and not self._aborted and self._pass_on():
                pass
        except ChecksumError as error:
            self._reason = error
            self._aborted = True
            self._transport.abort()
        if (self._paused and not self._aborted) or self._end_reported:
            return
        if self._eof and not self._aborted:
            self._eof = False
            if isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol):
                self._protocol.eof_received()
        if self._lost:
            self._end_reported = True
            self._protocol.connection_lost(self._reason)

    def _pass_on(self) -> int:
        """Pass one piece up and return its size in bytes, 0 if there is none."""
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            count = self._reader.read_into(memoryview(protocol.get_buffer(-1)))
            if count:
                protocol.buffer_updated(count)
            return count
        if not self._piece:
            self._piece = memoryview(bytearray(READ_BYTES))
        count = self._reader.read_into(self._piece)
        if count and isinstance(protocol, asyncio.Protocol):
            protocol.data_received(bytes(self._piece[:count]))
        return count


def compress(reader: StreamReader, writer: StreamWriter) -> tuple[StreamReader, StreamWriter]:
    """Switch a connection to compression. The old reader and writer must not be used any more."""
    loop = asyncio.get_running_loop()
    above = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(above, loop=loop)
    transport = CompressedTransport(writer, protocol)
    protocol.connection_made(transport)
    early = unread(reader)
    while early:
        space = transport.get_buffer(-1)
        piece, early = early[: len(space)], early[len(space) :]
        space[: len(piece)] = piece
        transport.buffer_updated(len(piece))
    return above, asyncio.StreamWriter(transport, protocol, above, loop)
