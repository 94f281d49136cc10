"""The columns of rows in both shapes: one table of names, types and help texts, and the Spark schema made from it.

`envelope` is one row per row change, with the images in `before` and `after`. `flat` has the table's own columns, and
metadata columns after them. Every field is nullable, because Spark compares the nullability of Arrow batches for
equality, and a row image may lack a NOT NULL column (binlog_row_image=MINIMAL). A test compares
docs/spark-reference.md with these tables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import SchemaError
from streaming_source.schema.spark_names import spark_column_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType


class RowColumn(NamedTuple):
    """One column of the change rows.

    Attributes:
        type: the name of its Spark type, or IMAGE for images of the table's rows.
    """

    name: str
    type: str
    help: str


SEQUENCE_NUMBER = "BIGINT"
WIDE_SEQUENCE_NUMBER = "DECIMAL(20,0)"
"""Type with sequenceNumbers=decimal, for all 64 unsigned bits."""
IMAGE = "IMAGE"  # stands for VARIANT with tables, and a STRUCT of the table's columns with table

TRANSACTION = (
    RowColumn("gtid", "STRING", "GTID of the transaction: domain-server-sequence"),
    RowColumn("domain_id", "BIGINT", "replication domain"),
    RowColumn("server_id", "BIGINT", "server that first committed it"),
    RowColumn(
        "sequence_number",
        SEQUENCE_NUMBER,
        "sequence number within the domain; DECIMAL(20,0) with sequenceNumbers=decimal",
    ),
    RowColumn(
        "commit_timestamp",
        "TIMESTAMP",
        "when the statement or commit was logged, to the second, by the clock of its session: after `SET timestamp` it "
        "may lie years before, or ahead",
    ),
    RowColumn("xid", "BIGINT", "storage engine transaction number; NULL if the group does not end with one"),
    RowColumn(
        "ordinal",
        "BIGINT",
        "0-based number of the row change among all row changes of the transaction; DDL rows count up to -1, rows of "
        "the table itself from 900000000000",
    ),
    RowColumn("is_last", "BOOLEAN", "whether this is the last delivered row of the transaction"),
)
SOURCE = (
    RowColumn("server", "STRING", "the server as the query, or its daemon, names it: host:port, or the socket"),
    RowColumn("file", "STRING", "binlog file of the primary, if known"),
    RowColumn("position", "BIGINT", "where the transaction begins in that file, modulo 4 GiB"),
    RowColumn("thread_id", "BIGINT", "connection that ran the transaction, if the server logs it"),
    RowColumn(
        "sql", "STRING", "statement text: of DDL rows, and of others with includeSql and binlog_annotate_row_events"
    ),
)
ABSENT = (
    RowColumn("before", "ARRAY<STRING>", "columns not in the before image (binlog_row_image); NULL if it is whole"),
    RowColumn("after", "ARRAY<STRING>", "columns not in the after image; NULL if it is whole"),
)
ENVELOPE = (
    RowColumn("op", "STRING", "insert, update or delete; read for a row of the table itself; ddl with includeDdl"),
    RowColumn("database", "STRING", "database of the table"),
    RowColumn(
        "table", "STRING", "name of the table; NULL for DDL of a whole database, or of a table that is not clear"
    ),
    RowColumn("before", IMAGE, "row before the change; NULL for inserts"),
    RowColumn("after", IMAGE, "row after the change; NULL for deletes"),
    RowColumn("transaction", "STRUCT", "the transaction and the row's place in it"),
    RowColumn("source", "STRUCT", "place that the row came from; not an identity: it may differ after a failover"),
    RowColumn("absent", "STRUCT", "columns that the images lack, if an image is not whole; absent is not NULL"),
    RowColumn("history", "BOOLEAN", "system-versioned tables: whether the row is a closed version; NULL for others"),
)
FLAT = (
    RowColumn(
        "_change_type",
        "STRING",
        "insert, update_preimage, update_postimage or delete; insert for a row of the table itself",
    ),
    RowColumn(
        "_commit_version",
        SEQUENCE_NUMBER,
        "sequence number of the transaction within its domain; DECIMAL(20,0) with sequenceNumbers=decimal",
    ),
    RowColumn("_commit_timestamp", "TIMESTAMP", "when the statement or commit was logged, to the second"),
    RowColumn("_gtid", "STRING", "GTID of the transaction: domain-server-sequence"),
    RowColumn(
        "_sequence",
        "STRING",
        "sorts the row changes of a domain as text: 20 digits of sequence number, a dot, 12 of ordinal",
    ),
    RowColumn("_absent", "ARRAY<STRING>", "columns not in the row's image (binlog_row_image); NULL if it is whole"),
    RowColumn("_history", "BOOLEAN", "system-versioned tables: whether the row is a closed version; NULL for others"),
)

_NESTED = re.compile(r"(ARRAY|MAP|STRUCT)<(.+)>")
_LEVEL = {"<": 1, "(": 1, ">": -1, ")": -1}
_ATOM = re.compile(r"([A-Z_ ]+)(?:\((\d+),\s*(\d+)\))?")


class TableColumn(NamedTuple):
    """Column of the selected table in rows: the name of its Spark type, and MariaDB's metadata.

    In rows every column is nullable.

    Attributes:
        declared: the declared type; '' if only the rows describe the column.
        nullable: whether the column is nullable in MariaDB; None if unknown.
        key: whether the column belongs to the primary key; None if unknown.
    """

    name: str
    type: str
    comment: str = ""
    declared: str = ""
    nullable: bool | None = None
    key: bool | None = None

    def metadata(self) -> dict[str, str | bool]:
        """Return the metadata of the column's StructField. `comment` is Spark's own name in it."""
        values: dict[str, str | bool | None] = {
            "comment": self.comment or None,
            "mariadb.type": self.declared or None,
            "mariadb.nullable": self.nullable,
            "mariadb.key": self.key,
        }
        return {name: value for name, value in values.items() if value is not None}


def without_metadata(kind: DataType) -> DataType:
    """Return a type without the metadata of its columns, for comparing two types."""
    from pyspark.sql import types as spark

    if isinstance(kind, spark.StructType):
        return spark.StructType(
            [spark.StructField(f.name, without_metadata(f.dataType), f.nullable) for f in kind.fields]
        )
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(without_metadata(kind.elementType), kind.containsNull)
    return kind


def spark_type(name: str) -> DataType:
    """Return the Spark type for a name (`BIGINT`, `DECIMAL(10,2)`, `STRUCT<a: INT>`), without a session."""
    from pyspark.sql import types as spark

    if name == "GEOMETRY(ANY)":
        return spark.GeometryType("ANY")
    nested = _NESTED.fullmatch(name)
    if nested is not None:
        return _nested_type(nested[1], nested[2])
    match = _ATOM.fullmatch(name)
    if match is None:
        raise SchemaError(f"{name} is not a type of a change row.")
    if match[1] == "DECIMAL" and match[2]:
        return spark.DecimalType(int(match[2]), int(match[3]))
    atoms: dict[str, type[DataType]] = {
        "BOOLEAN": spark.BooleanType,
        "TINYINT": spark.ByteType,
        "SMALLINT": spark.ShortType,
        "INT": spark.IntegerType,
        "BIGINT": spark.LongType,
        "FLOAT": spark.FloatType,
        "DOUBLE": spark.DoubleType,
        "STRING": spark.StringType,
        "BINARY": spark.BinaryType,
        "DATE": spark.DateType,
        "TIMESTAMP": spark.TimestampType,
        "TIMESTAMP_NTZ": spark.TimestampNTZType,
        "INTERVAL DAY TO SECOND": spark.DayTimeIntervalType,
        "VARIANT": spark.VariantType,
    }
    if name not in atoms:
        raise SchemaError(f"{name} is not a type of a change row.")
    return atoms[name]()


def _nested_type(kind: str, inner: str) -> DataType:
    from pyspark.sql import types as spark

    parts = _parts(inner)
    if kind == "ARRAY":
        return spark.ArrayType(spark_type(inner))
    if kind == "MAP":
        key, value = parts
        return spark.MapType(spark_type(key), spark_type(value))
    fields = [part.partition(":") for part in parts]
    return spark.StructType([spark.StructField(name, spark_type(of.strip())) for name, _, of in fields])


def _parts(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    found, level = [""], 0
    for character in text:
        level += _LEVEL.get(character, 0)
        if character == "," and not level:
            found.append("")
        else:
            found[-1] += character
    return [part.strip() for part in found]


def envelope_schema(image: Sequence[TableColumn] | None, *, wide_sequence: bool = False) -> StructType:
    """Return the schema of rowShape=envelope: typed images of one table, or VARIANT if `image` is None."""
    from pyspark.sql.types import StructType

    kinds: dict[str, DataType] = {
        "transaction": _struct(_sequence_columns(TRANSACTION, wide=wide_sequence)),
        "source": _struct(SOURCE),
        "absent": _struct(ABSENT),
        IMAGE: spark_type("VARIANT") if image is None else _struct(image),
    }
    schema = StructType()
    for column in ENVELOPE:
        kind = kinds.get(column.name) or kinds.get(column.type) or spark_type(column.type)
        schema = schema.add(column.name, kind, nullable=True)
    return schema


def flat_schema(columns: Sequence[TableColumn], *, wide_sequence: bool = False) -> StructType:
    """Return the schema of rowShape=flat.

    Raises:
        SchemaError: the table has a column with the name of a metadata column.
    """
    taken = {column.name for column in FLAT}
    for column in columns:
        if spark_column_key(column.name) in taken:
            raise SchemaError(
                f"the table's column {column.name} has the name of a metadata column of rowShape=flat.",
                hint="Read the table with rowShape=envelope.",
            )
    return _struct([*columns, *_sequence_columns(FLAT, wide=wide_sequence)])


def _sequence_columns(columns: Sequence[RowColumn], *, wide: bool) -> Sequence[RowColumn]:
    """Return the columns, with sequence numbers in the type of the option sequenceNumbers."""
    names = {"sequence_number", "_commit_version"} if wide else ()
    return [column._replace(type=WIDE_SEQUENCE_NUMBER) if column.name in names else column for column in columns]


def _struct(columns: Sequence[TableColumn | RowColumn]) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType()
    for column in columns:
        metadata = column.metadata() if isinstance(column, TableColumn) else None
        schema = schema.add(column.name, spark_type(column.type), nullable=True, metadata=metadata or None)
    return schema


# Spark 4.2 and later compare the schema of the first batch with their own for equality, also nullability, and read
# later batches unchecked. So `arrow_schema` makes the schema of every batch. Spark's own function is internal and
# changes its signature between versions; a test compares the two.


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
        return _nested_arrow_type(kind)
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


def _nested_arrow_type(kind: StructType | ArrayType | MapType) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql import types as spark

    if isinstance(kind, spark.StructType):
        return pa.struct([pa.field(f.name, arrow_type(f.dataType), nullable=f.nullable) for f in kind.fields])
    if isinstance(kind, spark.MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    return pa.list_(pa.field("element", arrow_type(kind.elementType), nullable=kind.containsNull))
