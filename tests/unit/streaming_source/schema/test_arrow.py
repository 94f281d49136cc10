"""Our Arrow schema is the one Spark expects, for every type and shape there is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from replica.errors import SchemaError
from streaming_source.schema.row_schema import TableColumn, arrow_schema, arrow_type, envelope_schema, flat_schema

ATOMS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP"),
    *("TIMESTAMP_NTZ", "DECIMAL(38,30)", "DECIMAL(20,0)", "INTERVAL DAY TO SECOND"),
    *("ARRAY<FLOAT>", "GEOMETRY(ANY)"),
)
COLUMNS = tuple(TableColumn(f"c{i}", kind, "a comment") for i, kind in enumerate(ATOMS))


@pytest.mark.parametrize(
    "schema", [envelope_schema(COLUMNS), envelope_schema(None), flat_schema(COLUMNS)], ids=["typed", "variant", "flat"]
)
def test_the_schema_equals_what_spark_compares_with(schema: spark.StructType) -> None:
    expected = to_arrow_schema(schema, timezone="UTC")
    assert expected.equals(arrow_schema(schema))


def test_the_mark_of_variant_is_there_although_equality_ignores_it() -> None:
    variant = arrow_type(spark.VariantType())
    assert variant.field("metadata").metadata == {b"variant": b"true"}
    assert to_arrow_schema(envelope_schema(None), timezone="UTC").field("after").type.field("metadata").metadata


def test_the_mark_of_geometry_is_the_one_spark_makes() -> None:
    expected = to_arrow_schema(flat_schema((TableColumn("g", "GEOMETRY(ANY)"),)), timezone="UTC")
    ours = arrow_type(spark.GeometryType("ANY"))
    assert ours.field("wkb").metadata == expected.field("g").type.field("wkb").metadata


@pytest.mark.parametrize("kind", [spark.MapType(spark.StringType(), spark.YearMonthIntervalType()), spark.CharType(3)])
def test_a_type_no_row_has_is_refused(kind: spark.DataType) -> None:
    with pytest.raises(SchemaError, match="has no columns of type"):
        arrow_type(kind)
    assert arrow_type(spark.StringType()) == pa.string()
