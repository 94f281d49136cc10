from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pytest

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType
from replica.rows.types import types
from replica.rows.types.entry import KindEntry, SqlName, TypeEntry
from replica.rows.types.kinds import Kind
from replica.rows.types.types import (
    KEYWORDS,
    KINDS,
    NAMES,
    TYPE_OF_NAME,
    TYPES,
    OutputColumn,
    ValuePolicy,
    arrow_and_spark,
    by_keyword,
    by_kind,
    output_column,
    type_of,
)
from replica.rows.types.values.binary import GEOMETRY_ARROW
from replica.schema.table import ColumnSchema
from tests.kit.tree import files
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


FAMILIES = Path(types.__file__).parent / "values"


def loading(mutation: str) -> str:
    """What the interpreter says of the registry after `mutation`, Python code that runs before it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"{mutation}\nimport replica.rows.types.types"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode, "the registry was loaded"
    return done.stderr.splitlines()[-1]


def test_a_kind_without_an_entry_stops_the_import_with_its_name() -> None:
    said = loading("from replica.rows.types.values import numbers as f\nf.KINDS = f.KINDS[:2] + f.KINDS[3:]")
    assert said == "TypeError: no family under rows/types/values handles the kind INT16"


def test_a_kind_with_two_entries_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match=r"Kind\.VECTOR.* has two entries"):
        by_kind([*KINDS.values(), replace(KINDS[Kind.VECTOR])], Kind)


@pytest.mark.parametrize("entry", [KINDS[Kind.UUID], TYPES[0]], ids=["kind", "type"])
def test_an_entry_that_lacks_a_field_is_refused_with_its_name(entry: KindEntry | TypeEntry) -> None:
    said = {field.name: getattr(entry, field.name) for field in fields(entry)}
    for name in ("kind", "binlog", *(("result_set", "key") if isinstance(entry, TypeEntry) else ())):
        with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{name}'"):
            type(entry)(**{field: value for field, value in said.items() if field != name})


def test_a_word_that_two_names_claim_is_refused() -> None:
    with pytest.raises(TypeError, match="the word INT stands for int and for integral"):
        by_keyword([*NAMES.values(), SqlName("integral", ("INT",))])


def test_every_kind_is_that_of_a_type() -> None:
    """Or what one of a type becomes by its sign, its digits, its character set or the policy."""
    chosen = {kind for entry in TYPES for kind in (entry.kind, entry.unsigned, entry.wide and entry.wide.kind)}
    chosen |= {instead for kind in chosen if kind for instead in (KINDS[kind].as_text, KINDS[kind].as_stored)}
    assert set(Kind) - chosen == {Kind.OPAQUE, Kind.LATIN1, Kind.ENCODED_TEXT}


def test_every_name_belongs_to_the_type_that_has_it() -> None:
    assert set(NAMES) == set(TYPE_OF_NAME)
    for name, entry in TYPE_OF_NAME.items():
        assert NAMES[name] in entry.names
    assert {name.name for name in KEYWORDS.values()} == set(NAMES) - {
        "json"
    }  # in DDL the word JSON stands for LONGTEXT
    assert {name.as_bytes for name in NAMES.values() if name.as_bytes} <= set(NAMES)


def test_every_family_is_gathered() -> None:
    """A file with entries that the registry does not know would be dead."""
    with_entries = {file.stem for file in files(FAMILIES, "*.py") if "\nTYPES" in file.read_text(encoding="utf-8")}
    gathered = {family.__name__.rpartition(".")[2] for family in types._FAMILIES}
    assert with_entries == gathered
