"""Types as they are written -> as the server resolves them."""

from __future__ import annotations

import pytest

from replica.schema.definition.column import ORACLE
from tests.unit.schema.ddl import column, refusal


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("INT", "int(11)"),
        ("int4 unsigned", "int(10) unsigned"),
        ("INTEGER(5) ZEROFILL", "int(5) unsigned zerofill"),
        ("int1", "tinyint(4)"),
        ("MIDDLEINT", "mediumint(9)"),
        ("BOOLEAN", "tinyint(1)"),
        ("SERIAL", "bigint(20) unsigned"),
        ("DEC", "decimal(10,0)"),
        ("NUMERIC(7)", "decimal(7,0)"),
        ("FIXED(6,2) UNSIGNED", "decimal(6,2) unsigned"),
        ("FLOAT(24)", "float"),
        ("FLOAT(25)", "double"),
        ("DOUBLE PRECISION(5,2)", "double(5,2)"),
        ("REAL", "double"),
        ("BIT", "bit(1)"),
        ("YEAR", "year(4)"),
        ("DATETIME(0)", "datetime"),
        ("TIMESTAMP(6)", "timestamp(6)"),
        ("CHAR", "char(1)"),
        ("CHARACTER VARYING(9)", "varchar(9)"),
        ("NATIONAL CHARACTER(3)", "char(3)"),
        ("NCHAR VARCHAR(3)", "varchar(3)"),
        ("NVARCHAR(3)", "varchar(3)"),
        ("LONG", "mediumtext"),
        ("LONG VARCHAR", "mediumtext"),
        ("LONG CHAR VARYING", "mediumtext"),
        ("LONG VARBINARY", "mediumblob"),
        ("CHAR(5) BYTE", "binary(5)"),
        ("TEXT(300) BYTE", "blob"),
        ("CHAR(5) CHARACTER SET binary", "binary(5)"),
        ("TEXT CHARSET binary", "blob"),
        ("TEXT(63)", "tinytext"),
        ("TEXT(64)", "text"),
        ("TEXT(20000)", "mediumtext"),
        ("BLOB(255)", "tinyblob"),
        ("VARCHAR(16384)", "mediumtext"),
        ("JSON", "longtext"),
        ("VECTOR(3)", "vector(3)"),
        ("UUID", "uuid"),
        ("POINT REF_SYSTEM_ID=4326", "point"),
        ("ENUM('a','it''s')", "enum('a','it''s')"),
        ("SET('x ', N'y')", "set('x','y')"),
        ("VARCHAR(9) COMPRESSED=zlib", "varchar(9) /*M!100301 COMPRESSED*/"),
    ],
)
def test_a_type_is_what_the_server_prints(written: str, expected: str) -> None:
    assert column(written).column_type == expected


@pytest.mark.parametrize(
    ("written", "charset", "octets"),
    [
        ("VARCHAR(10)", "utf8mb4", 40),
        ("VARCHAR(10) CHARACTER SET latin1", "latin1", 10),
        ("CHAR(10) CHARSET ucs2", "ucs2", 20),
        ("VARCHAR(10) COLLATE gbk_chinese_ci", "gbk", 20),
        ("VARCHAR(10) COLLATE uca1400_ai_ci", "utf8mb4", 40),
        ("VARCHAR(10) CHARACTER SET utf8mb3 COLLATE uca1400_ai_ci", "utf8mb3", 30),
        ("VARCHAR(10) CHARACTER SET utf8", "utf8mb3", None),  # or utf8mb4, as old_mode says
        ("CHAR(3) ASCII", "latin1", 3),
        ("CHAR(3) UNICODE", "ucs2", 6),
        ("NCHAR(3)", "utf8mb3", 9),
        ("JSON", "utf8mb4", 4_294_967_295),
        ("ENUM('a') CHARACTER SET koi8r", "koi8r", None),
        ("BLOB", None, 65_535),
        ("INT", None, None),
    ],
)
def test_character_sets_and_lengths(written: str, charset: str | None, octets: int | None) -> None:
    found = column(written)
    assert (found.charset, found.octets) == (charset, octets)


def test_sql_mode_gives_types_another_meaning() -> None:
    assert column("REAL", sql_mode=1).data_type == "float"
    assert column("TIMESTAMP", sql_mode=4096).data_type == "datetime"
    assert column("DATE", sql_mode=ORACLE).column_type == "datetime"
    assert column("mariadb_schema.DATE", sql_mode=ORACLE).column_type == "date"
    assert column("`Oracle_Schema`.DATE").column_type == "datetime"
    assert column("maxdb_schema.TIMESTAMP(2)").column_type == "datetime(2)"
    assert column("NUMBER", sql_mode=ORACLE).column_type == "double"
    assert column("NUMBER(5,1)", sql_mode=ORACLE).column_type == "decimal(5,1)"
    assert column("VARCHAR2(5)", sql_mode=ORACLE).column_type == "varchar(5)"
    assert column("RAW(5)", sql_mode=ORACLE).column_type == "varbinary(5)"
    assert column("CLOB", sql_mode=ORACLE).column_type == "longtext"
    assert column("BLOB", sql_mode=ORACLE).column_type == "longblob"
    assert column("BLOB(5)", sql_mode=ORACLE).column_type == "tinyblob"
    assert column("BLOB").column_type == "blob"
    assert "type VARCHAR2, which is not known" in refusal("c VARCHAR2(5)")
    assert "type of mine, which is not known" in refusal("c mine.DATE")


def test_a_label_that_the_connection_has_no_characters_for() -> None:
    assert "has characters that latin1 lacks" in refusal("c ENUM('漢') CHARACTER SET utf8mb4", connection="latin1")
    assert column("ENUM('é') CHARACTER SET utf8mb4", connection="latin1").labels == ("é",)
    assert "lacks" in refusal("c ENUM('😀') CHARACTER SET utf8mb4", connection="utf8mb3")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("XMLTYPE", "type XMLTYPE, which is not known"),
        ("VARCHAR", "without a length"),
        ("TEXT CHARACTER SET klingon", "klingon"),
        ("ENUM('ж') CHARACTER SET latin1", "label"),
        ("ENUM('\N{REPLACEMENT CHARACTER}')", "not valid in the character set of the client"),
        ("ENUM(0x41)", "string was expected"),
    ],
)
def test_what_is_not_known_makes_the_table_unknown(written: str, reason: str) -> None:
    assert reason in refusal(f"c {written}")
