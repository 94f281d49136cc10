"""The kernels against their plain twin: any table, any values, any images, any place to interrupt."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils

from replica.errors import ProtocolError, ReplicaError, UnsupportedColumnError
from replica.native.wide import byte_swap, multiply_add, negate
from replica.native.compile import kernel
from replica.protocol.constants import EventType
from replica.rows.decode import DecodeOptions, RangeDecoder, count_rows
from replica.rows.kernel_values import INVALID, days
from tests.unit.rows.stream import DELETE, INSERT, UPDATE, Column, Stream, image, rows, table_map
from tests.unit.rows.twin import Tables, check_twin, kernel_rows, reference_rows
from tests.unit.rows.wire_values import CASES, MULTI_BYTE_CASES

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
    stream = Stream(checksum=draw(st.booleans()))
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
    return stream.file()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(binlogs(), st.sampled_from(SHAPES), st.sampled_from(("null", "text")), st.integers(2, 9), st.integers(1, 300))
def test_kernels_give_what_the_twin_gives(
    data: bytes, shape: Shape, invalid_dates: Literal["null", "text"], batch_rows: int, batch_bytes: int
) -> None:
    options = DecodeOptions(shape=shape, invalid_dates=invalid_dates, batch_rows=batch_rows, batch_bytes=batch_bytes)
    if not list(reference_rows(data, WANTED, options.policy)):
        assert not kernel_rows(data, RangeDecoder(WANTED, options, None if shape == "variant" else ())).ops
        return
    check_twin(data, WANTED, options)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(binlogs(multi_byte=True), st.sampled_from(("envelope", "flat")))
def test_multi_byte_text_falls_back_by_column(data: bytes, shape: Shape) -> None:
    if list(reference_rows(data, WANTED)):
        check_twin(data, WANTED, DecodeOptions(shape=shape, batch_rows=3))


def test_variant_refuses_multi_byte_text_by_name() -> None:
    stream = Stream()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, [MULTI_BYTE_CASES[0][0]]))
    stream.event(INSERT, rows(1, 1, image([b"\x01a"])))
    stream.xid()
    with pytest.raises(UnsupportedColumnError, match=r"Column gbk of table d\.t is text in gbk"):
        kernel_rows(bytes(stream), RangeDecoder(WANTED, DecodeOptions(shape="variant")))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(binlogs())
def test_spark_reads_every_variant_we_write(data: bytes) -> None:
    decoded = kernel_rows(data, RangeDecoder(WANTED, DecodeOptions(shape="variant")))
    for row in [row for side in (decoded.before, decoded.after) for array in side for row in array.to_pylist()]:
        if row is not None:
            assert isinstance(VariantUtils.to_python(row["value"], row["metadata"]), dict)


def wide_variant(width: int) -> dict[str, Any]:
    stream = Stream()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, [Column(f"column_{i}", 1) for i in range(width)]))
    stream.event(INSERT, rows(1, width, image([bytes([i % 100]) for i in range(width)])))
    stream.xid()
    check_twin(stream.file(), WANTED, DecodeOptions(shape="variant"))
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
    stream = Stream()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, columns))
    stream.event(INSERT, rows(1, 3, image([bytes(4), bytes(4), bytes(4)]), flags=0))
    stream.event(UPDATE, rows(1, 3, image([bytes(4), value, bytes(4)]) + image([bytes(4), value, value]), after=[True] * 3))
    stream.xid()
    for shape in SHAPES:
        check_twin(stream.file(), WANTED, DecodeOptions(shape=shape, batch_bytes=1000))


# -- damage ------------------------------------------------------------------------------------------------------


def damaged_sample() -> tuple[bytes, int]:
    """One row of every column of CASES, and where its images begin."""
    columns = [column for column, _ in CASES]
    values = [strategy.example() if False else _plain(column, strategy) for column, strategy in CASES]  # noqa: SIM223
    stream = Stream()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, columns))
    at = stream.event(UPDATE, rows(1, len(columns), image(values) * 2, after=[True] * len(columns)))
    stream.xid()
    return bytes(stream), at


def _plain(column: Column, strategy: Any) -> bytes:
    from hypothesis import find

    return bytes(find(strategy, lambda value: True))


SAMPLE, ROWS_AT = damaged_sample()
OUTPUT = next(iter(reference_rows(b"", WANTED)), None) if False else None  # noqa: SIM223


def decode_quietly(data: bytes | bytearray, shape: Shape, invalid_dates: Literal["null", "error", "text"]) -> int:
    """Rows decoded; only typed errors may leave."""
    from replica.protocol.table_map import parse_table_map
    from replica.rows.layout import compile_layout
    from replica.rows.scan import scan
    from replica.rows.types import ValuePolicy

    policy = ValuePolicy(invalid_dates)
    clean = parse_table_map(scan(SAMPLE, checksum=True).table_map_body(0))
    output = None if shape == "variant" else compile_layout(clean, None, None, policy).outputs
    options = DecodeOptions(shape=shape, invalid_dates=invalid_dates, batch_rows=2, batch_bytes=64)
    total = 0
    for batch in RangeDecoder(WANTED, options, output).decode(data, checksum=True):
        total += batch.rows
        for array in (*batch.before, *batch.after, *batch.columns):
            assert len(array) == batch.rows
            array.to_pandas() if False else array.nbytes  # noqa: B018, SIM223
    return total


@settings(max_examples=600, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    st.sampled_from(SHAPES),
    st.sampled_from(("null", "error", "text")),
)
def test_no_damage_makes_anything_but_a_typed_error(
    damage: list[tuple[int, int]], shape: Shape, invalid_dates: Literal["null", "error", "text"]
) -> None:
    data = bytearray(SAMPLE)
    for offset, byte in damage:
        data[offset] = byte
    try:
        decode_quietly(data, shape, invalid_dates)
    except ReplicaError as error:
        assert str(error)
