"""log_bin_compress blocks and COMPRESSED columns: what the server made inflates, what nobody made is refused."""

from __future__ import annotations

import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.compression import MAX_RATIO, SMALL, inflate, inflate_column
from tests.kit.binlog.bodies import block

if TYPE_CHECKING:
    from collections.abc import Callable

# Both libraries have their say: sizes below and above the border.
SIZES = (1, 2, SMALL - 1, SMALL, SMALL + 1, 100_000)


def deflated(data: bytes, *, raw: bool = False) -> bytes:
    stream = zlib.compressobj(wbits=-15 if raw else 15)
    return stream.compress(data) + stream.flush()


def raw_value(data: bytes, length_bytes: int = 4, claimed: int | None = None) -> bytes:
    size = len(data) if claimed is None else claimed
    return bytes((0x88 | length_bytes,)) + size.to_bytes(length_bytes, "big") + deflated(data, raw=True)


@given(st.binary(min_size=1, max_size=5000))
def test_round_trip(data: bytes) -> None:
    assert inflate(block(data)) == data
    assert inflate(memoryview(block(data, 2))) == data


@given(st.binary(max_size=5000))
def test_round_trip_of_a_column(data: bytes) -> None:
    for value in (block(data), raw_value(data), b"\0" + data):
        assert inflate_column(value) == data
        assert inflate_column(memoryview(value)) == data


def test_values_as_the_server_stores_them() -> None:
    assert inflate_column(b"") == b""
    assert inflate_column(b"\0") == b""
    assert inflate_column(b"\0abc") == b"abc"
    assert inflate_column(bytes.fromhex("8a 012c 4b4c1c05c40200")) == b"a" * 300


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("pack", "unpack"), [(block, inflate), (block, inflate_column), (raw_value, inflate_column)])
def test_the_stream_must_end_exactly_at_the_size(
    size: int, pack: Callable[..., bytes], unpack: Callable[[bytes], bytes]
) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert unpack(pack(data)) == data
    assert unpack(pack(data) + b"behind the end") == data
    for damaged in (pack(data, claimed=size + 1), pack(data, claimed=size - 1), pack(data)[:-1]):
        with pytest.raises(ProtocolError, match=r"inflate|claims to be empty"):
            unpack(damaged)
    if pack is block:
        with pytest.raises(ProtocolError, match="cannot be inflated"):
            unpack(pack(data)[:-1] + b"?")


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


@pytest.mark.parametrize("damaged", [b"\x10\x05hello", b"\x90\x05hello", b"\xff", b"\x82\x01", b"\x89\x05hello"])
def test_damaged_values(damaged: bytes) -> None:
    with pytest.raises(ProtocolError):
        inflate_column(damaged)


def test_a_claim_above_the_limit_is_refused_before_inflating() -> None:
    with pytest.raises(ProtocolError, match="claims 101 bytes; at most 100 are possible"):
        inflate(block(bytes(101)), limit=100)
    with pytest.raises(ProtocolError, match="claims 256 bytes; at most 255 are possible"):
        inflate_column(raw_value(bytes(256)), limit=255)


def test_a_claim_that_no_stream_can_reach_costs_no_memory() -> None:
    small = block(b"x" * 100, claimed=1 << 30)
    tracemalloc.start()
    try:
        for unpack in (inflate, inflate_column):
            with pytest.raises(ProtocolError, match="no deflate stream can reach"):
                unpack(small)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_densest_stream_there_is_passes() -> None:
    data = bytes(16 << 20)
    dense = block(data)
    assert len(data) / len(dense) > MAX_RATIO * 0.99
    assert inflate(dense) == data


@given(st.binary(max_size=60))
def test_garbage(data: bytes) -> None:
    try:
        inflate(data)
    except ProtocolError:
        return
    assert data[0] & 0xE0 == 0x80


@given(st.binary(max_size=60))
def test_garbage_in_a_column(data: bytes) -> None:
    try:
        inflate_column(data)
    except ProtocolError:
        return
    assert not data or data[0] & 0xF0 in (0, 0x80)
