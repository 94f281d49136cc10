"""The numbers that rows take over from their transactions, by kernels: a number of each group becomes a number of each
row.

In: numbers per group (any stride), and per row the index of its group. Out: new int64 arrays, one value a row. numpy's
own indexing gives the same, at three times the cost: it is the oracle in tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from replica.native.arrays import address
from streaming_source.rows.kernel_group_columns import take_starts, take_values

Ints = np.ndarray[Any, np.dtype[np.int64]]
GroupIndex = np.ndarray[Any, np.dtype[np.int32]]


def take(per_group: Ints, group: GroupIndex, factor: int = 1) -> tuple[Ints, int]:
    """Take `per_group[group] * factor` for each row, and count how many of the values are not 0."""
    group = np.ascontiguousarray(group, np.int32)
    out = np.empty(len(group), np.int64)
    told = take_values(address(per_group), per_group.strides[0], address(group), len(group), factor, address(out))
    return out, told


def take_positions(data: np.ndarray[Any, np.dtype[np.uint8]], starts: Ints, group: GroupIndex) -> Ints:
    """Return, per row, where its transaction begins in the primary's binlog file, modulo 4 GiB, as the header of its
    GTID event tells; `starts` are the offsets of those events in `data`.
    """
    group = np.ascontiguousarray(group, np.int32)
    out = np.empty(len(group), np.int64)
    take_starts(address(data), address(starts), starts.strides[0], address(group), len(group), address(out))
    return out
