"""What a decode kernel is told of a column: how it lies on the wire, and where its values go.

Int64 records (native/record.py).
"""

from __future__ import annotations

from typing import Final

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

# What a versioned row is, by the end of its period (META_HISTORY of rows/decode/records.py).
HISTORY_CURRENT: Final = 0
HISTORY_CLOSED: Final = 1
HISTORY_UNKNOWN: Final = 2  # what stands there before the kernel runs
