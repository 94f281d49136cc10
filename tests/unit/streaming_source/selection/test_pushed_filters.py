"""Conditions that the source decides: the rows Spark would leave are left, and no range is passed over wrongly."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from replica.rows.decode.batch import Groups
from replica.rows.scan.records import GroupRecord
from streaming_source.selection.pushed_filters import GroupExtent, extent_of, push_filters

FIELDS = ("domain_id", "server_id", "sequence_number", "commit_timestamp")
COMPARISONS: tuple[Any, ...] = (
    spark.EqualTo,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
    spark.LessThan,
    spark.LessThanOrEqual,
    spark.EqualNullSafe,
)
ORACLE = {
    "EqualTo": lambda a, b: a == b,
    "EqualNullSafe": lambda a, b: a == b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "In": lambda a, b: a in b,
}
HALF = dt.timedelta(milliseconds=500)


def groups_of(rows: list[tuple[int, ...]]) -> Groups:
    records = np.zeros(len(rows), GroupRecord.dtype)
    for record, (domain, server, number, second) in zip(records, rows, strict=True):
        for field, value in (
            ("domain", domain),
            ("server", server),
            ("sequence", number),
            ("timestamp", second),
        ):
            record[field] = value
    return Groups(records)


def moment(second: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(second, dt.UTC)


_numbers = st.integers(0, 6)
_groups = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), _numbers, _numbers), min_size=1, max_size=12)


@st.composite
def _filters(draw: st.DrawFn) -> spark.Filter:
    field = draw(st.sampled_from(FIELDS))
    kind = draw(st.sampled_from([*COMPARISONS, spark.In]))

    def value() -> object:
        number = draw(_numbers)
        return moment(number) + draw(st.sampled_from([HALF * 0, HALF])) if field == "commit_timestamp" else number

    compared = tuple(value() for _ in range(draw(st.integers(1, 3)))) if kind is spark.In else value()
    found = kind(("transaction", field), compared)
    return spark.Not(found) if kind is not spark.EqualNullSafe and draw(st.booleans()) else found


def passes(given: Any, group: tuple[int, ...]) -> bool:
    inner = given.child if isinstance(given, spark.Not) else given
    mine: Any = dict(zip(FIELDS, group, strict=True))[inner.attribute[1]]
    if inner.attribute[1] == "commit_timestamp":
        mine = moment(mine)
    return bool(ORACLE[type(inner).__name__](mine, inner.value)) != isinstance(given, spark.Not)


@settings(max_examples=300)
@given(_groups, st.lists(_filters(), min_size=1, max_size=3), _groups)
def test_transactions_are_left_as_spark_would_leave_them(
    rows: list[tuple[int, ...]], filters: list[spark.Filter], more: list[tuple[int, ...]]
) -> None:
    pushed, left = push_filters(filters, flat=False)
    assert left == []
    assert pushed is not None
    pushed = pickle.loads(pickle.dumps(pushed))  # noqa: S301
    expected = [all(passes(f, row) for f in filters) for row in rows]
    groups = groups_of(rows)
    assert pushed.groups(groups).tolist() == expected
    extent = extent_of(groups)
    for wider in (extent, extent.joined(extent_of(groups_of(more))), GroupExtent(extent.domains)):
        assert pushed.may_match(wider) or not any(expected)


def test_ranges_that_lie_elsewhere_are_not_read() -> None:
    extent = GroupExtent(((0, 10, 20), (7, 1, 5)), (100, 200))

    def may(*filters: spark.Filter) -> bool:
        pushed, _ = push_filters(filters, flat=False)
        assert pushed is not None
        return pushed.may_match(extent)

    number, domain = ("transaction", "sequence_number"), ("transaction", "domain_id")
    assert not may(spark.GreaterThan(number, 20))
    assert may(spark.EqualTo(number, 15))
    assert not may(spark.EqualTo(domain, 7), spark.GreaterThanOrEqual(number, 6))
    assert may(spark.EqualTo(domain, 0), spark.GreaterThanOrEqual(number, 6))
    assert not may(spark.EqualTo(("transaction", "gtid"), "7-1-9"))
    assert may(spark.EqualTo(("transaction", "gtid"), "7-1-3"))
    assert not may(spark.LessThan(("transaction", "commit_timestamp"), moment(100)))
    assert may(spark.Not(spark.EqualTo(number, 15)))
    assert not may(spark.In(domain, (1, 2, 3)))


@pytest.mark.parametrize(
    ("given", "operations"),
    [
        (spark.EqualTo(("op",), "insert"), 1),
        (spark.Not(spark.EqualTo(("op",), "delete")), 3),
        (spark.In(("op",), ("update", "delete")), 6),
        (spark.EqualTo(("op",), "INSERT"), 0),
        (spark.StringStartsWith(("table",), "ord"), 7),
        (spark.StringEndsWith(("table",), "x"), 0),
        (spark.Not(spark.StringContains(("database",), "shop")), 0),
        (spark.LessThan(("table",), "p"), 7),
    ],
)
def test_operations_and_tables(given: spark.Filter, operations: int) -> None:
    pushed, left = push_filters([given], flat=False)
    assert pushed is not None
    assert left == []
    assert pushed.operations("shop", "orders") == operations


def test_both_rows_of_a_flat_update_go_or_stay_together_and_spark_does_the_rest() -> None:
    path = ("_change_type",)
    for pushing, operations, whole in (
        (spark.Not(spark.EqualTo(path, "update_preimage")), 7, False),
        (spark.In(path, ("insert", "update_postimage")), 3, False),
        (spark.EqualTo(path, "delete"), 4, True),
        (spark.StringStartsWith(path, "update"), 2, True),
    ):
        pushed, left = push_filters([pushing], flat=True)
        assert pushed is not None
        assert pushed.operations("d", "t") == operations
        assert left == ([] if whole else [pushing])
    pushed, left = push_filters([spark.EqualTo(("_commit_version",), 3), spark.EqualTo(("_gtid",), "0-1-3")], flat=True)
    assert left == []
    assert pushed is not None
    assert pushed.groups(groups_of([(0, 1, 3, 0), (0, 1, 4, 0), (0, 2, 3, 0)])).tolist() == [True, False, False]


@pytest.mark.parametrize(
    "given",
    [
        spark.EqualTo(("after", "id"), 1),
        spark.EqualTo(("transaction", "ordinal"), 1),
        spark.EqualTo(("transaction", "sequence_number"), "1"),
        spark.EqualTo(("transaction", "sequence_number"), None),
        spark.EqualTo(("transaction", "sequence_number"), True),
        spark.GreaterThan(("transaction", "commit_timestamp"), dt.datetime(2026, 1, 1)),  # noqa: DTZ001
        spark.EqualTo(("transaction", "gtid"), "nonsense"),
        spark.EqualTo(("transaction", "gtid"), "0-1-9223372036854775808"),
        spark.GreaterThan(("transaction", "gtid"), "0-1-3"),
        spark.Not(spark.EqualNullSafe(("table",), "t")),
        spark.In(("op",), ("insert", None)),
        spark.IsNotNull(("op",)),
        spark.EqualTo(("source", "file"), "bin.000001"),
    ],
)
def test_what_is_not_understood_to_the_letter_is_sparks(given: spark.Filter) -> None:
    assert push_filters([given], flat=False) == (None, [given])


def test_with_ddl_rows_operations_are_sparks() -> None:
    """Whether a statement is its transaction's last row depends on the row changes behind it."""
    by_operation, by_table = spark.EqualTo(("op",), "ddl"), spark.EqualTo(("table",), "t")
    pushed, left = push_filters([by_operation, by_table], flat=False, ddl=True)
    assert left == [by_operation]
    assert pushed is not None
    assert [pushed.passes_ddl("d", name) for name in ("t", "u", None)] == [True, False, False]


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (spark.LessThan(("transaction", "sequence_number"), 9), [True, False, False]),
        (spark.GreaterThan(("transaction", "sequence_number"), 9), [False, True, True]),
        (spark.GreaterThan(("transaction", "sequence_number"), -1), [True, True, True]),
        (spark.In(("transaction", "sequence_number"), (7, -(2**63))), [True, False, False]),
        (spark.Not(spark.In(("transaction", "sequence_number"), (7, -1))), [False, True, True]),
    ],
    ids=str,
)
def test_sequence_numbers_have_no_sign(condition: spark.Filter, left: list[bool]) -> None:
    groups = groups_of([(0, 1, 7, 0), (0, 1, -(2**63), 0), (0, 1, -1, 0)])  # 7, 2^63 and 2^64-1
    pushed, _ = push_filters([condition], flat=False)
    assert pushed is not None
    assert pushed.groups(groups).tolist() == left
    assert pushed.may_match(extent_of(groups)) or not any(left)
