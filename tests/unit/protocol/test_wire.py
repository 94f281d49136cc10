"""Reads give what was written, never pass the end, and every refusal says where."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError, TruncatedError
from replica.protocol.wire import Cursor, is_set


def lenenc(value: int) -> bytes:
    """A length-encoded integer, in its shortest form."""
    if value < 0xFB:
        return bytes((value,))
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def test_integers_are_little_endian() -> None:
    cursor = Cursor(bytes.fromhex("01 0201 030201 04030201 060504030201 0807060504030201"))
    assert [cursor.u8(), cursor.u16(), cursor.u24(), cursor.u32(), cursor.u48(), cursor.u64()] == [
        0x01, 0x0102, 0x010203, 0x01020304, 0x010203040506, 0x0102030405060708,
    ]  # fmt: skip
    assert not cursor


@pytest.mark.parametrize("read", ["u8", "u16", "u24", "u32", "u48", "u64", "lenenc", "name", "nul"])
def test_reading_past_the_end_is_truncated(read: str) -> None:
    with pytest.raises(TruncatedError) as caught:
        getattr(Cursor(b"abc", 3), read)()
    assert caught.value.offset == 3


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (250, "fa"),
        (251, "fcfb00"),
        (0xFFFF, "fcffff"),
        (0x10000, "fd000001"),
        (0xFFFFFF, "fdffffff"),
        (0x1000000, "fe0000000100000000"),
        (2**64 - 1, "feffffffffffffffff"),
    ],
)
def test_lenenc_borders(value: int, encoded: str) -> None:
    assert lenenc(value).hex() == encoded
    assert Cursor(bytes.fromhex(encoded)).lenenc() == value


@given(st.integers(0, 2**64 - 1))
def test_lenenc_round_trip(value: int) -> None:
    cursor = Cursor(lenenc(value))
    assert cursor.lenenc() == value
    assert not cursor


@pytest.mark.parametrize("first", ["fb", "ff"])
def test_bytes_that_start_no_lenenc(first: str) -> None:
    with pytest.raises(ProtocolError, match="length-encoded") as caught:
        Cursor(bytes.fromhex("00" + first + "00" * 8), 1).lenenc()
    assert caught.value.offset == 1


def test_take_is_a_view_of_the_buffer() -> None:
    buffer = bytearray(b"abcdef")
    view = Cursor(buffer, 2).take(2)
    buffer[2:4] = b"xy"
    assert bytes(view) == b"xy"


def test_text_of_another_codec_is_a_protocol_error_at_the_bad_byte() -> None:
    with pytest.raises(ProtocolError, match="utf-8") as caught:
        Cursor(b"..ab\xffcd", 2).text(5)
    assert caught.value.offset == 4


def test_name_needs_its_zero_byte() -> None:
    assert Cursor("\x03é.\0".encode()).name() == "é."
    with pytest.raises(ProtocolError, match="zero byte"):
        Cursor(b"\x01ab").name()


def test_restrict_hides_what_follows_and_wants_all_of_its_block() -> None:
    cursor = Cursor(b"abcdef")
    with cursor.restrict(2):
        assert bytes(cursor.rest()) == b"ab"
    assert bytes(cursor.take(1)) == b"c"
    with pytest.raises(TruncatedError), cursor.restrict(2):
        cursor.u24()


def test_restrict_refuses_leftovers() -> None:
    cursor = Cursor(b"abcdef")
    with pytest.raises(ProtocolError, match="2 bytes left over in a block of 3") as caught, cursor.restrict(3):
        cursor.u8()
    assert caught.value.offset == 1


def test_restrict_beyond_the_end() -> None:
    with pytest.raises(TruncatedError), Cursor(b"ab").restrict(3):
        pass


def test_a_window_outside_the_buffer_is_refused() -> None:
    with pytest.raises(TruncatedError):
        Cursor(b"abc", 0, 4)
    with pytest.raises(TruncatedError):
        Cursor(b"abc", 4)


def test_bits_are_least_significant_first() -> None:
    bits = Cursor(bytes.fromhex("0580")).bits(16)
    assert [index for index in range(16) if is_set(bits, index)] == [0, 2, 15]


@given(st.binary(max_size=40), st.lists(st.sampled_from(["u8", "u16", "u24", "u32", "u48", "u64", "lenenc", "name"])))
def test_any_reads_of_any_bytes_only_raise_protocol_errors(data: bytes, reads: list[str]) -> None:
    cursor = Cursor(data)
    for read in reads:
        with contextlib.suppress(ProtocolError):
            getattr(cursor, read)()
        assert 0 <= cursor.offset <= len(data)
