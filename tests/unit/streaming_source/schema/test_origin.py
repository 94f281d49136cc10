"""The catalog and its position as one conversation: repeated while tables change, once where rows tell enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, SchemaError
from replica.handshake.registration import Query
from streaming_source.options.source_options import SourceOptions
from streaming_source.schema.origin import READINGS, tables_and_origin
from tests.unit.schema.ddl import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.handshake.registration import Steps
    from replica.schema.table import TableSchema
    from streaming_source.schema.table_state import CatalogOrigin

T = ("d", "t")
PLAIN, OTHER, UUID = table("id INT"), table("id INT, b INT"), table("id UUID")


def conversation(
    readings: list[TableSchema], metadata: str = "NO_LOG", *, from_primary: bool = True
) -> tuple[TableSchema, CatalogOrigin, int]:
    """What comes of it, and how often the tables were read; the position counts the questions for it."""
    left: Iterator[TableSchema] = iter(readings)
    count = 0

    def read() -> Steps[dict[tuple[str, str], TableSchema]]:
        nonlocal count
        count += 1
        yield Query("SELECT 'the catalog'")
        return {T: next(left)}

    steps = tables_and_origin(read, lambda name: name == "d", from_primary=from_primary)
    asked, answer = 0, None
    try:
        while True:
            text = steps.send(answer).sql
            answer = []
            if "metadata" in text:
                assert ("gtid_binlog_pos" in text) == from_primary
                asked += 1
                answer = [(f"0-1-{asked}", metadata)]
            elif "SCHEMATA" in text:
                answer = [("d", "latin1_bin"), ("e", "utf8mb4_bin")]
    except StopIteration as end:
        tables, origin = end.value
        return tables[T], origin, count


def test_tables_that_hold_still_are_read_twice() -> None:
    found, origin, count = conversation([PLAIN, PLAIN])
    assert (found, count, str(origin.position), origin.described) == (PLAIN, 2, "0-1-1", False)
    assert origin.databases == (("d", "latin1_bin"),)


def test_a_change_in_between_is_noticed() -> None:
    found, origin, count = conversation([PLAIN, OTHER, OTHER])
    assert (found, count, str(origin.position)) == (OTHER, 3, "0-1-2")


def test_tables_that_never_hold_still_are_refused() -> None:
    with pytest.raises(SchemaError, match="were changed each time that they were read"):
        conversation([PLAIN, OTHER] * READINGS)


def test_rows_that_tell_everything_need_one_reading() -> None:
    _, origin, count = conversation([PLAIN], "FULL", from_primary=False)
    assert (origin.described, count) == (True, 1)
    _, origin, count = conversation([UUID, UUID], "FULL")
    assert (origin.described, count) == (False, 2)


def test_add_is_for_one_table() -> None:
    given = {"user": "repl", "onSchemaChange": "add"}
    assert SourceOptions.parse(given | {"table": "d.t"}).on_schema_change == "add"
    with pytest.raises(ConfigError, match="onSchemaChange=add needs table"):
        SourceOptions.parse(given | {"tables": "d.*"})
