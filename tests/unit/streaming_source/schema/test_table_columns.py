"""What is known of a table's columns travels in the metadata of the schema; only chosen ones have to be decodable."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from replica.errors import SchemaError
from replica.protocol.rows.table_map import parse_table_map
from replica.rows.types.types import ValuePolicy
from replica.schema.table import ColumnSchema, TableSchema
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.schema.row_schema import TableColumn, envelope_schema, flat_schema
from streaming_source.schema.table_columns import catalog_table_columns, logged_table_columns
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog.rows import Column, table_map

ORDERS = TableSchema(
    database="shop",
    table="orders",
    columns=(
        ColumnSchema(name="id", data_type="int", column_type="int(11)", nullable=False, key=True, comment="the key"),
        ColumnSchema(name="Name", data_type="varchar", column_type="varchar(30)", charset="utf8mb4"),
        ColumnSchema(name="odd", data_type="strange", column_type="strange(7)"),
    ),
    primary_key=(0,),
)
POLICY = ValuePolicy()
ID = TableColumn("id", "INT", "the key", "int(11)", nullable=False, key=True)
NAME = TableColumn("Name", "STRING", "", "varchar(30)", nullable=True, key=False)


def test_chosen_columns_keep_the_tables_order_and_the_others_need_no_type() -> None:
    assert catalog_table_columns(ORDERS, POLICY, ("name", "ID")) == (ID, NAME)
    assert catalog_table_columns(ORDERS, POLICY, ("n*",)) == (NAME,)
    with pytest.raises(SchemaError, match="odd has the type"):
        catalog_table_columns(ORDERS, POLICY)
    with pytest.raises(SchemaError, match=r"names nome, a column that shop\.orders does not have\..*mean Name\?"):
        catalog_table_columns(ORDERS, POLICY, ("id", "nome"))


def test_rows_tell_what_they_log() -> None:
    wire = parse_table_map(
        memoryview(table_map(1, [Column("id", 3, nullable=False), Column("g", 15, b"\x10\0", collation=9999)]))
    )
    assert logged_table_columns(wire, None, POLICY, ("id",)) == (TableColumn("id", "INT", nullable=False),)
    (told,) = logged_table_columns(wire, ORDERS, POLICY, ("id",))
    assert told == ID
    with pytest.raises(SchemaError, match=r"names h, a column that d\.t does not have"):
        logged_table_columns(wire, None, POLICY, ("h",))


def test_metadata_says_what_mariadb_says_and_claims_nothing_of_rows() -> None:
    expected = {"comment": "the key", "mariadb.type": "int(11)", "mariadb.nullable": False, "mariadb.key": True}
    flat, envelope = flat_schema((ID, NAME)), envelope_schema((ID, NAME))
    for schema in (flat, envelope["after"].dataType, envelope["before"].dataType):
        assert schema["id"].metadata == expected
        assert schema["id"].nullable
        assert "comment" not in schema["Name"].metadata
    assert flat["_gtid"].metadata == {}
    assert StructType.fromJson(envelope.jsonValue()) == envelope


def test_a_schema_of_the_users_own_need_not_repeat_the_metadata() -> None:
    for shape in ("flat", "envelope"):
        plan = ReadPlan(shape, SelectedTables(("shop.orders",), {}), (ID, NAME), "db")  # type: ignore[arg-type]
        plain = _without(plan.spark_schema())
        assert _without(plan.project(plain).spark_schema()) == plain
        assert plan.project(plain).columns == plan.columns
    with pytest.raises(SchemaError, match="makes after struct<id:string>"):
        plan.project(StructType([StructField("after", StructType([StructField("id", StringType())]))]))


def _without(schema: StructType) -> StructType:
    fields = []
    for field in schema.fields:
        kind = _without(field.dataType) if isinstance(field.dataType, StructType) else field.dataType
        fields.append(StructField(field.name, kind))
    return StructType(fields)
