from __future__ import annotations

import pytest

from replica.commands.dump.text import declaration
from replica.protocol.events.decode import TableMapEvent, decode, decode_description
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from replica.schema.text.naming import quoted
from tests.vectors.load import raw_events

DECLARED = {
    "signs": ["INT", "YEAR", "BIT(3)", "DECIMAL(9,2)", "TINYINT UNSIGNED", "FLOAT", "DOUBLE", "BIGINT UNSIGNED"],
    "prefix_key": ["INT NOT NULL", "INT", "INT", "INT", "INT", "TEXT latin1 NOT NULL"],
    "collations": ["CHAR(1) latin1", "CHAR(1) utf8mb4", "CHAR(1) ucs2", "CHAR(1) gbk", "ENUM", "SET", "ENUM"],
}


@pytest.mark.parametrize("table", DECLARED)
def test_columns_are_declared_as_far_as_the_stream_tells(table: str) -> None:
    events = raw_events("11.8", "metadata_full")
    description = decode_description(events[0])
    maps = [event for raw in events if raw[4] == 19 and isinstance(event := decode(raw, description), TableMapEvent)]
    table_map = next(event for event in maps if event.table == table)
    layout = compile_layout(table_map, None, None, ValuePolicy())
    words = [declaration(*pair) for pair in zip(table_map.columns, layout.columns, strict=True)]
    assert words[: len(DECLARED[table])] == DECLARED[table]


def test_names_are_quoted() -> None:
    assert quoted("a`b") == "`a``b`"
