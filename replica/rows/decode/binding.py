"""Conversion of a RowLayout (names and types) to PLAN records (numbers and addresses) for the decode kernels.

A `Template` has PLAN records without output addresses, and owns the memory that its addresses point to (label tables,
character tables). `Template.bind` adds the addresses of one ColumnSet.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, assert_never

import numpy as np

from replica.native.arrays import address
from replica.protocol.rows.values import fraction_width
from replica.rows.tables.layout import ABSENT
from replica.rows.types.charsets import conversion
from replica.rows.types.entry import Told, Widens
from replica.rows.types.kinds import Kind
from replica.rows.types.plan_record import (
    KIND_ROUNDED_DOUBLE,
    KIND_ROUNDED_FLOAT,
    KIND_ROW_END,
    KIND_ROW_END_TEXT,
    KIND_WIDENED,
    PlanRecord,
)
from replica.rows.types.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.rows.decode.arena import ColumnSet
    from replica.rows.tables.plan import ColumnPlan
    from replica.rows.types.types import ValuePolicy

_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4)


class Template:
    """PLAN records of one table; `outputs[i]` is the output column that wire column i feeds, or ABSENT."""

    def __init__(self, columns: Sequence[ColumnPlan], outputs: Sequence[int], policy: ValuePolicy) -> None:
        self.records: Records = np.zeros(len(columns), PlanRecord.dtype)
        self.outputs = np.array(outputs, np.int64)
        self._keep: list[npt.NDArray[Any]] = []
        self._missing: npt.NDArray[np.int64] | None = None  # output columns without a wire column
        for record, plan, output in zip(self.records, columns, outputs, strict=True):
            record["width"] = -plan.prefix if plan.prefix else plan.width
            if output != ABSENT:
                self._parameters(record, plan, policy)
            elif plan.row_end:
                record["kind"] = KIND_ROW_END

    def _parameters(self, record: Records, plan: ColumnPlan, policy: ValuePolicy) -> None:  # noqa: C901, PLR0912
        entry = KINDS[plan.kind]
        code: int = plan.kind
        a = b = aux = 0
        strict_dates, strict_text = policy.invalid_dates == "error", policy.invalid_text == "error"
        match entry.binlog.told:
            case Told.NOTHING:
                pass
            case Told.DIGITS:
                a, b = decimal_shape(plan.precision, plan.scale), plan.scale
                aux = 4 if plan.precision <= 9 else 8 if plan.precision <= 18 else 16
            case Told.DECIMALS:
                if plan.decimals is not None:
                    code = KIND_ROUNDED_FLOAT if plan.kind == Kind.FLOAT else KIND_ROUNDED_DOUBLE
                    a = plan.decimals
            case Told.CALENDAR:
                b = int(strict_dates)
            case Told.FRACTION:
                a, b = fraction_width(plan.fsp), int(strict_dates)
            case Told.FRACTION_TEXT:
                a, b = fraction_width(plan.fsp), plan.fsp
            case Told.LENGTH:
                a = plan.length
            case Told.LABELS:
                aux = self._address(label_table(plan.labels))
            case Told.TEXT:
                b = int(strict_text)
            case Told.CHARSET:
                assert plan.charset is not None  # noqa: S101  (the plan gives every text column one)
                code, a, table = conversion(plan.charset)
                b = int(strict_text)
                aux = 0 if table is None else self._address(table)
            case unknown:
                assert_never(unknown)
        if plan.widened:
            code, a, b = KIND_WIDENED, plan.widened, int(entry.widens is Widens.SIGNED)
        if plan.row_end:
            code = KIND_ROW_END_TEXT if plan.kind == Kind.TIMESTAMP_TEXT else KIND_ROW_END
        record["kind"], record["a"], record["b"], record["aux"] = code, a, b, aux

    def _address(self, table: npt.NDArray[Any]) -> int:
        self._keep.append(table)
        return address(table)

    def bind(self, columns: ColumnSet) -> Records:
        """Return a copy of the records with the addresses of a set of output columns."""
        bound = self.records.copy()
        wanted = self.outputs >= 0
        slots = self.outputs[wanted]
        for field, addresses in (("values", columns.values), ("valid", columns.valid), ("tail", columns.tail)):
            bound[field][wanted] = addresses[slots]
        return bound

    def absent(self, columns: ColumnSet) -> Records:
        """Return PLAN records of the output columns that no wire column feeds."""
        if self._missing is None:
            self._missing = np.setdiff1d(np.arange(len(columns.kinds)), self.outputs)
        missing = self._missing
        bound = np.zeros(len(missing), PlanRecord.dtype)
        for field, addresses in (("values", columns.values), ("valid", columns.valid), ("tail", columns.tail)):
            bound[field] = addresses[missing]
        return bound


def decimal_shape(precision: int, scale: int) -> int:
    """Pack the digit counts of a packed DECIMAL into one word; kernel_numbers.py lists the bit positions."""
    whole, fraction = precision - scale, scale
    lead, tail = whole % 9, fraction % 9
    return (
        _DIGIT_BYTES[lead]
        | (whole // 9) << 4
        | (fraction // 9) << 8
        | _DIGIT_BYTES[tail] << 12
        | 10**lead << 16
        | tail << 48
    )


@cache
def label_table(labels: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    """Build a label table: count, count + 1 offsets from the table's start (all u4), then the labels in UTF-8."""
    texts = [label.encode() for label in labels]
    start = 4 + (len(texts) + 1) * 4
    offsets = np.cumsum([start, *(len(text) for text in texts)])
    head = np.array([len(texts), *offsets], "<u4").tobytes()
    # Kernels copy short labels as blocks of 32 bytes.
    return np.frombuffer(head + b"".join(texts) + bytes(32), np.uint8)
