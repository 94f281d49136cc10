"""Spark's way of asking a reader for its filters: accepted whether its setting is on or off, and the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader

from streaming_source.source.data_source import MariaDbBinlogSource
from tests.vectors.load import HERE

if TYPE_CHECKING:
    from streaming_source.source.batch.reader import BinlogFilesReader

OPTIONS = {"path": str(HERE / "11.8" / "rotation.*.binlog"), "table": "v.t", "pushFilters": "true"}


def reader(**options: str) -> BinlogFilesReader:
    source = MariaDbBinlogSource(OPTIONS | options)
    return source.reader(source.schema())


def rows(found: BinlogFilesReader) -> list[dict[str, Any]]:
    return [row for part in found.partitions() for batch in found.read(part) for row in batch.to_pylist()]


def test_spark_does_not_take_the_method_for_overridden() -> None:
    """plan_data_source_read refuses readers with a pushFilters of their own while the setting is off."""
    assert reader().pushFilters.__func__ is DataSourceReader.pushFilters
    assert callable(reader().pushFilters)


@pytest.mark.parametrize(
    ("given", "partitions"),
    [
        (spark.EqualTo(("transaction", "domain_id"), 7), 3),
        (spark.GreaterThanOrEqual(("transaction", "sequence_number"), 3), 2),
        (spark.EqualTo(("op",), "insert"), 4),
        (spark.EqualTo(("op",), "delete"), 4),
        (spark.EqualTo(("table",), "other"), 4),
    ],
)
def test_partitions_without_a_match_are_not_read_and_others_give_what_is_left(given: Any, partitions: int) -> None:
    unmatched = spark.EqualTo(("after", "a"), 3)
    filtered, whole = reader(), rows(reader())
    assert filtered.pushFilters([given, unmatched]) == [unmatched]
    assert len(filtered.partitions()) == partitions

    def value(row: dict[str, Any]) -> Any:
        for name in given.attribute:
            row = row[name]
        return row

    same = isinstance(given, spark.EqualTo)
    expected = [row for row in whole if (value(row) == given.value if same else value(row) >= given.value)]
    assert rows(filtered) == expected


def test_nothing_pushed_changes_nothing() -> None:
    untouched, whole = reader(), rows(reader())
    assert list(untouched.pushFilters([])) == []
    assert rows(untouched) == whole
    assert len(whole) == 4


def test_without_the_option_all_conditions_stay_sparks() -> None:
    """Spark gives a reader's partitions to other queries over the same DataFrame."""
    given = [spark.EqualTo(("op",), "delete")]
    untouched = reader(pushFilters="false")
    assert list(untouched.pushFilters(given)) == given  # type: ignore[arg-type]
    assert rows(untouched) == rows(reader())
