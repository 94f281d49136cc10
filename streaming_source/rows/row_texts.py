"""The texts of every row, written by kernels into Arrow buffers: `_sequence`, the GTID and the operation.

The functions take sequence number, domain and server per transaction, and transaction, ordinal and operation per row.
They return string arrays in memory that the next batch overwrites. Digits are made at most once a transaction.
`_sequence` is `{sequence number:020d}.{ordinal:012d}`, 33 bytes of fixed width that sort as text in the order of the
row changes of one domain.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from replica.errors import ProtocolError
from replica.native.arrays import address
from streaming_source.rows.kernels.kernel_row_texts import SLACK, WORD_BYTES, write_gtids, write_sequences, write_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_source.rows.row_memory import RowMemory

SEQUENCE_WIDTH: Final = 33
_ORDINAL_DIGITS: Final = 12
MAX_ORDINAL: Final = 10**_ORDINAL_DIGITS - 1  # a transaction of more rows would be some 10 TB of binlog
GTID_WIDTH: Final = 42  # 10 digits, 10 digits, 20 digits and two dashes

Ints = np.ndarray[Any, np.dtype[np.int64]]
GroupIndex = np.ndarray[Any, np.dtype[np.int32]]
Codes = np.ndarray[Any, np.dtype[np.int8]]


class Words:
    """A few words, at most 16 bytes each, of which every row has one."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        encoded = [word.encode() for word in words]
        if any(len(word) > WORD_BYTES for word in encoded):
            raise ValueError(words)
        self._words = np.frombuffer(b"".join(word.ljust(WORD_BYTES, b" ") for word in encoded), np.uint8)
        self._lengths = np.array([len(word) for word in encoded], np.int64)

    def texts(self, codes: Codes, memory: RowMemory) -> pa.Array:
        """Return the array of words[code] for each row's code."""
        rows = len(codes)
        codes = np.ascontiguousarray(codes, np.int8)
        out = memory.bytes("words", rows * WORD_BYTES + SLACK)
        offsets = memory.bytes("word offsets", (rows + 1) * 4)
        words, lengths = address(self._words), address(self._lengths)
        written = write_words(address(codes), rows, words, lengths, address(offsets), address(out))
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out[:written]))


def sequence_texts(seq_no: Ints, group: GroupIndex, ordinal: Ints, memory: RowMemory) -> pa.Array:
    """Return the array of `_sequence` for each row.

    Raises:
        ProtocolError: an ordinal does not fit into its digits, so that texts would not sort.
    """
    rows = len(group)
    if rows and int(ordinal.max()) > MAX_ORDINAL:
        raise ProtocolError(f"a transaction of more than {MAX_ORDINAL + 1} row changes cannot be numbered.")
    out = memory.bytes("sequences", rows * SEQUENCE_WIDTH + SLACK)
    group, ordinal = np.ascontiguousarray(group, np.int32), np.ascontiguousarray(ordinal, np.int64)
    written = write_sequences(
        *(address(seq_no), seq_no.strides[0]), *(address(group), address(ordinal), rows, address(out))
    )
    offsets = _every_33rd(1 << rows.bit_length())[: rows + 1]
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out[:written]))


@lru_cache(maxsize=4)
def _every_33rd(count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.arange(0, (count + 1) * SEQUENCE_WIDTH, SEQUENCE_WIDTH, dtype=np.int32)


def gtid_texts(domain: Ints, server_id: Ints, seq_no: Ints, group: GroupIndex, memory: RowMemory) -> pa.Array:
    """Return the array of `domain-server-sequence` for each row's transaction."""
    rows = len(group)
    out = memory.bytes("gtids", rows * GTID_WIDTH + SLACK)
    offsets = memory.bytes("gtid offsets", (rows + 1) * 4)
    group = np.ascontiguousarray(group, np.int32)
    written = write_gtids(
        *(address(domain), domain.strides[0]),
        *(address(server_id), server_id.strides[0]),
        *(address(seq_no), seq_no.strides[0]),
        *(address(group), rows, address(offsets), address(out)),
    )
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out[:written]))
