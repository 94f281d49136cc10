"""Helpers that write dates and times of a prepared SELECT, which arrive as parts, in the packed form of row images.

Each helper has the signature of those in kernel_result_values.py: a record, the value, the end of its row, and the
target. It returns a RowOutcome and the addresses after the value in source and target. tests/kit/plain_result_rows.py
does the same in plain Python.

Source: Protocol_binary in sql/protocol.cc, Field_*::pack in sql/field.cc.
"""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import load_u1, load_u2, load_u4, load_u8, store_u1, store_u2
from replica.rows.types.kernels.kernel_dates import DATETIME_OFFSET, MICROS, TIME_OFFSET, days
from replica.rows.types.kernels.kernel_keys import store_big
from replica.rows.types.kernels.kernel_numbers import INVALID
from replica.rows.types.kinds import Transcoding
from replica.snapshot.rows.records import ResultColumnRecord, RowOutcome

LAST_HOUR = 838
LAST_SECOND = 0xFFFFFFFF


@helper
def put_fraction(out: int, micros: int, size: int) -> None:
    """Write a fraction of a second: 1 byte of hundredths, 2 bytes of ten-thousandths, or 3 bytes of microseconds."""
    if size == 1:
        store_u1(out, micros // 10_000)
    elif size == 2:
        store_big(out, micros // 100, 2)
    elif size == 3:
        store_big(out, micros, 3)


@helper
def is_day(p: int) -> bool:
    """Return True if the server can store the year, month and day at `p`; month and day may be zero."""
    return load_u2(p) <= 9999 and load_u1(p + 2) <= 12 and load_u1(p + 3) <= 31


@helper
def put_date(p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write DATE from its parts; a value without parts is the zero date."""
    if p >= stop or load_u1(p) > stop - p - 1:
        return RowOutcome.SHORT, p, q
    size = load_u1(p)
    packed = 0
    if size:
        if size != 4 or not is_day(p + 1):
            return RowOutcome.NO_VALUE, p, q
        packed = load_u2(p + 1) << 9 | load_u1(p + 3) << 5 | load_u1(p + 4)
    store_u2(q, packed)
    store_u1(q + 2, packed >> 16)
    return RowOutcome.DONE, p + 1 + size, q + 3


@helper
def clock_of(p: int, last_hour: int) -> int:
    """Return hour, minute and second as h << 12 | m << 6 | s, or -1 for an invalid time."""
    hour = load_u1(p)
    minute = load_u1(p + 1)
    second = load_u1(p + 2)
    return hour << 12 | minute << 6 | second if hour <= last_hour and minute < 60 and second < 60 else -1


@helper
def put_datetime(record: int, p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write DATETIME or TIMESTAMP: 4 bytes of the day, 3 of the time, 4 of microseconds; trailing zero parts are
    absent.
    """
    if p >= stop or load_u1(p) > stop - p - 1:
        return RowOutcome.SHORT, p, q
    size = load_u1(p)
    extra = load_u8(record + ResultColumnRecord.most)
    timestamp = load_u8(record + ResultColumnRecord.transcoding) == Transcoding.TIMESTAMP
    clock = 0
    micros = 0
    if size:
        if (size != 4 and size != 7 and size != 11) or not is_day(p + 1):  # noqa: PLR1714
            return RowOutcome.NO_VALUE, p, q
        if size > 4:
            clock = clock_of(p + 5, 23)
        if size > 7:
            micros = load_u4(p + 8)
        if clock < 0 or micros >= MICROS:
            return RowOutcome.NO_VALUE, p, q
    if timestamp:
        seconds = 0
        if size:
            day = days(load_u2(p + 1), load_u1(p + 3), load_u1(p + 4))
            seconds = day * 86_400 + (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
            if day == INVALID or seconds < 0 or seconds > LAST_SECOND:
                return RowOutcome.NO_VALUE, p, q
        store_big(q, seconds, 4)
        put_fraction(q + 4, micros, extra)
        return RowOutcome.DONE, p + 1 + size, q + 4 + extra
    bits = clock
    if size:
        bits |= (load_u2(p + 1) * 13 + load_u1(p + 3)) << 22 | load_u1(p + 4) << 17
    store_big(q, bits + DATETIME_OFFSET, 5)
    put_fraction(q + 5, micros, extra)
    return RowOutcome.DONE, p + 1 + size, q + 5 + extra


@helper
def put_time(record: int, p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write TIME from its parts: sign, days, time, and 4 bytes of microseconds if they are not zero."""
    if p >= stop or load_u1(p) > stop - p - 1:
        return RowOutcome.SHORT, p, q
    size = load_u1(p)
    extra = load_u8(record + ResultColumnRecord.most)
    number = 0
    if size:
        if size != 8 and size != 12:  # noqa: PLR1714
            return RowOutcome.NO_VALUE, p, q
        clock = clock_of(p + 6, 23)
        hours = load_u4(p + 2) * 24 + (clock >> 12)
        micros = load_u4(p + 9) if size == 12 else 0
        if clock < 0 or hours > LAST_HOUR or micros >= MICROS:
            return RowOutcome.NO_VALUE, p, q
        part = micros
        if extra == 0:
            part = 0
        elif extra < 3:
            part = micros // 10_000 if extra == 1 else micros // 100
        number = (hours << 12 | clock & 0xFFF) << (8 * extra) | part
        if load_u1(p + 1):
            number = -number
    store_big(q, number + (TIME_OFFSET << (8 * extra)), 3 + extra)
    return RowOutcome.DONE, p + 1 + size, q + 3 + extra
