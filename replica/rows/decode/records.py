"""Layout of the memory that decode kernels write and keep: output columns, tables with their plans, and the run state.

All offsets count bytes from the start of the scanned range.
"""

from __future__ import annotations

from typing import Final

from replica.native.record import Record, word


class TailRecord(Record):
    """The growing data of a string or bytes column."""

    data = word("address")
    capacity = word("bytes there is room for")
    end = word("bytes used")
    values = word("address of the int32 offsets")


class SideRecord(Record):
    """The columns of one side of the output: before, after, or the flat row."""

    tails = word("address of its TailRecords")
    tail_count = word("how many")
    valid = word("address of its first validity bitmap")
    stride = word("bytes from one bitmap to the next")
    valid_count = word("how many bitmaps")


class SlotRecord(Record):
    """One table map with its plan."""

    wanted = word("bit 1 << OP_*: rows of that operation are delivered, others only counted; SKIP_UNCHANGED")
    columns = word("columns on the wire")
    plan_before = word("address of PlanRecords that write to the before columns (to the only ones, when flat)")
    plan_after = word("the same for the after columns")
    absent_before = word("address of PlanRecords of before columns that the table lacks")
    absent_after = word("the same for after columns")
    absent = word("how many they are, on either side")
    table = word("what goes into the batch's `table` column")
    metadata = word("VARIANT: address of the dictionary")
    metadata_size = word("VARIANT: bytes of the dictionary")
    ranks = word("VARIANT: address of int64 column numbers in the order of their names")
    shown = word("VARIANT: how many columns are put out; the others have the rank -1")


class RunState(Record):
    """The state that a decode kernel keeps between two calls, and its results for the batch."""

    item = word("place in the worklist")
    offset = word("offset of the next row in that event, 0: at its beginning")
    group = word("group of the last event that was begun")
    ordinal = word("rows of that group so far")
    rows = word("out: rows of this batch")
    fault = word("out: offset of the byte that could not be read")
    column = word("out: column number of that value; with ROOM: address of the TailRecord that is full")
    need = word("out: bytes that this tail has to hold at least")
    event = word("out: the rows event of the fault")
    guess = word("VARIANT: bytes of an offset in the object before, 0: there is none")
    stop = word("place in the worklist to stop before: the images of later events are not prepared yet")


class RowColumns(Record):
    """The addresses of the batch's own columns, one value per row."""

    op = word("int8: OP_*, or FLAT_*")
    table = word("int32: number of the table")
    group = word("int32: number of the event group")
    ordinal = word("int64: rows of the group before this one")
    last = word("int8: 1 for the last row of its group")
    event = word("int32: number of the rows event")
    history = word("int8: HISTORY_*, written for versioned tables only")


# Return codes of a decode kernel.
DONE: Final = 0  # the worklist is at its end, or at the item to stop before
FULL: Final = 1  # rows or bytes of the batch are used up: take the batch and call again
ROOM: Final = 2  # a column's data is full: take the batch if it has rows, else enlarge the column, and call again
SHORT_IMAGE: Final = 3
BAD_WIDTH: Final = 4
BAD_VALUE: Final = 5
BAD_DATE: Final = 6
NO_COLUMNS: Final = 7
BAD_TEXT: Final = 8
UNKNOWN_KIND: Final = 9  # the kernel has no branch for the kind of a column

# Operations of the flat shape. An UPDATE is two rows: OP_UPDATE for the before image, FLAT_AFTER for the after image.
FLAT_AFTER: Final = 2
FLAT_DELETE: Final = 3
