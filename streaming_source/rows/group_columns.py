"""The numbers that rows take over from their transactions, all columns in one pass of a kernel.

In: the groups of a range, and per row the index of its group. Out: int64 arrays, one value a row, in memory that the
next batch fills again. numpy's own indexing gives the same, at many times the cost: it is the oracle in tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replica.native.arrays import address
from streaming_source.rows.kernel_group_columns import take_numbers

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.rows.decode.batch import Groups
    from streaming_source.rows.row_memory import RowMemory

Ints = np.ndarray[Any, np.dtype[np.int64]]
GroupIndex = np.ndarray[Any, np.dtype[np.int32]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

NUMBERS: Final = ("domain", "server", "sequence", "timestamp", "xid", "thread", "position")
"""The columns in the kernel's order. `timestamp` has microseconds; `position` is where the group begins in the
primary's binlog file, modulo 4 GiB, as the header of its GTID event tells."""


class Numbers(NamedTuple):
    """The columns that were asked for, by name, and how many rows have an xid and a thread that is not 0."""

    columns: dict[str, Ints]
    told: dict[str, int]


def numbers(groups: Groups, group: GroupIndex, data: Bytes, wanted: Collection[str], memory: RowMemory) -> Numbers:
    """Take the columns `wanted`, some of NUMBERS, for each row; `data` is the range that the groups were found in."""
    group = np.ascontiguousarray(group, np.int32)
    rows = len(group)
    columns = {name: memory.bytes(name, rows * 8).view(np.int64) for name in NUMBERS if name in wanted}
    told = np.zeros(2, np.int64)
    arguments = [address(groups.records), address(group), rows]
    arguments += [address(data), address(groups.start), groups.start.strides[0]]
    arguments += [address(columns[name]) if name in columns else 0 for name in NUMBERS]
    arguments.append(address(told))
    take_numbers(*arguments)
    return Numbers(columns, {"xid": int(told[0]), "thread": int(told[1])})
