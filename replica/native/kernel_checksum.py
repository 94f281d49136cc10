"""CRC-32 of Python's bytes with the kernels' implementation, three times as fast as zlib for large data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replica.native.arrays import address
from replica.native.compile import kernel
from replica.native.crc32 import crc32

if TYPE_CHECKING:
    from replica.protocol.wire import Buffer


@kernel
def crc32_at(data: int, length: int, crc: int) -> int:
    """Return the CRC of `length` bytes at an address, continuing `crc`."""
    return crc32(data, length, crc)


def checksum(data: Buffer, crc: int = 0) -> int:
    """Return the CRC of bytes, continuing `crc`, equal to the result of zlib.crc32."""
    memory = np.frombuffer(data, np.uint8)
    return crc32_at(address(memory), len(memory), crc)
