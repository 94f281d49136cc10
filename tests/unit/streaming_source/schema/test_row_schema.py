"""The row shapes: names, types, and that everything is nullable; and that a table may not take our names."""

from __future__ import annotations

import pytest
from pyspark.sql import types as spark
from pyspark.sql.types import DataType, StructType, VariantType

from replica.errors import SchemaError
from streaming_source.schema.row_schema import (
    ABSENT,
    ENVELOPE,
    FLAT,
    SOURCE,
    TRANSACTION,
    TableColumn,
    envelope_schema,
    flat_schema,
    spark_type,
)

COLUMNS = (TableColumn("id", "INT", "the key"), TableColumn("price", "DECIMAL(10,2)"))


def _all_nullable(kind: DataType) -> bool:
    return not isinstance(kind, StructType) or all(f.nullable and _all_nullable(f.dataType) for f in kind.fields)


def test_envelope_has_the_documented_columns() -> None:
    typed, variant = envelope_schema(COLUMNS), envelope_schema(None)
    assert typed.names == variant.names == [column.name for column in ENVELOPE]
    assert typed["after"].dataType == typed["before"].dataType
    assert typed["after"].dataType.simpleString() == "struct<id:int,price:decimal(10,2)>"
    assert variant["after"].dataType == variant["before"].dataType == VariantType()
    assert typed["transaction"].dataType.names == [column.name for column in TRANSACTION]
    assert typed["source"].dataType.names == [column.name for column in SOURCE]
    assert typed["absent"].dataType.simpleString() == "struct<before:array<string>,after:array<string>>"
    assert typed["absent"].dataType.names == [column.name for column in ABSENT]


def test_flat_has_the_tables_columns_and_ours_behind_them() -> None:
    schema = flat_schema(COLUMNS)
    ours = ["_change_type", "_commit_version", "_commit_timestamp", "_gtid", "_sequence", "_absent", "_history"]
    assert schema.names == ["id", "price", *ours]
    assert schema.names[2:] == [column.name for column in FLAT]
    assert schema["id"].metadata == {"comment": "the key"}


@pytest.mark.parametrize("schema", [envelope_schema(COLUMNS), envelope_schema(None), flat_schema(COLUMNS)])
def test_everything_is_nullable(schema: StructType) -> None:
    assert _all_nullable(schema)


@pytest.mark.parametrize("name", ["_gtid", "_Sequence", "_CHANGE_TYPE", "_absent", "_History"])
def test_a_table_with_a_column_of_our_name_cannot_be_flat(name: str) -> None:
    with pytest.raises(SchemaError, match=f"column {name} has the name of a metadata column"):
        flat_schema((TableColumn(name, "INT"),))
    assert envelope_schema((TableColumn(name, "INT"),))["after"].dataType.names == [name]


def test_arrays_and_geometries_have_names_too() -> None:
    assert spark_type("ARRAY<FLOAT>").simpleString() == "array<float>"
    assert spark_type("GEOMETRY(ANY)").simpleString() == "geometry(any)"


@pytest.mark.parametrize("name", ["VARCHAR(3)", "MAP<STRING,LIST>", "", "DECIMAL", "ARRAY<INT(3)>", "GEOMETRY(4326)"])
def test_a_type_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(SchemaError, match="is not a type of a change row"):
        spark_type(name)


def test_types_may_be_nested() -> None:
    name = "ARRAY<STRUCT<a: DECIMAL(10, 2), b: MAP<STRING, ARRAY<INT>>>>"
    inner = spark.MapType(spark.StringType(), spark.ArrayType(spark.IntegerType()))
    fields = [spark.StructField("a", spark.DecimalType(10, 2)), spark.StructField("b", inner)]
    assert spark_type(name) == spark.ArrayType(spark.StructType(fields))
