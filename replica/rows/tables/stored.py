"""Columns whose stored form differs from the form that decoders read: COMPRESSED columns, and MySQL's JSON.

`StoredColumns` knows which columns of a table to rewrite, and with which function. It also knows how to step over a row
image in its logged form. A column that is not read keeps its stored form: its length suffices to skip it.
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
    """The columns of one table to rewrite; empty, and false, for most tables.

    Attributes:
        unpack: Per column number, a function that converts a stored value to its plain form. The argument excludes the
            length prefix. The function raises ProtocolError for invalid bytes.
        widths: int64, per column: bytes of a value in the log, or minus the bytes of its length prefix.
        marks: uint8, per column: 1 for a column to rewrite.
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
    # The length of a compressed VARCHAR in the log includes the header byte of a compressed value.
    longest = column.length - 1 if column.type == ColumnType.VARCHAR_COMPRESSED else (1 << (8 * column.length)) - 1
    return partial(inflate_column, limit=min(longest, MAX_EVENT_BYTES))
