from __future__ import annotations

import pyarrow as pa
import pytest

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType
from replica.rows.types.kinds import Kind
from replica.rows.types.registry import KINDS, NAMES, TYPES
from replica.rows.types.types import (
    OutputColumn,
    ValuePolicy,
    arrow_and_spark,
    output_column,
    type_of,
)
from replica.rows.types.values.binary import GEOMETRY_ARROW
from replica.schema.table import ColumnSchema
from tests.unit.rows.kind_samples import SAMPLES

TEXT = ValuePolicy("text")
STRING, DECIMAL20 = (pa.string(), "STRING"), (pa.decimal128(20, 0), "DECIMAL(20,0)")
BYTES, INTERVAL = (pa.binary(), "BINARY"), (pa.duration("us"), "INTERVAL DAY TO SECOND")
WHAT_SPARK_SEES = {
    "tinyint(4)": (pa.int8(), "TINYINT"),
    "tinyint(3) unsigned": (pa.int16(), "SMALLINT"),
    "smallint(6)": (pa.int16(), "SMALLINT"),
    "smallint(5) unsigned": (pa.int32(), "INT"),
    "mediumint(9)": (pa.int32(), "INT"),
    "mediumint(8) unsigned": (pa.int32(), "INT"),
    "int(11)": (pa.int32(), "INT"),
    "int(10) unsigned": (pa.int64(), "BIGINT"),
    "bigint(20)": (pa.int64(), "BIGINT"),
    "bigint(20) unsigned": DECIMAL20,
    "float": (pa.float32(), "FLOAT"),
    "double": (pa.float64(), "DOUBLE"),
    "decimal(10,2)": (pa.decimal128(10, 2), "DECIMAL(10,2)"),
    "decimal(38,38)": (pa.decimal128(38, 38), "DECIMAL(38,38)"),
    "decimal(39,0)": STRING,
    "decimal(65,30)": STRING,
    "bit(1)": (pa.int64(), "BIGINT"),
    "bit(63)": (pa.int64(), "BIGINT"),
    "bit(64)": DECIMAL20,
    "year(4)": (pa.int32(), "INT"),
    "date": (pa.date32(), "DATE"),
    "datetime(6)": (pa.timestamp("us"), "TIMESTAMP_NTZ"),
    "timestamp": (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    "time(3)": INTERVAL,
    "enum('a')": STRING,
    "set('a')": STRING,
    "char(5)": STRING,
    "varchar(5)": STRING,
    "tinytext": STRING,
    "text": STRING,
    "mediumtext": STRING,
    "longtext": STRING,
    "binary(5)": BYTES,
    "varbinary(5)": BYTES,
    "tinyblob": BYTES,
    "blob": BYTES,
    "mediumblob": BYTES,
    "longblob": BYTES,
    "geometry": BYTES,
    "point": BYTES,
    "uuid": STRING,
    "inet4": STRING,
    "inet6": STRING,
    "vector(3)": (pa.list_(pa.float32()), "ARRAY<FLOAT>"),
    "json": STRING,
}


def declared(column_type: str) -> ColumnSchema:
    data_type, _, parameters = column_type.partition("(")
    data_type = data_type.split()[0]
    numbers = parameters.partition(")")[0].split(",")
    counted = data_type in ("decimal", "bit")
    return ColumnSchema(
        name="c",
        data_type=data_type,
        column_type=column_type,
        unsigned="unsigned" in column_type,
        precision=int(numbers[0]) if counted else None,
        scale=int(numbers[1]) if data_type == "decimal" else None,
    )


@pytest.mark.parametrize("column_type", WHAT_SPARK_SEES)
def test_output_types(column_type: str) -> None:
    arrow, spark = WHAT_SPARK_SEES[column_type]
    assert output_column(declared(column_type), ValuePolicy()) == OutputColumn("c", arrow, spark)


def test_every_type_of_the_table_is_tried_above() -> None:
    tried = {declared(column_type).data_type for column_type in WHAT_SPARK_SEES}
    tried |= {sample.known.data_type for sample in SAMPLES if sample.known is not None}
    missing = set(NAMES) - tried
    assert missing == {
        "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    }  # fmt: skip


@pytest.mark.parametrize("column_type", ["date", "datetime(6)", "timestamp"])
def test_dates_as_text(column_type: str) -> None:
    assert output_column(declared(column_type), TEXT) == OutputColumn("c", pa.string(), "STRING")


def test_times_are_no_dates() -> None:
    assert output_column(declared("time(6)"), TEXT).arrow == pa.duration("us")


@pytest.mark.parametrize(
    ("column_type", "spark"),
    [("varchar(5) /*M!100301 COMPRESSED*/", "STRING"), ("blob /*M!100301 COMPRESSED*/", "BINARY")],
)
def test_compressed_columns_are_what_they_hold(column_type: str, spark: str) -> None:
    assert output_column(declared(column_type), ValuePolicy()).spark == spark


@pytest.mark.parametrize("column_type", ["geometry", "point", "geometrycollection"])
def test_geometries_for_spark(column_type: str) -> None:
    column = output_column(declared(column_type), ValuePolicy(geometry="spark"))
    assert (column.arrow, column.spark) == (GEOMETRY_ARROW, "GEOMETRY(ANY)")
    assert [(field.name, field.nullable) for field in GEOMETRY_ARROW] == [("srid", False), ("wkb", False)]


def test_types_that_the_table_does_not_have() -> None:
    with pytest.raises(SchemaError, match=r"xmltype\(3\), which is not in the type table"):
        type_of(ColumnSchema(name="c", data_type="xmltype", column_type="xmltype(3)"))


def test_the_table_covers_what_servers_write() -> None:
    never_written = {
        ColumnType.DECIMAL, ColumnType.NULL, ColumnType.NEWDATE, ColumnType.TYPED_ARRAY, ColumnType.TINY_BLOB,
        ColumnType.MEDIUM_BLOB, ColumnType.LONG_BLOB, ColumnType.VAR_STRING,
    }  # fmt: skip
    of_mysql = {ColumnType.VECTOR}
    assert {code for entry in TYPES for code in entry.binlog.codes} == set(ColumnType) - never_written - of_mysql


def test_text_forms_and_arrow_types_of_all_kinds() -> None:
    assert {KINDS[entry.as_text].spark for entry in KINDS.values() if entry.as_text is not None} == {"STRING"}
    for kind in Kind:
        arrow, spark = arrow_and_spark(kind, 5, 2)
        assert isinstance(arrow, pa.DataType)
        assert spark
