"""One row of a prepared SELECT -> a row image and its key bytes, in plain Python: what the kernel is compared with.

Slow, obvious, and complete: exact values are made of the row's bytes, and the image's bytes of these.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.protocol.rows.values import DateTimeParts
from replica.protocol.wire import Cursor, is_set
from replica.rows.types.keys import key_bytes_of
from replica.rows.types.kinds import Transcoding
from replica.snapshot.rows.result_plan import RowOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.rows.types.keys import KeyPart
    from replica.snapshot.rows.result_plan import ResultPlan

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_LONGEST_DECIMAL: Final = 81
_FIRST_BITS: Final = 2  # of the NULL bits in a row of the binary protocol, which are not used
_NULL, _NO_LENGTH = 0xFB, 0xFF  # no length-encoded integer begins with them


class PlainRow(NamedTuple):
    image: bytes
    key: bytes


class RefusedRow(Exception):  # noqa: N818  (the caller makes an error of it, which says where)
    """A row that no server sends, with the column that tells."""

    def __init__(self, outcome: RowOutcome, column: int = -1) -> None:
        super().__init__(outcome.name)
        self.outcome = outcome
        self.column = column


def transcode_row(payload: bytes, columns: Sequence[ResultPlan], parts: Sequence[KeyPart] = ()) -> PlainRow:
    """Return the image of a row, given as the payload of its packet, and its key; RefusedRow for what is no row."""
    count = len(columns)
    inside = (count + _FIRST_BITS + 7) // 8
    if len(payload) < 1 + inside:
        raise RefusedRow(RowOutcome.SHORT)
    if payload[0]:
        raise RefusedRow(RowOutcome.NO_ROW)
    bits = payload[1 : 1 + inside]
    nulls = [is_set(bits, number + _FIRST_BITS) for number in range(count)]
    cursor = Cursor(payload[1 + inside :])
    key = {part.column for part in parts}
    values: list[bytes] = []
    for number, column in enumerate(columns):
        if nulls[number]:
            if number in key:
                raise RefusedRow(RowOutcome.NULL_KEY, number)
            values.append(b"")
            continue
        try:
            values.append(_value(cursor, column))
        except RefusedRow as refused:
            raise RefusedRow(refused.outcome, number) from None
    if cursor:
        raise RefusedRow(RowOutcome.LONG)
    flags = [*nulls, *[True] * (-count % 8)]
    image = bytes(sum(flag << i for i, flag in enumerate(flags[at : at + 8])) for at in range(0, len(flags), 8))
    for number, column in enumerate(columns):
        if not nulls[number]:
            size = len(values[number])
            image += (size.to_bytes(-column.width, "little") if column.width < 0 else b"") + values[number]
    return PlainRow(image, key_bytes_of(parts, [values[part.column] for part in parts]))


def _value(cursor: Cursor, column: ResultPlan) -> bytes:
    """Return the value as it stands in the image, without the length before it."""
    return _VALUES[column.transcoding](cursor, column)


def _bits(cursor: Cursor, column: ResultPlan) -> bytes:
    value = _counted(cursor)
    _hold(len(value) == column.width)
    return value


def _short(value: bytes, column: ResultPlan) -> bytes:
    _hold(len(value) <= column.most, RowOutcome.TOO_LONG)
    return value


def _hold(condition: bool, outcome: RowOutcome = RowOutcome.NO_VALUE) -> None:  # noqa: FBT001
    if not condition:
        raise RefusedRow(outcome)


def _take(cursor: Cursor, size: int) -> bytes:
    _hold(size <= cursor.remaining, RowOutcome.SHORT)
    return bytes(cursor.take(size))


def _counted(cursor: Cursor) -> bytes:
    first = _take(cursor, 1)[0]
    _hold(first not in (_NULL, _NO_LENGTH), RowOutcome.SHORT)
    size = first
    if first > _NULL:
        size = int.from_bytes(_take(cursor, {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]), "little")
    return _take(cursor, size)


def _number(came: bytes, width: int) -> bytes:
    high = came[width:]
    _hold(not any(high) or all(byte == 0xFF for byte in high))
    return came[:width]


def _year(came: bytes) -> bytes:
    year = int.from_bytes(came, "little")
    _hold(year == 0 or 1901 <= year <= 2155)
    return bytes((year - 1900 if year else 0,))


def _decimal(text: bytes, whole: int, scale: int) -> bytes:
    _hold(len(text) <= _LONGEST_DECIMAL)
    negative = text[:1] == b"-"
    digits = text[1:] if negative else text
    if scale:
        digits, point, fraction = digits[: -scale - 1], digits[-scale - 1 : -scale], digits[-scale:]
        _hold(point == b"." and len(fraction) == scale)
    else:
        fraction = b""
    _hold(len(digits) > 0)
    while len(digits) > whole and digits[:1] == b"0":
        digits = digits[1:]
    _hold(len(digits) <= whole)
    _hold(all(0x30 <= digit <= 0x39 for digit in digits + fraction))
    packed = b""
    lead = whole % 9
    digits = digits.rjust(whole, b"0")
    groups = [digits[:lead], *(digits[at : at + 9] for at in range(lead, whole, 9))]
    groups += [fraction[at : at + 9] for at in range(0, scale, 9)]
    for group in groups:
        packed += int(group or b"0").to_bytes(_DIGIT_BYTES[len(group)], "big")
    if negative:
        packed = bytes(byte ^ 0xFF for byte in packed)
    return bytes((packed[0] ^ 0x80,)) + packed[1:]


def _parts(cursor: Cursor) -> bytes:
    return _take(cursor, _take(cursor, 1)[0])


def _day(parts: bytes) -> tuple[int, int, int]:
    if not parts:
        return 0, 0, 0
    year, month, day = int.from_bytes(parts[:2], "little"), parts[2], parts[3]
    _hold(year <= 9999 and month <= 12 and day <= 31)
    return year, month, day


def _clock(parts: bytes) -> tuple[int, int, int, int]:
    if not parts:
        return 0, 0, 0, 0
    hour, minute, second = parts[:3]
    micros = int.from_bytes(parts[3:], "little")
    _hold(hour < 24 and minute < 60 and second < 60 and micros < 1_000_000)
    return hour, minute, second, micros


def _fraction(micros: int, size: int) -> bytes:
    return (micros // 10 ** (6 - 2 * size)).to_bytes(size, "big") if size else b""


def _date(parts: bytes) -> bytes:
    _hold(len(parts) in (0, 4))
    year, month, day = _day(parts)
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def _date_time(parts: bytes) -> DateTimeParts:
    _hold(len(parts) in (0, 4, 7, 11))
    return DateTimeParts(*_day(parts[:4]), *_clock(parts[4:]))


def _datetime(parts: bytes, size: int) -> bytes:
    value = _date_time(parts)
    bits = (value.year * 13 + value.month) << 22 | value.day << 17
    bits |= value.hour << 12 | value.minute << 6 | value.second
    return (0x8000000000 + bits).to_bytes(5, "big") + _fraction(value.microsecond, size)


def _timestamp(parts: bytes, size: int) -> bytes:
    value = _date_time(parts)
    if not parts:
        return bytes(4 + size)
    try:
        since = datetime(*value, tzinfo=UTC) - _EPOCH
    except ValueError:
        raise RefusedRow(RowOutcome.NO_VALUE) from None
    seconds = since // timedelta(seconds=1)
    _hold(0 <= seconds < 1 << 32)
    return seconds.to_bytes(4, "big") + _fraction(value.microsecond, size)


def _time(parts: bytes, size: int) -> bytes:
    _hold(len(parts) in (0, 8, 12))
    if not parts:
        return (0x800000 << 8 * size).to_bytes(3 + size, "big")
    hour, minute, second, micros = _clock(parts[5:])
    hour += 24 * int.from_bytes(parts[1:5], "little")
    _hold(hour <= 838)
    number = (hour << 12 | minute << 6 | second) << 8 * size | int.from_bytes(_fraction(micros, size), "big")
    return ((0x800000 << 8 * size) + (-number if parts[0] else number)).to_bytes(3 + size, "big")


_VALUES: Final[dict[Transcoding, Callable[[Cursor, ResultPlan], bytes]]] = {
    Transcoding.NUMBER: lambda cursor, column: _number(_take(cursor, column.came), column.width),
    Transcoding.YEAR: lambda cursor, _: _year(_take(cursor, 2)),
    Transcoding.DECIMAL: lambda cursor, column: _decimal(_counted(cursor), column.most, column.scale),
    Transcoding.DATE: lambda cursor, _: _date(_parts(cursor)),
    Transcoding.DATETIME: lambda cursor, column: _datetime(_parts(cursor), column.most),
    Transcoding.TIMESTAMP: lambda cursor, column: _timestamp(_parts(cursor), column.most),
    Transcoding.TIME: lambda cursor, column: _time(_parts(cursor), column.most),
    Transcoding.BITS: _bits,
    Transcoding.COUNTED: lambda cursor, column: _short(_counted(cursor), column),
    Transcoding.TRIMMED: lambda cursor, column: _short(_counted(cursor).rstrip(b"\0"), column),
}
