"""Sequence numbers from 2^63 on, from binlog bytes to the rows that Spark gets: right, or refused by their GTID."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import pytest

from replica.errors import SchemaError
from streaming_source.rows.reader import read_changes
from tests.unit.streaming_source.feeds.relay_feed import plan
from tests.unit.streaming_source.feeds.row_feed import PLAN, TABLES, Group, RowFeed, offset

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = [7, 2**63 - 1, 2**63, 2**64 - 1]


def rows(feed: RowFeed, shape: Literal["envelope", "flat"], *, wide: bool, upto: int) -> list[dict[str, Any]]:
    planner = plan(feed, tables=TABLES, shape=shape)
    partitions = planner.partitions(offset("0-1-1"), offset(f"0-1-{upto}"))
    query = replace(PLAN, shape=shape, wide_sequence=wide)
    return [row for part in partitions for batch in read_changes(part, query) for row in batch.to_pylist()]


@pytest.fixture
def feed(tmp_path: Path) -> RowFeed:
    feed = RowFeed(tmp_path, begin="0-1-1")
    feed.arrive_rows(*(Group(f"0-1-{number}", (("t", 2),)) for number in NUMBERS))
    return feed


def test_as_decimals_all_of_them_are_what_they_are(feed: RowFeed) -> None:
    expected = [Decimal(number) for number in NUMBERS for _ in range(2)]
    envelope = [row["transaction"] for row in rows(feed, "envelope", wide=True, upto=NUMBERS[-1])]
    assert [row["sequence_number"] for row in envelope] == expected
    assert [row["gtid"] for row in envelope] == [f"0-1-{number}" for number in expected]
    flat = rows(feed, "flat", wide=True, upto=NUMBERS[-1])
    assert [row["_commit_version"] for row in flat] == expected
    assert [row["_gtid"] for row in flat] == [f"0-1-{number}" for number in expected]
    assert [row["_sequence"] for row in flat] == [f"{number:020}.{i:012}" for number in NUMBERS for i in range(2)]


def test_as_bigint_those_that_fit_come_and_the_first_that_does_not_is_named(feed: RowFeed) -> None:
    fitting = rows(feed, "envelope", wide=False, upto=2**63 - 1)
    assert [row["transaction"]["sequence_number"] for row in fitting] == [7, 7, 2**63 - 1, 2**63 - 1]
    for shape in ("envelope", "flat"):
        with pytest.raises(SchemaError, match=r"0-1-9223372036854775808 is 2\^63 or more.*sequenceNumbers=decimal"):
            rows(feed, shape, wide=False, upto=NUMBERS[-1])  # type: ignore[arg-type]


def test_a_flat_query_without_the_column_needs_no_option(feed: RowFeed) -> None:
    whole = replace(PLAN, shape="flat")
    schema = whole.spark_schema()
    schema = type(schema)([field for field in schema.fields if field.name != "_commit_version"])
    partitions = plan(feed, tables=TABLES, shape="flat").partitions(offset("0-1-1"), offset(f"0-1-{NUMBERS[-1]}"))
    found = [
        row["_gtid"]
        for part in partitions
        for batch in read_changes(part, whole.project(schema))
        for row in batch.to_pylist()
    ]
    assert found == [f"0-1-{number}" for number in NUMBERS for _ in range(2)]
