"""TIME values as text: what SELECT prints."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_source.mirroring.batch.table_rows import time_digits, time_texts

LARGEST = (838 * 3600 + 59 * 60 + 59) * 1_000_000 + 999_999


def printed(micros: int | None, digits: int) -> str | None:
    """The text, by Python."""
    if micros is None:
        return None
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{'-' if micros < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}"[: len(text) + 1 + digits] if digits else text


@given(values=st.lists(st.none() | st.integers(-LARGEST, LARGEST)), digits=st.integers(0, 6), first=st.integers(0, 3))
def test_texts_are_those_of_the_server(values: list[int | None], digits: int, first: int) -> None:
    array = pa.array(values, pa.duration("us"))[first:]
    found = time_texts(array, digits)
    found.validate(full=True)
    assert found.to_pylist() == [printed(value, digits) for value in values[first:]]


@pytest.mark.parametrize(
    ("declared", "digits"), [("time", 0), ("time(3)", 3), ("TIME (6)", 6), ("timestamp(2)", 0), ("", 0)]
)
def test_digits_are_declared(declared: str, digits: int) -> None:
    assert time_digits(declared) == digits
