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
from replica.native.arrays import address
from streaming_source.rows.kernel_row_texts import write_gtids, write_sequences

SEQUENCE_WIDTH: Final = 33
_ORDINAL_DIGITS: Final = 12
MAX_ORDINAL: Final = 10**_ORDINAL_DIGITS - 1  # a transaction of more rows would be some 10 TB of binlog
GTID_WIDTH: Final = 42  # 10 digits, 10 digits, 20 digits and two dashes

Ints = np.ndarray[Any, np.dtype[np.int64]]
GroupIndex = np.ndarray[Any, np.dtype[np.int32]]


def sequence_texts(seq_no: Ints, group: GroupIndex, ordinal: Ints) -> pa.Array:
    """Make the text `_sequence` of each row.

    Raises:
        ProtocolError: an ordinal that does not fit into its digits, so that texts would no longer sort.
    """
    rows = len(group)
    if rows and int(ordinal.max()) > MAX_ORDINAL:
        raise ProtocolError(f"a transaction of more than {MAX_ORDINAL + 1} row changes cannot be numbered.")
    out = np.empty(rows * SEQUENCE_WIDTH, np.uint8)
    group, ordinal = np.ascontiguousarray(group, np.int32), np.ascontiguousarray(ordinal, np.int64)
    write_sequences(address(seq_no), seq_no.strides[0], address(group), address(ordinal), rows, address(out))
    offsets = np.arange(0, (rows + 1) * SEQUENCE_WIDTH, SEQUENCE_WIDTH, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out))


def gtid_texts(domain: Ints, server_id: Ints, seq_no: Ints, group: GroupIndex) -> pa.Array:
    """Make the text `domain-server-sequence` of each row's transaction."""
    rows = len(group)
    out = np.empty(rows * GTID_WIDTH, np.uint8)
    offsets = np.empty(rows + 1, np.int32)
    group = np.ascontiguousarray(group, np.int32)
    written = write_gtids(
        *(address(domain), domain.strides[0]),
        *(address(server_id), server_id.strides[0]),
        *(address(seq_no), seq_no.strides[0]),
        *(address(group), rows, address(offsets), address(out)),
    )
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out[:written]))
