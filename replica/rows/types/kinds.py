"""Numbers that kernels branch on: kinds of values, conversions from result sets, and forms of key bytes."""

from __future__ import annotations

from enum import IntEnum


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
