"""The kernels against their plain twin: any table, any values, any images, any place to interrupt."""

from __future__ import annotations

import struct
from datetime import date, timedelta
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils

from replica.errors import ProtocolError, ReplicaError
from replica.native.arrays import address
from replica.native.compile import kernel
from replica.native.memory import multiply_add, negate, store_u8
from replica.protocol.constants import EventType
from replica.protocol.rows.table_map import parse_table_map
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, count_rows
from replica.rows.scan.scan import scan
from replica.rows.tables.layout import compile_layout
from replica.rows.types.kernels.kernel_dates import days
from replica.rows.types.kernels.kernel_numbers import INVALID
from replica.rows.types.types import OutputColumn, ValuePolicy, output_column
from replica.schema.table import ColumnSchema, TableSchema
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import DELETE, INSERT, UPDATE, Column, image, rows, table_map
from tests.kit.binlog.values import CASES, MULTI_BYTE_CASES
from tests.unit.rows.twin import Tables, check_twin, kernel_rows, reference_rows

Shape = Literal["envelope", "flat", "variant"]
SHAPES: tuple[Shape, ...] = ("envelope", "flat", "variant")
WANTED = Tables({"d.t": None})


def draw_image(draw: st.DrawFn, columns: list[tuple[Column, Any]], present: list[bool]) -> bytes:
    values = []
    for (_, strategy), there in zip(columns, present, strict=True):
        if there:
            values.append(draw(st.none() | strategy))
    return image(values)


@st.composite
def binlogs(draw: st.DrawFn, *, multi_byte: bool = False) -> bytes:
    """A file of a few transactions on one table of any columns, other tables between them."""
    pool = list(CASES) + (list(MULTI_BYTE_CASES) if multi_byte else [])
    columns = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=20, unique_by=lambda case: case[0].name))
    definitions = [column for column, _ in columns]
    width = len(columns)
    stream = Primary(checksum=draw(st.booleans()))
    for _ in range(draw(st.integers(1, 4))):
        stream.gtid()
        stream.event(EventType.TABLE_MAP, table_map(1, definitions))
        stream.event(EventType.TABLE_MAP, table_map(2, [Column("x", 15, b"\x10\0"), Column("y", 3)], table="other"))
        for _ in range(draw(st.integers(0, 3))):
            some = st.lists(st.booleans(), min_size=width, max_size=width)
            partial = draw(st.booleans())
            before, after = ((draw(some) if partial else [True] * width) for _ in range(2))
            before[draw(st.integers(0, width - 1))] = after[draw(st.integers(0, width - 1))] = True
            op = draw(st.sampled_from((INSERT, UPDATE, DELETE)))
            images = b"".join(
                draw_image(draw, columns, before) + (draw_image(draw, columns, after) if op == UPDATE else b"")
                for _ in range(draw(st.integers(0, 3)))
            )
            body = rows(1, width, images, before=before, after=after if op == UPDATE else None, flags=0)
            stream.event(op, body)
            if draw(st.booleans()):
                stream.event(INSERT, rows(2, 2, image([b"\x03abc", None]) * 2, flags=0))
        stream.xid()
    return stream.binlog()


POLICIES = st.sampled_from(
    (ValuePolicy(), ValuePolicy("text"), ValuePolicy(geometry="spark"), ValuePolicy("text", geometry="spark"))
)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(binlogs(), st.sampled_from(SHAPES), POLICIES, st.integers(2, 9), st.integers(1, 300))
def test_kernels_give_what_the_twin_gives(
    data: bytes, shape: Shape, policy: ValuePolicy, batch_rows: int, batch_bytes: int
) -> None:
    options = DecodeOptions(
        shape=shape,
        invalid_dates=policy.invalid_dates,
        geometry=policy.geometry,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
    )
    if not list(reference_rows(data, WANTED, options.policy)):
        assert not kernel_rows(data, RangeDecoder(WANTED, options, None if shape == "variant" else ())).ops
        return
    check_twin(data, WANTED, options)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(binlogs(multi_byte=True), st.sampled_from(SHAPES))
