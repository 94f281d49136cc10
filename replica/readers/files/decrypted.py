"""Reader that decrypts a stream of encrypted events, with the memory of a few batches.

It starts at the first encrypted event and returns plain events of the same length. Events are decrypted in batches, and
an event larger than a batch in pieces.

Only the lengths in events show where events begin. After a damaged length, the reader searches for the next event that
matches its checksum. The bytes up to that event are passed on encrypted, and so is everything after damage in a file
without checksums. The consumer's checks refuse these bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, LENGTH_AT, MAX_EVENT_BYTES, TYPE_AT
from replica.protocol.events.decode import decode_description
from replica.protocol.header import HEADER, EventHeader, event_crc32
from replica.readers.files import kernel_cipher as k

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext
    from numpy.typing import NDArray

    from replica.protocol.constants import ChecksumAlgorithm
    from replica.readers.files.readers import ByteSource
# An event's file offset is a part of its IV. The result has the same length and the events as the server logged them.
# Only the checksums show whether the result is valid.


Algorithm = Literal["cbc", "ctr"]
ALGORITHMS: Final[tuple[Algorithm, ...]] = ("cbc", "ctr")
"""Values of `file_key_management_encryption_algorithm`; the server's default comes first."""
BATCH_BYTES: Final = 1 << 20
_BATCH_EVENTS: Final = BATCH_BYTES // 32
"""Maximal events of a batch. Most events are longer than 32 bytes; a batch of shorter ones has fewer bytes."""
_BLOCK: Final = k.BLOCK
HEAD_BYTES: Final = k.MESSAGE_AT + _BLOCK
"""Bytes of an event up to the end of its first block, which includes the four bytes that the length replaced."""


class EventCipher:
    """Cipher of one file: one key, one nonce, one algorithm."""

    def __init__(self, key: bytes, nonce: bytes, algorithm: Algorithm) -> None:
        self._key = algorithms.AES(key)
        self._nonce = np.frombuffer(nonce, np.uint8)
        self.algorithm = algorithm
        ecb = Cipher(self._key, modes.ECB())  # noqa: S305  (the building block of CBC and CTR)
        self._encrypt = ecb.encryptor()
        self._blocks_cipher = ecb.decryptor() if algorithm == "cbc" else self._encrypt
        self._blocks = np.empty(2 * BATCH_BYTES + _BLOCK, np.uint8)  # the last block of an event may be nearly empty
        self._after = np.empty(len(self._blocks) + _BLOCK, np.uint8)
        self._ivs = np.empty(_BATCH_EVENTS * _BLOCK, np.uint8)
        self._tails = np.empty(len(self._ivs) + _BLOCK, np.uint8)
        self._result = np.zeros((), k.GatherResult.dtype)

    def batch(self, raw: NDArray[np.uint8], offset: int, least: int, out: NDArray[np.uint8]) -> int:
        """Decrypt the whole events at the start of `raw` into `out`; return their bytes.

        Args:
            raw: At most BATCH_BYTES encrypted bytes, which begin with an event.
            offset: The file offset of raw[0].
            least: The minimal length of an event.
            out: Receives the plain events.
        """
        counters = int(self.algorithm == "ctr")
        events = k.gather(
            address(raw),
            len(raw),
            offset,
            address(self._nonce),
            counters,
            least,
            address(out),
            address(self._blocks),
            address(self._ivs),
            _BATCH_EVENTS,
            address(self._result),
        )
        size = int(self._result["blocks"]) * _BLOCK
        self._blocks_cipher.update_into(self._blocks.data[:size], self._after.data)
        if not counters:
            self._encrypt.update_into(self._ivs.data[: events * _BLOCK], self._tails.data)
        return k.scatter(
            address(raw),
            events,
            counters,
            address(out),
            address(self._after),
            address(self._ivs),
            address(self._tails),
        )

    def stream(self, offset: int) -> EventStream:
        """Decrypt one event in pieces."""
        iv = self._nonce.tobytes() + struct.pack("<I", offset & 0xFFFFFFFF)
        if self.algorithm == "ctr":
            return EventStream(Cipher(self._key, modes.CTR(iv)).decryptor(), None)
        return EventStream(Cipher(self._key, modes.CBC(iv)).decryptor(), self._encrypt.update(iv))

    def event(self, offset: int, event: bytes) -> bytes:
        """Decrypt one complete event."""
        return self.stream(offset).first(event, last=True)


