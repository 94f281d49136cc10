"""Decoders of column values, one for each layout in a row image: exact bytes to exact Python values.

This module is the reference for the kernels: slow, obvious, and complete. Dates are numbers, not `datetime`, because
the server stores dates that no calendar has (0000-00-00, 2024-02-31). `as_date` and `as_datetime` return None for such
dates. Every function gets exactly the bytes of one value; the caller knows the length.

Layouts: the server's `Field_*::pack` and, for DATETIME2, TIME2 and TIMESTAMP2, my_time.c and compat56.cc.
"""

from __future__ import annotations

import struct
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (UTC by the server's definition)
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4)  # bytes that 0 to 8 left-over decimal digits take
_EXACT = Context(prec=65)  # the server's longest DECIMAL
_TIME_OFFSET = 0x800000
_DATETIME_OFFSET = 0x8000000000
_LAST_HOUR_OF_TIME = 838
SRID_BYTES = 4


class DateTimeParts(NamedTuple):
    """A DATETIME as stored. Any part may be zero, and the day may not exist in its month."""

    year: int
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0
    microsecond: int = 0


def integer(data: bytes, *, signed: bool) -> int:
    """Decode TINYINT to BIGINT: little endian, two's complement if signed."""
    return int.from_bytes(data, "little", signed=signed)


def bit(data: bytes) -> int:
    """Decode BIT(n): big endian, unsigned."""
    return int.from_bytes(data, "big")


def real(data: bytes) -> float:
    """Decode FLOAT (4 bytes) or DOUBLE (8 bytes), IEEE little endian."""
    value: float = struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
    return value


def year(data: bytes) -> int:
    """Decode YEAR: 0 is the year 0000, other values are years since 1900."""
    return 1900 + data[0] if data[0] else 0


def decimal_width(precision: int, scale: int) -> int:
    """Return the width of a DECIMAL(precision, scale) in bytes.

    Each 9 digits on either side of the point take 4 bytes, left-over digits fewer.
    """
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def decimal(data: bytes, precision: int, scale: int) -> Decimal:
    """Decode DECIMAL with the zeros of its scale: 1.5 in DECIMAL(10,4) is Decimal('1.5000')."""
    # The top bit is flipped so that bytes sort like numbers. A negative number has all its bits inverted.
    negative = not data[0] & 0x80
    raw = bytes((data[0] ^ 0x80, *data[1:]))
    if negative:
        raw = bytes(b ^ 0xFF for b in raw)
    whole = precision - scale
    # Left-over digits are before the groups of the whole part and after the groups of the fraction.
    groups = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    unscaled = at = 0
    for digits in groups:
        size = 4 if digits == 9 else _DIGIT_BYTES[digits]
        group = int.from_bytes(raw[at : at + size], "big")
        if group >= 10**digits:
            raise ProtocolError(f"{data.hex()} is not a DECIMAL({precision},{scale})")
        unscaled = unscaled * 10**digits + group
        at += size
    return Decimal(-unscaled if negative else unscaled).scaleb(-scale, _EXACT)


def date_parts(data: bytes) -> DateTimeParts:
    """Decode DATE: 5 bits of day, 4 of month, the rest year."""
    packed = int.from_bytes(data, "little")
    return DateTimeParts(packed >> 9, packed >> 5 & 15, packed & 31)


def fraction_width(fsp: int) -> int:
    """Return the number of bytes of `fsp` fractional digits of a second."""
    return (fsp + 1) // 2


def _microseconds(data: bytes) -> int:
    # 1 byte holds hundredths, 2 bytes ten-thousandths, 3 bytes millionths, whatever the declared digits.
    microseconds = int.from_bytes(data, "big") * 10 ** (6 - 2 * len(data))
    if microseconds >= 1_000_000:
        raise ProtocolError(f"{data.hex()} is not a fraction of a second")
    return microseconds


