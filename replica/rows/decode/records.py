"""What decode kernels write to and keep: output columns, tables with their plans, the state of a run, how it returns.

Int64 records (native/record.py). All offsets count bytes from the start of the scanned range.
"""

from __future__ import annotations

from typing import Final

# The growing data of a column of strings or bytes.
TAIL_DATA: Final = 0  # address
TAIL_CAPACITY: Final = 8
TAIL_END: Final = 16  # bytes used
TAIL_VALUES: Final = 24  # address of the int32 offsets
TAIL_BYTES: Final = 32

# The columns of one side of the output: before, after, or the flat row.
SIDE_TAILS: Final = 0  # address of its TAIL records
SIDE_TAIL_COUNT: Final = 8
SIDE_VALID: Final = 16  # address of its first validity bitmap, bytes from one to the next, and how many
SIDE_STRIDE: Final = 24
SIDE_VALID_COUNT: Final = 32

# One table map with its plan.
SLOT_WANTED: Final = 0  # bit 1 << OP_*: rows of that operation are delivered, others only counted; SKIP_UNCHANGED
SLOT_COLUMNS: Final = 8  # columns on the wire
SLOT_PLAN_BEFORE: Final = 16  # address of PLAN records that write to the before columns (to the only ones, when flat)
SLOT_PLAN_AFTER: Final = 24
SLOT_ABSENT_BEFORE: Final = 32  # address of PLAN records of output columns that the table lacks
SLOT_ABSENT_AFTER: Final = 40
SLOT_ABSENT: Final = 48  # how many
SLOT_TABLE: Final = 56  # what goes into the batch's `table` column
SLOT_METADATA: Final = 64  # VARIANT: address and size of the dictionary
SLOT_METADATA_SIZE: Final = 72
SLOT_RANKS: Final = 80  # VARIANT: address of int64 column numbers in the order of their names
SLOT_SHOWN: Final = 88  # VARIANT: how many columns are put out; the others have the rank -1
SLOT_BYTES: Final = 96

# What a decode kernel keeps between two calls.
RUN_ITEM: Final = 0  # place in the worklist
RUN_OFFSET: Final = 8  # offset of the next row in that event, 0: at its beginning
RUN_GROUP: Final = 16  # group of the last event that was begun
RUN_ORDINAL: Final = 24  # rows of that group so far
RUN_ROWS: Final = 32  # out: rows of this batch
RUN_FAULT: Final = 40  # out: offset of the byte that could not be read
RUN_COLUMN: Final = 48  # out: column number of that value; with ROOM: address of the TAIL record that is full
RUN_NEED: Final = 56  # out: bytes that TAIL has to hold at least
RUN_EVENT: Final = 64  # out: the rows event of the fault
RUN_STOP: Final = 72  # place in the worklist to stop before: the images of later events are not prepared yet
RUN_WORDS: Final = 12

# How a decode kernel returns.
DONE: Final = 0  # the worklist is at its end, or at the place to stop before
FULL: Final = 1  # rows or bytes of the batch are used up: take it and call again
ROOM: Final = 2  # a column's data is full: take the batch if it has rows, else make room, and call again
SHORT_IMAGE: Final = 3
BAD_WIDTH: Final = 4
BAD_VALUE: Final = 5
BAD_DATE: Final = 6
NO_COLUMNS: Final = 7
BAD_TEXT: Final = 8

# The batch's own columns: one address each, in this order, in the kernel's `meta` argument.
META_OP: Final = 0  # int8
META_TABLE: Final = 8  # int32
META_GROUP: Final = 16  # int32
META_ORDINAL: Final = 24  # int64
META_LAST: Final = 32  # int8
META_EVENT: Final = 40  # int32
META_HISTORY: Final = 48  # int8: HISTORY_*, written for versioned tables only

# The flat shape's operations. There an UPDATE is two rows, OP_UPDATE for the image before and the next one after.
FLAT_AFTER: Final = 2
FLAT_DELETE: Final = 3
