"""log_bin_compress blocks: what the server made inflates, what nobody made is refused."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.compression import inflate


def block(data: bytes, length_bytes: int = 4, claimed: int | None = None) -> bytes:
    size = len(data) if claimed is None else claimed
    return bytes((0x80 | length_bytes,)) + size.to_bytes(length_bytes, "big") + zlib.compress(data)


@given(st.binary(min_size=1, max_size=5000))
def test_round_trip(data: bytes) -> None:
    assert inflate(block(data)) == data
    assert inflate(memoryview(block(data, 2))) == data


def test_a_stream_that_ends_exactly_at_the_size() -> None:
    # zlib gives all bytes before it has read its own trailer: both ends must be checked.
    data = bytes(range(256)) * 300
    assert inflate(block(data)) == data
    with pytest.raises(ProtocolError, match="does not inflate"):
        inflate(block(data)[:-1])
    with pytest.raises(ProtocolError, match="cannot be inflated"):
        inflate(block(data)[:-1] + b"?")


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x80",
        b"\x00\x05hello",
        b"\x91\x05hello",
        block(b"hello", claimed=4),
        block(b"hello", claimed=6),
        block(b"hello", claimed=0),
        block(b"hello")[:-1],
        block(b"hello")[:5] + b"no zlib",
        block(b"hello")[:3],
    ],
)
def test_damaged_blocks(damaged: bytes) -> None:
    with pytest.raises(ProtocolError):
        inflate(damaged)


def test_a_claim_above_the_limit_is_refused_before_inflating() -> None:
    with pytest.raises(ProtocolError, match="1 to 100 are possible"):
        inflate(block(bytes(101)), limit=100)


@given(st.binary(max_size=60))
def test_garbage(data: bytes) -> None:
    try:
        inflate(data)
    except ProtocolError:
        return
    assert data[0] & 0xE0 == 0x80
