from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.constants import ColumnType
from replica.protocol.rows.rows_event import RowsKind
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import OutputColumn, ValuePolicy
from replica.schema.table import ColumnSchema, TableSchema
from tests.kit.binlog import bodies
from tests.kit.binlog.parsed import BINARY, LATIN1, UTF8MB4, column, integer, layout_of, rows_event, table_map, varchar
from tests.kit.binlog.rows import image
from tests.kit.oracle.images import plain_rows
from tests.kit.oracle.rows import VARIANT, flat, read_rows, typed, variant
from tests.vectors.row_values import VECTORS, Vector

TEXT, ERROR = ValuePolicy("text"), ValuePolicy("error")


def known(vector: Vector) -> tuple[dict[str, Any], ColumnSchema | None]:
    """What FULL row metadata says of a vector's column, and the catalog where the stream cannot tell the type."""
    declaration = vector.declaration.upper()
    told: dict[str, Any] = {"unsigned": "UNSIGNED" in declaration}
    labels = re.findall(r"'(\w)'", vector.declaration)
    if labels:
        return {"labels": tuple(label.encode() for label in labels), "collation": UTF8MB4}, None
    binary = re.match(r"BINARY|VARBINARY|\w*BLOB|POINT|GEOMETRY|UUID|INET|VECTOR", declaration)
    told["collation"] = BINARY if binary else LATIN1 if "LATIN1" in declaration else UTF8MB4
    name = re.match(r"UUID|INET4|INET6|VECTOR", declaration)
    schema = name and ColumnSchema(name="c", data_type=name[0].lower(), column_type=name[0].lower())
    return told, schema or None


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v.declaration} {v.sql}"[:60])
def test_golden_vectors(vector: Vector) -> None:
    told, schema = known(vector)
    definition = column("c", vector.type, bytes.fromhex(vector.metadata), **told)
    tables = table_map(definition)
    layout = compile_layout(tables, schema and _as_table(schema), None, ValuePolicy())
    event = rows_event(RowsKind.INSERT, 1, image([bytes.fromhex(vector.row)]))

    (change,) = read_rows(plain_rows(event, tables.columns, layout), layout)

    assert change.before is None
    assert change.after is not None
    value = change.after["c"]
    assert value == vector.value
    assert type(value) is type(vector.value)
    assert str(value) == str(vector.value), "the zeros of a DECIMAL's scale count"
    (array,) = typed([change.after], layout)
    assert array.type == layout.outputs[0].arrow
    assert array.null_count == (vector.value is None)


TEMPORAL = [v for v in VECTORS if v.type in (ColumnType.DATE, ColumnType.DATETIME2, ColumnType.TIMESTAMP2)]


@pytest.mark.parametrize("vector", TEMPORAL, ids=lambda v: f"{v.declaration} {v.sql}")
def test_dates_as_text_are_what_select_prints(vector: Vector) -> None:
    layout = layout_of(column("c", vector.type, bytes.fromhex(vector.metadata)), policy=TEXT)
    event = rows_event(RowsKind.INSERT, 1, image([bytes.fromhex(vector.row)]))

    (change,) = read_rows(event, layout, TEXT)

    assert change.after == {"c": vector.text}
    assert layout.outputs == (OutputColumn("c", pa.string(), "STRING"),)


@pytest.mark.parametrize("packed", ["000000", "00d00f", "5fd00f"], ids=["zero", "no month", "31 February"])
def test_an_impossible_date_is_null_or_an_error_by_policy(packed: str) -> None:
    layout = layout_of(column("born", ColumnType.DATE))
    event = rows_event(RowsKind.INSERT, 1, image([bytes.fromhex(packed)]))

    assert [change.after for change in read_rows(event, layout)] == [{"born": None}]
    with pytest.raises(ProtocolError, match=r"born \(DATE\) .*does not exist.*invalidDates"):
        list(read_rows(event, layout, ERROR))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("nulls", [(True,), (False,), (True, False), (False, True)], ids=["all", "none", "even", "odd"])
def test_null_bitmaps(count: int, nulls: tuple[bool, ...]) -> None:
    null = (nulls * count).__getitem__
    layout = layout_of(*(integer(f"c{i}") for i in range(count)))
    values = [None if null(i) else i.to_bytes(4, "little") for i in range(count)]
    event = rows_event(RowsKind.INSERT, count, image(values) * 2)

    rows = [change.after for change in read_rows(event, layout)]

    assert rows == [{f"c{i}": None if null(i) else i for i in range(count)}] * 2


def test_a_minimal_update_keeps_absent_and_null_apart() -> None:
    layout = layout_of(integer("id"), varchar("name"), integer("qty"))
    before, after = [True, False, False], [False, True, False]
    images = image([(7).to_bytes(4, "little")]) + image([None])
    event = rows_event(RowsKind.UPDATE, 3, images, before=before, after=after)

    (change,) = read_rows(event, layout)

    assert (change.before, change.after) == ({"id": 7}, {"name": None})
    assert [a.to_pylist() for a in typed([change.before, change.after, None], layout)] == [
        [7, None, None],
        [None, None, None],
        [None, None, None],
    ]


@given(
    st.lists(st.tuples(st.booleans(), st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))), min_size=1, max_size=20)
)
def test_null_bits_count_the_present_columns_only(columns: list[tuple[bool, int | None]]) -> None:
    present = [flag for flag, _ in columns]
    values = [None if v is None else v.to_bytes(4, "little", signed=True) for flag, v in columns if flag]
    layout = layout_of(*(integer(f"c{i}") for i in range(len(columns))))
    event = rows_event(RowsKind.INSERT, len(columns), image(values) if any(present) else b"", after=present)

    rows = [change.after for change in read_rows(event, layout)]

    assert rows == ([{f"c{i}": v for i, (flag, v) in enumerate(columns) if flag}] if any(present) else [])


