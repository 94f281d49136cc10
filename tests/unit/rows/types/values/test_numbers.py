"""FLOAT(M,D) and DOUBLE(M,D): the digits that SELECT shows."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replica.native.arrays import address
from replica.native.compile import kernel
from replica.native.compiling.interpreted import interpreted
from replica.native.memory import load_f8, store_f8
from replica.rows.types.kernels.kernel_numbers import rounded
from replica.rows.types.values.numbers import MOST_DECIMALS, decimals_of

if TYPE_CHECKING:
    from collections.abc import Callable

DOUBLES = st.floats(allow_nan=False, allow_infinity=False)


def _near_a_half(halves: tuple[int, int]) -> float:
    """A double at, or next to, a value in the middle between two of so many digits."""
    number, decimals = halves
    return (number * 10 + 5) / 10.0 ** (decimals + 1)


NEAR_HALVES = st.tuples(st.integers(-(10**16), 10**16), st.integers(0, MOST_DECIMALS)).map(_near_a_half)


@kernel
def call_rounded(out: int, decimals: int) -> None:
    store_f8(out, rounded(load_f8(out), decimals))


def compiled(value: float, decimals: int) -> float:
    held = np.array([value])
    call_rounded(address(held), decimals)
    return float(held[0])


@pytest.mark.parametrize("function", [compiled, interpreted(rounded)], ids=["compiled", "interpreted"])
def test_rounded_is_what_python_rounds_to(function: Callable[[float, int], float]) -> None:
    @settings(max_examples=2000, deadline=None)
    @given(DOUBLES | NEAR_HALVES, st.integers(0, MOST_DECIMALS), st.sampled_from((-1, 0, 1)))
    @example(-4.999e-05, 4, 0)
    @example(0.285, 2, 0)
    @example(2.5, 0, 0)
    @example(-0.0, 3, 0)
    @example(4503599627370497.5, 0, 0)
    def check(value: float, decimals: int, step: int) -> None:
        value = math.nextafter(value, math.inf * step) if step else value
        if math.isfinite(value):
            assert struct.pack("<d", function(value, decimals)) == struct.pack("<d", round(value, decimals))

    check()


@pytest.mark.parametrize(
    ("declared", "decimals"),
    [
        ("double(10,2)", 2),
        ("float(7,0) unsigned zerofill", 0),
        ("DOUBLE(5,1)", 1),
        ("double(255,30)", None),  # no power of ten that a double holds
        *((declared, None) for declared in ("double", "float", "decimal(10,2)", "enum('double(1,1)')")),
    ],
)
def test_decimals_of(declared: str, decimals: int | None) -> None:
    assert decimals_of(declared) == decimals
