"""What is compiled needs neither numba nor Python; what would need them is no kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replica.native.arrays import address
from replica.native.compile import Kernel, helper
from replica.native.compiling.code_cache import load
from replica.native.compiling.lower import NotLoweredError, lowered
from replica.native.memory import load_f8, load_u1, store_f8
from replica.native.record import Record, word

TABLE = np.arange(256, dtype=np.int64) * 7


class Spot(Record):
    """A record of the test."""

    first = word("one")
    second = word("two")


@helper
def seventh(value: int) -> int:
    return int(TABLE[value])


def of_everything(at: int) -> int:
    store_f8(at + Spot.second, load_f8(at + Spot.second) / 2)
    return seventh(load_u1(at + Spot.first))


inner: Any = Kernel(of_everything)


def of_a_kernel(at: int) -> int:
    found: int = inner(at)
    return found + 1


@pytest.mark.parametrize(("function", "wanted"), [(of_everything, 21), (of_a_kernel, 22)])
def test_helpers_kernels_records_and_constant_arrays_are_taken_in(function: Any, wanted: int) -> None:
    spot = np.zeros(2, np.int64)
    spot[0] = 3
    spot.view(np.float64)[1] = 5.0
    assert load(lowered(Kernel(function)))(address(spot)) == wanted
    assert spot.view(np.float64)[1] == 2.5


def gives_a_pair(a: int) -> Any:
    return a, a


def gives_a_float(a: int) -> Any:
    return a / 2


def makes_an_array(a: int) -> Any:
    return len(np.zeros(a))


@pytest.mark.parametrize("function", [gives_a_pair, gives_a_float, makes_an_array])
def test_other_functions_are_refused(function: Any) -> None:
    with pytest.raises(NotLoweredError, match=function.__name__):
        lowered(Kernel(function))
