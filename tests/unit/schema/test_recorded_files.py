"""Recorded binlogs of real servers: the DDL in them tells what their row metadata tells, names, order and signs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.rows.table_map import TableMapEvent
from replica.rows.tables.match import catalog_columns
from replica.schema.effects.history import SchemaHistory
from tests.vectors.load import HERE, VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

    from replica.schema.table import TableSchema

FILES = [
    *(
        [HERE / version / f"{name}.binlog"]
        for version in VERSIONS
        for name in ("compression", "metadata_full", "minimal_image", "transactions")
    ),
    *([HERE / version / f"rotation.{number}.binlog" for number in range(1, 5)] for version in VERSIONS),
    *(
        [HERE / "mysql" / f"{name}.binlog"]
        for name in ("groups.1", "json", "partial_json", "partitions", "types", "vector")
    ),
]


@pytest.mark.parametrize("files", FILES, ids=lambda files: f"{files[0].parent.name}/{files[0].stem}")
def test_ddl_says_what_row_metadata_says(files: list[Path]) -> None:
    history = SchemaHistory()
    maps = 0
    for file in files:
        for _, event in decode_file(file.read_bytes()):
            if isinstance(event, QueryEvent):
                assert history.apply_event(event).reason == ""
            elif isinstance(event, TableMapEvent):
                found = history.table(event.database, event.table)
                assert found is not None, history.reason(event.database, event.table)
                compare(found, event)
                maps += 1
    assert maps


def compare(found: TableSchema, event: TableMapEvent) -> None:
    if event.columns[0].name is None:
        assert len(catalog_columns(event, found)) == len(event.columns)
        return
    shown = [column for column in event.columns if not (column.name or "").startswith("DB_ROW_HASH")]
    assert [column.name for column in found.columns] == [column.name for column in shown]
    assert len(event.columns) - len(shown) <= found.hash_keys
    for mine, logged in zip(found.columns, shown, strict=True):
        assert logged.unsigned in (None, mine.unsigned) or mine.data_type == "year"
        assert mine.key == logged.is_key or mine.period == "end"  # which the server adds to keys, and shows nowhere
        if logged.labels is not None:
            assert mine.labels is not None
            assert len(mine.labels) == len(logged.labels)
