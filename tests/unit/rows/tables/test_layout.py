from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.constants import ColumnType
from replica.rows.tables.layout import ABSENT, compile_layout
from replica.rows.types.kinds import Kind
from replica.rows.types.types import OutputColumn, ValuePolicy, output_column
from replica.schema.table import ColumnSchema, TableSchema
from tests.kit.binlog.parsed import column, integer, table_map, varchar

NULL = ValuePolicy()
ID, NAME = OutputColumn("id", pa.int32(), "INT"), OutputColumn("name", pa.string(), "STRING")
WIRE = table_map(integer("id"), varchar("name"))


def test_without_output_columns_everything_is_put_out() -> None:
    layout = compile_layout(WIRE, None, None, NULL)
    assert (layout.outputs, layout.sources, layout.slots) == ((ID, NAME), (0, 1), (0, 1))
    assert pickle.loads(pickle.dumps(layout)) == layout  # noqa: S301


def test_columns_meet_by_name_whatever_their_order_and_case() -> None:
    output = [OutputColumn("Name", pa.string(), "STRING"), ID]
    layout = compile_layout(WIRE, None, output, NULL)
    assert (layout.sources, layout.slots) == ((1, 0), (1, 0))
    assert [c.name for c in layout.columns] == ["id", "name"]


def test_missing_columns_are_absent_and_extra_ones_are_stepped_over() -> None:
    layout = compile_layout(WIRE, None, [NAME, OutputColumn("added", pa.int8(), "TINYINT")], NULL)
    assert (layout.sources, layout.slots) == ((1, ABSENT), (ABSENT, 0))
    assert layout.columns[0].kind == Kind.OPAQUE


def test_a_column_that_cannot_be_decoded_stops_only_those_who_ask_for_it() -> None:
    wire = table_map(integer("id"), column("z", ColumnType.VECTOR, b"\2"))
    assert compile_layout(wire, None, [ID], NULL).columns[1].prefix == 2
    for output in (None, [ID, OutputColumn("z", pa.binary(), "BINARY")]):
        with pytest.raises(UnsupportedColumnError, match=r"Column z of table shop\.orders .*VECTOR"):
            compile_layout(wire, None, output, NULL)


def test_a_table_that_is_only_stepped_over_needs_no_names() -> None:
    layout = compile_layout(
        table_map(column(None, ColumnType.LONG), column(None, ColumnType.BLOB, b"\3")), None, (), NULL
    )
    assert [(c.kind, c.width, c.prefix) for c in layout.columns] == [(Kind.OPAQUE, 4, 0), (Kind.OPAQUE, 0, 3)]
    assert layout.outputs == ()


def test_a_changed_type_is_an_error_that_says_both() -> None:
    with pytest.raises(
        SchemaError, match=r"Column id of table shop\.orders is INT in the binlog and SMALLINT in the query"
    ):
        compile_layout(WIRE, None, [OutputColumn("id", pa.int16(), "SMALLINT")], NULL)


def test_the_catalogs_output_fits_what_the_stream_brings() -> None:
    schema = TableSchema(
        database="shop",
        table="orders",
        columns=(
            ColumnSchema(name="id", data_type="int", column_type="int(10) unsigned", unsigned=True),
            ColumnSchema(name="at", data_type="datetime", column_type="datetime(3)", fsp=3),
        ),
    )
    wire = table_map(integer("id", unsigned=True), column("at", ColumnType.DATETIME2, b"\3"))
    for policy in (NULL, ValuePolicy("text")):
        output = [output_column(c, policy) for c in schema.columns]
        layout = compile_layout(wire, schema, output, policy)
        assert layout.outputs == tuple(output)
        assert layout.sources == (0, 1)
