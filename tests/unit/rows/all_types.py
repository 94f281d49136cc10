"""A table with a column of every type the decoder knows, and values at the edges of each."""

from __future__ import annotations

from typing import Final

# (declaration, SQL values). NULL is tried for each of them too.
COLUMNS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("TINYINT", ("-128", "127", "0")),
    ("TINYINT UNSIGNED", ("0", "200", "255")),
    ("SMALLINT", ("-32768", "32767", "-2")),
    ("SMALLINT UNSIGNED", ("0", "65535", "40000")),
    ("MEDIUMINT", ("-8388608", "8388607", "-1")),
    ("MEDIUMINT UNSIGNED", ("0", "16777215", "9000000")),
    ("INT", ("-2147483648", "2147483647", "-1")),
    ("INT UNSIGNED", ("0", "4294967295", "3000000000")),
    ("BIGINT", ("-9223372036854775808", "9223372036854775807", "-1")),
    ("BIGINT UNSIGNED", ("0", "18446744073709551615", "9223372036854775808")),
    ("FLOAT", ("0.1", "-1.5", "1e-40")),
    ("DOUBLE", ("0.1", "1e308", "-5e-324")),
    ("DECIMAL(10,4)", ("-0.0001", "999999.9999", "0")),
    ("DECIMAL(5,0)", ("-12345", "99999", "7")),
    ("DECIMAL(4,4)", ("-0.5", "0.0102", "0")),
    ("DECIMAL(18,9)", ("-1.1", "123456789.987654321", "-999999999.999999999")),
    ("DECIMAL(19,3)", ("-9999999999999999.999", "1.5", "0")),
    ("DECIMAL(38,10)", ("-9999999999999999999999999999.9999999999", "1e-10", "12345678901234567890.5")),
    ("DECIMAL(38,38)", ("-0.99999999999999999999999999999999999999", "1e-38", "0.5")),
    ("DECIMAL(65,30)", ("-1.5", "99999999999999999999999999999999999.999999999999999999999999999999", "0")),
    ("DECIMAL(65,0)", ("-1", f"{'9' * 65}", "0")),
    ("DECIMAL(39,30)", ("-0.000000000000000000000000000001", "123456789.5", "0")),
    ("BIT(1)", ("b'0'", "b'1'", "b'1'")),
    ("BIT(10)", ("b'1000000011'", "0", "1023")),
    ("BIT(63)", ("9223372036854775807", "1", "0")),
    ("BIT(64)", ("0x8000000000000001", "1", "18446744073709551615")),
    ("YEAR", ("0", "1901", "2155")),
    ("DATE", ("'2024-02-29'", "'0000-00-00'", "'2024-02-31'")),
    ("DATE", ("'0001-01-01'", "'9999-12-31'", "'2024-00-00'")),
    ("TIME", ("'-838:59:59'", "'00:00:01'", "'838:59:59'")),
    ("TIME(1)", ("'-00:00:00.1'", "'10:11:12.5'", "'00:00:00'")),
    ("TIME(4)", ("'-00:00:00.0001'", "'100:11:12.5'", "'-1:00:00.9999'")),
    ("TIME(6)", ("'-838:59:59.999999'", "'-00:00:00.000001'", "'12:34:56.789'")),
    ("DATETIME", ("'0000-00-00 00:00:00'", "'2024-02-29 23:59:59'", "'1969-12-31 23:59:59'")),
    ("DATETIME(3)", ("'2024-02-29 23:59:59.123'", "'1000-01-01 00:00:00'", "'2024-02-31 01:02:03.004'")),
    ("DATETIME(6)", ("'9999-12-31 23:59:59.999999'", "'0001-01-01 00:00:00.000001'", "'2000-02-29 12:00:00'")),
    ("TIMESTAMP NULL", ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "0")),
    ("TIMESTAMP(2) NULL", ("'2024-02-29 12:00:00.25'", "'1999-12-31 23:59:59.99'", "0")),
    ("TIMESTAMP(6) NULL", ("'2024-02-29 12:00:00.000001'", "'2000-03-01 00:00:00'", "'2038-01-19 03:14:07.999999'")),
    ("ENUM('a','b','it''s','é','')", ("'b'", "'é'", "3")),
    ("SET('a','b','c','d','e','f','g','h','i')", ("'a,i'", "''", "'a,b,c,d,e,f,g,h,i'")),
    ("SET('','x','y')", ("3", "1", "7")),
    ("CHAR(5) CHARACTER SET latin1", ("'ab  '", "''", "'é€ÿ'")),
    ("CHAR(100) CHARACTER SET utf8mb4", ("'é'", "REPEAT('😀', 100)", "''")),
    ("CHAR(255) CHARACTER SET utf8mb4", ("'x'", "REPEAT('€', 255)", "''")),
    ("VARCHAR(10) CHARACTER SET latin1", ("'ab  '", "x'8081ff'", "''")),
    ("VARCHAR(64) CHARACTER SET utf8mb4", ("'€'", "REPEAT('😀', 64)", "''")),
    ("VARCHAR(63) CHARACTER SET utf8mb4", ("'€'", "'ab  '", "''")),
    ("VARCHAR(30) CHARACTER SET koi8r", ("'привет'", "'мир  '", "''")),
    ("VARCHAR(30) CHARACTER SET ascii", ("'plain'", "'~'", "''")),
    ("BINARY(5)", ("0x6100620000", "''", "0xffffffffff")),
    ("BINARY(255)", ("'q'", "REPEAT('z', 255)", "''")),
    ("VARBINARY(300)", ("0x00ff00", "''", "REPEAT(x'00', 300)")),
    ("TINYBLOB", ("0x0102", "''", "REPEAT('b', 255)")),
    ("BLOB", ("''", "REPEAT('b', 256)", "REPEAT('b', 65535)")),
    ("MEDIUMTEXT", ("'hi'", "REPEAT('t', 70000)", "''")),
    ("LONGBLOB", ("0xff", "REPEAT('l', 1000)", "''")),
    ("TEXT CHARACTER SET latin1", ("'é'", "REPEAT('ü', 1000)", "''")),
    ("JSON", ("'{\"a\": 1}'", "'[]'", "'{\"ä\": [1, 2.5, null]}'")),
    ("POINT", ("POINT(1,2)", "POINT(-1e300,0)", "POINT(0,0)")),
    ("BLOB COMPRESSED", ("REPEAT('a', 3000)", "'abc'", "''")),
    ("VARCHAR(500) COMPRESSED", ("REPEAT('é', 400)", "'x'", "''")),
    ("TEXT COMPRESSED CHARACTER SET utf16", ("REPEAT('é', 400)", "'x'", "''")),
    ("INET6", ("'::'", "'2001:db8::1'", "'::ffff:10.0.0.1'")),
)
# Text in characters of more than one byte, in sets other than UTF-8.
MULTI_BYTE: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("VARCHAR(30) CHARACTER SET gbk", ("'中文'", "'a中b'", "''")),
    ("VARCHAR(30) CHARACTER SET ucs2", ("'中文'", "'é'", "''")),
    ("TEXT CHARACTER SET utf16le", ("'😀a'", "'é'", "''")),
    ("CHAR(10) CHARACTER SET sjis", ("'テスト'", "'abc'", "''")),
)


def statements(table: str, columns: tuple[tuple[str, tuple[str, ...]], ...]) -> list[str]:
    """CREATE TABLE and INSERT, UPDATE, DELETE that take every column through its values and NULL."""
    names = [f"c{index}" for index in range(len(columns))]
    create = ", ".join(f"{name} {declaration}" for name, (declaration, _) in zip(names, columns, strict=True))
    result = [f"CREATE TABLE {table} (id INT PRIMARY KEY, {create})"]
    for k in range(3):
        values = ", ".join(choices[k] for _, choices in columns)
        result.append(f"INSERT INTO {table} VALUES ({k}, {values})")
    # NULLs in every second column, in both phases, so that each bitmap byte has both.
    for k in (0, 1):
        values = ", ".join("NULL" if (i + k) % 2 else choices[k] for i, (_, choices) in enumerate(columns))
        result.append(f"INSERT INTO {table} VALUES ({3 + k}, {values})")
    result.append(f"INSERT INTO {table} (id) VALUES (5)")
    for name, (_, choices) in zip(names, columns, strict=True):
        result.append(f"UPDATE {table} SET {name} = {choices[2]} WHERE id IN (0, 3, 5)")
    result.append(f"DELETE FROM {table} WHERE id IN (1, 4)")
    return result
