"""A user's own schema is a part of ours or refused; bounds keep the groups a replayed batch had, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from replica.errors import SchemaError
from replica.rows import records as r
from replica.rows.batch import Groups
from streaming_source.partition import GroupBounds
from streaming_source.reader import ReadPlan, wanted_groups
from streaming_source.resolver import SelectedTables
from streaming_source.schema import TableColumn

COLUMNS = (TableColumn("id", "INT"), TableColumn("name", "STRING"))
FLAT = ReadPlan("flat", SelectedTables(("a.b",), {}), COLUMNS, "db:3306")
ENVELOPE = ReadPlan("envelope", SelectedTables(("a.b",), {}), COLUMNS, "db:3306")


def test_our_own_schema_changes_nothing() -> None:
    for plan in (FLAT, ENVELOPE):
        assert plan.project(plan.spark_schema()) is plan


def test_a_part_of_the_columns_in_another_order_is_decoded_as_such() -> None:
    wanted = StructType([StructField("_gtid", StringType()), StructField("name", StringType())])
    plan = FLAT.project(wanted)
    assert plan.spark_schema() == wanted
    assert plan.columns == COLUMNS[1:]
    envelope = ENVELOPE.project(StructType([ENVELOPE.spark_schema()["op"]]))
    assert envelope.spark_schema().names == ["op"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("nam", StringType()), "names a column nam, which the rows do not have.*id, name, _change_type"),
        (StructField("id", DoubleType()), "makes id double; in the rows it is a nullable int"),
        (StructField("id", IntegerType(), nullable=False), "makes id int NOT NULL; in the rows it is a nullable int"),
    ],
)
def test_a_column_that_is_not_ours_is_refused(field: StructField, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        FLAT.project(StructType([field]))


_groups = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=30)
_bounds = st.none() | st.dictionaries(st.integers(0, 3), st.integers(0, 20)).map(lambda d: tuple(d.items()))


@settings(max_examples=100, deadline=None)
@given(_groups, _bounds, _bounds)
def test_bounds_are_lower_excluded_upper_included_per_domain(
    groups: list[tuple[int, int]], lower: tuple[tuple[int, int], ...] | None, upper: tuple[tuple[int, int], ...] | None
) -> None:
    records = np.zeros((len(groups), r.GROUP_BYTES // r.WORD), np.int64)
    for record, (domain, seq_no) in zip(records, groups, strict=True):
        record[r.GROUP_DOMAIN // r.WORD], record[r.GROUP_SEQUENCE // r.WORD] = domain, seq_no
    above, below = dict(lower or ()), dict(upper or ())
    expected = [
        seq_no > above.get(domain, -1) and (upper is None or seq_no <= below.get(domain, -1))
        for domain, seq_no in groups
    ]
    assert wanted_groups(GroupBounds(lower, upper), Groups(records)).tolist() == expected
