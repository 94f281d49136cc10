"""The exact Arrow types that Spark expects from a Python source, for Spark's types.

Spark 4.2 and later compare the schema of the first batch with their own for equality, also nullability, and read later
batches unchecked. So `arrow_schema` makes the schema of every batch. Spark's own function is internal and changes its
signature between versions; a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the batches of a query with this Spark schema."""
    import pyarrow as pa

    return pa.schema([pa.field(f.name, arrow_type(f.dataType), nullable=f.nullable) for f in schema.fields])


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type.

    Raises:
        SchemaError: a type that this source never produces (a user's own schema may name one).
    """
    import pyarrow as pa
    from pyspark.sql import types as spark

    if isinstance(kind, spark.StructType | spark.ArrayType | spark.MapType):
        return _nested_type(kind)
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.GeometryType):
        # Marked like VARIANT below.
        mark = pa.field("wkb", pa.binary(), nullable=False, metadata={b"geometry": b"true", b"srid": str(kind.srid)})
        return pa.struct([pa.field("srid", pa.int32(), nullable=False), mark])
    if isinstance(kind, spark.VariantType):
        # By the mark on `metadata`, Spark's reader distinguishes a VARIANT from a struct of two binaries.
        mark = pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"})
        return pa.struct([pa.field("value", pa.binary(), nullable=False), mark])
    atoms = {
        spark.BooleanType: pa.bool_(),
        spark.ByteType: pa.int8(),
        spark.ShortType: pa.int16(),
        spark.IntegerType: pa.int32(),
        spark.LongType: pa.int64(),
        spark.FloatType: pa.float32(),
        spark.DoubleType: pa.float64(),
        spark.StringType: pa.string(),
        spark.BinaryType: pa.binary(),
        spark.DateType: pa.date32(),
        spark.TimestampType: pa.timestamp("us", tz="UTC"),
        spark.TimestampNTZType: pa.timestamp("us"),
        spark.DayTimeIntervalType: pa.duration("us"),
    }
    if type(kind) not in atoms:
        raise SchemaError(f"mariadb-binlog has no columns of type {kind.simpleString()}.")
    return atoms[type(kind)]


def _nested_type(kind: StructType | ArrayType | MapType) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql import types as spark

    if isinstance(kind, spark.StructType):
        return pa.struct([pa.field(f.name, arrow_type(f.dataType), nullable=f.nullable) for f in kind.fields])
    if isinstance(kind, spark.MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    return pa.list_(pa.field("element", arrow_type(kind.elementType), nullable=kind.containsNull))