class EventStream:
    """Decryption of one event, which need not be in memory as a whole."""

    def __init__(self, context: CipherContext, tail_pad: bytes | None) -> None:
        self._context = context
        self._tail_pad = tail_pad
        """Bytes to exclusive-or with the bytes after the last whole block (CBC); None for CTR."""

    def first(self, head: bytes, *, last: bool = False) -> bytes:
        """Return the start of the event. `head` must have HEAD_BYTES and whole blocks, unless it is the whole event."""
        length = head[LENGTH_AT : LENGTH_AT + 4]
        message = head[k.MESSAGE_AT : LENGTH_AT] + head[: k.MESSAGE_AT] + head[LENGTH_AT + 4 :]
        plain = self.next(message, last=last)
        split = LENGTH_AT - k.MESSAGE_AT
        return plain[split : split + 4] + plain[:split] + length + plain[split + 4 :]

    def next(self, piece: bytes, *, last: bool = False) -> bytes:
        """Return the next piece. `piece` must have whole blocks, unless it is the last."""
        if not last or self._tail_pad is None:
            return self._context.update(piece)
        complete = len(piece) - len(piece) % _BLOCK
        tail = bytes(a ^ b for a, b in zip(piece[complete:], self._tail_pad, strict=False))
        return self._context.update(piece[:complete]) + tail


MAX_SEARCHED_BYTES: Final = 64 << 10
"""Bytes of the largest event that the search after damage accepts."""
MAX_TRIES: Final = 4096
"""Offsets that the search tries in one batch; in random bytes about 16 of a batch look like an event's length."""


