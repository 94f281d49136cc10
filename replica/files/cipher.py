"""Decryption of binlog events with one key: many events at once, or one event in pieces.

An event's file offset is a part of its IV. The result has the same length and the events as the server logged them.
Only the checksums show whether the result is valid.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from replica.files import kernel_cipher as k
from replica.native.arrays import address
from replica.protocol.constants import LENGTH_AT

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext
    from numpy.typing import NDArray

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
        moved = LENGTH_AT - k.MESSAGE_AT
        return plain[moved : moved + 4] + plain[:moved] + length + plain[moved + 4 :]

    def next(self, piece: bytes, *, last: bool = False) -> bytes:
        """Return the next piece. `piece` must have whole blocks, unless it is the last."""
        if not last or self._tail_pad is None:
            return self._context.update(piece)
        whole = len(piece) - len(piece) % _BLOCK
        tail = bytes(a ^ b for a, b in zip(piece[whole:], self._tail_pad, strict=False))
        return self._context.update(piece[:whole]) + tail
