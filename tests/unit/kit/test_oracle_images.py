"""The plain twin refuses what the fast path refuses; that both read the same is in test_images.py."""

from __future__ import annotations

import dataclasses

import pytest

from replica.errors import ProtocolError
from replica.protocol.rows.rows_event import RowsKind
from replica.protocol.rows.table_map import parse_table_map
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from tests.kit.binlog.bodies import block
from tests.kit.binlog.parsed import rows_event
from tests.kit.binlog.rows import Column, image, table_map
from tests.kit.oracle.images import plain_rows
from tests.unit.rows.decode.test_images import BLOB, ID, counted, number, packed

MAP = parse_table_map(memoryview(table_map(7, [ID, BLOB])))
LAYOUT = compile_layout(MAP, None, None, ValuePolicy())
ROW = image([number(1), counted("b", packed(b"a" * 300))])
PLAIN = image([number(1), (300).to_bytes(4, "little") + b"a" * 300])


def test_events_and_columns_become_plain() -> None:
    for event in (
        rows_event(RowsKind.INSERT, 2, ROW * 2),
        rows_event(RowsKind.DELETE, 2, ROW * 2),
        rows_event(RowsKind.UPDATE, 2, ROW * 2),
        rows_event(RowsKind.INSERT, 2, block(ROW * 2), compressed=True),
    ):
        plain = plain_rows(event, MAP.columns, LAYOUT)
        assert bytes(plain.images) == PLAIN * 2
        assert not plain.compressed


def test_tables_without_such_columns_keep_their_bytes() -> None:
    table = parse_table_map(memoryview(table_map(7, [ID, Column("c", 15, b"\x0a\0")])))
    layout = compile_layout(table, None, None, ValuePolicy())
    event = rows_event(RowsKind.INSERT, 2, b"whatever")
    assert bytes(plain_rows(event, table.columns, layout).images) == b"whatever"


def test_damage() -> None:
    broken = image([number(1), counted("b", packed(b"a" * 300)[:-2])])
    with pytest.raises(ProtocolError, match="column b: a compressed block"):
        plain_rows(rows_event(RowsKind.INSERT, 2, broken), MAP.columns, LAYOUT)
    with pytest.raises(ProtocolError, match="3 columns after a table map of 2"):
        plain_rows(rows_event(RowsKind.INSERT, 3, ROW), MAP.columns, LAYOUT)
    empty = dataclasses.replace(rows_event(RowsKind.INSERT, 2, ROW), columns_after=b"\0")
    with pytest.raises(ProtocolError, match="without columns"):
        plain_rows(empty, MAP.columns, LAYOUT)
