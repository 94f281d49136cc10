"""The CRC of bytes that Python holds: zlib is the oracle."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from replica.native.kernel_checksum import checksum

DATA = np.random.default_rng(7).integers(0, 256, 5_000, np.uint8).tobytes()


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65, 4_999])
def test_it_is_that_of_zlib_for_any_length_and_place(size: int) -> None:
    for start in (0, 1):
        assert checksum(DATA[start : start + size]) == crc32(DATA[start : start + size])


def test_it_goes_on_behind_other_bytes() -> None:
    assert checksum(memoryview(DATA)[100:], crc32(DATA[:100])) == crc32(DATA)
