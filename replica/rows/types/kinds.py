"""The numbers that decoders dispatch on: one for each way in which a value lies on the wire and is put out."""

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