def test_multi_byte_text_reads_the_same_in_every_shape(data: bytes, shape: Shape) -> None:
    if list(reference_rows(data, WANTED)):
        check_twin(data, WANTED, DecodeOptions(shape=shape, batch_rows=3))


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(binlogs())
def test_spark_reads_every_variant_we_write(data: bytes) -> None:
    decoded = kernel_rows(data, RangeDecoder(WANTED, DecodeOptions(shape="variant")))
    for row in [row for side in (decoded.before, decoded.after) for array in side for row in array.to_pylist()]:
        if row is not None:
            assert isinstance(VariantUtils.to_python(row["value"], row["metadata"]), dict)


def wide_variant(width: int) -> dict[str, Any]:
    stream = Primary()
    stream.rows(
        table_map(1, [Column(f"column_{i}", 1) for i in range(width)]),
        (INSERT, rows(1, width, image([bytes([i % 100]) for i in range(width)]))),
    )
    check_twin(stream.binlog(), WANTED, DecodeOptions(shape="variant"))
    decoded = kernel_rows(bytes(stream), RangeDecoder(WANTED, DecodeOptions(shape="variant")))
    row = decoded.after[0][0].as_py()
    return dict(VariantUtils.to_python(row["value"], row["metadata"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [1, 250, 251, 255, 256, 257, 300, 1017])
def test_a_variant_of_many_columns(width: int) -> None:
    assert wide_variant(width) == {f"column_{i}": i % 100 for i in range(width)}


@pytest.mark.parametrize("size", [0, 63, 64, 255, 256, 65_535, 65_536, 16_777_215, 16_777_216])
def test_a_value_of_any_size_grows_its_column_alone(size: int) -> None:
    columns = [Column("id", 3), Column("b", 252, b"\x04", collation=63), Column("t", 252, b"\x04")]
    value = size.to_bytes(4, "little") + b"x" * size
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, columns))
    stream.event(INSERT, rows(1, 3, image([bytes(4), bytes(4), bytes(4)]), flags=0))
    stream.event(
        UPDATE, rows(1, 3, image([bytes(4), value, bytes(4)]) + image([bytes(4), value, value]), after=[True] * 3)
    )
    stream.xid()
    for shape in SHAPES:
        check_twin(stream.binlog(), WANTED, DecodeOptions(shape=shape, batch_bytes=1000))


VECTORS = st.lists(st.floats(width=32, allow_nan=False), max_size=300)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.lists(st.none() | VECTORS, min_size=1, max_size=8), st.sampled_from(SHAPES), st.integers(2, 5))
def test_vectors_are_lists_of_floats(vectors: list[list[float] | None], shape: Shape, batch_rows: int) -> None:
    known = ColumnSchema(name="v", data_type="vector", column_type="vector(300)", octets=1200)
    tables = Tables({"d.t": TableSchema(database="d", table="t", columns=(known,))})
    stream = Primary()
    stream.gtid()
    columns = [Column("id", 3), Column("v", 15, b"\xb0\x04", collation=63)]
    stream.event(EventType.TABLE_MAP, table_map(1, columns))
    packed = [v if v is None else struct.pack(f"<H{len(v)}f", 4 * len(v), *v) for v in vectors]
    stream.event(INSERT, rows(1, 2, b"".join(image([bytes(4), value]) for value in packed)))
    stream.xid()
    decoded = check_twin(stream.binlog(), tables, DecodeOptions(shape=shape, batch_rows=batch_rows))
    if shape == "variant":
        found = [VariantUtils.to_python(r["value"], r["metadata"])["v"] for r in decoded.after[0].to_pylist()]
    else:
        found = (decoded.columns or decoded.after)[1].to_pylist()
    assert found == vectors


def test_a_vector_fits_the_list_that_spark_has_for_it() -> None:
    known = ColumnSchema(name="v", data_type="vector", column_type="vector(2)", octets=8)
    tables = Tables({"d.t": TableSchema(database="d", table="t", columns=(known,))})
    stream = Primary()
    stream.rows(
        table_map(1, [Column("v", 15, b"\x08\0", collation=63)]),
        (INSERT, rows(1, 1, image([struct.pack("<B2f", 8, 1.5, -2)]) + image([None]))),
    )
    kind = pa.list_(pa.field("element", pa.float32()))
    output = [OutputColumn("v", kind, "ARRAY<FLOAT>")]
    (batch,) = RangeDecoder(tables, DecodeOptions(), output).decode(bytes(stream), checksum=True)
    (array,) = batch.after
    assert array.type.value_field.name == "element"
    assert array.to_pylist() == [[1.5, -2.0], None]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("data_type", "size"), [("vector", 5), ("geometry", 3)])
