"""Arrays without pandas are those that pyarrow makes; who decodes never imports pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.rows.types.arrow_arrays import array_of, array_of_values, repeated

PROJECT = Path(__file__).resolve().parents[4]
TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64, np.float32, np.float64, np.bool_]
BIG = st.integers(-(2**63), 2**63 - 1)
POINT = pa.struct([pa.field("number", pa.int64()), pa.field("name", pa.string())])
VALUES = {
    pa.int64(): BIG,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(),
    pa.large_string(): st.text(),
    pa.binary(): st.binary(),
    pa.list_(pa.string()): st.lists(st.none() | st.text()),
    pa.list_(pa.int64()): st.lists(BIG),
    POINT: st.fixed_dictionaries({}, optional={"number": st.none() | BIG, "name": st.none() | st.text()}),
}


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_numbers_are_as_pyarrow_takes_them(kind: Any, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 127), st.booleans()), max_size=40))
    values, null = np.array([value for value, _ in drawn], kind), np.array([is_null for _, is_null in drawn], np.bool_)
    assert array_of(values).equals(pa.array(values))
    assert array_of(values, null).equals(pa.array(values, mask=null))
    array_of(values, null).validate(full=True)
    apart = np.zeros((len(values), 2), kind)
    apart[:, 0] = values
    assert array_of(apart[:, 0]).equals(pa.array(values))


def test_numbers_are_not_copied() -> None:
    values = np.arange(3)
    array = array_of(values)
    values[1] = 7
    assert array.to_pylist() == [0, 7, 2]


@given(text=st.text(), times=st.integers(0, 40))
def test_one_text_is_there_so_often(text: str, times: int) -> None:
    array = repeated(text, times)
    array.validate(full=True)
    assert array.equals(pa.array([text] * times, pa.string()))


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_values_are_as_pyarrow_takes_them(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind]))
    array = array_of_values(values, kind)
    array.validate(full=True)
    assert array.type == kind
    assert array.equals(pa.array(values, kind))


def test_pandas_is_what_pyarrow_would_import() -> None:
    script = "import sys, pyarrow; pyarrow.array([1]); print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n", "pyarrow does without by itself now: replica/rows/types/arrow_arrays.py can go"