def _clock(hour: int, minute: int, second: int, *, last_hour: int = 23) -> tuple[int, int, int]:
    # sql_mode allows impossible dates, but an impossible clock time is damage.
    if hour > last_hour or minute > 59 or second > 59:
        raise ProtocolError(f"{hour}:{minute:02}:{second:02} is not a time that the server stores")
    return hour, minute, second


def datetime_parts(data: bytes) -> DateTimeParts:
    """Decode DATETIME(f): year * 13 + month, then 5 bits of day, 5 of hour, 6 of minute, 6 of second, the fraction."""
    packed = int.from_bytes(data[:5], "big") - _DATETIME_OFFSET
    months, day = packed >> 22, packed >> 17 & 31
    return DateTimeParts(
        months // 13,
        months % 13,
        day,
        *_clock(packed >> 12 & 31, packed >> 6 & 63, packed & 63),
        _microseconds(data[5:]),
    )


def old_datetime_parts(data: bytes) -> DateTimeParts:
    """Decode the old DATETIME, the decimal number YYYYMMDDhhmmss.

    Tables have it if they were made before 10.1.2 or with mysql56_temporal_format=OFF.
    """
    day, clock = divmod(int.from_bytes(data, "little"), 1_000_000)
    time_of_day = _clock(clock // 10000, clock // 100 % 100, clock % 100)
    return DateTimeParts(day // 10000, day // 100 % 100, day % 100, *time_of_day)


def timestamp(data: bytes) -> timedelta | None:
    """Decode TIMESTAMP(f), unsigned seconds, to the time since 1970 UTC; None for the zero timestamp."""
    if not any(data):
        return None
    return timedelta(seconds=int.from_bytes(data[:4], "big"), microseconds=_microseconds(data[4:]))


def old_timestamp(data: bytes) -> timedelta | None:
    """Decode TIMESTAMP in the old format: whole seconds, little endian."""
    return timestamp(data[::-1])


def time(data: bytes) -> timedelta:
    """Decode TIME(f), -838:59:59.999999 to 838:59:59.999999.

    The layout is 12 bits of hours, 6 of minutes, 6 of seconds, then the fraction.
    """
    width = 8 * (len(data) - 3)
    # The fraction is part of the number: -0.1 s is one negative number, not minus zero hours and a fraction.
    packed = int.from_bytes(data, "big") - (_TIME_OFFSET << width)
    whole, fraction = divmod(abs(packed), 1 << width)
    hours, minutes, seconds = _clock(whole >> 12, whole >> 6 & 63, whole & 63, last_hour=_LAST_HOUR_OF_TIME)
    microseconds = _microseconds(fraction.to_bytes(len(data) - 3, "big"))
    value = timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=microseconds)
    return -value if packed < 0 else value


def old_time(data: bytes) -> timedelta:
    """Decode TIME in the old format: the signed decimal number hhmmss."""
    packed = int.from_bytes(data, "little", signed=True)
    whole = abs(packed)
    hours, minutes, seconds = _clock(whole // 10000, whole // 100 % 100, whole % 100, last_hour=_LAST_HOUR_OF_TIME)
    value = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -value if packed < 0 else value


def enum(data: bytes, labels: Sequence[str]) -> str:
    """Decode ENUM to its label. Labels count from 1; 0 is the error value, which SELECT shows as ''."""
    index = int.from_bytes(data, "little")
    if index > len(labels):
        raise ProtocolError(f"the value {index} of an ENUM that has {len(labels)} labels")
    return labels[index - 1] if index else ""


def set_(data: bytes, labels: Sequence[str]) -> str:
    """Decode SET to its labels in declared order, separated by commas. Each label has a bit, the first the lowest."""
    bits = int.from_bytes(data, "little")
    if bits >> len(labels):
        raise ProtocolError(f"the bits {bits:#x} of a SET that has {len(labels)} labels")
    text = ""
    for i, label in enumerate(labels):
        if bits >> i & 1:
            # The server writes no comma while the text is empty, even after an empty label (Field_set::val_str).
            text += ("," if text else "") + label
    return text


def padded(data: bytes, length: int) -> bytes:
    """Decode BINARY(n), UUID, INET4 or INET6: restore the trailing zeros that the server cuts off."""
    return data.ljust(length, b"\0")


def uuid(data: bytes) -> str:
    """Decode UUID: 16 bytes in the order of the text."""
    digits = padded(data, 16).hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def inet4(data: bytes) -> str:
    """Decode INET4 to dotted decimal."""
    return str(IPv4Address(padded(data, 4)))


def inet6(data: bytes) -> str:
    """Decode INET6 as the server prints it.

    The first of the longest runs of zero words is '::', even if the run has only one word.
    """
    raw = padded(data, 16)
    words = struct.unpack(">8H", raw)
    runs = [(n, -i) for i in range(8) for n in range(1, 9 - i) if not any(words[i : i + n])]
    length, start = max(runs, default=(0, 0))
    start = -start
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return f"::{'ffff:' if length == 5 else ''}{IPv4Address(raw[12:])}"
    text = [f"{w:x}" for w in words]
    return f"{':'.join(text[:start])}::{':'.join(text[start + length :])}" if length else ":".join(text)


def geometry(data: bytes) -> dict[str, int | bytes] | None:
    """Decode GEOMETRY: the SRID, little endian, then WKB.

    None is the empty value that INSERT IGNORE leaves in a NOT NULL column.
    """
    if not data:
        return None
    if len(data) < SRID_BYTES:
        raise ProtocolError(f"{data.hex()} is not a GEOMETRY")
    return {"srid": int.from_bytes(data[:SRID_BYTES], "little", signed=True), "wkb": data[SRID_BYTES:]}


def vector(data: bytes) -> list[float]:
    """Decode VECTOR(n): n numbers of 4 bytes, IEEE little endian."""
    if len(data) % 4:
        raise ProtocolError(f"a VECTOR of {len(data)} bytes, which is not a multiple of 4")
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def as_date(parts: DateTimeParts) -> date | None:
    """Return the date, or None for one that no calendar has (a zero part, 31 February)."""
    try:
        return date(parts.year, parts.month, parts.day)
    except ValueError:
        return None


def as_datetime(parts: DateTimeParts) -> datetime | None:
    """Return the point in time (no zone), or None for one that no calendar has."""
    try:
        return datetime(*parts)  # noqa: DTZ001  (DATETIME has no zone)
    except ValueError:
        return None


def format_date(parts: DateTimeParts) -> str:
    """Return a DATE as SELECT prints it, zero parts included."""
    return f"{parts.year:04}-{parts.month:02}-{parts.day:02}"


def format_datetime(parts: DateTimeParts, fsp: int) -> str:
    """Return a DATETIME(fsp) as SELECT prints it, zero parts included."""
    clock = f"{parts.hour:02}:{parts.minute:02}:{parts.second:02}"
    return f"{format_date(parts)} {clock}{_fraction(parts.microsecond, fsp)}"


def format_timestamp(value: timedelta | None, fsp: int) -> str:
    """Return a TIMESTAMP(fsp) as SELECT prints it with time_zone '+00:00'. None is the zero timestamp."""
    parts = DateTimeParts(0, 0, 0)
    if value is not None:
        at = EPOCH + value
        parts = DateTimeParts(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond)
    return format_datetime(parts, fsp)


def format_time(value: timedelta, fsp: int) -> str:
    """Return a TIME(fsp) as SELECT prints it: a sign, two or three digits of hours."""
    seconds, microsecond = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    sign = "-" if value < timedelta() else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{sign}{clock}{_fraction(microsecond, fsp)}"


def _fraction(microsecond: int, fsp: int) -> str:
    return f".{microsecond:06}"[: fsp + 1] if fsp else ""
