"""Numbers that kernels branch on: kinds of values, conversions from result sets, and forms of key bytes."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from replica.native.record import Record, word


class Kind(IntEnum):
    """Wire format and output form of a value: the code that decoders dispatch on."""

    OPAQUE = 0  # skipped: only its length is used
    INT8 = 1
    UINT8 = 2
    INT16 = 3
    UINT16 = 4
    INT24 = 5
    UINT24 = 6
    INT32 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    FLOAT = 11
    DOUBLE = 12
    DECIMAL = 13
    DECIMAL_TEXT = 14
    YEAR = 15
    BIT = 16
    BIT64 = 17
    DATE = 18
    DATETIME = 19
    TIMESTAMP = 20
    TIME = 21
    OLD_DATETIME = 22
    OLD_TIMESTAMP = 23
    OLD_TIME = 24
    DATE_TEXT = 25
    DATETIME_TEXT = 26
    TIMESTAMP_TEXT = 27
    OLD_DATETIME_TEXT = 28
    OLD_TIMESTAMP_TEXT = 29
    ENUM = 30
    SET = 31
    TEXT = 32  # bytes are UTF-8 already
    LATIN1 = 33
    ENCODED_TEXT = 34  # any other character set
    BYTES = 35
    PADDED_BYTES = 36  # trailing zeros are not logged
    UUID = 37
    INET4 = 38
    INET6 = 39
    GEOMETRY = 40  # output as separate SRID and WKB
    VECTOR = 41


class Transcoding(IntEnum):
    """Conversion of a value from a result set row (binary protocol) to a row image.

    A "counted" value follows its length: length-encoded in the result, in 1 to 4 bytes in the image.
    """

    NUMBER = 0  # little endian, the low bytes of the result's number
    YEAR = 1  # from a number of two bytes to years since 1900
    DECIMAL = 2  # from text to packed digits
    DATE = 3  # from parts after their length, as the next three
    DATETIME = 4
    TIMESTAMP = 5
    TIME = 6
    COUNTED = 7
    TRIMMED = 8  # counted, without the zeros at its end
    BITS = 9  # counted in the result, fixed width in the image


class KeyForm(IntEnum):
    """Conversion of a value from a row image to its part of the key bytes."""

    SIGNED = 0  # little endian
    UNSIGNED = 1
    STORED = 2  # the stored bytes, which sort correctly
    PADDED = 3  # the stored bytes, padded with zeros
    UUID = 4  # in the order in which the server stores it
    BYTES = 5  # of any length: escaped and terminated
    TEXT = 6  # as BYTES, but the server sorts it by a collation
    OLD_DATETIME = 7
    OLD_TIME = 8


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
