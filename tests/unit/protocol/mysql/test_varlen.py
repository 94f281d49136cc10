"""Variable-length integers of MySQL's serialization library."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import TruncatedError
from replica.protocol.mysql.events import read_signed, read_text, read_unsigned
from replica.protocol.wire import Cursor
from tests.unit.protocol.mysql.wire_varlen import signed, unsigned


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ("00", 0),
        ("02", 1),
        ("fe", 127),
        ("1d03", 199),
        ("83120b", 90704),
        ("7f65a66745cb6006", 1795276019312229),
        ("ff" + "ff" * 8, (1 << 64) - 1),
    ],
)
def test_numbers_that_a_server_wrote(data: str, number: int) -> None:
    assert read_unsigned(Cursor(bytes.fromhex(data))) == number


@given(st.integers(0, (1 << 64) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_number_comes_back(number: int, other: int) -> None:
    cursor = Cursor(unsigned(number) + signed(other))
    assert (read_unsigned(cursor), read_signed(cursor), cursor.remaining) == (number, other, 0)


@given(st.integers(0, (1 << 64) - 1))
def test_every_truncation_is_one(number: int) -> None:
    data = unsigned(number)
    for end in range(len(data)):
        with pytest.raises(TruncatedError):
            read_unsigned(Cursor(data[:end]))


def test_text() -> None:
    assert read_text(Cursor(unsigned(3) + b"tag")) == "tag"
