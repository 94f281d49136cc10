"""Floats in the output: the fewest digits that give the same number again, and a form that JSON readers keep."""

from __future__ import annotations

import json
import math
import struct

import numpy as np
import pytest

from replica.commands.dump.rows.rows_text import _shortest


@pytest.mark.parametrize("number", [0.0, 0.1, -1e308, 5e-324, 1.7976931348623157e308, 1e16, 123456789.0, -0.25])
def test_a_double_reads_as_it_was(number: float) -> None:
    (text,) = _shortest(np.array([number]), json=True).to_pylist()
    assert json.loads(text) == number


@pytest.mark.parametrize("number", [0.1, 3.4028234663852886e38, 1.401298464324817e-45, 16777216.0, 1 / 3])
def test_a_float_has_the_digits_of_a_float(number: float) -> None:
    (single,) = struct.unpack("<f", struct.pack("<f", number))
    (text,) = _shortest(np.array([number], np.float32), json=True).to_pylist()
    assert struct.pack("<f", json.loads(text)) == struct.pack("<f", single)
    assert len(text) < 15


def test_the_negative_zero_keeps_its_sign() -> None:
    texts = _shortest(np.array([-0.0, 0.0, -0.5]), json=True).to_pylist()
    numbers = [json.loads(text) for text in texts]
    assert [math.copysign(1, number) for number in numbers] == [-1, 1, -1]


def test_what_json_has_no_number_for_is_text() -> None:
    numbers = np.array([float("nan"), float("inf"), 1.5])
    assert [json.loads(text) for text in _shortest(numbers, json=True).to_pylist()] == ["nan", "inf", 1.5]
