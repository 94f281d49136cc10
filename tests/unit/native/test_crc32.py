from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.native.compile import kernel
from replica.native.crc32 import HAS_PCLMUL, checksum, crc32, folded_crc32, table_crc32


@kernel
def by_choice(address: int, length: int, crc: int) -> int:
    return crc32(address, length, crc)


@kernel
def by_table(address: int, length: int, crc: int) -> int:
    return table_crc32(address, length, crc)


@kernel
def by_folding(address: int, length: int, crc: int) -> int:
    return folded_crc32(address, length, crc)


VARIANTS = [by_choice, by_table, *([by_folding] if HAS_PCLMUL else [])]
RANDOM = random.Random(20240229)
NOISE = np.frombuffer(RANDOM.randbytes(1 << 20), np.uint8).copy()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_short_length_at_every_alignment(variant: Any) -> None:
    for length in range(301):
        for start in (0, 1, 7, 13):
            data = NOISE[start : start + length].tobytes()
            assert variant(NOISE.ctypes.data + start, length, 0) == zlib.crc32(data), (length, start)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("length", [1000, 4096, 65_537, 1 << 20])
def test_long_inputs(variant: Any, length: int) -> None:
    assert variant(NOISE.ctypes.data, length, 0) == zlib.crc32(NOISE[:length].tobytes())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("value", [0x00, 0xFF])
def test_uniform_bytes(variant: Any, value: int) -> None:
    area = np.full(200, value, np.uint8)
    for length in range(200):
        assert variant(area.ctypes.data, length, 0) == zlib.crc32(bytes((value,)) * length)


@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=5), start=st.integers(0, 2**32 - 1))
def test_a_crc_goes_on_where_another_ended(data: bytes, cuts: list[int], start: int) -> None:
    area = np.frombuffer(data or b"\0", np.uint8)
    for variant in VARIANTS:
        crc, at = start, 0
        for cut in [*sorted(min(c, len(data)) for c in cuts), len(data)]:
            crc = variant(area.ctypes.data + at, cut - at, crc)
            at = cut
        assert crc == zlib.crc32(data, start)


DATA = np.random.default_rng(7).integers(0, 256, 5_000, np.uint8).tobytes()


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 63, 64, 65, 4_999])
def test_it_is_that_of_zlib_for_any_length_and_place(size: int) -> None:
    for start in (0, 1):
        assert checksum(DATA[start : start + size]) == zlib.crc32(DATA[start : start + size])


def test_it_goes_on_behind_other_bytes() -> None:
    assert checksum(memoryview(DATA)[100:], zlib.crc32(DATA[:100])) == zlib.crc32(DATA)
