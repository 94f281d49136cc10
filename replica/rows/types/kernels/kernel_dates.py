# ruff: noqa: PLR0911, PLR1714  (one return a type; numba has no sets)
"""Kernels for dates and times: wire bytes to days or microseconds, INVALID for dates that do not exist."""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import load_i1, load_u1, load_u2, load_u4, load_u4be, load_u8
from replica.rows.types.kernels.kernel_numbers import INVALID, NO_BRANCH, big_endian, short_big_endian
from replica.rows.types.kinds import HISTORY_CLOSED, HISTORY_CURRENT, Kind

MICROS = 1_000_000
DATETIME_OFFSET = 0x8000000000
TIME_OFFSET = 0x800000


@helper
def days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01, INVALID for a date that does not exist in the years 1 to 9999."""
    if month < 1 or month > 12 or day < 1 or day > 31 or year < 1 or year > 9999:
        return INVALID
    if day > 28:
        last = 30 + ((0x15AA >> month) & 1)
        if month == 2:
            last = 28
            if year & 3 == 0 and (year % 100 != 0 or year % 400 == 0):
                last = 29
        if day > last:
            return INVALID
    # Years count from March on, so that the leap day is the last one.
    index = month - 3
    if month <= 2:
        year -= 1
        index = month + 9
    century = year // 100
    return year * 365 + (year >> 2) - century + (century >> 2) + (153 * index + 2) // 5 + day - 719_469


@helper
def fraction(address: int, size: int) -> int:
    """Return the microseconds of a fraction of 0 to 3 bytes: hundredths, ten-thousandths or millionths of a second."""
    if size == 0:
        return 0
    value = short_big_endian(address, size)
    if size == 3:
        return value
    return value * 100 if size == 2 else value * 10_000


@helper
def datetime_micros(year: int, month: int, day: int, clock: int, micros: int) -> int:
    """Return the microseconds since 1970-01-01 00:00; `clock` is h << 12 | m << 6 | s."""
    hour = clock >> 12
    minute = (clock >> 6) & 63
    second = clock & 63
    number = days(year, month, day)
    if number == INVALID or hour > 23 or minute > 59 or second > 59 or micros >= MICROS:
        return INVALID
    return (number * 86_400 + hour * 3600 + minute * 60 + second) * MICROS + micros


@helper
def datetime_bits(address: int) -> int:
    """Return the 40 bits of a DATETIME2 without its fraction: year * 13 + month, 5 day, 5 hour, 6 minute, 6 second."""
    return ((load_u4be(address) << 8) | load_u1(address + 4)) - DATETIME_OFFSET


@helper
def time_micros(address: int, extra: int) -> int:
    """Read TIME2: one number of 3 + `extra` bytes, offset by half its range, with the fraction at its end."""
    value = big_endian(address, 3 + extra) - (TIME_OFFSET << (8 * extra))
    negative = value < 0
    value = abs(value)
    clock = value >> (8 * extra)
    part = value & ((1 << (8 * extra)) - 1)
    if extra == 1:
        part *= 10_000
    elif extra == 2:
        part *= 100
    total = ((clock >> 12) * 3600 + ((clock >> 6) & 63) * 60 + (clock & 63)) * MICROS + part
    return -total if negative else total


@helper
def old_time_micros(address: int) -> int:
    """Read TIME in the old format: the signed decimal number hhmmss in three bytes."""
    value = load_u2(address) | (load_i1(address + 2) << 16)
    negative = value < 0
    value = abs(value)
    total = ((value // 10_000) * 3600 + value // 100 % 100 * 60 + value % 100) * MICROS
    return -total if negative else total


@helper
def old_clock(packed: int) -> int:
    """Convert the decimal number hhmmss to h << 12 | m << 6 | s; an invalid minute or second gives an invalid hour."""
    minute = packed // 100 % 100
    second = packed % 100
    return (packed // 10_000) << 12 | minute << 6 | second if minute < 60 and second < 60 else 99 << 12


@helper
def temporal(kind: int, p: int, extra: int) -> int:
    """Return the days of a DATE, else microseconds; INVALID for a date that does not exist.

    `extra` is the number of bytes of the fraction.
    """
    if kind == Kind.DATE:
        packed = load_u2(p) | (load_u1(p + 2) << 16)
        return days(packed >> 9, (packed >> 5) & 15, packed & 31)
    if kind == Kind.DATETIME:
        packed = datetime_bits(p)
        months = packed >> 22
        year = months // 13
        return datetime_micros(year, months - year * 13, (packed >> 17) & 31, packed & 0x1FFFF, fraction(p + 5, extra))
    if kind == Kind.TIMESTAMP:
        seconds = load_u4be(p)
        micros = fraction(p + 4, extra)
        return seconds * MICROS + micros if seconds or micros else INVALID
    if kind == Kind.TIME:
        return time_micros(p, extra)
    if kind == Kind.OLD_TIMESTAMP:
        seconds = load_u4(p)
        return seconds * MICROS if seconds else INVALID
    if kind == Kind.OLD_TIME:
        return old_time_micros(p)
    if kind == Kind.OLD_DATETIME:  # the decimal number YYYYMMDDhhmmss
        packed = load_u8(p)
        if packed < 0:
            return INVALID
        date = packed // 1_000_000
        clock = old_clock(packed - date * 1_000_000)
        return datetime_micros(date // 10_000, date // 100 % 100, date % 100, clock, 0)
    return NO_BRANCH


@helper
def closed_version(p: int) -> int:
    """Return HISTORY_CLOSED if a row_end, TIMESTAMP(6), is before the end of time, else HISTORY_CURRENT.

    The end of time is in 2038, from MariaDB 11.5 on in 2106, with the fraction .999999 in both.
    """
    seconds = load_u4be(p)
    last = (seconds == 0x7FFFFFFF or seconds == 0xFFFFFFFF) and fraction(p + 4, 3) == MICROS - 1
    return HISTORY_CURRENT if last else HISTORY_CLOSED
