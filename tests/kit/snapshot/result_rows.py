"""Write rows of a prepared SELECT, as the binary protocol has them: columns, the bytes of their values, packets.

A case is a column of a table as the catalog tells it, what the server answers with when it is asked for, and a strategy
for the bytes that a row may have for it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from replica.protocol.constants import ColumnType as T
from replica.protocol.packets.results import ResultColumn
from replica.schema.table import ColumnSchema, TableSchema
from replica.snapshot.connection.packets import RowStretch
from tests.kit.binlog.rows import lenenc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

BINARY, UTF8, UTF16, LATIN1 = 63, 45, 54, 8  # ids of collations
UNSIGNED = 32


class ResultCase(NamedTuple):
    column: ColumnSchema
    answered: ResultColumn
    values: SearchStrategy[bytes]


def counted(value: bytes) -> bytes:
    if len(value) < 1 << 16:
        return lenenc(len(value)) + value
    return b"\xfd" + len(value).to_bytes(3, "little") + value


def row(values: Sequence[bytes | None]) -> bytes:
    """The payload of a row: a zero, the NULL bits from the third on, the values that are not NULL."""
    bits = sum((value is None) << (number + 2) for number, value in enumerate(values))
    return b"\0" + bits.to_bytes((len(values) + 9) // 8, "little") + b"".join(v for v in values if v is not None)


def stretch(*payloads: bytes) -> RowStretch:
    """Whole packets, one a row."""
    data = b"".join(len(payload).to_bytes(3, "little") + b"\x07" + payload for payload in payloads)
    return RowStretch(np.frombuffer(data, np.uint8), 0, len(data), joined=False)


def joined(payload: bytes) -> RowStretch:
    """One row without a header."""
    return RowStretch(np.frombuffer(payload, np.uint8), 0, len(payload), joined=True)


def table(columns: Sequence[ColumnSchema], primary_key: tuple[int, ...] = ()) -> TableSchema:
    return TableSchema(database="d", table="t", columns=tuple(columns), primary_key=primary_key)


def _case(
    declared: str, code: int, values: SearchStrategy[bytes], *, told: int = BINARY, flags: int = 0, length: int = 0,
    decimals: int = 0, **more: Any,
) -> ResultCase:  # fmt: skip
    name = declared.replace("(", "_").replace(",", "_").replace(")", "").replace(" ", "_").lower()
    data_type = declared.partition("(")[0].partition(" ")[0].lower()
    column = ColumnSchema(name=name, data_type=data_type, column_type=declared.lower(), **more)
    return ResultCase(column, ResultColumn(name, code, told, flags, length, decimals), values)


def _bytes(size: int) -> SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size) | st.sampled_from((bytes(size), b"\xff" * size))


def _integer(name: str, code: int, came: int, width: int, *, unsigned: bool) -> ResultCase:
    low, high = (0, 1 << 8 * width) if unsigned else (-1 << 8 * width - 1, 1 << 8 * width - 1)
    edges = st.sampled_from((low, low + 1, 0, high - 1))
    values = (st.integers(low, high - 1) | edges).map(lambda n: n.to_bytes(came, "little", signed=not unsigned))
    declared = f"{name} UNSIGNED" if unsigned else name
    return _case(declared, code, values, flags=UNSIGNED * unsigned, unsigned=unsigned)


def _decimal(precision: int, scale: int) -> ResultCase:
    limit = 10**precision - 1
    numbers = st.integers(-limit, limit) | st.sampled_from((0, 1, -1, limit, -limit, 10 ** (precision // 2)))

    def text(number: int) -> bytes:
        digits = str(abs(number)).rjust(scale + 1, "0")
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
        return counted(("-" * (number < 0) + whole + ("." + fraction if scale else "")).encode())

    length = precision + (scale > 0) + 1
    return _case(f"DECIMAL({precision},{scale})", T.NEWDECIMAL, numbers.map(text), length=length, decimals=scale,
                 precision=precision, scale=scale)  # fmt: skip


_SIXTY = st.integers(0, 59)
_MICROS = st.integers(0, 999_999)


def _parts(day: SearchStrategy[bytes], fsp: int) -> SearchStrategy[bytes]:
    unit = 10 ** (6 - fsp)
    clock = st.builds(lambda *parts: bytes(parts), st.integers(0, 23), _SIXTY, _SIXTY)
    micros = _MICROS.map(lambda value: struct.pack("<I", value // unit * unit))
    return st.one_of(
        st.just(b"\0"),
        day.map(lambda d: b"\x04" + d),
        st.builds(lambda d, c: b"\x07" + d + c, day, clock),
        *([st.builds(lambda d, c, m: b"\x0b" + d + c + m, day, clock, micros)] if fsp else []),
    )


def _day(first: int, last: int, *, any_day: bool) -> SearchStrategy[bytes]:
    month, day = (st.integers(0, 12), st.integers(0, 31)) if any_day else (st.integers(1, 12), st.integers(1, 28))
    return st.builds(lambda y, m, d: struct.pack("<HBB", y, m, d), st.integers(first, last), month, day)


def _time(fsp: int) -> SearchStrategy[bytes]:
    unit = 10 ** (6 - fsp)

    def write(sign: int, hours: int, minute: int, second: int, micros: int) -> bytes:
        whole = struct.pack("<BIBBB", sign, hours // 24, hours % 24, minute, second)
        return b"\x0c" + whole + struct.pack("<I", micros // unit * unit) if fsp and micros else b"\x08" + whole

    return st.just(b"\0") | st.builds(write, st.integers(0, 1), st.integers(0, 838), _SIXTY, _SIXTY, _MICROS)


def _text(size: int) -> SearchStrategy[bytes]:
    return st.binary(max_size=min(size, 300)).map(counted)


_ANY_DAY = _day(0, 9999, any_day=True)
_SINCE_1970 = _day(1970, 2105, any_day=False)
_LABELS = tuple(f"label {number}" for number in range(300))

CASES: tuple[ResultCase, ...] = (
    *(
        _integer(name, code, came, width, unsigned=unsigned)
        for name, code, came, width in (
            ("TINYINT", T.TINY, 1, 1), ("SMALLINT", T.SHORT, 2, 2), ("MEDIUMINT", T.INT24, 4, 3), ("INT", T.LONG, 4, 4),
            ("BIGINT", T.LONGLONG, 8, 8),
        )
        for unsigned in (False, True)
    ),
    _case("FLOAT", T.FLOAT, _bytes(4)),
    _case("DOUBLE", T.DOUBLE, _bytes(8)),
    *(_decimal(p, s) for p, s in ((1, 0), (1, 1), (4, 4), (9, 0), (10, 4), (18, 9), (30, 5), (38, 38), (65, 0),
                                  (65, 30), (65, 38))),
    *(
        _case(f"BIT({n})", T.BIT, _bytes((n + 7) // 8).map(counted), flags=UNSIGNED, length=n, precision=n)
        for n in (1, 8, 9, 64)
    ),
    _case("YEAR", T.YEAR, st.sampled_from((0, 1901, 1999, 2155)).map(lambda y: struct.pack("<H", y)), length=4),
    _case("YEAR(2)", T.LONG, st.integers(0, 255).map(lambda y: struct.pack("<I", y)), length=5),
    _case("DATE", T.DATE, st.just(b"\0") | _ANY_DAY.map(lambda d: b"\x04" + d)),
    *(_case(f"DATETIME({f})", T.DATETIME, _parts(_ANY_DAY, f), decimals=f, fsp=f) for f in range(7)),
    *(_case(f"TIMESTAMP({f})", T.TIMESTAMP, _parts(_SINCE_1970, f), decimals=f, fsp=f) for f in range(7)),
    *(_case(f"TIME({f})", T.TIME, _time(f), decimals=f, fsp=f) for f in range(7)),
    _case("ENUM('a','b')", T.LONG, st.integers(0, 2).map(lambda n: struct.pack("<I", n)), labels=("a", "b")),
    _case("ENUM('many')", T.LONGLONG, st.integers(0, 300).map(lambda n: struct.pack("<Q", n)), labels=_LABELS),
    *(
        _case(f"SET('{n}')", T.LONGLONG, st.integers(0, (1 << n) - 1).map(lambda v: struct.pack("<Q", v)),
              labels=_LABELS[:n])
        for n in (1, 9, 17, 64)
    ),
    _case("CHAR(5)", T.STRING, _text(5), told=LATIN1, length=5, octets=5, charset="latin1"),
    _case("CHAR(255)", T.STRING, _text(1020), told=UTF8, length=1020, octets=1020, charset="utf8mb4"),
    _case("VARCHAR(20)", T.VAR_STRING, _text(80), told=UTF16, length=80, octets=80, charset="utf16"),
    _case("VARCHAR(64)", T.VAR_STRING, _text(256), told=UTF8, length=256, octets=256, charset="utf8mb4"),
    _case("VARCHAR(100) /*M!100301 COMPRESSED*/", T.VAR_STRING, _text(100), told=LATIN1, length=101, octets=100,
          charset="latin1"),
    _case("TINYTEXT", T.BLOB, _text(255), told=UTF8, length=255, octets=255, charset="utf8mb4"),
    _case("LONGTEXT", T.BLOB, _text(1 << 20), told=UTF8, length=(1 << 32) - 1, octets=(1 << 32) - 1, charset="utf8mb4"),
    _case("BINARY(5)", T.STRING, _bytes(5).map(counted), length=5, octets=5),
    _case("VARBINARY(300)", T.VAR_STRING, _text(300), length=300, octets=300),
    _case("MEDIUMBLOB", T.BLOB, _text(1 << 20), length=(1 << 24) - 1, octets=(1 << 24) - 1),
    _case("POINT", T.GEOMETRY, _text(25), length=(1 << 32) - 1),
    _case("UUID", T.STRING, _bytes(16).map(counted), length=16),
    _case("INET6", T.STRING, _bytes(16).map(counted), length=16),
    _case("INET4", T.STRING, _bytes(4).map(counted), length=4),
)  # fmt: skip
