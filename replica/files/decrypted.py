"""Reader that decrypts a stream of encrypted events, with the memory of a few batches.

It starts at the first encrypted event and returns plain events of the same length. Events are decrypted in batches, and
an event larger than a batch in pieces.

Only the lengths in events show their borders. After a damaged length the reader searches the next border, where an
event matches its checksum. The bytes between are passed on encrypted, and so is everything after damage in a file
without checksums. The checks of the consumer will not accept these bytes as events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import ProtocolError
from replica.files import kernel_cipher as k
from replica.files.cipher import BATCH_BYTES, HEAD_BYTES, EventCipher, EventStream
from replica.native.arrays import address
from replica.protocol.checksum import event_crc32
from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, LENGTH_AT, MAX_EVENT_BYTES, TYPE_AT
from replica.protocol.events.decode import decode_description
from replica.protocol.header import HEADER, EventHeader

if TYPE_CHECKING:
    from replica.files.window import ByteSource
    from replica.protocol.constants import ChecksumAlgorithm

LOOKED_AT: Final = 64 << 10
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
                return self._lose_way()
            if length <= self._fill:
                return self._batch()
            if not self._header_fits(0) and self._search(1) is not None:
                return self._lose_way()
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
                return self._lose_way()
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

    def _lose_way(self) -> memoryview:
        self._lost = True
        return memoryview(self._take(1))

    def _find_border(self) -> int:
        """Return the bytes before the next event, or the bytes that can be passed on if none is found."""
        found = self._search(0)
        if found is None:
            return self._fill if self._ended or not self._trailer else self._fill - LOOKED_AT
        self._lost = False
        return found

    def _search(self, begin: int) -> int | None:
        """Return the next offset in raw of a whole event that matches its checksum, None without one."""
        if not self._trailer or self._fill < HEAD_BYTES:
            return None
        raw = self._raw[: self._fill]
        lengths = sum(raw[LENGTH_AT + i : self._fill - 3 + i].astype(np.int64) << (8 * i) for i in range(4))
        places = np.flatnonzero((lengths >= self._least) & (lengths <= LOOKED_AT))
        tries = places[places >= begin][:MAX_TRIES].tolist()
        return next((place for place in tries if self._matches(place)), None)

    def _leads_on(self, place: int) -> bool:
        """Return True if an event begins at this offset, or the data ends there."""
        return not self._trailer or self._fill - place < HEAD_BYTES or self._header_fits(place) or self._matches(place)

    def _length(self, place: int) -> int:
        return int.from_bytes(self._raw[place + LENGTH_AT : place + LENGTH_AT + 4].tobytes(), "little")

    def _matches(self, place: int) -> bool:
        length = self._length(place)
        if not self._least <= length <= min(LOOKED_AT, self._fill - place) or not self._trailer:
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
