"""Columns put out wider than they are: every integer into every wider one, beside rows that have the width already."""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import SchemaError
from replica.protocol.constants import EventType
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.tables.plan import fits
from replica.rows.types.types import OutputColumn
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, UPDATE, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, kernel_rows

WANTED = Tables({"d.t": None})


class Wire(NamedTuple):
    code: int
    size: int
    unsigned: bool


WIRES: Final = [Wire(code, size, u) for code, size in ((1, 1), (2, 2), (9, 3), (3, 4)) for u in (False, True)]
OUT: Final = {"SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64()}
NATIVE: Final = {1: "TINYINT", 2: "SMALLINT", 3: "INT", 4: "INT"}
NATIVE_UNSIGNED: Final = {1: "SMALLINT", 2: "INT", 3: "INT", 4: "BIGINT"}
WIDE_CODES: Final = {"SMALLINT": 2, "INT": 3, "BIGINT": 8}


def widenings() -> list[tuple[Wire, str]]:
    own = {wire: (NATIVE_UNSIGNED if wire.unsigned else NATIVE)[wire.size] for wire in WIRES}
    return [(wire, out) for wire in WIRES for out in OUT if fits(own[wire], out) and own[wire] != out]


@pytest.mark.parametrize(("wire", "out"), widenings(), ids=lambda v: v if isinstance(v, str) else f"{v.code}-{v[2]:d}")
@settings(max_examples=10)
@given(data=st.data(), flat=st.booleans())
def test_an_integer_keeps_its_value(wire: Wire, out: str, data: st.DataObject, *, flat: bool) -> None:
    bits = 8 * wire.size
    low, high = (0, (1 << bits) - 1) if wire.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    values = [*data.draw(st.lists(st.none() | st.integers(low, high), max_size=40)), low, high]
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, [Column("n", wire.code, unsigned=wire.unsigned)]))
    stored = [None if v is None else (v & (1 << bits) - 1).to_bytes(wire.size, "little") for v in values]
    stream.event(INSERT, rows(1, 1, b"".join(image([value]) for value in stored), flags=0))
    stream.event(UPDATE, rows(1, 1, image([stored[-1]]) + image([stored[-2]]), after=[True]))
    stream.xid()
    stream.gtid()  # after the ALTER
    stream.event(EventType.TABLE_MAP, table_map(2, [Column("n", WIDE_CODES[out])]))
    wide = OUT[out].bit_width // 8
    stream.event(INSERT, rows(2, 1, image([(-5).to_bytes(wide, "little", signed=True)])))
    stream.xid()
    output = [OutputColumn("n", OUT[out], out)]
    options = DecodeOptions(shape="flat" if flat else "envelope", batch_rows=7)
    found = kernel_rows(stream.binlog(), RangeDecoder(WANTED, options, output))
    (array,) = found.columns if flat else found.after
    assert array.type == OUT[out]
    assert array.to_pylist() == [*values, *([high] if flat else []), low, -5]


def test_a_decimal_gets_more_digits_before_the_point() -> None:
    stream = Primary()
    stream.rows(
        table_map(1, [Column("n", 246, b"\x05\x02")]),
        (INSERT, rows(1, 1, image([struct.pack(">HB", 0x8000 | 123, 45)]) + image([None]))),
    )
    output = [OutputColumn("n", pa.decimal128(12, 2), "DECIMAL(12,2)")]
    (batch,) = RangeDecoder(WANTED, DecodeOptions(), output).decode(bytes(stream), checksum=True)
    (array,) = batch.after
    assert [None if value is None else str(value) for value in array.to_pylist()] == ["123.45", None]


@pytest.mark.parametrize(
    ("column", "out", "name"),
    [
        (Column("n", 8), pa.int32(), "INT"),
        (Column("n", 3, unsigned=True), pa.int32(), "INT"),
        (Column("n", 4, b"\x04"), pa.float64(), "DOUBLE"),
        (Column("n", 246, b"\x05\x02"), pa.decimal128(12, 3), "DECIMAL(12,3)"),
        (Column("n", 246, b"\x0c\x02"), pa.decimal128(5, 2), "DECIMAL(5,2)"),
        (Column("n", 3), pa.string(), "STRING"),
        (Column("n", 13), pa.int64(), "BIGINT"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_could_lose_values_or_show_others_is_refused(column: Column, out: pa.DataType, name: str) -> None:
    stream = Primary()
    stream.rows(table_map(1, [column]), (INSERT, rows(1, 1, image([None]))))
    decoder = RangeDecoder(WANTED, DecodeOptions(), [OutputColumn("n", out, name)])
    with pytest.raises(SchemaError, match=f" in the binlog and {re.escape(name)} in the query"):
        list(decoder.decode(bytes(stream), checksum=True))
