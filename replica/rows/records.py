"""Where things stand in the int64 records that the scan kernel writes and the decode kernels read.

A record is a row of a C-contiguous int64 matrix; kernels address a field as `record + FIELD` with FIELD in bytes,
numpy as `matrix[:, FIELD // 8]` (`column`). All offsets count bytes from the start of the scanned range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

WORD: Final = 8

# One event group that ended inside the range.
GROUP_DOMAIN: Final = 0
GROUP_SERVER: Final = 8
GROUP_SEQUENCE: Final = 16
GROUP_TIMESTAMP: Final = 24  # seconds, header of the event that ends the group: the commit, not the first statement
GROUP_FLAGS: Final = 32  # GTID flags2
GROUP_EXTRA: Final = 40  # GTID flags_extra
GROUP_COMMIT_ID: Final = 48
GROUP_XID: Final = 56  # 0 unless the group ends with XID
GROUP_THREAD: Final = 64  # 0 where the server does not say (before 11.5)
GROUP_START: Final = 72  # offset of the GTID event
GROUP_END: Final = 80  # offset after the last event
GROUP_FIRST: Final = 88  # first rows event of the group
GROUP_LAST: Final = 96  # one past its last rows event
GROUP_ENDING: Final = 104  # one of ENDS_*
GROUP_BYTES: Final = 112

ENDS_XID: Final = 1
ENDS_COMMIT: Final = 2
ENDS_ROLLBACK: Final = 3
ENDS_XA_PREPARE: Final = 4
ENDS_STANDALONE: Final = 5

# One rows event that holds at least one byte of row images.
EVENT_START: Final = 0
EVENT_IMAGES: Final = 8  # offset of the first row image
EVENT_END: Final = 16  # offset after the last one (before the CRC)
EVENT_OP: Final = 24  # OP_*
EVENT_SLOT: Final = 32  # index of its table map among the distinct ones
EVENT_GROUP: Final = 40
EVENT_WIDTH: Final = 48  # columns of the table
EVENT_BEFORE: Final = (
    56  # offset of the bitmap of the columns in the before image (in the only image, where there is one)
)
EVENT_AFTER: Final = 64  # the same for the after image of an UPDATE
EVENT_SQL: Final = 72  # offset of the statement's text (ANNOTATE_ROWS), 0 if none
EVENT_SQL_END: Final = 80
EVENT_FORM: Final = 88  # FORM_*: how the images stand in the range
EVENT_WHOLE: Final = 96  # 1: every column is present in every image
EVENT_BYTES: Final = 104

OP_INSERT: Final = 0
OP_UPDATE: Final = 1
OP_DELETE: Final = 2
OPERATIONS: Final = 3

ALL_OPERATIONS: Final = 7  # a set of operations has the bit 1 << OP_* of each
SKIP_UNCHANGED: Final = 8  # beside them: updates that leave all columns of the plan as they were are only counted

FORM_PLAIN: Final = 0
FORM_COMPRESSED: Final = 1  # one compressed block (log_bin_compress)
FORM_PARTIAL: Final = 2  # MySQL's PARTIAL_UPDATE_ROWS: after images hold differences of JSON values

# One distinct table map of the range.
MAP_START: Final = 0  # offset of the first event that has this content
MAP_CONTENT: Final = 8  # offset of the content: the body after table id and flags
MAP_SIZE: Final = 16
MAP_HASH: Final = 24
MAP_BYTES: Final = 32


def column(records: npt.NDArray[np.int64], field: int) -> npt.NDArray[np.int64]:
    """One field of all records, as a view."""
    return records[:, field // WORD]


# One column of a compiled plan: how it lies on the wire, and where its values go.
PLAN_KIND: Final = 0  # types.Kind, or KIND_*
PLAN_WIDTH: Final = 8  # bytes on the wire, or minus the bytes of the length prefix
PLAN_A: Final = 16  # fraction bytes; DECIMAL: decimal_shape(); BINARY and kin: the padded length
PLAN_B: Final = 24  # dates, text: 1 if an invalid one is an error; text of temporals: fraction digits; DECIMAL: scale
PLAN_AUX: Final = 32  # address of labels or of a character table; DECIMAL in VARIANT: bytes of the number
PLAN_VALUES: Final = 40  # address of the values or int32 offsets, 0: not wanted; VARIANT: rank of the name, or -1
PLAN_VALID: Final = 48  # address of the validity bitmap
PLAN_TAIL: Final = 56  # address of a TAIL record, 0 for values of fixed size
PLAN_BYTES: Final = 64

# Kinds of text beyond types.Kind: ENCODED_TEXT, told apart for the kernels.
KIND_MULTIBYTE: Final = 48
KIND_UTF16: Final = 49  # PLAN_A: 1 for little endian
KIND_WIDENED: Final = 51  # an integer put out wider than it is; PLAN_A: bytes there, PLAN_B: 1 if it is signed
KIND_UTF32: Final = 50
# The end of a versioned row's period, by which history rows are told: a TIMESTAMP(6), or nothing that is put out, and
# the same as text. Below OPAQUE, so that one comparison tells what is special.
KIND_ROW_END: Final = -1
KIND_ROW_END_TEXT: Final = -2

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

HISTORY_CURRENT: Final = 0
HISTORY_CLOSED: Final = 1
HISTORY_UNKNOWN: Final = 2  # what stands there before the kernel runs

# The flat shape's operations. There an UPDATE is two rows, OP_UPDATE for the image before and the next one after.
FLAT_AFTER: Final = 2
FLAT_DELETE: Final = 3
