"""Which tables' rows are decoded into columns at once, and which come as VARIANT."""

from __future__ import annotations

import pytest

from replica.rows.types.types import ValuePolicy
from replica.schema.table import ColumnSchema, TableSchema
from streaming_source.mirroring.batch.table_rows import is_plain_pattern, tasks_for, typed_columns


def table(name: str, *columns: tuple[str, str]) -> TableSchema:
    found = tuple(ColumnSchema(name=one, data_type=kind, column_type=kind) for one, kind in columns)
    return TableSchema(database="shop", table=name, columns=found, primary_key=("id",))


def test_columns_are_those_of_the_table() -> None:
    columns = typed_columns(table("orders", ("id", "int"), ("note", "text")), ValuePolicy())
    assert columns is not None
    assert [(column.name, column.type) for column in columns] == [("id", "INT"), ("note", "STRING")]


@pytest.mark.parametrize("kind", [("at", "time")])
def test_types_that_targets_hold_as_others_are_left_to_variant(kind: tuple[str, str]) -> None:
    assert typed_columns(table("orders", ("id", "int"), kind), ValuePolicy()) is None


def test_a_name_that_is_a_pattern_of_others_is_left_to_variant() -> None:
    assert typed_columns(table("order*", ("id", "int")), ValuePolicy()) is None


def test_a_name_with_a_dot_may_be_that_of_two_tables() -> None:
    assert is_plain_pattern(("shop", "orders"))
    assert not is_plain_pattern(("a.b", "c"))
    assert not is_plain_pattern(("a", "b.c"))


@pytest.mark.parametrize(
    ("rows", "cores", "tasks"),
    [(0, 2, 1), (50_000, 2, 1), (50_001, 2, 2), (1_200_000, 2, 4), (1_200_000, 64, 24), (9_000_000, 2, 9)],
)
def test_rows_are_shared_by_as_many_tasks_as_keep_the_cores_busy(rows: int, cores: int, tasks: int) -> None:
    assert tasks_for(rows, cores) == tasks
