"""The columns of a log in folders behind an ALTER: those of before, those of now, and types that hold both."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from streaming_source.mirroring.writers.parquet import batch_name, merged
from streaming_source.transforms.transformed_images import TargetColumn, image_type


def behind(before: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    """Types by name behind an ALTER."""
    schemas = [
        image_type([TargetColumn(name, kind, nullable=True, comment="") for name, kind in columns.items()])
        for columns in (before, now)
    ]
    return {field.name: field.dataType.simpleString().upper() for field in merged(*schemas, "/lake/a")}


def test_columns_that_go_stay_and_new_ones_come_last() -> None:
    assert behind({"a": "INT", "b": "STRING"}, {"c": "DATE", "a": "INT"}) == {"a": "INT", "b": "STRING", "c": "DATE"}


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("TINYINT", "SMALLINT"),
        ("INT", "BIGINT"),
        ("BIGINT", "DECIMAL(20,0)"),
        ("INT", "DECIMAL(12,2)"),
        ("DECIMAL(10,2)", "DECIMAL(12,2)"),
        ("FLOAT", "DOUBLE"),
    ],
)
def test_the_wider_type_holds_whichever_came_first(narrow: str, wide: str) -> None:
    assert behind({"a": narrow}, {"A": wide}) == behind({"a": wide}, {"A": narrow}) == {"a": wide}


@pytest.mark.parametrize(
    ("before", "now"),
    [("STRING", "BINARY"), ("INT", "STRING"), ("DECIMAL(10,2)", "DECIMAL(12,3)"), ("BIGINT", "DECIMAL(18,0)")],
)
def test_types_that_nothing_holds_are_refused(before: str, now: str) -> None:
    with pytest.raises(SchemaError, match=r"the rows in /lake/a have a as .* now. Parquet files keep their types"):
        behind({"a": before}, {"a": now})


def test_names_of_batches_sort_as_the_batches_do() -> None:
    names = [batch_name(number) for number in (9, 10, 999_999)]
    assert names == sorted(names)
    assert batch_name(9) < batch_name(9) + "-again" < batch_name(10)