def test_what_is_no_vector_and_no_geometry(data_type: str, size: int, shape: Shape) -> None:
    code, metadata, prefix = (15, b"\x2c\x01", 2) if data_type == "vector" else (255, b"\x04", 4)
    known = ColumnSchema(name="v", data_type=data_type, column_type=data_type)
    tables = Tables({"d.t": TableSchema(database="d", table="t", columns=(known,))})
    stream = Primary()
    stream.rows(
        table_map(1, [Column("v", code, metadata, collation=63)]),
        (INSERT, rows(1, 1, image([size.to_bytes(prefix, "little") + bytes(size)]))),
    )
    policy = ValuePolicy(geometry="spark")
    output = [output_column(known, policy)] if shape != "variant" else None
    options = DecodeOptions(shape=shape, geometry="spark")
    with pytest.raises(ProtocolError, match=r"column v of d\.t holds bytes that are not a value of its type"):
        list(RangeDecoder(tables, options, output).decode(bytes(stream), checksum=True))
    with pytest.raises(ProtocolError, match=rf"column v: .*{data_type.upper()}"):
        list(reference_rows(stream.binlog(), tables, policy))


# -- damage ------------------------------------------------------------------------------------------------------


@cache
def whole_row() -> bytes:
    """An UPDATE of one row with a value in every column of CASES."""
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, [column for column, _ in CASES]))
    first = settings(max_examples=1, phases=[Phase.generate], derandomize=True, database=None)  # the simplest is enough
    values = [find(strategy, lambda _: True, settings=first) for _, strategy in CASES]
    stream.event(UPDATE, rows(1, len(CASES), image(values) * 2, after=[True] * len(CASES)))
    stream.xid()
    return bytes(stream)


@cache
def whole_row_decoder(shape: Shape, invalid_dates: Literal["null", "error", "text"]) -> RangeDecoder:
    """With the output columns of the undamaged table. One for all damage: a decoder must survive its errors."""
    output = None
    if shape != "variant":
        table = parse_table_map(scan(whole_row(), checksum=True).table_map_body(0))
        output = compile_layout(table, None, None, ValuePolicy(invalid_dates)).outputs
    options = DecodeOptions(shape=shape, invalid_dates=invalid_dates, batch_rows=2, batch_bytes=64)
    return RangeDecoder(WANTED, options, output)


def decode(data: bytes | bytearray, shape: Shape, invalid_dates: Literal["null", "error", "text"] = "null") -> int:
    """Rows decoded."""
    total = 0
    for batch in whole_row_decoder(shape, invalid_dates).decode(data, checksum=True):
        total += batch.rows
        assert all(len(array) == batch.rows for array in (*batch.before, *batch.after, *batch.columns))
    return total


@pytest.mark.parametrize("shape", SHAPES)
def test_an_image_that_ends_too_early_is_a_typed_error_at_every_byte(shape: Shape) -> None:
    (event,) = scan(whole_row(), checksum=True).events
    start, first, end = (int(event[f]) for f in ("start", "images", "end"))
    head = whole_row()[:start]
    assert decode(whole_row(), shape) == (2 if shape == "flat" else 1)
    for size in range(first, end):
        event_bytes = bytearray(whole_row()[start:size] + whole_row()[end : end + 4])
        event_bytes[9:13] = len(event_bytes).to_bytes(4, "little")
        data = head + event_bytes + whole_row()[end + 4 :]
        if size == first:
            assert decode(data, shape) == 0, "an event without row images is empty, not damaged"
            continue
        with pytest.raises(ProtocolError, match="ends beyond its event") as caught:
            decode(data, shape)
        assert caught.value.offset is not None
        assert first <= caught.value.offset <= size


PLACES = st.deferred(lambda: st.integers(0, len(whole_row()) - 1))  # made when a test runs: it takes a second


