"""UTF-8 check of string columns whose bytes a decode kernel copied unchecked from utf8mb3 or utf8mb4 columns.

`damaged_row` finds invalid text, `repaired` replaces it with U+FFFD, and `bad_text` makes the error. A column of ASCII
costs one pass over its data; other columns are checked value by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.rows.decode.arena import MAX_DATA, SLACK
from replica.rows.types.kernels.kernel_utf8 import ALL_VALID, first_damaged, repair, repaired_size

if TYPE_CHECKING:
    from replica.rows.decode.arena import ColumnSet
    from replica.rows.decode.batch import ChangeBatch


def damaged_row(columns: ColumnSet, index: int, rows: int) -> int | None:
    """Find the first row of a string column with invalid UTF-8; None if all are valid."""
    offsets, data = columns.text(index)
    row = int(first_damaged(offsets, rows, data))
    return None if row == ALL_VALID else row


def repaired(array: pa.StringArray) -> pa.StringArray:
    """Return the same values, with U+FFFD for invalid bytes.

    Raises:
        ProtocolError: The repaired values exceed an Arrow column of 2 GiB.
    """
    valid, offsets, data = array.buffers()
    size = int(repaired_size(offsets.address, len(array), data.address))
    if size > MAX_DATA:
        raise ProtocolError(
            f"damaged text takes {size} bytes in one column of a batch, more than an Arrow column of 2 GiB holds",
            hint="Leave the column out, or read fewer rows in a batch.",
        )
    new_offsets, new_data = np.empty(len(array) + 1, np.int32), np.empty(size + SLACK, np.uint8)
    repair(offsets.address, len(array), data.address, address(new_offsets), address(new_data))
    return pa.StringArray.from_buffers(len(array), pa.py_buffer(new_offsets), pa.py_buffer(new_data), valid)


def bad_text(batch: ChangeBatch, row: int, column: str) -> ProtocolError:
    """Return the error for one value of a batch; its offset is that of the rows event."""
    table = ".".join(batch.tables[int(batch.table[row])])
    offset = None
    if batch.event is not None and batch.events is not None:
        offset = int(batch.events["start"][int(batch.event[row])])
    return no_text(f"column {column} of {table}", offset)


def no_text(where: str, offset: int | None) -> ProtocolError:
    """Return the error of `invalid_text='error'`."""
    return ProtocolError(
        f"{where} holds bytes that are not text in its character set",
        offset=offset,
        hint="Set invalidText to 'replace' to replace such bytes with U+FFFD.",
    )
