"""Conversion of a kernel's fault code to the error that names table, column and byte offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.rows.decode import records as d
from replica.rows.decode.texts import no_text

if TYPE_CHECKING:
    from replica.native.record import Records
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan

DAMAGED: Final = "The bytes are damaged; verify the relay log's checksums."
UNLIKE: Final = (
    "Either the table was changed without the binlog (sql_log_bin=0), or the bytes are damaged: verify the relay log's "
    "checksums. With binlog_row_metadata=FULL on the primary, the binlog contains the column definitions."
)
OURS: Final = "The bytes may be correct: report this with the column's declaration."


def image_fault(status: int, slots: SlotTable, slot: int, *, column: int = -1, offset: int) -> ProtocolError:
    """Make the error of a fault code.

    Args:
        status: The fault code (rows/decode/records.py).
        slots: The tables of the range.
        slot: The slot of the table.
        column: The number of the column, -1 if the fault is not in a single column.
        offset: The offset of the byte in the range.
    """
    where = slots.name(slot)
    if column >= 0:
        where = f"column {slots.column_name(slot, column)} of {where}"
    if status == d.BAD_DATE:
        return ProtocolError(
            f"{where} holds a date that does not exist",
            offset=offset,
            hint="Set invalidDates to 'null' or 'text' to accept such dates.",
        )
    if status == d.BAD_TEXT:
        return no_text(where, offset)
    text = {
        d.SHORT_IMAGE: "ends beyond its event",
        d.BAD_WIDTH: "has a different number of columns in its rows than in its table map",
        d.NO_COLUMNS: "has row images without any column",
        d.BAD_VALUE: "holds bytes that are not a value of its type",
        d.UNKNOWN_KIND: "has a type that the decoder does not support",
    }[status]
    subject = f"the row image of {where}" if status == d.SHORT_IMAGE else where
    hint = {d.UNKNOWN_KIND: OURS, d.BAD_VALUE: UNLIKE}.get(status, DAMAGED)
    return ProtocolError(f"{subject} {text}", offset=offset, hint=hint)


def run_fault(status: int, run: Records, found: Scan, slots: SlotTable) -> ProtocolError:
    """Make the error from the RunState that a kernel left."""
    event = found.events[int(run["event"])]
    offset = int(run["fault"])
    if not 0 <= offset < len(found.data):  # in rewritten images
        offset = int(event["start"])
    slot, column = int(event["slot"]), int(run["column"])
    return image_fault(status, slots, slot, column=column, offset=found.origin(offset))
