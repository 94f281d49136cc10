"""A user's own schema is a part of ours or refused, whatever it says of the columns beside their types."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from replica.errors import SchemaError
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.schema.row_schema import TableColumn
from streaming_source.selection.resolver import SelectedTables

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
