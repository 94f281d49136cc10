"""Frames of a compressed connection (CLIENT_COMPRESS): from frames to the bytes inside, and back.

A frame is `clen(3) sequence(1) ulen(3) data[clen]`. A `ulen` of zero means that the data is not deflated. Packets and
frames are independent: one frame may hold many packets, and one packet may span many frames. Sequence ids are not
checked, because the server restarts them when it waits for an acknowledgement. Each deflated frame has its own
checksum.

Source: the server's sql/net_serv.cc (net_write_packet, my_real_read) and mysys/my_compress.c, 10.11. The layout of
packets in frames and the restart of the ids were measured on 10.11 and 11.8.

Refused as damage: an empty frame, a size that the deflate stream cannot reach, a stream that does not inflate to its
size. Memory is bounded by one frame of 16 MiB, its inflated bytes, and one read beyond the frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import ChecksumError, ProtocolError
from replica.protocol.compression import inflate_stream

if TYPE_CHECKING:
    from replica.protocol.wire import Buffer

FRAME_HEADER_LENGTH: Final = 7
MAX_FRAME: Final = 0xFFFFFF
"""Maximum of both lengths in bytes, which have three bytes each."""
READ_BYTES: Final = 256 << 10
"""Buffer size in bytes for one read: about what a socket holds, and a few frames of the server's 16 KiB net buffer."""


def frames(data: Buffer) -> bytes:
    """Wrap data in frames that begin a new sequence.

    The frames are not deflated, because a replica sends little data.
    """
    view = memoryview(data)
    pieces: list[Buffer] = []
    for number, start in enumerate(range(0, len(view), MAX_FRAME)):
        piece = view[start : start + MAX_FRAME]
        pieces += [len(piece).to_bytes(3, "little"), bytes((number & 0xFF, 0, 0, 0)), piece]
    return b"".join(pieces)


class FrameReader:
    """Reader of frames.

    Write received bytes to `space()`, report their number to `received()`, and call `read_into()` for the data inside
    the frames.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(READ_BYTES)
        self._start = 0  # offset of the first frame that is not inflated yet
        self._fill = 0
        self._inside = memoryview(b"")  # unread rest of the last frame
        self.wire_bytes = 0

    def space(self) -> memoryview:
        """Return the free part of the buffer for the next read. It is never empty, and valid until the next call."""
        buffered = self._fill - self._start
        if self._start:
            self._buffer[:buffered] = self._buffer[self._start : self._fill]
            self._start, self._fill = 0, buffered
        wanted = max(self._frame_length(), buffered + READ_BYTES // 4)
        if wanted > len(self._buffer):
            larger = bytearray(wanted)
            larger[:buffered] = self._buffer[:buffered]
            self._buffer = larger
        return memoryview(self._buffer)[buffered:]

    def received(self, count: int) -> None:
        self._fill += count
        self.wire_bytes += count

    def read_into(self, target: memoryview) -> int:
        """Copy data of whole frames to `target`; return the number of bytes, 0 if no whole frame is available.

        Raises:
            ChecksumError: the next frame is damaged. The data that was read before it is valid.
        """
        done = 0
        while done < len(target):
            try:
                if not self._inside and not self._next_frame():
                    break
            except ChecksumError:
                if done:
                    break  # the next call meets the damaged frame again; the data before it is valid
                raise
            piece = self._inside[: len(target) - done]
            target[done : done + len(piece)] = piece
            self._inside = self._inside[len(piece) :]
            done += len(piece)
        return done

    def _frame_length(self) -> int:
        """Return the length of the first frame in bytes, including its header.

        While the header is incomplete, return the length of the header.
        """
        if self._fill - self._start < FRAME_HEADER_LENGTH:
            return FRAME_HEADER_LENGTH
        return FRAME_HEADER_LENGTH + int.from_bytes(self._buffer[self._start : self._start + 3], "little")

    def _next_frame(self) -> bool:
        """Open the next frame; return False if it is incomplete."""
        start, buffered, length = self._start, self._fill - self._start, self._frame_length()
        if buffered < length:
            return False
        if length == FRAME_HEADER_LENGTH:
            raise ChecksumError("a frame of the compressed connection is empty, which no server sends")
        size = int.from_bytes(self._buffer[start + 4 : start + FRAME_HEADER_LENGTH], "little")
        data = memoryview(self._buffer)[start + FRAME_HEADER_LENGTH : start + length]
        try:
            # A stored frame is copied too, because the next read may overwrite its place before all of it is consumed.
            self._inside = memoryview(inflate_stream(data, size) if size else bytes(data))
        except ProtocolError as error:
            raise ChecksumError(f"a frame of the compressed connection was damaged: {error.placeless}") from None
        self._start += length
        return True
