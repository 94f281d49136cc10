"""Tables as text and back: any table, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import SchemaError
from replica.schema.known_tables import tables_from_json, tables_to_json
from replica.schema.table import ROW_PERIOD, ColumnSchema, TableSchema

TEXTS = st.text(max_size=8)
COLUMNS = st.builds(
    ColumnSchema,
    name=TEXTS,
    data_type=TEXTS,
    column_type=TEXTS,
    nullable=st.booleans(),
    unsigned=st.booleans(),
    charset=st.none() | TEXTS,
    labels=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    octets=st.none() | st.integers(0, 1 << 32),
    period=st.sampled_from([None, "start", "end"]),
    comment=TEXTS,
)
TABLES = st.builds(
    TableSchema,
    database=TEXTS,
    table=TEXTS,
    columns=st.lists(COLUMNS, max_size=4).map(lambda columns: (*columns, *ROW_PERIOD)),
    primary_key=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    versioned=st.booleans(),
    hash_keys=st.integers(0, 2),
    collation=st.none() | TEXTS,
)


@given(st.lists(TABLES, max_size=4))
def test_what_goes_in_comes_out_and_equal_tables_are_equal_text(tables: list[TableSchema]) -> None:
    known = {(table.database, table.table): table for table in tables}
    text = tables_to_json(known)
    assert tables_from_json(text) == known
    assert tables_to_json(dict(reversed(known.items()))) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"v":1}',
        '{"v":1,"tables":[{}]}',
        '{"v":1,"tables":[{"columns":[{"no":1}]}]}',
        '{"v":1,"tables":',
    ],
)
def test_damage(text: str) -> None:
    with pytest.raises(SchemaError, match="the stored tables are damaged"):
        tables_from_json(text)


def test_a_newer_version() -> None:
    with pytest.raises(SchemaError, match="version 2; this version reads 1"):
        tables_from_json('{"v":2,"tables":[]}')
