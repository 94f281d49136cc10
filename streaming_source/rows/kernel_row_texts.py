"""Kernels of row_texts.py: decimal digits into string arrays. All arguments but strides and counts are addresses."""

from __future__ import annotations

import numpy as np

from replica.native.compile import helper, kernel
from replica.native.memory import load_i4, load_u1, load_u8, store_u1, store_u4


@helper
def _write_digits(number: np.uint64, last: int, count: int) -> None:
    """Write the last `count` decimal digits, zeros in front; `last` is where the last of them goes."""
    for i in range(count):
        store_u1(last - i, np.int64(48 + number % np.uint64(10)))
        number //= np.uint64(10)


@helper
def _write_number(number: np.uint64, out: int) -> int:
    """Write the decimal digits of an unsigned number and return the address behind them."""
    digits = 1
    rest = number // np.uint64(10)
    while rest:
        digits += 1
        rest //= np.uint64(10)
    _write_digits(number, out + digits - 1, digits)
    return out + digits


@kernel
def write_sequences(seq_no: int, stride: int, group: int, ordinal: int, rows: int, out: int) -> None:
    """Write 33 bytes a row: 20 digits of its transaction's sequence number, a dot, 12 digits of its ordinal."""
    before = -1
    for row in range(rows):
        start = out + row * 33
        g = load_i4(group + row * 4)
        if g == before:
            for i in range(21):
                store_u1(start + i, load_u1(start - 33 + i))
        else:
            _write_digits(np.uint64(load_u8(seq_no + g * stride)), start + 19, 20)
            store_u1(start + 20, 46)
        _write_digits(np.uint64(load_u8(ordinal + row * 8)), start + 32, 12)
        before = g


@kernel
def write_gtids(
    domain: int,
    domain_stride: int,
    server: int,
    server_stride: int,
    seq_no: int,
    seq_no_stride: int,
    group: int,
    rows: int,
    offsets: int,
    out: int,
) -> int:
    """Write `domain-server-sequence` of each row's transaction and `rows` + 1 offsets; return how many bytes were
    written.
    """
    position = 0
    length = 0
    before = -1
    store_u4(offsets, 0)
    for row in range(rows):
        g = load_i4(group + row * 4)
        start = out + position
        if g == before:
            for i in range(length):
                store_u1(start + i, load_u1(start - length + i))
        else:
            end = _write_number(np.uint64(load_u8(domain + g * domain_stride)), start)
            store_u1(end, 45)
            end = _write_number(np.uint64(load_u8(server + g * server_stride)), end + 1)
            store_u1(end, 45)
            length = _write_number(np.uint64(load_u8(seq_no + g * seq_no_stride)), end + 1) - start
        position += length
        store_u4(offsets + (row + 1) * 4, position)
        before = g
    return position
