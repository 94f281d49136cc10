"""MySQL's binary JSON made from Python values, small or large containers."""

from __future__ import annotations

import struct
from typing import Any

_INTEGERS = ((5, "<h", -(1 << 15), 1 << 15), (6, "<H", 0, 1 << 16), (7, "<i", -(1 << 31), 1 << 31),
             (8, "<I", 0, 1 << 32), (9, "<q", -(1 << 63), 1 << 63), (10, "<Q", 0, 1 << 64))  # fmt: skip


def binary(value: Any, *, large: bool = False) -> bytes:
    """The whole document: type byte and value."""
    kind, data = _value(value, large=large)
    return bytes([kind]) + data


def _value(value: Any, *, large: bool) -> tuple[int, bytes]:
    match value:
        case None | bool():
            return 4, bytes([0 if value is None else 2 - value])
        case int():
            kind, form, *_ = next(row for row in _INTEGERS if row[2] <= value < row[3])
            return kind, struct.pack(form, value)
        case float():
            return 11, struct.pack("<d", value)
        case str():
            text = value.encode()
            return 12, _size(len(text)) + text
        case list():
            return (3 if large else 2), _container(value, None, large=large)
        case dict():
            members = sorted(value.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))
            keys = [key.encode() for key, _ in members]
            return (1 if large else 0), _container([item for _, item in members], keys, large=large)
    raise TypeError(value)


def _size(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def _container(values: list[Any], keys: list[bytes] | None, *, large: bool) -> bytes:
    wide = 4 if large else 2
    names = keys or []
    at = 2 * wide + len(names) * (wide + 2) + len(values) * (wide + 1)
    key_entries, tail = b"", b""
    for key in names:
        key_entries += (at + len(tail)).to_bytes(wide, "little") + len(key).to_bytes(2, "little")
        tail += key
    entries = b""
    for value in values:
        kind, data = _value(value, large=large)
        if kind == 4 or (5 <= kind <= 8 and len(data) <= wide):
            entries += bytes([kind]) + data.ljust(wide, b"\0")
        else:
            entries += bytes([kind]) + (at + len(tail)).to_bytes(wide, "little")
            tail += data
    size = at + len(tail)
    return len(values).to_bytes(wide, "little") + size.to_bytes(wide, "little") + key_entries + entries + tail
