"""What the scan kernel finds in a range: records of its event groups, rows events and distinct table maps.

Int64 records (native/record.py). All offsets count bytes from the start of the scanned range.
"""

from __future__ import annotations

from typing import Final

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
