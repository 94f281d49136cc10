from __future__ import annotations

import io
from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import TableMapEvent
from replica.readers.rows.names import DefinedBefore, LiveNames
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import OPTIONS
from replica.relay_log.location import RelayLocation
from replica.schema.table import ColumnSchema, TableSchema
from tests.unit.commands.tail.relay_logs import recorded_log
from tests.vectors.load import HERE

if TYPE_CHECKING:
    from pathlib import Path


def table_map(stem: str, table: str) -> TableMapEvent:
    events = (event for _, event in decode_file((HERE / "11.8" / f"{stem}.binlog").read_bytes()))
    return next(event for event in events if isinstance(event, TableMapEvent) and event.table == table)


SCHEMA = TableSchema(
    database="v",
    table="t",
    columns=(
        ColumnSchema(name="a", data_type="int", column_type="int(11)", nullable=False, key=True),
        ColumnSchema(
            name="b", data_type="varchar", column_type="varchar(20)", charset="utf8mb4", octets=80,
            collation="utf8mb4_uca1400_ai_ci",
        ),
    ),
    primary_key=(0,),
)  # fmt: skip


class Asked:
    def __init__(self, *, fails: bool = False) -> None:
        self.tables: list[tuple[str, str]] = []
        self.fails = fails

    def __call__(self, database: str, table: str) -> TableSchema | None:
        self.tables.append((database, table))
        if self.fails:
            raise SchemaError("v.t does not exist on the server.")
        return SCHEMA


def names(asked: Asked, patterns: tuple[str, ...] = ()) -> tuple[LiveNames, io.StringIO]:
    said = io.StringIO()
    return LiveNames(patterns, Notices(said), OPTIONS.policy, None, asked), said


def test_who_is_asked_tells_names_and_key() -> None:
    asked = Asked()
    live, said = names(asked)
    found = table_map("transactions", "t")
    target = live.resolve(found)
    assert target is not None
    assert target.schema == SCHEMA
    assert live.primary_key(found) == (0,)
    assert not live.is_unnamed(found)
    assert said.getvalue() == ""


def test_nobody_is_asked_where_the_log_tells() -> None:
    asked = Asked()
    live, _ = names(asked)
    events = (event for _, event in decode_file((HERE / "11.8" / "metadata_full.binlog").read_bytes()))
    maps = [event for event in events if isinstance(event, TableMapEvent)]
    assert all(live.resolve(one) for one in maps)
    assert asked.tables == []
    assert any(live.primary_key(one) for one in maps)


def test_nor_for_tables_that_are_not_wanted() -> None:
    asked = Asked()
    live, _ = names(asked, ("other.*",))
    assert live.resolve(table_map("transactions", "t")) is None
    assert asked.tables == []


def test_an_answer_that_does_not_come_leaves_numbers() -> None:
    live, said = names(Asked(fails=True))
    found = table_map("transactions", "t")
    assert live.resolve(found) is not None
    assert live.is_unnamed(found)
    assert live.primary_key(found) == ()
    assert "its columns are unknown: v.t does not exist" in said.getvalue()


def test_statements_before_the_start_tell(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "transactions")
    at = log.at(RelayLocation(1, 3600)).location
    table = DefinedBefore(log, at).table("v", "t")
    assert table is not None
    assert [column.name for column in table.columns] == ["a", "b"]
    assert DefinedBefore(log, RelayLocation(1, 0)).table("v", "t") is None
    assert DefinedBefore(log, at).table("v", "never") is None