@settings(max_examples=1000)
@given(
    st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=8),
    st.sampled_from(SHAPES),
    st.sampled_from(("null", "error", "text")),
)
def test_no_damage_makes_anything_but_a_typed_error(
    damage: list[tuple[int, int]], shape: Shape, invalid_dates: Literal["null", "error", "text"]
) -> None:
    data = bytearray(whole_row())
    for offset, byte in damage:
        data[offset] = byte
    try:
        decode(data, shape, invalid_dates)
    except ReplicaError as error:
        assert str(error)  # noqa: PT017  (most damage goes unnoticed without the CRC)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (Column("c", 246, bytes([5, 0])), b"\xff\xff\xff", "bytes that are not a value of its type"),
        (Column("c", 246, bytes([38, 10])), b"\xff" * 18, "bytes that are not a value of its type"),
        (Column("c", 246, bytes([65, 0])), b"\xff" * 30, "bytes that are not a value of its type"),
        (Column("c", 254, b"\xf7\x01", labels=(b"a",)), b"\x02", "bytes that are not a value of its type"),
        (Column("c", 254, b"\xf8\x01", labels=(b"a",)), b"\x02", "bytes that are not a value of its type"),
        (Column("c", 10), bytes(3), "a date that does not exist"),
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_value_that_cannot_be_is_refused_with_its_column(
    column: Column, value: bytes, words: str, shape: Shape
) -> None:
    stream = Primary()
    stream.rows(table_map(1, [Column("id", 3), column]), (INSERT, rows(1, 2, image([bytes(4), value]))))
    data = bytes(stream)
    table = parse_table_map(scan(data, checksum=True).table_map_body(0))
    output = None if shape == "variant" else compile_layout(table, None, None, ValuePolicy()).outputs
    decoder = RangeDecoder(WANTED, DecodeOptions(shape=shape, invalid_dates="error"), output)
    with pytest.raises(ProtocolError, match=words) as caught:
        kernel_rows(data, decoder)
    assert "column c of d.t" in str(caught.value)
    assert data[caught.value.offset or 0 :].startswith(value)


def test_widths_that_do_not_fit_and_images_without_columns_are_refused() -> None:
    for body, words in (
        (rows(1, 3, image([bytes(4)] * 3)), "a different number of columns"),
        (rows(1, 2, b"\0\0", before=[False, False]), "without any column"),
    ):
        stream = Primary()
        stream.rows(table_map(1, [Column("id", 3), Column("v", 3)]), (INSERT, body))
        with pytest.raises(ProtocolError, match=words):
            kernel_rows(bytes(stream), RangeDecoder(WANTED, DecodeOptions(shape="variant")))
        with pytest.raises(ProtocolError, match=words):
            count_rows(bytes(stream), WANTED, checksum=True)


# -- arithmetic --------------------------------------------------------------------------------------------------


@kernel
def call_days(year: int, month: int, day: int) -> int:
    return days(year, month, day)


@kernel
def call_wide(out: int, high: int, low: int, factor: int, addend: int) -> None:
    product = multiply_add(high, low, factor, addend)
    negative = negate(high, low)
    for i in range(2):
        store_u8(out + 8 * i, product[i])
        store_u8(out + 16 + 8 * i, negative[i])


def test_every_day_of_the_calendar() -> None:
    day = date(1, 1, 1)
    numbers = [call_days(d.year, d.month, d.day) for d in (day + timedelta(n) for n in range(0, 3_652_059, 97))]
    assert numbers == list(range(-719_162, 2_932_897, 97))
    for year, month, last in (
        (2023, 2, 28),
        (2024, 2, 29),
        (1900, 2, 28),
        (2000, 2, 29),
        (2024, 4, 30),
        (2024, 12, 31),
    ):
        assert call_days(year, month, last) != INVALID
        assert call_days(year, month, last + 1) == INVALID
    for parts in ((0, 1, 1), (10_000, 1, 1), (2024, 0, 1), (2024, 13, 1), (2024, 1, 0), (2024, 1, 32)):
        assert call_days(*parts) == INVALID


@given(st.integers(-(1 << 127), (1 << 127) - 1), st.integers(0, 10**9), st.integers(0, 10**9))
def test_wide_numbers_wrap_as_128_bits_do(value: int, factor: int, addend: int) -> None:
    words = np.array([value >> 64, value & (1 << 64) - 1], object)
    high, low = (int(word) - ((int(word) >> 63 & 1) << 64) if word >= 0 else int(word) for word in words)
    result = np.empty(4, np.uint64)
    call_wide(address(result), high, low, factor, addend)
    pairs = [int(result[0]) << 64 | int(result[1]), int(result[2]) << 64 | int(result[3])]
    wanted = [value * factor + addend, -value]
    assert [pair % (1 << 128) for pair in pairs] == [number % (1 << 128) for number in wanted]
