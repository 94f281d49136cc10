"""Kernels of change_rows.py: short texts in string arrays. All arguments except strides and counts are addresses.

Most texts equal the previous one, or differ in a last digit that is one higher. So they are copied from it, eight bytes
at a time, and the next text overwrites surplus bytes. The output needs SLACK bytes after the last text.
"""

from __future__ import annotations

import numpy as np

from replica.native.compile import helper, kernel
from replica.native.memory import load_i4, load_u1, load_u8, store_u1, store_u4, store_u8

SLACK = 16

LABEL_BYTES = 16
"""Bytes of each word that `write_labels` chooses from."""
_NINE = 57


@helper
def _write_digits(number: np.uint64, last: int, count: int) -> None:
    """Write the last `count` decimal digits with leading zeros. `last` is the address of the last digit."""
    for i in range(count):
        store_u1(last - i, np.int64(48 + number % np.uint64(10)))
        number //= np.uint64(10)


@helper
def _write_number(number: np.uint64, out: int) -> int:
    """Write the decimal digits of an unsigned number, and return the address after them."""
    digits = 1
    rest = number // np.uint64(10)
    while rest:
        digits += 1
        rest //= np.uint64(10)
    _write_digits(number, out + digits - 1, digits)
    return out + digits


@helper
def _repeat(start: int, length: int) -> None:
    """Write the `length` bytes before `start` again."""
    for i in range(0, length, 8):
        store_u8(start + i, load_u8(start - length + i))


@kernel
def write_sequences(seq_no: int, stride: int, group: int, ordinal: int, rows: int, out: int) -> int:
    """Write 33 bytes a row: 20 digits of its transaction's sequence number, a dot, and 12 digits of its ordinal.

    Return the number of bytes written.
    """
    group_before = -1
    sequence_before = 0
    ordinal_before = 0
    for row in range(rows):
        start = out + row * 33
        if row:
            _repeat(start, 33)
        g = load_i4(group + row * 4)
        if g != group_before:
            sequence = load_u8(seq_no + g * stride)
            if row == 0 or sequence != sequence_before + 1 or load_u1(start + 19) == _NINE or sequence == 0:
                _write_digits(np.uint64(sequence), start + 19, 20)
                store_u1(start + 20, 46)
            else:
                store_u1(start + 19, load_u1(start + 19) + 1)
            group_before = g
            sequence_before = sequence
        number = load_u8(ordinal + row * 8)
        if row == 0 or (number != ordinal_before and (number != ordinal_before + 1 or load_u1(start + 32) == _NINE)):
            _write_digits(np.uint64(number), start + 32, 12)
        elif number != ordinal_before:
            store_u1(start + 32, load_u1(start + 32) + 1)
        ordinal_before = number
    return rows * 33


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
    """Write `domain-server-sequence` of each row's transaction, and `rows` + 1 offsets; return the number of bytes
    written.
    """
    position = 0
    length = 0
    group_before = -1
    domain_before, server_before, sequence_before = 0, 0, 0
    store_u4(offsets, 0)
    for row in range(rows):
        start = out + position
        g = load_i4(group + row * 4)
        if g == group_before:
            _repeat(start, length)
        else:
            domain_id = load_u8(domain + g * domain_stride)
            server_id = load_u8(server + g * server_stride)
            sequence = load_u8(seq_no + g * seq_no_stride)
            follows = domain_id == domain_before and server_id == server_before and sequence == sequence_before + 1
            if row and follows and sequence != 0 and load_u1(start - 1) != _NINE:
                _repeat(start, length)
                store_u1(start + length - 1, load_u1(start + length - 1) + 1)
            else:
                end = _write_number(np.uint64(domain_id), start)
                store_u1(end, 45)
                end = _write_number(np.uint64(server_id), end + 1)
                store_u1(end, 45)
                length = _write_number(np.uint64(sequence), end + 1) - start
            group_before, domain_before, server_before, sequence_before = g, domain_id, server_id, sequence
        position += length
        store_u4(offsets + (row + 1) * 4, position)
    return position


@kernel
def write_labels(codes: int, rows: int, labels: int, lengths: int, offsets: int, out: int) -> int:
    """Write the word of each row's code (one byte), and `rows` + 1 offsets; return the number of bytes written.

    Each label takes LABEL_BYTES. `lengths` has its length as int64.
    """
    position = 0
    store_u4(offsets, 0)
    for row in range(rows):
        code = load_u1(codes + row)
        label = labels + code * LABEL_BYTES
        store_u8(out + position, load_u8(label))
        store_u8(out + position + 8, load_u8(label + 8))
        position += load_u8(lengths + code * 8)
        store_u4(offsets + (row + 1) * 4, position)
    return position
