"""What rows take over from their transactions, by kernels: a number of each group becomes a number of each row.

In: numbers per group (any stride), and per row the index of its group. Out: new int64 arrays, one value a row. numpy's
own indexing gives the same, at three times the cost: it is the oracle in tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from replica.native.compile import kernel
from replica.native.memory import load_i4, load_u4, load_u8, store_u8
from replica.rows.scan import address

Ints = np.ndarray[Any, np.dtype[np.int64]]
GroupIndex = np.ndarray[Any, np.dtype[np.int32]]


@kernel
def _take(values: int, stride: int, group: int, rows: int, factor: int, out: int) -> int:
    """Addresses, but for `stride`, `rows` and `factor`; gives how many values are not 0."""
    told = 0
    for row in range(rows):
        value = load_u8(values + load_i4(group + row * 4) * stride)
        told += value != 0
        store_u8(out + row * 8, value * factor)
    return told


@kernel
def _take_positions(data: int, starts: int, stride: int, group: int, rows: int, out: int) -> None:
    """Where each row's group begins in the primary's file: of the GTID event's header, its log_pos less its length."""
    for row in range(rows):
        header = data + load_u8(starts + load_i4(group + row * 4) * stride)
        store_u8(out + row * 8, (load_u4(header + 13) - load_u4(header + 9)) & 0xFFFFFFFF)


def take(per_group: Ints, group: GroupIndex, factor: int = 1) -> tuple[Ints, int]:
    """`per_group[group] * factor`, and how many of the values are not 0."""
    group = np.ascontiguousarray(group, np.int32)
    out = np.empty(len(group), np.int64)
    told = _take(address(per_group), per_group.strides[0], address(group), len(group), factor, address(out))
    return out, told


def take_positions(data: np.ndarray[Any, np.dtype[np.uint8]], starts: Ints, group: GroupIndex) -> Ints:
    """Per row where its transaction begins in the primary's binlog file, modulo 4 GiB, as the header of its GTID event
    tells; `starts` are the offsets of those events in `data`.
    """
    group = np.ascontiguousarray(group, np.int32)
    out = np.empty(len(group), np.int64)
    _take_positions(address(data), address(starts), starts.strides[0], address(group), len(group), address(out))
    return out
