"""The catalog's word as the definition that ALTER changes: what goes in comes out, and DDL goes on from there."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.schema.definition.alter import altered, read_alteration
from replica.schema.definition.definition import encoding_of, table_of
from replica.schema.definition.session import StatementContext
from replica.schema.statements.statements import read_statement
from replica.schema.table import ColumnSchema, TableSchema
from tests.unit.schema.ddl import table

DECLARED = """
    id INT UNSIGNED ZEROFILL, a TINYINT, b BIGINT UNSIGNED, c DECIMAL(10,3), d FLOAT, e DOUBLE UNSIGNED, f BIT(9),
    g CHAR(5) CHARACTER SET latin1, h VARCHAR(20), i TEXT, j BINARY(3), k VARBINARY(30) COMMENT 'it''s', l LONGBLOB,
    m DATE, n DATETIME(3), o TIMESTAMP(6) NULL, p TIME, q YEAR, r ENUM('a','b''c'), s SET('x','y'), t JSON, u UUID,
    v INET6, w GEOMETRY, x VARCHAR(100) COMPRESSED, y VARCHAR(9) COLLATE utf8mb4_bin NOT NULL, PRIMARY KEY (id, y)"""


@pytest.mark.parametrize("options", ["", "WITH SYSTEM VERSIONING", "CHARACTER SET latin1 COLLATE latin1_bin"])
def test_the_definition_makes_the_same_table_again(options: str) -> None:
    schema = table(DECLARED, options)
    assert table_of(schema).schema("d", "t") == schema


def test_hashed_keys_stay_as_many_whatever_columns_go() -> None:
    schema = table("id INT, a TEXT, b TEXT, UNIQUE (a), UNIQUE (b)")
    assert schema.hash_keys == 2
    assert table_of(schema).schema("d", "t").hash_keys == 2
    assert after(schema, "DROP COLUMN a").hash_keys == 2


@pytest.mark.parametrize(
    ("change", "items"),
    [
        ("ADD COLUMN n VARCHAR(7)", "id INT PRIMARY KEY, name VARCHAR(20), n VARCHAR(7)"),
        ("RENAME COLUMN name TO id2", "id INT PRIMARY KEY, id2 VARCHAR(20)"),
        ("CONVERT TO CHARACTER SET utf16", "id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET utf16"),
        ("MODIFY name TEXT FIRST", "name TEXT, id INT PRIMARY KEY"),
    ],
)
def test_alter_goes_on_from_it(change: str, items: str) -> None:
    schema = after(table("id INT PRIMARY KEY, name VARCHAR(20)", "CHARACTER SET latin1"), change)
    assert schema.columns == table(items, "CHARACTER SET latin1").columns


def after(schema: TableSchema, change: str) -> TableSchema:
    statement = read_statement(f"ALTER TABLE t {change}", StatementContext(database="d"))
    assert statement is not None
    alteration = read_alteration(statement.tokens, StatementContext(database="d"))
    made = table_of(schema)
    return altered(made, alteration, made.encoding).schema("d", "t")


def test_encodings_by_the_names_of_collations() -> None:
    assert encoding_of("latin1_swedish_ci") == ("latin1", "latin1_swedish_ci")
    assert encoding_of("utf8_bin") == ("utf8mb3", "utf8_bin")
    assert encoding_of("utf8mb4") == ("utf8mb4", None)
    assert encoding_of("binary") == ("binary", None)
    assert encoding_of(None) == (None, None)


def test_a_declaration_that_is_none() -> None:
    column = ColumnSchema(name="a", data_type="int", column_type="INT(", unsigned=False)
    with pytest.raises(SchemaError, match="Column a is declared as INT\\("):
        table_of(TableSchema(database="d", table="t", columns=(column,)))
