"""CRC32 of events: real ones verify, one changed bit does not, FORMAT_DESCRIPTION ignores its IN_USE flag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ChecksumError, TruncatedError
from replica.protocol.constants import ChecksumAlgorithm
from replica.protocol.header import append, event_crc32, strip
from tests.vectors.load import raw_events

# The artificial ROTATE that MariaDB 10.5 sent first in a dump.
ROTATE = bytes.fromhex("00000000 04 01000000 29000000 00000000 2000 0400000000000000 62696e2e303030303031 738f82a5")
FDE = raw_events("11.8", "rotation.1")[0]
CRC32 = ChecksumAlgorithm.CRC32


def test_a_servers_checksum() -> None:
    assert bytes(strip(memoryview(ROTATE), CRC32)) == ROTATE[:-4]


def test_without_checksum_nothing_is_cut() -> None:
    assert strip(memoryview(ROTATE), ChecksumAlgorithm.NONE) == ROTATE


@given(st.integers(0, len(ROTATE) * 8 - 1))
def test_one_changed_bit_is_found(bit: int) -> None:
    damaged = bytearray(ROTATE)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChecksumError) as caught:
        strip(memoryview(damaged), CRC32)
    assert caught.value.hint


def test_the_in_use_flag_of_an_open_file_does_not_count() -> None:
    in_use = bytearray(FDE)
    assert in_use[17] == 0
    in_use[17] = 1
    assert strip(memoryview(in_use), CRC32) == in_use[:-4]
    in_use[17] = 2
    with pytest.raises(ChecksumError):
        strip(memoryview(in_use), CRC32)


def test_too_short_for_a_checksum() -> None:
    with pytest.raises(TruncatedError):
        strip(memoryview(ROTATE[:22]), CRC32)


def test_append_is_the_inverse_of_strip() -> None:
    assert append(ROTATE[:-4]) == ROTATE
    assert event_crc32(memoryview(FDE[:-4])) == int.from_bytes(FDE[-4:], "little")
