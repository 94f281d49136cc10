"""Records that describe a column to kernels: its wire format, the addresses of its output, and its part of a key."""

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
    """One column of a table's key, for the kernels that make key bytes from row images."""

    column = word("its number in the row image")
    form = word("types.KeyForm")
    width = word("bytes on the wire, or minus the bytes of the length prefix")
    size = word("bytes of its part of the key; 0: twice those of the value and two, at most")


# Kinds beyond types.Kind. The first three and UTF-32 divide ENCODED_TEXT by its encoding.
KIND_MULTIBYTE: Final = 48
KIND_UTF16: Final = 49  # a: 1 for little endian
KIND_WIDENED: Final = 51  # an integer with a wider output type; a: bytes of the output, b: 1 if it is signed
KIND_UTF32: Final = 50
KIND_ROUNDED_FLOAT: Final = 52  # FLOAT(M,D); a: digits after the point
KIND_ROUNDED_DOUBLE: Final = 53
# The end of a versioned row's period, which marks history rows: a TIMESTAMP(6) or a column that is not output, and the
# same as text. Both are below OPAQUE, so that one comparison finds the special kinds.
KIND_ROW_END: Final = -1
KIND_ROW_END_TEXT: Final = -2

# State of a versioned row, by the end of its period (`history` of RowColumns in rows/decode/records.py).
HISTORY_CURRENT: Final = 0
HISTORY_CLOSED: Final = 1
HISTORY_UNKNOWN: Final = 2  # the initial value, before the kernel runs
