"""The frames of a compressed connection (CLIENT_COMPRESS): bytes of frames to the bytes inside, and back.

A frame is `clen(3) sequence(1) ulen(3) data[clen]`; a `ulen` of zero means that the data is stored as it is. Packets
and frames have nothing to do with each other: one frame holds many packets, or a packet goes over many frames. Sequence
ids are not checked, because the server starts them again where it waits for an acknowledgement; each deflated frame has
its own checksum.

Source: the server's sql/net_serv.cc (net_write_packet, my_real_read) and mysys/my_compress.c, 10.11; how packets lie in
frames, and that the ids start again, was measured on 10.11 and 11.8.

Refused as damage: an empty frame, a size that no deflate stream of that length reaches, a stream that does not inflate
to its size. What is held at most is one frame of 16 MiB, what it inflates to, and one read beyond it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import ChecksumError, ProtocolError
from replica.protocol.compression import inflate_stream

if TYPE_CHECKING:
    from replica.protocol.wire import Buffer

FRAME_HEADER_LENGTH: Final = 7
MAX_FRAME: Final = 0xFFFFFF
"""The most that both lengths can say: they have three bytes."""
READ_BYTES: Final = 256 << 10
"""Room for a read: about what a socket holds, and a few frames of the server's 16 KiB net buffer."""


def frames(data: Buffer) -> bytes:
    """Wrap the data in frames that begin a new sequence. They are stored, not deflated: what a replica says is short
    and rare.
    """
    view = memoryview(data)
    pieces: list[Buffer] = []
    for number, start in enumerate(range(0, len(view), MAX_FRAME)):
        piece = view[start : start + MAX_FRAME]
        pieces += [len(piece).to_bytes(3, "little"), bytes((number & 0xFF, 0, 0, 0)), piece]
    return b"".join(pieces)


class FrameReader:
    """A reader of frames: bytes are put into `space()` and reported to `received()`; `read_into()` gives what was
    inside the frames.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(READ_BYTES)
        self._start = 0  # of the first frame not yet inflated
        self._fill = 0
        self._inside = memoryview(b"")  # of the last frame, as far as it was not read
        self.wire_bytes = 0

    def space(self) -> memoryview:
        """Return the room for the next bytes; never empty."""
        held = self._fill - self._start
        if self._start:
            self._buffer[:held] = self._buffer[self._start : self._fill]
            self._start, self._fill = 0, held
        wanted = max(self._frame_length(), held + READ_BYTES // 4)
        if wanted > len(self._buffer):
            larger = bytearray(wanted)
            larger[:held] = self._buffer[:held]
            self._buffer = larger
        return memoryview(self._buffer)[held:]

    def received(self, count: int) -> None:
        self._fill += count
        self.wire_bytes += count

    def read_into(self, target: memoryview) -> int:
        """Fill `target` as far as whole frames go; return the count, 0 if there are none.

        Raises:
            ChecksumError: the next frame was damaged on the way; what was read before it is good.
        """
        done = 0
        while done < len(target):
            try:
                if not self._inside and not self._next_frame():
                    break
            except ChecksumError:
                if done:
                    break  # it will be met again; what stands before it counts
                raise
            piece = self._inside[: len(target) - done]
            target[done : done + len(piece)] = piece
            self._inside = self._inside[len(piece) :]
            done += len(piece)
        return done

    def _frame_length(self) -> int:
        """Return the length of the frame whose header is at the start, header included; the header's own until all of
        it is there.
        """
        if self._fill - self._start < FRAME_HEADER_LENGTH:
            return FRAME_HEADER_LENGTH
        return FRAME_HEADER_LENGTH + int.from_bytes(self._buffer[self._start : self._start + 3], "little")

    def _next_frame(self) -> bool:
        """Look into the next frame, if it is complete."""
        start, held, length = self._start, self._fill - self._start, self._frame_length()
        if held < length:
            return False
        if length == FRAME_HEADER_LENGTH:
            raise ChecksumError("a frame of the compressed connection is empty, which no server sends")
        size = int.from_bytes(self._buffer[start + 4 : start + FRAME_HEADER_LENGTH], "little")
        data = memoryview(self._buffer)[start + FRAME_HEADER_LENGTH : start + length]
        try:
            # A stored frame is copied too: its place is needed for the next read before all of it may have been taken.
            self._inside = memoryview(inflate_stream(data, size) if size else bytes(data))
        except ProtocolError as error:
            raise ChecksumError(f"a frame of the compressed connection was damaged: {error.placeless}") from None
        self._start += length
        return True
