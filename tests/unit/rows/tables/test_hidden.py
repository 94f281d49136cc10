"""What the server added to a table: hashes of long keys are nobody's, row_end tells history from the present."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pyspark.sql.variant_utils import VariantUtils

from replica.protocol.constants import EventType
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.tables.layout import hidden_columns
from replica.rows.types.types import OutputColumn
from replica.schema.table import ROW_PERIOD, ColumnSchema, TableSchema
from tests.kit.binlog.parsed import column
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import DELETE, INSERT, UPDATE, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, check_twin, kernel_rows

pa = pytest.importorskip("pyarrow")
Shape = Literal["envelope", "flat", "variant"]
SHAPES: tuple[Shape, ...] = ("envelope", "flat", "variant")

ID, NAME = Column("id", 3), Column("name", 15, b"\x10\0")
START, END = (Column(name, 17, b"\6", nullable=False) for name in ("row_start", "row_end"))
HASH = Column("DB_ROW_HASH_1", 8, unsigned=True)
NOW, LATER = bytes.fromhex("65e071c0000001"), bytes.fromhex("65e071c1000001")
NEVER, NEVER_BEFORE_11_5 = bytes.fromhex("ffffffff0f423f"), bytes.fromhex("7fffffff0f423f")
LAST_SECOND = bytes.fromhex("ffffffff0f423e")  # a microsecond earlier
WIRE_ID, WIRE_HASH = column("id", 3), column("DB_ROW_HASH_1", 8)
WIRE_PERIOD = [column(name, 17, b"\6", nullable=False) for name in ("row_start", "row_end")]


def told(name: str, data_type: str, **known: Any) -> ColumnSchema:
    return ColumnSchema(name=name, data_type=data_type, column_type=data_type, **known)


@pytest.mark.parametrize(
    ("columns", "known", "hashes", "row_end"),
    [
        ([WIRE_ID, *WIRE_PERIOD, WIRE_HASH], [None] * 4, {3}, 2),
        ([WIRE_ID, *WIRE_PERIOD], [told("id", "int"), *ROW_PERIOD], set(), 2),
        ([WIRE_ID, *WIRE_PERIOD[::-1]], [None] * 3, set(), None),
        ([WIRE_ID, *WIRE_PERIOD], [told("id", "int"), told("row_start", "timestamp"), told("row_end", "timestamp")],
         set(), None),
        ([*WIRE_PERIOD, WIRE_ID], [None] * 3, set(), None),
        ([column("row_start", 17, b"\6"), column("row_end", 17, b"\6")], [None] * 2, set(), None),
        ([column("until", 17, b"\6"), WIRE_ID], [told("until", "timestamp", period="end"), None], set(), 0),
        ([column("until", 8), WIRE_ID], [told("until", "bigint", period="end"), None], set(), None),
        ([WIRE_HASH, WIRE_ID], [None] * 2, set(), None),
        ([WIRE_ID, WIRE_HASH], [None, told("DB_ROW_HASH_1", "bigint")], set(), None),
        ([WIRE_ID, column("DB_ROW_HASH_1", 3)], [None] * 2, set(), None),
    ],
)  # fmt: skip
def test_what_counts_as_hidden(columns: list[Any], known: list[Any], hashes: set[int], row_end: int | None) -> None:
    assert hidden_columns(columns, known) == (hashes, row_end)


def versioned(columns: list[Column], values: list[tuple[int, list[bytes | None]]]) -> Primary:
    """A transaction that inserts into the table or deletes from it, and inserts into a plain one."""
    stream = Primary()
    stream.gtid()
    for op, one in values:
        stream.event(EventType.TABLE_MAP, table_map(1, columns))
        stream.event(op, rows(1, len(columns), image(one)))
    stream.event(EventType.TABLE_MAP, table_map(2, [ID], table="plain"))
    stream.event(INSERT, rows(2, 1, image([bytes(4)])))
    stream.xid()
    return stream


def row(number: int, end: bytes) -> list[bytes | None]:
    return [bytes([number, 0, 0, 0]), b"\3abc", NOW, end, None]


@pytest.mark.parametrize("end", [NEVER, NEVER_BEFORE_11_5])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("invalid_dates", ["null", "text"])
def test_history_rows_are_told_from_current_ones(
    shape: Shape, end: bytes, invalid_dates: Literal["null", "text"]
) -> None:
    columns = [ID, NAME, START, END, HASH]
    stream = versioned(
        columns,
        [(INSERT, row(1, end)), (INSERT, row(2, LATER)), (DELETE, row(3, end)), (DELETE, row(4, LAST_SECOND))],
    )
    for table in ({"d.t": None}, {"d.t": None, "d.plain": None}):
        if shape != "variant" and len(table) == 2:
            continue  # typed shapes read one table
        decoded = check_twin(stream.binlog(), Tables(table), DecodeOptions(shape=shape, invalid_dates=invalid_dates))
        assert decoded.history == [False, True, False, True, None][: 3 + len(table)]


@pytest.mark.parametrize("shape", ["envelope", "flat"])
def test_history_is_told_also_where_nobody_asks_for_row_end(shape: Shape) -> None:
    columns = [ID, NAME, START, END]
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, columns))
    images = image(row(1, NEVER)[:4]) + image([LATER]) + image(row(2, NEVER)[:4]) + image([NEVER])
    stream.event(UPDATE, rows(1, 4, images, after=[False, False, False, True]))
    stream.event(EventType.TABLE_MAP, table_map(1, columns))
    stream.event(UPDATE, rows(1, 4, image(row(3, LATER)[:4]) + image([b"\3xyz"]), after=[False, True, False, False]))
    stream.xid()
    output = [OutputColumn("id", pa.int32(), "INT")]
    decoded = kernel_rows(bytes(stream), RangeDecoder(Tables({"d.t": None}), DecodeOptions(shape=shape), output))
    if shape == "flat":
        assert decoded.history == [False, True, False, False, True, True]
        assert decoded.absent == [None, ["id"]] * 3
    else:
        assert decoded.history == [True, False, True]
        assert decoded.absent_before == [None] * 3
        assert decoded.absent_after == [["id"]] * 3
    check_twin(stream.binlog(), Tables({"d.t": None}), DecodeOptions(shape=shape))


def test_hashes_are_put_out_nowhere() -> None:
    stream = versioned([ID, NAME, START, END, HASH], [(INSERT, row(1, NEVER))])
    decoded = kernel_rows(bytes(stream), RangeDecoder(Tables({"d.t": None}), DecodeOptions(shape="variant")))
    (value,) = decoded.after[0].to_pylist()
    assert list(VariantUtils.to_python(value["value"], value["metadata"])) == ["id", "name", "row_end", "row_start"]
    assert b"HASH" not in value["metadata"]

    layout_twin = check_twin(stream.binlog(), Tables({"d.t": None}), DecodeOptions())
    assert len(layout_twin.after) == 4


def test_a_period_with_names_of_its_own_needs_the_catalog() -> None:
    columns = [ID, Column("since", 17, b"\6", nullable=False), Column("until", 17, b"\6", nullable=False)]
    stream = versioned(columns, [(INSERT, [bytes(4), NOW, LATER])])
    schema = TableSchema(
        database="d",
        table="t",
        columns=(
            told("id", "int"),
            told("since", "timestamp", fsp=6, period="start"),
            told("until", "timestamp", fsp=6, period="end"),
        ),
        versioned=True,
    )
    assert check_twin(stream.binlog(), Tables({"d.t": schema}), DecodeOptions()).history == [True]
    assert check_twin(stream.binlog(), Tables({"d.t": None}), DecodeOptions()).history == [None]
