"""Columns with strategies for the bytes of their values: everything that a server may write, invalid dates included."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from replica.protocol.constants import ColumnType as T
from tests.kit.binlog.rows import Column

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4)
LABELS = (b"a", b"", b"it's", "\u00e9\u20ac".encode(), b"e", b"f", b"g", b"h", b"the ninth")


def packed_decimal(unscaled: int, precision: int, scale: int) -> bytes:
    """The server's decimal2bin: groups of nine digits, left-overs outside, the sign in the inverted top bit."""
    digits = str(abs(unscaled)).rjust(precision, "0")
    whole = precision - scale
    groups = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    out = bytearray()
    for size in groups:
        part, digits = digits[:size], digits[size:]
        out += int(part or "0").to_bytes(4 if size == 9 else _DIGIT_BYTES[size], "big")
    if unscaled < 0:
        out = bytearray(byte ^ 0xFF for byte in out)
    out[0] ^= 0x80
    return bytes(out)


def _decimal(precision: int, scale: int) -> tuple[bytes, SearchStrategy[bytes]]:
    limit = 10**precision - 1
    edges = st.sampled_from((0, 1, -1, limit, -limit, limit // 10, 10 ** (precision // 2)))
    values = st.integers(-limit, limit) | edges
    return bytes([precision, scale]), values.map(lambda value: packed_decimal(value, precision, scale))


def _fraction(fsp: int) -> SearchStrategy[bytes]:
    size = (fsp + 1) // 2
    return st.integers(0, 100**size - 1).map(lambda value: value.to_bytes(size, "big"))


def _datetime(fsp: int) -> SearchStrategy[bytes]:
    def pack(months: int, day: int, hour: int, minute: int, second: int) -> bytes:
        return (0x8000000000 + (months << 22 | day << 17 | hour << 12 | minute << 6 | second)).to_bytes(5, "big")

    sixty = st.integers(0, 59)
    whole = st.builds(pack, st.integers(0, 9999 * 13 + 12), st.integers(0, 31), st.integers(0, 23), sixty, sixty)
    return st.builds(bytes.__add__, whole, _fraction(fsp))


def _time(fsp: int) -> SearchStrategy[bytes]:
    size = (fsp + 1) // 2

    def pack(hours: int, minutes: int, seconds: int, fraction: int, sign: int) -> bytes:
        number = (hours << 12 | minutes << 6 | seconds) << (8 * size) | fraction
        return ((0x800000 << (8 * size)) + sign * number).to_bytes(3 + size, "big")

    minute = st.integers(0, 59)
    return st.builds(pack, st.integers(0, 838), minute, minute, st.integers(0, 100**size - 1), st.sampled_from((1, -1)))


def _date() -> SearchStrategy[bytes]:
    return st.builds(
        lambda y, m, d: (y << 9 | m << 5 | d).to_bytes(3, "little"),
        st.integers(0, 9999),
        st.integers(0, 12),
        st.integers(0, 31),
    )


def _counted(values: SearchStrategy[bytes], size: int) -> SearchStrategy[bytes]:
    return values.map(lambda value: len(value).to_bytes(size, "little") + value)


def _number(code: str) -> SearchStrategy[bytes]:
    width = 32 if code == "<f" else 64
    return st.floats(allow_nan=False, width=width).map(lambda value: struct.pack(code, value))  # type: ignore[arg-type]


def _labels(real: int, width: int) -> tuple[bytes, SearchStrategy[bytes]]:
    top = len(LABELS) if real == 0xF7 else (1 << len(LABELS)) - 1
    return bytes([real, width]), st.integers(0, top).map(lambda value: value.to_bytes(width, "little"))


def _bits(count: int) -> SearchStrategy[bytes]:
    return st.integers(0, (1 << count) - 1).map(lambda value: value.to_bytes((count + 7) // 8, "big"))


def _fixed(size: int) -> SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size) | st.sampled_from((bytes(size), b"\xff" * size, b"\x80" * size))


def _char(octets: int) -> bytes:
    return bytes([0xFE ^ ((octets >> 8) << 4), octets & 0xFF])


_UTF8 = st.text(max_size=40).map(str.encode)
_ANY = st.binary(max_size=60)
_PIECES = (b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc3", "é€😀".encode(), b"plain text", b"\xff", b"\xf4\x90\x80\x80")
_DAMAGED_UTF8 = st.lists(st.sampled_from(_PIECES) | st.binary(max_size=4), max_size=12).map(b"".join)
_GBK = st.text("abc\u4e2d\u6587", max_size=10).map(lambda text: text.encode("gbk"))

CASES: tuple[tuple[Column, SearchStrategy[bytes]], ...] = (
    *(
        (Column(f"i{code}{'u' if unsigned else ''}", code, unsigned=unsigned), _fixed(size))
        for code, size in ((T.TINY, 1), (T.SHORT, 2), (T.INT24, 3), (T.LONG, 4), (T.LONGLONG, 8))
        for unsigned in (False, True)
    ),
    (Column("float", T.FLOAT, b"\x04"), _number("<f")),
    (Column("double", T.DOUBLE, b"\x08"), _number("<d")),
    *(
        (Column(f"decimal_{p}_{s}", T.NEWDECIMAL, _decimal(p, s)[0]), _decimal(p, s)[1])
        for p, s in (
            (1, 0),
            (1, 1),
            (4, 4),
            (5, 0),
            (9, 0),
            (9, 9),
            (10, 4),
            (12, 2),
            (18, 0),
            (18, 9),
            (18, 18),
            (19, 0),
            (24, 6),
            (27, 9),
            (28, 27),
            (38, 0),
            (38, 10),
            (38, 38),
            (39, 0),
            (39, 30),
            (40, 38),
            (65, 0),
            (65, 30),
            (65, 38),
        )
    ),
    *((Column(f"bit{n}", T.BIT, bytes([n % 8, n // 8])), _bits(n)) for n in (1, 7, 8, 10, 33, 57, 63, 64)),
    (Column("year", T.YEAR, unsigned=True), _fixed(1)),
    (Column("date", T.DATE), _date()),
    *((Column(f"time{f}", T.TIME2, bytes([f])), _time(f)) for f in (0, 1, 2, 3, 4, 5, 6)),
    *((Column(f"datetime{f}", T.DATETIME2, bytes([f])), _datetime(f)) for f in (0, 1, 2, 3, 4, 5, 6)),
    *(
        (Column(f"timestamp{f}", T.TIMESTAMP2, bytes([f])), st.builds(bytes.__add__, _fixed(4), _fraction(f)))
        for f in (0, 1, 2, 3, 4, 5, 6)
    ),
    (Column("enum", T.STRING, _labels(0xF7, 1)[0], labels=LABELS), _labels(0xF7, 1)[1]),
    (Column("enum2", T.STRING, _labels(0xF7, 2)[0], labels=LABELS), _labels(0xF7, 2)[1]),
    (Column("set", T.STRING, _labels(0xF8, 2)[0], labels=LABELS), _labels(0xF8, 2)[1]),
    (Column("set8", T.STRING, _labels(0xF8, 8)[0], labels=LABELS), _labels(0xF8, 8)[1]),
    (Column("char", T.STRING, _char(160)), _counted(_UTF8, 1)),
    (Column("long_char", T.STRING, _char(1020)), _counted(_UTF8, 2)),
    (Column("varchar", T.VARCHAR, b"\xff\x00"), _counted(_UTF8, 1)),
    (Column("long_varchar", T.VARCHAR, b"\x00\x01"), _counted(_UTF8, 2)),
    (Column("latin1", T.VARCHAR, b"\x40\x00", collation=8), _counted(_ANY, 1)),
    (Column("koi8r", T.VARCHAR, b"\x40\x00", collation=7), _counted(_ANY, 1)),
    (Column("text", T.BLOB, b"\x03"), _counted(_UTF8, 3)),
    (Column("blob", T.BLOB, b"\x04", collation=63), _counted(_ANY, 4)),
    (Column("binary", T.STRING, _char(9), collation=63), _counted(st.binary(max_size=9), 1)),
    (Column("varbinary", T.VARCHAR, b"\x2c\x01", collation=63), _counted(_ANY, 2)),
    (Column("damaged", T.VARCHAR, b"\xff\x00"), _counted(_DAMAGED_UTF8, 1)),
    (Column("geometry", T.GEOMETRY, b"\x04", collation=63), _counted(st.just(b"") | st.binary(min_size=4), 4)),
)
MULTI_BYTE_CASES: tuple[tuple[Column, SearchStrategy[bytes]], ...] = (
    (Column("gbk", T.VARCHAR, b"\x40\x00", collation=28), _counted(_GBK, 1)),
    (Column("ucs2", T.VARCHAR, b"\x40\x00", collation=35), _counted(_ANY.map(lambda b: b[: len(b) & ~1]), 1)),
)
