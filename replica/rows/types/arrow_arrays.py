"""Arrow arrays from numpy memory and Python values, without pandas.

`pyarrow.array`, `scalar` and `repeat` import pandas at their first call, if it is installed, to check for pandas
objects. The import takes a third of a second and 36 MB in every Spark worker process. So decoders and tasks must make
their arrays with this module. Tests compare its arrays with those of pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


def array_of(values: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Wrap integers, floats or booleans as an array; `null` marks the values that are NULL.

    Contiguous numbers are not copied: the array shares their memory, and changes with it.
    """
    truths = values.dtype == np.bool_
    data = np.packbits(values, bitorder="little") if truths else np.ascontiguousarray(values)
    kind = pa.bool_() if truths else pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None if null is None else validity(~null), pa.py_buffer(data)])


def repeated(text: str, times: int) -> pa.Array:
    """Return an array that repeats one text."""
    data = text.encode()
    offsets = np.arange(times + 1, dtype=np.int32) * np.int32(len(data))
    return pa.StringArray.from_buffers(times, pa.py_buffer(offsets), pa.py_buffer(data * times))


def array_of_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make an array from Python values, each of which may be None.

    The values are integers, booleans, texts, bytes, lists of these, or structs of these as dicts, which may lack
    fields.
    """
    valid = np.array([value is not None for value in values], np.bool_)
    if pa.types.is_struct(kind):
        children = [
            array_of_values([None if value is None else value.get(field.name) for value in values], field.type)
            for field in kind
        ]
        return pa.Array.from_buffers(kind, len(values), [validity(valid)], children=children)
    if pa.types.is_list(kind):
        items = [item for value in values if value is not None for item in value]
        offsets = _offsets([0 if value is None else len(value) for value in values], np.dtype(np.int32))
        buffers = [validity(valid), offsets]
        return pa.Array.from_buffers(kind, len(values), buffers, children=[array_of_values(items, kind.value_type)])
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return array_of(np.array([value or 0 for value in values], np.dtype(str(kind))), ~valid)
    whole = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    offsets = _offsets([len(value) for value in whole], np.dtype(np.int64 if wide else np.int32))
    return pa.Array.from_buffers(kind, len(values), [validity(valid), offsets, pa.py_buffer(b"".join(whole))])


def validity(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Return the validity bitmap of an array: a bit is 1 if the value is not NULL."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _offsets(lengths: Sequence[int], kind: np.dtype[Any]) -> pa.Buffer:
    return pa.py_buffer(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(kind))
