"""The numbers that kernels branch by: of how a value lies in a row image and is put out, how it gets there from the row
of a result set, and how it becomes a part of a key.
"""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """The form of a value on the wire and what it becomes: the code that decoders dispatch on."""

    OPAQUE = 0  # skipped: its length is known, its value is not asked for
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
    GEOMETRY = 40  # SRID and WKB apart
    VECTOR = 41


class Transcoding(IntEnum):
    """The way from a value in a row of a result set (binary protocol) to the same value in a row image.

    A "counted" value stands behind its length: length-encoded in the result, in 1 to 4 bytes in the image.
    """

    NUMBER = 0  # little endian, the low bytes of what came
    YEAR = 1  # from a number of two bytes to years since 1900
    DECIMAL = 2  # from text to packed digits
    DATE = 3  # from parts behind their length, as the next three
    DATETIME = 4
    TIMESTAMP = 5
    TIME = 6
    COUNTED = 7
    TRIMMED = 8  # counted, the zeros at its end cut off
    BITS = 9  # counted in the result alone: always as many bytes


class KeyForm(IntEnum):
    """The way from a value in a row image to its part of a key's bytes."""

    SIGNED = 0  # little endian
    UNSIGNED = 1
    STORED = 2  # bytes that sort as they are
    PADDED = 3  # the same, its zeros at the end put back
    UUID = 4  # in the order in which the server stores it
    BYTES = 5  # of any length: escaped, and ended
    TEXT = 6  # the same, but the server sorts it by a collation
    OLD_DATETIME = 7
    OLD_TIME = 8