def test_insert_update_and_delete_in_the_flat_shape() -> None:
    layout = layout_of(integer("id"))
    one, two = image([b"\1\0\0\0"]), image([b"\2\0\0\0"])
    changes = [
        *read_rows(rows_event(RowsKind.INSERT, 1, one), layout),
        *read_rows(rows_event(RowsKind.UPDATE, 1, one + two), layout),
        *read_rows(rows_event(RowsKind.DELETE, 1, two), layout),
    ]

    operations, images = flat(changes)

    assert operations == [0, 1, 2, 3]
    assert images == [{"id": 1}, {"id": 1}, {"id": 2}, {"id": 2}]


def test_compressed_rows() -> None:
    layout = layout_of(varchar("name"))
    plain = image([b"\x03abc"]) * 40
    block = bodies.block(plain)

    rows = list(read_rows(rows_event(RowsKind.INSERT, 1, block, compressed=True), layout))

    assert [row.after for row in rows] == [{"name": "abc"}] * 40


def test_an_enum_of_300_labels_takes_two_bytes() -> None:
    labels = tuple(f"l{i}".encode() for i in range(1, 301))
    layout = layout_of(column("e", ColumnType.STRING, b"\xf7\x02", labels=labels, collation=UTF8MB4))
    images = b"".join(image([None if i is None else i.to_bytes(2, "little")]) for i in (1, 300, 0, None))

    assert [row.after["e"] for row in read_rows(rows_event(RowsKind.INSERT, 1, images), layout) if row.after] == [
        "l1",
        "l300",
        "",
        None,
    ]


@pytest.mark.parametrize(("members", "width"), [(1, 1), (8, 1), (9, 2), (17, 3), (24, 3), (25, 4), (33, 8), (64, 8)])
def test_set_widths(members: int, width: int) -> None:
    labels = tuple(f"m{i}".encode() for i in range(members))
    layout = layout_of(column("s", ColumnType.STRING, bytes((0xF8, width)), labels=labels, collation=UTF8MB4))
    last = (1 | 1 << members - 1).to_bytes(width, "little")

    (row,) = read_rows(rows_event(RowsKind.INSERT, 1, image([last])), layout)

    assert row.after == {"s": "m0" if members == 1 else f"m0,m{members - 1}"}


def test_labels_are_in_the_columns_character_set() -> None:
    layout = layout_of(column("e", ColumnType.STRING, b"\xf7\x01", labels=("für".encode("latin-1"),), collation=LATIN1))

    (row,) = read_rows(rows_event(RowsKind.INSERT, 1, image([b"\1"])), layout)

    assert row.after == {"e": "für"}


def test_output_columns_that_the_wire_lacks_are_null_and_others_are_left_out() -> None:
    output = [OutputColumn("new", pa.string(), "STRING"), OutputColumn("ID", pa.int32(), "INT")]
    layout = compile_layout(table_map(integer("id"), varchar("secret")), None, output, ValuePolicy())
    event = rows_event(RowsKind.INSERT, 2, image([b"\5\0\0\0", b"\3abc"]))

    (row,) = read_rows(event, layout)

    assert row.after == {"id": 5}
    assert [array.to_pylist() for array in typed([row.after], layout)] == [[None], [5]]


def test_variant_arrays_have_a_null_where_there_is_no_image() -> None:
    layout = layout_of(integer("id"))
    array = variant([{"id": 1}, None], layout)

    assert array.type == VARIANT
    assert array.is_valid().to_pylist() == [True, False]


@pytest.mark.parametrize("size", range(1, 12))
def test_a_truncated_image_is_a_protocol_error(size: int) -> None:
    layout = layout_of(integer("id"), varchar("name"), column("d", ColumnType.NEWDECIMAL, b"\x05\x02"))
    whole = image([b"\1\0\0\0", b"\3abc", bytes.fromhex("800105")])
    assert len(whole) == 12
    with pytest.raises(ProtocolError):
        list(read_rows(rows_event(RowsKind.INSERT, 3, whole[:size]), layout))


def test_a_table_map_of_another_width_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match=r"2 columns after a table map of 1 \(shop\.orders\)"):
        list(read_rows(rows_event(RowsKind.INSERT, 2, b"\0"), layout_of(integer("id"))))


def test_images_without_columns_do_not_loop() -> None:
    event = rows_event(RowsKind.INSERT, 1, b"\0\0", after=[False])
    with pytest.raises(ProtocolError, match="without columns"):
        list(read_rows(event, layout_of(integer("id"))))


def test_damaged_values_name_their_column() -> None:
    layout = layout_of(column("at", ColumnType.TIME2, b"\0"))
    with pytest.raises(ProtocolError, match=r"column at: .*not a time.*offset 1"):
        list(read_rows(rows_event(RowsKind.INSERT, 1, image([b"\x80\x00\x3f"])), layout))


def test_wide_decimals_and_negative_times_reach_arrow_exactly() -> None:
    layout = layout_of(column("d", ColumnType.NEWDECIMAL, bytes((38, 10))), column("t", ColumnType.TIME2, b"\6"))
    digits = Decimal("-1234567890123456789012345678.0123456789")
    array_d, array_t = typed([{"d": digits, "t": timedelta(hours=-838, microseconds=-1)}], layout)

    assert array_d.to_pylist() == [digits]
    assert array_t.cast(pa.int64()).to_pylist() == [-838 * 3600 * 10**6 - 1]


def _as_table(schema: ColumnSchema) -> TableSchema:
    return TableSchema(database="shop", table="orders", columns=(schema,))
