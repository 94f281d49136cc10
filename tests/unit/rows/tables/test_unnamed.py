"""Tables of which nothing is known but their table map."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.constants import ColumnType
from replica.protocol.rows.table_map import METADATA_LENGTHS
from replica.rows.tables.layout import compile_layout
from replica.rows.tables.match import unnamed_schema
from replica.rows.types.kinds import Kind
from replica.rows.types.types import ValuePolicy
from tests.kit.binlog.parsed import BINARY, LATIN1, column, table_map

T = ColumnType
METADATA = {
    T.FLOAT: b"\4", T.DOUBLE: b"\10", T.NEWDECIMAL: b"\x0a\2", T.BIT: b"\3\1", T.VARCHAR: b"\x2c\1",
    T.BLOB: b"\3", T.GEOMETRY: b"\4", T.BLOB_COMPRESSED: b"\2", T.VARCHAR_COMPRESSED: b"\x0b\0",
    T.TIMESTAMP2: b"\3", T.DATETIME2: b"\6", T.TIME2: b"\0", T.STRING: b"\xfe\x14", T.JSON: b"\4",
}  # fmt: skip
ENUM, SET = b"\xf7\1", b"\xf8\2"
DECODED = [
    T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.YEAR, T.DATE, *METADATA,
]  # fmt: skip


def layout(*columns: object, text: str = "utf8") -> list[tuple[str, Kind]]:
    event = table_map(*columns)  # type: ignore[arg-type]
    made = compile_layout(event, unnamed_schema(event, text), None, ValuePolicy())  # type: ignore[arg-type]
    return [(plan.name, plan.kind) for plan in made.columns]


@pytest.mark.parametrize("text", ["utf8", "bytes"])
@pytest.mark.parametrize("code", DECODED)
def test_every_type_is_decoded(code: ColumnType, text: str) -> None:
    [(name, kind)] = layout(column(None, code, METADATA.get(code, b"")), text=text)
    assert name == "@1"
    assert kind != Kind.OPAQUE


def test_what_the_stream_does_not_tell() -> None:
    columns = [
        column(None, T.LONG),
        column(None, T.VARCHAR, b"\x0a\0"),
        column(None, T.STRING, b"\xfe\x0a"),
        column(None, T.BLOB, b"\2"),
    ]
    assert layout(*columns) == [("@1", Kind.INT32), ("@2", Kind.TEXT), ("@3", Kind.TEXT), ("@4", Kind.TEXT)]
    assert [kind for _, kind in layout(*columns, text="bytes")] == [
        Kind.INT32,
        Kind.BYTES,
        Kind.PADDED_BYTES,
        Kind.BYTES,
    ]


def test_what_minimal_metadata_tells_is_used() -> None:
    columns = [
        column(None, T.LONG, unsigned=True),
        column(None, T.VARCHAR, b"\x0a\0", collation=LATIN1),
        column(None, T.STRING, b"\xfe\x0a", collation=BINARY),
        column(None, T.STRING, ENUM, collation=LATIN1),
    ]
    for text in ("utf8", "bytes"):
        kinds = [kind for _, kind in layout(*columns, text=text)]
        assert kinds == [Kind.UINT32, Kind.LATIN1, Kind.PADDED_BYTES, Kind.ENUM]


def test_labels_are_their_numbers() -> None:
    schema = unnamed_schema(
        table_map(column(None, T.STRING, ENUM), column(None, T.STRING, b"\xf7\2"), column(None, T.STRING, SET))
    )
    small, large, members = [c.labels or () for c in schema.columns]
    assert (small[0], small[-1]) == ("1", "255")
    assert (large[-1], members) == ("65535", tuple(map(str, range(1, 17))))


@pytest.mark.parametrize("code", [T.TIMESTAMP, T.DATETIME, T.TIME])
def test_the_old_temporal_format_stays_undecodable(code: ColumnType) -> None:
    with pytest.raises(SchemaError, match="old temporal format"):
        layout(column(None, code))


def test_a_type_of_mysql_alone_is_refused() -> None:
    with pytest.raises(UnsupportedColumnError, match="type code 242"):
        layout(column(None, T.VECTOR, b"\4"))


@given(st.lists(st.sampled_from(DECODED), min_size=1, max_size=40))
def test_columns_are_numbered_in_table_order(codes: list[ColumnType]) -> None:
    event = table_map(*(column(None, code, METADATA.get(code, b"\0" * METADATA_LENGTHS[code])) for code in codes))
    schema = unnamed_schema(event)
    assert [c.name for c in schema.columns] == [f"@{number}" for number in range(1, len(codes) + 1)]
