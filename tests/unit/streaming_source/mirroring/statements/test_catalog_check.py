"""A definition that no statement of the stream tells of is found, and none is judged that a statement may be on."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import DisconnectedError
from replica.protocol.gtid import GtidPosition
from replica.schema.table import ColumnSchema, TableSchema
from streaming_source.mirroring.batch.batch_facts import BatchFacts
from streaming_source.mirroring.control.control_table import CURRENT, ControlRow, definition_text
from streaming_source.mirroring.reading.source_tables import SourceTable, SourceTables
from streaming_source.mirroring.statements import catalog_check
from streaming_source.mirroring.statements.catalog_check import CatalogCheck
from streaming_source.offsets.offset import SourceOffset

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = ("shop", "t")
COLUMNS = (
    ColumnSchema(name="id", data_type="int", column_type="int(11)", nullable=False, key=True),
    ColumnSchema(name="e", data_type="enum", column_type="enum('x','y')", labels=("x", "y"), charset="utf8mb4"),
)
TABLE = TableSchema(database="shop", table="t", columns=COLUMNS, primary_key=(0,))
NOTHING = BatchFacts({}, {}, {}, {}, {}, {})


def row(table: TableSchema = TABLE) -> ControlRow:
    now = dt.datetime.now(dt.UTC)
    told = (definition_text(table), "0-1-1", None, None)
    return ControlRow("m", *NAME, "lake.t", CURRENT, CURRENT, ("id",), "0-1-5", 3, 9, None, None, now, None, *told)


def end(number: int) -> SourceOffset:
    position = GtidPosition.parse(f"0-1-{number}")
    return SourceOffset(position, position)


def statements() -> BatchFacts:
    return BatchFacts({}, {NAME: [None]}, {}, {}, {}, {})  # type: ignore[list-item]  # (only that there is one)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Callable[[TableSchema, int], CatalogCheck]:
    """Make a check of a server whose catalog has a table at a position."""

    def made(table: TableSchema, number: int) -> CatalogCheck:
        found = SourceTables({NAME: SourceTable(table, ("id",), "", {})}, GtidPosition.parse(f"0-1-{number}"))
        monkeypatch.setattr(catalog_check, "read_source_tables", lambda _: found)
        monkeypatch.setattr(catalog_check, "statements_of", lambda facts, name: facts.statements.get(name, []))
        return CatalogCheck(None)  # type: ignore[arg-type]  # (no server is asked)

    return made


CHANGED: dict[str, TableSchema] = {
    "another name": replace(TABLE, columns=(replace(COLUMNS[0], name="number"), COLUMNS[1])),
    "other labels": replace(TABLE, columns=(COLUMNS[0], replace(COLUMNS[1], labels=("y", "x")))),
    "a sign": replace(TABLE, columns=(replace(COLUMNS[0], unsigned=True), COLUMNS[1])),
    "a character set": replace(TABLE, columns=(COLUMNS[0], replace(COLUMNS[1], charset="latin1"))),
    "another order": replace(TABLE, columns=COLUMNS[::-1], primary_key=(1,)),
    "no key": replace(TABLE, primary_key=()),
    "versioning": replace(TABLE, versioned=True),
}


@pytest.mark.parametrize("changed", CHANGED)
def test_another_definition_at_the_end_of_a_batch_is_found_at_once(check: Any, changed: str) -> None:
    found = check(CHANGED[changed], 5)
    (why,) = found.differing({NAME: row()}, NOTHING, end(5)).values()
    assert "no statement in the binlog explains it" in why


def test_what_changes_no_value_is_no_difference(check: Any) -> None:
    other = replace(TABLE, columns=(COLUMNS[0], replace(COLUMNS[1], comment="new", nullable=False)))
    assert check(other, 5).differing({NAME: row()}, NOTHING, end(5)) == {}


def test_the_names_of_one_character_set_are_no_difference(check: Any) -> None:
    """A statement that was followed says utf8mb3; the catalog of a server before 10.6 says utf8."""
    ours, theirs = (
        replace(TABLE, columns=(COLUMNS[0], replace(COLUMNS[1], charset=charset))) for charset in ("utf8mb3", "utf8")
    )
    assert check(theirs, 5).differing({NAME: row(ours)}, NOTHING, end(5)) == {}


def test_a_catalog_that_is_ahead_is_judged_where_the_mirror_gets_there(check: Any) -> None:
    found = check(CHANGED["a sign"], 8)
    assert found.differing({NAME: row()}, NOTHING, end(5)) == {}
    assert found.differing({NAME: row()}, NOTHING, end(7)) == {}
    assert found.differing({NAME: row()}, NOTHING, end(9)).keys() == {NAME}
    assert found.differing({NAME: row()}, NOTHING, end(10)) == {}  # not before some minutes are over


def test_a_table_with_a_statement_or_another_definition_since_is_not_judged(check: Any) -> None:
    found = check(CHANGED["a sign"], 8)
    found.differing({NAME: row()}, NOTHING, end(5))
    found.differing({NAME: row()}, statements(), end(7))
    assert found.differing({NAME: row()}, NOTHING, end(9)) == {}
    found = check(CHANGED["a sign"], 8)
    found.differing({NAME: row()}, NOTHING, end(5))
    assert found.differing({NAME: row(CHANGED["other labels"])}, NOTHING, end(9)) == {}


def test_a_table_that_does_not_go_on_is_not_judged(check: Any) -> None:
    waiting = row()._replace(waits_for="batch 3")
    assert check(CHANGED["a sign"], 5).differing({NAME: waiting}, NOTHING, end(5)) == {}


def test_a_server_that_is_away_is_asked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> SourceTables:
        raise DisconnectedError("it is refused")

    monkeypatch.setattr(catalog_check, "read_source_tables", away)
    assert CatalogCheck(None).differing({NAME: row()}, NOTHING, end(5)) == {}  # type: ignore[arg-type]
