"""Machine code is kept whole or not at all, and called as Python calls a function."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.native.compile import Kernel
from replica.native.compiling.code_cache import load, read, write
from replica.native.compiling.lower import lowered
from replica.native.memory import store_u8

if TYPE_CHECKING:
    from pathlib import Path


def of_numbers(a: int, b: int) -> int:
    return a * 3 - b


def is_more(a: int, b: int) -> bool:
    return a > b


def put(out: int, value: int) -> None:
    store_u8(out, value)


CODE = {function.__name__: lowered(Kernel(function)) for function in (of_numbers, is_more, put)}


@cache
def load_once(name: str) -> Any:
    return load(CODE[name])


NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(NUMBERS, NUMBERS)
def test_results_are_numbers_of_64_bits(a: int, b: int) -> None:
    wanted = (a * 3 - b + (1 << 63)) % (1 << 64) - (1 << 63)
    assert load_once("of_numbers")(a, b) == wanted
    assert load_once("is_more")(a, b) is (a > b)


def test_nothing_comes_back_as_none() -> None:
    out = np.zeros(1, np.int64)
    assert load_once("put")(out.ctypes.data, -7) is None
    assert out[0] == -7


def test_numbers_of_numpy_are_taken_and_others_refused() -> None:
    call = load_once("of_numbers")
    assert call(np.int64(5), np.uint8(1)) == 14
    for wrong in ((1,), ("1", "2"), (None, 1), (1.0, 2), ()):
        with pytest.raises(TypeError):
            call(*wrong)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "one.kernel"
    assert read(path) is None
    for code in CODE.values():
        write(code, path)
        assert read(path) == code
    assert [one.name for one in tmp_path.iterdir()] == ["one.kernel"]


@pytest.mark.parametrize("what", ["empty", "cut", "a byte", "another result", "no head", "garbage"])
def test_a_damaged_file_is_none(tmp_path: Path, what: str) -> None:
    """LLVM ends the process for one."""
    path = tmp_path / "one.kernel"
    write(CODE["of_numbers"], path)
    whole = path.read_bytes()
    middle = len(whole) // 2
    damaged = {
        "empty": b"",
        "cut": whole[:-1],
        "a byte": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "another result": whole.replace(b'"int64"', b'"float"'),
        "no head": whole.partition(b"\n")[2],
        "garbage": b"[1, 2]\n" + whole,
    }
    path.write_bytes(damaged[what])
    assert read(path) is None
