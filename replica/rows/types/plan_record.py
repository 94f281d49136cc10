"""The records that tell kernels of a column: how it lies on the wire, and where its values go, or what its key is."""

from __future__ import annotations

from typing import Final

from replica.native.record import Record, word


class PlanRecord(Record):
    """One column of a table, for a decode kernel."""

    kind = word("types.Kind, or KIND_*")
    width = word("bytes on the wire, or minus the bytes of the length prefix")
    a = word("fraction bytes; DECIMAL: decimal_shape(); BINARY and the like: the padded length; rounded: digits")
    b = word("dates, text: 1 if an invalid one is an error; text of temporals: fraction digits; DECIMAL: scale")
    aux = word("address of labels or of a character table; DECIMAL in VARIANT: bytes of the number")
    values = word("address of the values or int32 offsets, 0: not wanted; VARIANT: rank of the name, or -1")
    valid = word("address of the validity bitmap")
    tail = word("address of a TailRecord, 0 for values of fixed size")


class KeyRecord(Record):
    """One column of a table's key, for what makes key bytes of the values in row images."""

    column = word("its number in the row image")
    form = word("types.KeyForm")
    width = word("bytes on the wire, or minus the bytes of the length prefix")
    size = word("bytes of its part of the key; 0: twice those of the value and two, at most")


# Kinds of text beyond types.Kind: ENCODED_TEXT, told apart for the kernels.
KIND_MULTIBYTE: Final = 48
KIND_UTF16: Final = 49  # a: 1 for little endian
KIND_WIDENED: Final = 51  # an integer put out wider than it is; a: bytes there, b: 1 if it is signed
KIND_UTF32: Final = 50
KIND_ROUNDED_FLOAT: Final = 52  # FLOAT(M,D); a: digits after the point
KIND_ROUNDED_DOUBLE: Final = 53
# The end of a versioned row's period, by which history rows are told: a TIMESTAMP(6), or nothing that is put out, and
# the same as text. Below OPAQUE, so that one comparison tells what is special.
KIND_ROW_END: Final = -1
KIND_ROW_END_TEXT: Final = -2

# What a versioned row is, by the end of its period (`history` of RowColumns in rows/decode/records.py).
HISTORY_CURRENT: Final = 0
HISTORY_CLOSED: Final = 1
HISTORY_UNKNOWN: Final = 2  # what stands there before the kernel runs
