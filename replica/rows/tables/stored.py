"""Columns whose values stand in the log in another form than they are read in: COMPRESSED columns, and MySQL's JSON.

In: the columns of a table map and their plans. Out: `StoredColumns`, which columns are to be rewritten, how to step
over a row image as it was logged, and the function that makes a plain value of a stored one. A column that is not read
stays as it is: its length says enough.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from replica.protocol.compression import inflate_column
from replica.protocol.constants import MAX_EVENT_BYTES, ColumnType
from replica.protocol.mysql.binary_json import rewrite_json
from replica.protocol.rows.column_def import value_extent
from replica.rows.tables.plan import PREPARED
from replica.rows.types.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from replica.protocol.rows.column_def import ColumnDef
    from replica.protocol.wire import Buffer
    from replica.rows.tables.plan import ColumnPlan

    Unpack = Callable[[memoryview], Buffer]


class StoredColumns:
    """One table's columns to rewrite; empty, and false, for most tables.

    `unpack[i]` turns the bytes behind the length of a value of column i into the plain value, or raises ProtocolError.
    `widths[i]`: bytes of a value of column i in the log, or minus the bytes of the length in front of it. `marks[i]`: 1
    for a column to rewrite.
    """

    def __init__(self, columns: Sequence[ColumnDef], plans: Sequence[ColumnPlan]) -> None:
        self.unpack: Mapping[int, Unpack] = {
            number: _unpack(column)
            for number, (column, plan) in enumerate(zip(columns, plans, strict=True))
            if column.type in PREPARED and plan.kind != Kind.OPAQUE
        }
        self.widths = np.array([-plan.prefix if plan.prefix else plan.width for plan in plans], np.int64)
        self.marks = np.zeros(len(plans), np.uint8)
        for number in self.unpack:
            self.widths[number] = -value_extent(columns[number])[1]
            self.marks[number] = 1

    def __bool__(self) -> bool:
        return bool(self.unpack)


def _unpack(column: ColumnDef) -> Unpack:
    if column.type == ColumnType.JSON:
        return rewrite_json
    # A VARCHAR's length in the log has room for the byte that says how the value is stored.
    longest = column.length - 1 if column.type == ColumnType.VARCHAR_COMPRESSED else (1 << (8 * column.length)) - 1
    return partial(inflate_column, limit=min(longest, MAX_EVENT_BYTES))
