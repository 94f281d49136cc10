"""Columns of Iceberg tables and their Spark types.

In: columns whose types have the names of Spark. Out: an Iceberg schema, and the Spark schema with which its
rows are read. Iceberg has no integers below 32 bits, so TINYINT and SMALLINT are INT in a target. All columns are
optional, because Iceberg cannot add a required column to a table with rows. Refused: VARIANT, GEOMETRY and intervals,
which version 2 of Iceberg lacks.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

from replica.errors import SchemaError
from streaming_source.schema.row_schema import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType
    from pyspark.sql.types import DataType, StructType

_NAMES: Final = {
    "boolean": "BooleanType",
    "byte": "IntegerType",
    "short": "IntegerType",
    "integer": "IntegerType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "string": "StringType",
    "binary": "BinaryType",
    "date": "DateType",
    "timestamp": "TimestamptzType",
    "timestamp_ntz": "TimestampType",
}
"""Iceberg's classes, by Spark's names of types without parameters."""


class NamedColumn(Protocol):
    """Column to create: its name, the name of its Spark type, and its comment."""

    @property
    def name(self) -> str:
        """Name of the column."""

    @property
    def type(self) -> str:
        """Name of its Spark type."""

    @property
    def comment(self) -> str:
        """Meaning of the column; empty for none."""


def iceberg_schema(columns: Iterable[NamedColumn]) -> Schema:
    """Return the columns as an Iceberg schema. A catalog assigns its own field ids."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    ids = itertools.count(1)
    return Schema(
        *(
            NestedField(
                next(ids),
                column.name,
                iceberg_type(spark_type(column.type), ids.__next__),
                required=False,
                doc=column.comment or None,
            )
            for column in columns
        )
    )


def iceberg_type(kind: DataType, new_id: Callable[[], int] | None = None) -> IcebergType:
    """Return the Iceberg type that holds the values of a Spark type.

    Raises:
        SchemaError: Iceberg has no such type.
    """
    from pyiceberg import types as iceberg

    new_id = new_id or itertools.count(1).__next__
    name = kind.typeName()
    if name in _NAMES:
        made: IcebergType = getattr(iceberg, _NAMES[name])()
        return made
    nested: Any = kind
    if name == "decimal":
        return iceberg.DecimalType(nested.precision, nested.scale)
    if name == "array":
        number = new_id()
        return iceberg.ListType(number, iceberg_type(nested.elementType, new_id), element_required=False)
    if name == "map":
        key, value = new_id(), new_id()
        return iceberg.MapType(
            key,
            iceberg_type(nested.keyType, new_id),
            value,
            iceberg_type(nested.valueType, new_id),
            value_required=False,
        )
    if name == "struct":
        fields = [(new_id(), field) for field in nested.fields]
        return iceberg.StructType(
            *(
                iceberg.NestedField(number, field.name, iceberg_type(field.dataType, new_id), required=False)
                for number, field in fields
            )
        )
    raise SchemaError(
        f"Iceberg targets cannot hold the type {kind.simpleString().upper()}.",
        hint="Leave the column out (leaveOut in the table's rule), or write Delta (format=delta).",
    )


def spark_schema(schema: Schema) -> StructType:
    """Return the Spark schema of an Iceberg table's rows."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, spark_type_of(field.field_type), True) for field in schema.fields])


def spark_type_of(kind: IcebergType) -> DataType:
    """Return the Spark type of an Iceberg type.

    Raises:
        SchemaError: the mirror never creates this type, so something else changed the table.
    """
    from pyiceberg import types as iceberg
    from pyspark.sql import types as spark

    if isinstance(kind, iceberg.DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, iceberg.ListType):
        return spark.ArrayType(spark_type_of(kind.element_type))
    if isinstance(kind, iceberg.MapType):
        return spark.MapType(spark_type_of(kind.key_type), spark_type_of(kind.value_type))
    if isinstance(kind, iceberg.StructType):
        return spark.StructType(
            [spark.StructField(field.name, spark_type_of(field.field_type), True) for field in kind.fields]
        )
    names = {
        "BooleanType": spark.BooleanType,
        "IntegerType": spark.IntegerType,
        "LongType": spark.LongType,
        "FloatType": spark.FloatType,
        "DoubleType": spark.DoubleType,
        "StringType": spark.StringType,
        "BinaryType": spark.BinaryType,
        "DateType": spark.DateType,
        "TimestamptzType": spark.TimestampType,
        "TimestampType": spark.TimestampNTZType,
    }
    made = names.get(type(kind).__name__)
    if made is None:
        raise SchemaError(f"a column has the type {kind}, which no mirror creates: something else changed the table.")
    return made()


def ddl_of(kind: IcebergType) -> str:
    """Return the name of the Spark type in capitals."""
    return spark_type_of(kind).simpleString().upper()
