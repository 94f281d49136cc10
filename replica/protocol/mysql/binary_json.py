"""MySQL's JSON columns (type 245): from the binary document to values, and to the text that MySQL's SELECT prints.

A document is a type byte and a value. Objects and arrays hold a count, their size, and entries with the offset of each
key and value. Offsets have two bytes in small containers and four in large ones. Literals and numbers that fit are in
the entry itself. Keys are sorted by length, then by bytes. An empty document means NULL in a column that is NOT NULL,
as in MySQL.

In: the bytes after the column's length prefix. Out: str, int, float, bool, None, list, dict, and `Opaque` for types
that JSON lacks (decimals, temporals, bytes). Refused, as ProtocolError: offsets outside of the container, unknown
types, text that is not UTF-8, too deep nesting, and values that share bytes. With shared bytes, a small document could
claim an exponential number of values.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from dataclasses import dataclass
from enum import IntEnum
from json.encoder import encode_basestring
from typing import Final, TypeAlias

from replica.errors import ProtocolError
from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.protocol.wire import Buffer, Cursor

MAX_DEPTH: Final = 100
"""Maximum depth of nested containers (MySQL's JSON_DOCUMENT_MAX_DEPTH)."""


class _Type(IntEnum):
    """Types of values, JSONB_TYPE_* in the server."""

    SMALL_OBJECT = 0
    LARGE_OBJECT = 1
    SMALL_ARRAY = 2
    LARGE_ARRAY = 3
    LITERAL = 4
    INT16 = 5
    UINT16 = 6
    INT32 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    DOUBLE = 11
    STRING = 12
    OPAQUE = 15


_LITERALS: Final[dict[int, bool | None]] = {0: None, 1: True, 2: False}
_INTEGERS: Final[dict[int, tuple[int, bool]]] = {
    _Type.INT16: (2, True),
    _Type.UINT16: (2, False),
    _Type.INT32: (4, True),
    _Type.UINT32: (4, False),
    _Type.INT64: (8, True),
    _Type.UINT64: (8, False),
}
_DATES: Final = (ColumnType.DATE, ColumnType.DATETIME, ColumnType.TIMESTAMP)
_BASE64_LINE: Final = 76
_MAX_SIZE_BYTES: Final = 5  # of a text's size, seven bits a byte: 32 bits
# dtoa's limits for the plain form of a double: digits before the point, zeros after it.
_MAX_POINT, _MIN_POINT = 15, -14


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value of a column type that JSON lacks: the code of the type, and bytes in MySQL's packed form."""

    type: int
    data: bytes


Json: TypeAlias = "bool | int | float | str | Opaque | list[Json] | dict[str, Json] | None"


def parse_json(document: Buffer) -> Json:
    """Return the value of a document. Offsets in errors count from the start of the document."""
    data = memoryview(document)
    return _Parser(data).value(data[0], data[1:], 1, 0) if data else None


class _Parser:
    """One pass over a document. It may not consume more bytes than the document has."""

    __slots__ = ("_budget",)

    def __init__(self, data: memoryview) -> None:
        self._budget = len(data)

    def value(self, kind: int, data: memoryview, at: int, depth: int) -> Json:
        """Return the value at the start of `data`; `at` is its byte offset in the document."""
        if kind <= _Type.LARGE_ARRAY:
            return self._container(kind, data, at, depth + 1)
        body = Cursor(data)
        try:
            found = self._scalar(kind, body)
        except ProtocolError as error:
            message = error.placeless
            raise ProtocolError(f"JSON: {message}", offset=at + (error.offset or 0)) from None
        self._spend(body.offset, at)
        return found

    def _spend(self, size: int, at: int) -> None:
        self._budget -= size
        if self._budget < 0:
            raise ProtocolError("JSON: two values share the same bytes", offset=at)

    def _scalar(self, kind: int, body: Cursor) -> Json:
        if kind == _Type.LITERAL:
            code = body.u8()
            if code not in _LITERALS:
                raise ProtocolError(f"{code} is not a literal", offset=0)
            return _LITERALS[code]
        if kind in _INTEGERS:
            size, signed = _INTEGERS[kind]
            return int.from_bytes(body.take(size), "little", signed=signed)
        if kind == _Type.DOUBLE:
            number: float = struct.unpack("<d", body.take(8))[0]
            if number != number or number in (float("inf"), float("-inf")):  # noqa: PLR0124  (NaN)
                raise ProtocolError(f"{number} is not a JSON number", offset=0)
            return number
        if kind == _Type.STRING:
            return body.text(_size(body))
        if kind == _Type.OPAQUE:
            return Opaque(body.u8(), bytes(body.take(_size(body))))
        raise ProtocolError(f"unknown type {kind}", offset=0)

    def _container(self, kind: int, data: memoryview, at: int, depth: int) -> list[Json] | dict[str, Json]:
        if depth > MAX_DEPTH:
            raise ProtocolError(f"JSON: nested deeper than {MAX_DEPTH}", offset=at)
        wide = 4 if kind in (_Type.LARGE_OBJECT, _Type.LARGE_ARRAY) else 2
        is_object = kind <= _Type.LARGE_OBJECT
        key_entry, value_entry = (wide + 2 if is_object else 0), wide + 1
        if len(data) < 2 * wide:
            raise ProtocolError("JSON: a container ends too early", offset=at)
        count = int.from_bytes(data[:wide], "little")
        size = int.from_bytes(data[wide : 2 * wide], "little")
        head = 2 * wide + count * (key_entry + value_entry)
        if not head <= size <= len(data):
            raise ProtocolError(f"JSON: a container of {count} values and {size} bytes in {len(data)}", offset=at)
        self._spend(head, at)
        data = data[:size]
        first = 2 * wide + count * key_entry
        found = [
            self._entry(data, place, wide, at, depth)
            for place in range(first, first + count * value_entry, value_entry)
        ]
        if not is_object:
            return found
        keys = [self._key(data, 2 * wide + number * key_entry, wide, at) for number in range(count)]
        return dict(zip(keys, found, strict=True))

    def _key(self, data: memoryview, place: int, wide: int, at: int) -> str:
        start = int.from_bytes(data[place : place + wide], "little")
        size = int.from_bytes(data[place + wide : place + wide + 2], "little")
        if start + size > len(data):
            raise ProtocolError("JSON: a key lies outside of its object", offset=at + place)
        self._spend(size, at + place)
        try:
            return str(data[start : start + size], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("JSON: a key is not UTF-8", offset=at + start) from None

    def _entry(self, data: memoryview, place: int, wide: int, at: int, depth: int) -> Json:
        kind, inline = data[place], data[place + 1 : place + 1 + wide]
        if kind == _Type.LITERAL:
            if inline[0] not in _LITERALS:
                raise ProtocolError(f"JSON: {inline[0]} is not a literal", offset=at + place)
            return _LITERALS[inline[0]]
        size, signed = _INTEGERS.get(kind, (8, False))
        if size <= wide:
            return int.from_bytes(inline[:size], "little", signed=signed)
        start = int.from_bytes(inline, "little")
        if start >= len(data):
            raise ProtocolError("JSON: a value lies outside of its container", offset=at + place)
        return self.value(kind, data[start:], at + start, depth)


def _size(body: Cursor) -> int:
    """Return a size in groups of seven bits, lowest first. The top bit of a byte means that another byte follows."""
    size = 0
    for number in range(_MAX_SIZE_BYTES):
        byte = body.u8()
        size |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return size
    raise ProtocolError("a size of more than five bytes", offset=body.offset)


def json_text(value: Json) -> str:
    """Return the value as MySQL prints it: ', ' and ': ', keys in stored order, doubles with a point or exponent."""
    parts: list[str] = []
    _print(value, parts)
    return "".join(parts)


def rewrite_json(document: Buffer) -> bytes:
    """Return a column's binary document as UTF-8 JSON text.

    Raises:
        ProtocolError: the document is damaged.
    """
    return json_text(parse_json(document)).encode()


def _print(value: Json, parts: list[str]) -> None:
    if isinstance(value, list):
        for number, item in enumerate(value):
            parts.append(", " if number else "[")
            _print(item, parts)
        parts.append("]" if value else "[]")
    elif isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            parts += (", " if number else "{", encode_basestring(key), ": ")
            _print(item, parts)
        parts.append("}" if value else "{}")
    else:
        parts.append(_scalar_text(value))


def _scalar_text(value: bool | float | str | Opaque | None) -> str:  # noqa: FBT001  (a JSON value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, Opaque):
        return opaque_text(value)
    return double_text(value) if isinstance(value, float) else str(value)


def double_text(number: float) -> str:
    """Return the shortest digits that give the same double, in the form that the server's my_gcvt chooses."""
    sign, shortest = ("-", repr(number)[1:]) if repr(number).startswith("-") else ("", repr(number))
    mantissa, _, exponent = shortest.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)  # digits before the point, minus zeros after it
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0.0"
    if point < _MIN_POINT or (point > _MAX_POINT and len(digits) <= point):
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def opaque_text(value: Opaque) -> str:
    """Return decimals as numbers, temporals as text with six fractional digits, and other types as base64."""
    if value.type == ColumnType.NEWDECIMAL:
        return _decimal_text(value.data)
    if value.type in _DATES or value.type == ColumnType.TIME:
        if len(value.data) != 8:
            raise ProtocolError(f"JSON: a temporal value of {len(value.data)} bytes")
        packed = int.from_bytes(value.data, "little", signed=True)
        return f'"{_time_text(packed) if value.type == ColumnType.TIME else _date_text(packed, value.type)}"'
    base64 = b64encode(value.data).decode()
    lines = [base64[at : at + _BASE64_LINE] for at in range(0, len(base64), _BASE64_LINE)]
    return encode_basestring(f"base64:type{value.type}:" + "\n".join(lines))


def _decimal_text(data: bytes) -> str:
    if len(data) < 2 or not 0 < data[0] <= 65 or data[1] > data[0]:
        raise ProtocolError("JSON: a decimal without its precision and scale")
    precision, scale = data[0], data[1]
    if len(data) != 2 + v.decimal_width(precision, scale):
        raise ProtocolError(f"JSON: DECIMAL({precision},{scale}) in {len(data) - 2} bytes")
    return f"{v.decimal(data[2:], precision, scale):f}"


def _time_text(packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, micros = packed >> 24, packed & 0xFFFFFF
    return f"{sign}{whole >> 12 & 0x3FF:02}:{whole >> 6 & 63:02}:{whole & 63:02}.{micros:06}"


def _date_text(packed: int, kind: int) -> str:
    whole, micros = packed >> 24, packed & 0xFFFFFF
    days, seconds = whole >> 17, whole & 0x1FFFF
    year, month = divmod(days >> 5, 13)
    date = f"{year:04}-{month:02}-{days & 31:02}"
    if kind == ColumnType.DATE:
        return date
    return f"{date} {seconds >> 12:02}:{seconds >> 6 & 63:02}:{seconds & 63:02}.{micros:06}"
