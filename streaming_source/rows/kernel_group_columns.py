"""Kernels of group_columns.py: a number of each group becomes a number of each row."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.kernel_header import LOG_POS_AT, event_length
from replica.native.memory import load_i4, load_u4, load_u8, store_u8

_U32 = 0xFFFFFFFF  # positions in a header have 32 bits, and begin at 0 again beyond


@kernel
def take_values(values: int, stride: int, group: int, rows: int, factor: int, out: int) -> int:
    """Take a number per row; return how many values are not 0. The arguments are addresses, but for `stride`, `rows`
    and `factor`.
    """
    told = 0
    for row in range(rows):
        value = load_u8(values + load_i4(group + row * 4) * stride)
        told += value != 0
        store_u8(out + row * 8, value * factor)
    return told


@kernel
def take_starts(data: int, starts: int, stride: int, group: int, rows: int, out: int) -> None:
    """Write where each row's group begins in the primary's file: of the GTID event's header, its log_pos less its
    length.
    """
    for row in range(rows):
        header = data + load_u8(starts + load_i4(group + row * 4) * stride)
        store_u8(out + row * 8, (load_u4(header + LOG_POS_AT) - event_length(header)) & _U32)