class Decrypted:
    """Reader that reads ahead by a batch; `prefix` comes first, unchanged."""

    def __init__(self, prefix: bytes, source: ByteSource, cipher: EventCipher, checksum: ChecksumAlgorithm) -> None:
        self._source = source
        self._cipher = cipher
        self._checksums(checksum)
        self._raw = np.empty(BATCH_BYTES, np.uint8)
        self._fill = 0
        self._plain = np.empty(BATCH_BYTES, np.uint8)
        self._offset = len(prefix)
        """File offset of raw[0], where an event begins."""
        self._pending = memoryview(prefix)
        self._long: EventStream | None = None
        self._long_left = 0
        self._long_begins = False
        self._lost = False
        self._ended = False
        self._fault: ProtocolError | None = None

    def _checksums(self, algorithm: ChecksumAlgorithm) -> None:
        self._trailer = CHECKSUM_LENGTH if algorithm else 0
        self._least = HEADER_LENGTH + self._trailer

    def readinto(self, target: memoryview, /) -> int:
        while not self._pending:
            self._fill_raw()
            if not self._fill:
                if self._fault is not None:
                    raise self._fault
                return 0
            self._pending = self._next()
        count = min(len(self._pending), len(target))
        target[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def _fill_raw(self) -> None:
        while not self._ended and self._fill < BATCH_BYTES:
            try:
                count = self._source.readinto(self._raw.data[self._fill :])
            except ProtocolError as error:
                self._fault, count = error, 0
            self._fill += count
            self._ended = count == 0

    def _take(self, size: int) -> bytes:
        """Take the first bytes of raw, and remove them."""
        taken = self._raw[:size].tobytes()
        self._drop(size)
        return taken

    def _drop(self, size: int) -> None:
        left = self._fill - size
        self._raw[:left] = self._raw[size : self._fill].copy()
        self._fill = left
        self._offset += size

    def _next(self) -> memoryview:
        """Return the next piece, of at least one byte."""
        if self._lost:
            return memoryview(self._take(self._find_border()))
        if self._long is None:
            length = self._length(0)
            if self._fill < self._least or not self._least <= length <= MAX_EVENT_BYTES:
                return self._start_search()
            if length <= self._fill:
                return self._batch()
            if not self._header_fits(0) and self._search(1) is not None:
                return self._start_search()
            self._long, self._long_left = self._cipher.stream(self._offset), length
            self._long_begins = True
        return memoryview(self._long_piece(self._long))

    def _batch(self) -> memoryview:
        size = self._cipher.batch(self._raw[: self._fill], self._offset, self._least, self._plain)
        notable = k.first_notable(address(self._plain), size, self._trailer)
        if notable > 0:
            size = notable
        elif notable == 0:
            size = self._length(0)
            if not self._describes(self._plain.data[:size]) and self._is_torn(size):
                return self._start_search()
        self._drop(size)
        return self._plain.data[:size]

    def _describes(self, event: memoryview) -> bool:
        """Apply a FORMAT_DESCRIPTION event. Relay logs have one for each connection to their primary."""
        if event[TYPE_AT] != k.DESCRIPTION:
            return False
        try:
            self._checksums(decode_description(event).checksum)
        except ProtocolError:
            return False
        return True

    def _is_torn(self, size: int) -> bool:
        """Return True if the length `size` of the first event in raw is wrong: no valid event follows it."""
        found = self._search(1)
        return not self._leads_on(size) or (found is not None and found < size)

    def _long_piece(self, stream: EventStream) -> bytes:
        last = self._long_left <= self._fill
        size = self._long_left
        if not last:
            begin = k.MESSAGE_AT if self._long_begins else 0
            size = begin + (self._fill - begin) // k.BLOCK * k.BLOCK
            if size <= begin:  # the file ends inside of a block
                self._long = None
                return self._take(self._fill)
        piece = self._take(size)
        plain = stream.first(piece, last=last) if self._long_begins else stream.next(piece, last=last)
        self._long_begins = False
        self._long_left -= size
        if last:
            self._long = None
        return plain

    def _start_search(self) -> memoryview:
        self._lost = True
        return memoryview(self._take(1))

    def _find_border(self) -> int:
        """Return the bytes before the next event, or the bytes that can be passed on if none is found."""
        found = self._search(0)
        if found is None:
            return self._fill if self._ended or not self._trailer else self._fill - MAX_SEARCHED_BYTES
        self._lost = False
        return found

    def _search(self, begin: int) -> int | None:
        """Return the next offset in raw of a whole event that matches its checksum, None without one."""
        if not self._trailer or self._fill < HEAD_BYTES:
            return None
        raw = self._raw[: self._fill]
        lengths = sum(raw[LENGTH_AT + i : self._fill - 3 + i].astype(np.int64) << (8 * i) for i in range(4))
        places = np.flatnonzero((lengths >= self._least) & (lengths <= MAX_SEARCHED_BYTES))
        tries = places[places >= begin][:MAX_TRIES].tolist()
        return next((place for place in tries if self._matches(place)), None)

    def _leads_on(self, place: int) -> bool:
        """Return True if an event begins at this offset, or the data ends there."""
        return not self._trailer or self._fill - place < HEAD_BYTES or self._header_fits(place) or self._matches(place)

    def _length(self, place: int) -> int:
        return int.from_bytes(self._raw[place + LENGTH_AT : place + LENGTH_AT + 4].tobytes(), "little")

    def _matches(self, place: int) -> bool:
        length = self._length(place)
        if not self._least <= length <= min(MAX_SEARCHED_BYTES, self._fill - place) or not self._trailer:
            return False
        event = self._cipher.event(self._offset + place, self._raw[place : place + length].tobytes())
        return event_crc32(memoryview(event)[:-CHECKSUM_LENGTH]) == int.from_bytes(event[-CHECKSUM_LENGTH:], "little")

    def _header_fits(self, place: int) -> bool:
        """Return True if the decrypted header at this offset has the log position that follows from the offset."""
        if self._fill - place < HEAD_BYTES:
            return False
        offset = self._offset + place
        head = self._raw[place : place + HEAD_BYTES].tobytes()
        header = EventHeader._make(HEADER.unpack_from(self._cipher.stream(offset).first(head)))
        return header.log_pos == (offset + header.event_length) & 0xFFFFFFFF
