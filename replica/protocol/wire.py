"""Bounds-checked reading of little-endian fields from one buffer.

In: any bytes. Out: integers, text, and memoryviews into the buffer; copies only if requested. Reading past the end is a
TruncatedError, and an impossible value is a ProtocolError. Both report the offset from the start of the cursor's
buffer, which a person can compare with a hex dump.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from replica.errors import ProtocolError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterator

Buffer = bytes | bytearray | memoryview


class Cursor:
    """A position in a buffer. Every read moves it forward."""

    __slots__ = ("_data", "_end", "_offset")

    def __init__(self, data: Buffer, offset: int = 0, end: int | None = None) -> None:
        self._data = data if isinstance(data, memoryview) else memoryview(data)
        self._end = len(self._data) if end is None else end
        self._offset = offset
        if not 0 <= offset <= self._end <= len(self._data):
            raise TruncatedError(f"{self._end} bytes asked for, the buffer has {len(self._data)}", offset=offset)

    @property
    def offset(self) -> int:
        """Offset of the next read, counted from the start of the buffer."""
        return self._offset

    @property
    def remaining(self) -> int:
        """Number of bytes before the end, or before the end of the innermost `restrict`."""
        return self._end - self._offset

    def __bool__(self) -> bool:
        return self._offset < self._end

    def take(self, n: int) -> memoryview:
        """Return the next `n` bytes as a view of the buffer, which is valid as long as the buffer is."""
        start = self._offset
        if n > self._end - start:
            raise TruncatedError(f"{n} bytes wanted, {self._end - start} left", offset=start)
        self._offset = start + n
        return self._data[start : start + n]

    def rest(self) -> memoryview:
        """Return all bytes up to the end."""
        return self.take(self._end - self._offset)

    def peek_rest(self) -> memoryview:
        """Return all bytes up to the end, without moving."""
        return self._data[self._offset : self._end]

    def skip(self, n: int) -> None:
        self.take(n)

    def _unsigned(self, n: int) -> int:
        return int.from_bytes(self.take(n), "little")

    def u8(self) -> int:
        return self._unsigned(1)

    def u16(self) -> int:
        return self._unsigned(2)

    def u24(self) -> int:
        return self._unsigned(3)

    def u32(self) -> int:
        return self._unsigned(4)

    def u48(self) -> int:
        return self._unsigned(6)

    def u64(self) -> int:
        return self._unsigned(8)

    def lenenc(self) -> int:
        """Read a length-encoded integer of 1, 3, 4 or 9 bytes. 0xFB (SQL NULL) and 0xFF are refused."""
        start = self._offset
        first = self.u8()
        if first < 0xFB:
            return first
        if first == 0xFC:
            return self.u16()
        if first == 0xFD:
            return self.u24()
        if first == 0xFE:
            return self.u64()
        raise ProtocolError(f"0x{first:02X} does not start a length-encoded integer", offset=start)

    def text(self, n: int, codec: str = "utf-8") -> str:
        """Read the next `n` bytes as text; bytes that the codec refuses raise a ProtocolError."""
        start = self._offset
        data = self.take(n)
        try:
            return str(data, codec)
        except UnicodeDecodeError as error:
            raise ProtocolError(f"text is not {codec}: {error.reason}", offset=start + error.start) from None

    def name(self) -> str:
        """Read an identifier: length byte, UTF-8 bytes, NUL."""
        value = self.text(self.u8())
        self.nul()
        return value

    def nul(self) -> None:
        """Read the zero byte after a name."""
        if self.u8():
            raise ProtocolError("the name is not followed by a zero byte", offset=self._offset - 1)

    def bits(self, n: int) -> bytes:
        """Read a bit set of `n` bits, least significant bit of the first byte first. Unused bits are unchanged."""
        return bytes(self.take((n + 7) // 8))

    @contextmanager
    def restrict(self, n: int) -> Iterator[None]:
        """Limit reads inside the block to the next `n` bytes, all of which the block must consume."""
        start = self._offset
        if n > self._end - start:
            raise TruncatedError(f"{n} bytes wanted, {self._end - start} left", offset=start)
        outer, self._end = self._end, start + n
        yield
        if self._offset != self._end:
            raise ProtocolError(f"{self._end - self._offset} bytes left over in a block of {n}", offset=self._offset)
        self._end = outer


def is_set(bits: bytes, index: int) -> bool:
    """Return True if bit `index` of a bit set from `Cursor.bits` is 1."""
    return bool(bits[index >> 3] & (1 << (index & 7)))
