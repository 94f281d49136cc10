"""Columns of Iceberg tables: each type of a target there and back."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from streaming_source.mirroring.control.control_table import COLUMNS
from streaming_source.schema.row_schema import spark_type
from streaming_source.sinks.iceberg.columns import ddl_of, iceberg_schema, spark_schema, spark_type_of
from streaming_source.transforms.transformed_images import TargetColumn

SAME = ("BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(20,0)", "DECIMAL(38,38)", "STRING", "BINARY", "DATE")


def column(name: str, kind: str) -> TargetColumn:
    return TargetColumn(name, kind, nullable=False, comment="its meaning")


@pytest.mark.parametrize("kind", [*SAME, "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<FLOAT>", "ARRAY<STRING>"])
def test_a_type_comes_back_as_itself(kind: str) -> None:
    (field,) = iceberg_schema([column("a.b c", kind)]).fields
    assert (field.name, field.doc, field.required) == ("a.b c", "its meaning", False)
    assert spark_type_of(field.field_type) == spark_type(kind)
    assert ddl_of(field.field_type) == kind


def test_small_integers_are_int() -> None:
    schema = iceberg_schema([column("a", "TINYINT"), column("b", "SMALLINT")])
    assert [ddl_of(field.field_type) for field in schema.fields] == ["INT", "INT"]


def test_the_control_table_comes_back_as_itself() -> None:
    schema = iceberg_schema([column(name, kind) for name, kind, _ in COLUMNS])
    assert [field.dataType for field in spark_schema(schema)] == [spark_type(kind) for _, kind, _ in COLUMNS]


@pytest.mark.parametrize("kind", ["VARIANT", "INTERVAL DAY TO SECOND", "GEOMETRY(ANY)"])
def test_what_iceberg_lacks_is_refused(kind: str) -> None:
    with pytest.raises(SchemaError, match="Iceberg targets cannot hold the type"):
        iceberg_schema([column("a", kind)])
