"""Two values of every kind, as they stand in a row image, with the column that makes the plan choose the kind."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from replica.protocol.constants import ColumnType as T
from replica.rows.tables.layout import compile_layout
from replica.rows.types.kinds import Kind
from replica.rows.types.types import ValuePolicy
from replica.schema.table import ColumnSchema, TableSchema
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, UPDATE, Column, image, rows, table_map
from tests.kit.binlog.values import packed_decimal

if TYPE_CHECKING:
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.tables.plan import ColumnPlan

BINARY = 63
PLAIN, TEXT, SPARK = ValuePolicy(), ValuePolicy("text"), ValuePolicy(geometry="spark")


class Sample(NamedTuple):
    """A column of a kind and two values, which differ. `known`: what the catalog says where the stream cannot tell."""

    kind: Kind
    column: Column
    values: tuple[bytes, bytes]
    policy: ValuePolicy = PLAIN
    known: ColumnSchema | None = None

    @property
    def schema(self) -> TableSchema | None:
        if self.known is None:
            return None
        number = ColumnSchema(name="id", data_type="int", column_type="int(11)")
        return TableSchema(database="d", table="t", columns=(self.known, number))

    def plan(self, event: TableMapEvent) -> ColumnPlan:
        return compile_layout(event, self.schema, None, self.policy).columns[0]

    def file(self) -> bytes:
        """An INSERT of both values, an UPDATE from the first to the second, and one that changes nothing."""
        first, second = (image([value, struct.pack("<i", 7)]) for value in self.values)
        stream = Primary()
        stream.gtid()
        stream.event(19, table_map(1, [self.column, Column("id", T.LONG)]))
        stream.event(INSERT, rows(1, 2, first + second, flags=0))
        both = [True, True]
        stream.event(UPDATE, rows(1, 2, first + second + second + second, before=both, after=both))
        stream.xid()
        return stream.binlog()


def _numbers(kind: Kind, code: T, layout: str, first: Any, second: Any, **more: Any) -> Sample:
    return Sample(kind, Column("c", code, **more), (struct.pack(layout, first), struct.pack(layout, second)))


def _rounded(kind: Kind, code: T, layout: str, declared: str, *values: float) -> Sample:
    """A column that an ALTER left with more digits than it is declared with."""
    known = ColumnSchema(name="c", data_type=kind.name.lower(), column_type=declared)
    return _numbers(kind, code, layout, *values, metadata=bytes([struct.calcsize(layout)]))._replace(known=known)


def _counted(*values: bytes) -> Any:
    return tuple(bytes([len(value)]) + value for value in values)


def _dates(kind: Kind, code: T, metadata: bytes, *values: bytes, known: ColumnSchema | None = None) -> list[Sample]:
    column = Column("c", code, metadata)
    pair: Any = values
    return [Sample(kind, column, pair, PLAIN, known), Sample(Kind[f"{kind.name}_TEXT"], column, pair, TEXT, known)]


def _known(data_type: str, **more: Any) -> ColumnSchema:
    return ColumnSchema(name="c", data_type=data_type, column_type=data_type, **more)


def _text(kind: Kind, collation: int, *values: bytes) -> Sample:
    return Sample(kind, Column("c", T.VARCHAR, b"\x40\0", collation=collation), _counted(*values))


def _address(kind: Kind, length: int, *values: bytes) -> Sample:
    column = Column("c", T.STRING, bytes([0xFE, length]), collation=BINARY)
    return Sample(kind, column, _counted(*values), known=_known(kind.name.lower()))


def _day(year: int, month: int, day: int) -> bytes:
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def _moment(year: int, month: int, day: int, hour: int, centiseconds: int) -> bytes:
    whole = 0x8000000000 + ((year * 13 + month) << 22 | day << 17 | hour << 12)
    return whole.to_bytes(5, "big") + bytes([centiseconds])


_LABELS = (b"a", "\u00e9".encode(), b"c")
SAMPLES = (
    _numbers(Kind.INT8, T.TINY, "<b", -128, 127),
    _numbers(Kind.UINT8, T.TINY, "<B", 200, 255, unsigned=True),
    _numbers(Kind.INT16, T.SHORT, "<h", -32768, 300),
    _numbers(Kind.UINT16, T.SHORT, "<H", 40000, 65535, unsigned=True),
    Sample(Kind.INT24, Column("c", T.INT24), (b"\0\0\x80", b"\xff\xff\x7f")),
    Sample(Kind.UINT24, Column("c", T.INT24, unsigned=True), (b"\0\0\x80", b"\xff\xff\xff")),
    _numbers(Kind.INT32, T.LONG, "<i", -(1 << 31), 70000),
    _numbers(Kind.UINT32, T.LONG, "<I", 3_000_000_000, 1, unsigned=True),
    _numbers(Kind.INT64, T.LONGLONG, "<q", -(1 << 63), 1 << 40),
    _numbers(Kind.UINT64, T.LONGLONG, "<Q", (1 << 64) - 1, 5, unsigned=True),
    _numbers(Kind.FLOAT, T.FLOAT, "<f", 0.1, -1.5, metadata=b"\4"),
    _numbers(Kind.DOUBLE, T.DOUBLE, "<d", 0.1, -1e300, metadata=b"\10"),
    _rounded(Kind.FLOAT, T.FLOAT, "<f", "float(7,2)", 1.23456, -0.001),
    _rounded(Kind.DOUBLE, T.DOUBLE, "<d", "double(10,0) unsigned zerofill", 1.23456, 2.5),
    Sample(
        Kind.DECIMAL,
        Column("c", T.NEWDECIMAL, bytes([12, 2])),
        (packed_decimal(-1_234_567_890_12, 12, 2), packed_decimal(50, 12, 2)),
    ),
    Sample(
        Kind.DECIMAL,
        Column("c", T.NEWDECIMAL, bytes([38, 10])),
        (packed_decimal(-(10**37), 38, 10), packed_decimal(1, 38, 10)),
    ),
    Sample(
        Kind.DECIMAL_TEXT,
        Column("c", T.NEWDECIMAL, bytes([65, 30])),
        (packed_decimal(-(10**64), 65, 30), packed_decimal(1, 65, 30)),
    ),
    Sample(Kind.BIT, Column("c", T.BIT, b"\2\1"), (b"\2\3", b"\0\1")),
    Sample(Kind.BIT64, Column("c", T.BIT, b"\0\10"), (b"\x80" + bytes(7), bytes(7) + b"\1")),
    Sample(Kind.YEAR, Column("c", T.YEAR, unsigned=True), (b"\0", b"\xff")),
    *_dates(Kind.DATE, T.DATE, b"", _day(2024, 2, 29), _day(1, 1, 1)),
    *_dates(Kind.DATETIME, T.DATETIME2, b"\2", _moment(2024, 2, 29, 23, 99), _moment(1969, 12, 31, 0, 5)),
    *_dates(Kind.TIMESTAMP, T.TIMESTAMP2, b"\2", b"\xff\0\0\0\x63", b"\0\0\0\1\0"),
    *_dates(
        Kind.OLD_DATETIME,
        T.DATETIME,
        b"",
        (20240229235958).to_bytes(8, "little"),
        (19691231000001).to_bytes(8, "little"),
        known=_known("datetime", fsp=0),
    ),
    *_dates(Kind.OLD_TIMESTAMP, T.TIMESTAMP, b"", b"\0\0\0\xff", b"\1\0\0\0", known=_known("timestamp", fsp=0)),
    Sample(Kind.TIME, Column("c", T.TIME2, b"\2"), (b"\x7f\xff\xff\xff", b"\x80\xa2\xcc\x32")),
    Sample(
        Kind.OLD_TIME,
        Column("c", T.TIME),
        ((-8385959).to_bytes(3, "little", signed=True), (123456).to_bytes(3, "little")),
        known=_known("time", fsp=0),
    ),
    Sample(Kind.ENUM, Column("c", T.STRING, b"\xf7\1", labels=_LABELS), (b"\2", b"\0")),
    Sample(Kind.SET, Column("c", T.STRING, b"\xf8\1", labels=_LABELS), (b"\7", b"\0")),
    _text(Kind.TEXT, 45, "\u00e9\u20ac".encode(), b"plain"),
    _text(Kind.LATIN1, 8, b"\x80\xe9", b"plain"),
    _text(Kind.ENCODED_TEXT, 7, b"\xd0\xd2", b"plain"),  # koi8r
    _text(Kind.ENCODED_TEXT, 28, "\u4e2d\u6587".encode("gbk"), b"plain"),
    _text(Kind.ENCODED_TEXT, 54, "\u00e9\U0001f600".encode("utf-16-be"), b"\0a"),
    _text(Kind.ENCODED_TEXT, 56, "\u00e9\U0001f600".encode("utf-16-le"), b"a\0"),
    _text(Kind.ENCODED_TEXT, 60, "\u00e9\U0001f600".encode("utf-32-be"), b"\0\0\0a"),
    _text(Kind.BYTES, BINARY, b"\0\xff\x80", b""),
    Sample(
        Kind.PADDED_BYTES,
        Column("c", T.STRING, b"\xfe\5", collation=BINARY),
        _counted(b"a\0b", b"\xff\xff\xff\xff\xff"),
    ),
    _address(Kind.UUID, 16, bytes(range(16, 32)), b"\x12"),
    _address(Kind.INET4, 4, b"\x0a\0\0\1", b"\xff\xff"),
    _address(Kind.INET6, 16, b"\x20\x01" + bytes(13) + b"\1", b"\x20"),
    Sample(
        Kind.GEOMETRY,
        Column("c", T.GEOMETRY, b"\4", collation=BINARY),
        (b"\5\0\0\0" + b"\xe6\x10\0\0Z", b"\x06\0\0\0" + b"\0\0\0\0AB"),
        SPARK,
    ),
    Sample(
        Kind.VECTOR,
        Column("c", T.VARCHAR, b"\x08\0", collation=BINARY),
        _counted(struct.pack("<2f", 0.5, -2), struct.pack("<2f", 65536, 1.25)),
        known=_known("vector", octets=8),
    ),
)
NAMES = [f"{sample.kind.name}-{number}" for number, sample in enumerate(SAMPLES)]
