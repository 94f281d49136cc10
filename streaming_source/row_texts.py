"""The two texts every row carries, `_sequence` and the GTID, written by kernels straight into Arrow buffers.

In: sequence number, domain and server per transaction; transaction and ordinal per row. Out: string arrays. Digits are
made once per transaction and copied to its other rows. `_sequence` is `{sequence number:020d}.{ordinal:012d}`, 33
bytes of fixed width that sort as text like the row changes of one domain.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from replica.errors import ProtocolError
from replica.native.compile import helper, kernel

SEQUENCE_WIDTH: Final = 33
_ORDINAL_DIGITS: Final = 12
MAX_ORDINAL: Final = 10**_ORDINAL_DIGITS - 1  # a transaction of more rows would be some 10 TB of binlog
GTID_WIDTH: Final = 42  # 10 digits, 10 digits, 20 digits and two dashes

Ints = np.ndarray[Any, np.dtype[np.int64]]
GroupIndex = np.ndarray[Any, np.dtype[np.int32]]
Text = np.ndarray[Any, np.dtype[np.uint8]]


@kernel
def _write_sequences(seq_no: Ints, group: GroupIndex, ordinal: Ints, out: Text) -> None:
    for row in range(group.shape[0]):
        base = row * 33
        if row and group[row] == group[row - 1]:
            for i in range(21):
                out[base + i] = out[base - 33 + i]
        else:
            rest = np.uint64(seq_no[group[row]])
            for i in range(19, -1, -1):
                out[base + i] = 48 + rest % np.uint64(10)
                rest //= np.uint64(10)
            out[base + 20] = 46
        rest = np.uint64(ordinal[row])
        for i in range(32, 20, -1):
            out[base + i] = 48 + rest % np.uint64(10)
            rest //= np.uint64(10)


@helper
def _write_number(number: np.uint64, out: Text, position: int) -> int:
    """The decimal digits of an unsigned number at `position`; gives the position after them."""
    digits = 1
    rest = number // np.uint64(10)
    while rest:
        digits += 1
        rest //= np.uint64(10)
    for i in range(position + digits - 1, position - 1, -1):
        out[i] = 48 + number % np.uint64(10)
        number //= np.uint64(10)
    return position + digits


@kernel
def _write_gtids(domain: Ints, server: Ints, seq_no: Ints, group: GroupIndex, offsets: GroupIndex, out: Text) -> None:
    position = 0
    for row in range(group.shape[0]):
        start = position
        if row and group[row] == group[row - 1]:
            before = offsets[row - 1]
            position += start - before
            for i in range(start - before):
                out[start + i] = out[before + i]
        else:
            g = group[row]
            position = _write_number(np.uint64(domain[g]), out, position)
            out[position] = 45
            position = _write_number(np.uint64(server[g]), out, position + 1)
            out[position] = 45
            position = _write_number(np.uint64(seq_no[g]), out, position + 1)
        offsets[row + 1] = position


def sequence_texts(seq_no: Ints, group: GroupIndex, ordinal: Ints) -> pa.Array:
    """`_sequence` of each row.

    Raises:
        ProtocolError: an ordinal that does not fit into its digits, so that texts would no longer sort.

    """
    rows = len(group)
    if rows and int(ordinal.max()) > MAX_ORDINAL:
        raise ProtocolError(f"a transaction of more than {MAX_ORDINAL + 1} row changes cannot be numbered.")
    out = np.empty(rows * SEQUENCE_WIDTH, np.uint8)
    _write_sequences(seq_no, group, ordinal, out)
    offsets = np.arange(0, (rows + 1) * SEQUENCE_WIDTH, SEQUENCE_WIDTH, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out))


def gtid_texts(domain: Ints, server_id: Ints, seq_no: Ints, group: GroupIndex) -> pa.Array:
    """`domain-server-sequence` of each row's transaction."""
    rows = len(group)
    out = np.empty(rows * GTID_WIDTH, np.uint8)
    offsets = np.zeros(rows + 1, np.int32)
    _write_gtids(domain, server_id, seq_no, group, offsets, out)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]]))
