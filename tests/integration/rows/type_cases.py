"""Every type of the type table, with values at and around its borders, and how to ask the server for them."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    declaration: str
    values: tuple[str, ...]  # SQL
    select: str = "{c}"  # how the server is asked: what it answers is compared as text
    since: tuple[int, int] = (10, 5)
    catalog_only: bool = False  # the stream alone cannot tell the type


def integers(name: str, bits: int) -> list[Case]:
    half, full = 1 << bits - 1, (1 << bits) - 1
    return [
        Case(name, tuple(map(str, (-half, -half + 1, -1, 0, 1, half - 1)))),
        Case(f"{name} UNSIGNED", tuple(map(str, (0, 1, half - 1, half, full)))),
    ]


def decimals(precision: int, scale: int) -> list[Case]:
    digits = ("1234567890" * 7)[:precision]
    values = [f"{digits[: precision - scale]}.{digits[precision - scale :]}".rstrip("."), "0", "1e-30", "-1", "7.5"]
    values += [f"-{values[0]}", "9" * (precision - scale) + "." + "9" * scale + "0"]
    return [Case(f"DECIMAL({precision},{scale})", tuple(values))]


def labels(count: int) -> str:
    return ",".join(f"'l{i}'" for i in range(count))


HEX, NUMBER = "HEX({c})", "{c}+0"
LONG = "REPEAT('x', {n})"
CASES = [
    *(case for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64))
      for case in integers(name, bits)),
    Case("INT(5) ZEROFILL", ("7", "4294967295"), NUMBER),
    Case("BOOL", ("TRUE", "FALSE")),
    Case("FLOAT", ("0", "1.5", "-0.1", "3.4e38", "1e-45", "16777216", "0.333333333"), "CAST({c} AS DOUBLE)"),
    Case("DOUBLE", ("0", "0.1", "-1e308", "5e-324", "1.7976931348623157e308", "-2.5")),
    Case("FLOAT UNSIGNED", ("0.25",)),
    *(case for p, s in ((1, 0), (5, 0), (4, 4), (9, 9), (10, 4), (18, 9), (19, 1), (30, 30), (38, 10), (38, 38),
                        (39, 0), (65, 0), (65, 30), (65, 1)) for case in decimals(p, s)),
    Case("DECIMAL(10,2) UNSIGNED", ("0", "99999999.99")),
    *(Case(f"BIT({n})", ("0", "1", f"b'{'1' * n}'", f"b'1{'0' * (n - 1)}'"), NUMBER)
      for n in (1, 7, 8, 9, 31, 32, 63, 64)),
    Case("YEAR", ("0", "1901", "1999", "2155"), NUMBER),
    Case("DATE", ("'2024-02-29'", "'1970-01-01'", "'0001-01-01'", "'9999-12-31'", "'1582-10-10'", "'0000-00-00'",
                  "'2024-00-00'", "'2024-02-31'", "'2024-05-00'", "'0000-05-05'")),
    *(Case(f"DATETIME({f})", ("'2024-02-29 23:59:59.123456'", "'1000-01-01 00:00:00'", "'9999-12-31 23:59:59.9'",
                              "'0000-00-00 00:00:00'", "'2024-02-31 10:00:00.5'", "'1969-12-31 23:59:59.999999'"))
      for f in range(7)),
    *(Case(f"TIMESTAMP({f})", ("'1970-01-01 00:00:01'", "'2024-02-29 12:00:00.250001'", "'2038-01-19 03:14:07'", "0"))
      for f in range(7)),
    Case("TIMESTAMP(6)", ("'2106-02-07 06:28:15.999999'", "'2038-01-19 03:14:08'"), since=(11, 5)),
    *(Case(f"TIME({f})", ("'00:00:00'", "'-00:00:00.1'", "'-00:00:01'", "'838:59:59.999999'", "'-838:59:59.999999'",
                          "'-00:00:00.000001'", "'-100:00:00.99'", "'24:00:00'")) for f in range(7)),
    Case("ENUM('a','b''c','d,e','','ü€','x\\\\y')", ("'a'", "'b''c'", "'d,e'", "''", "'ü€'", "6")),
    Case(f"ENUM({labels(300)}) CHARSET latin1", ("'l0'", "'l255'", "'l299'")),
    *(Case(f"SET({labels(n)})", ("''", "1", f"{1 << n - 1}", f"{(1 << n) - 1}"))
      for n in (1, 8, 9, 17, 24, 25, 32, 33, 64)),
    Case("SET('ß','b''c') CHARSET latin1", ("'ß,b''c'", "'b''c'")),
    Case("ENUM('é','e') CHARSET utf16", ("'é'",)),
    Case("ENUM('a','B','b ','x''y') CHARSET binary", ("1", "'B'", "'b '", "4")),
    Case("SET('m','n ','k') CHARSET binary", ("''", "'m,k'", "7")),
    Case("CHAR(5) CHARSET latin1", ("'ab  '", "''", "'é€'")),
    Case("CHAR(63) CHARSET utf8mb4", ("'ab'", "REPEAT('€', 63)")),
    Case("CHAR(64) CHARSET utf8mb4", ("'ab'", "REPEAT('😀', 64)")),
    Case("CHAR(100) CHARSET utf8mb4", ("'é'",)),
    Case("CHAR(255) CHARSET utf8mb4", ("'x'", "REPEAT('ж', 255)")),
    Case("CHAR(255) CHARSET utf8mb3", ("REPEAT('€', 255)",)),
    Case("CHAR(0)", ("''",)),
    Case("CHAR(5) CHARSET utf16", ("'é  '",)),
    Case("VARCHAR(10) CHARSET latin1", ("'ab  '", "''", "CONVERT(0x80818D8F909D9FFF USING latin1)")),
    Case("VARCHAR(255) CHARSET latin1", ("REPEAT('ü', 255)",)),
    Case("VARCHAR(256) CHARSET latin1", ("REPEAT('ü', 256)",)),
    Case("VARCHAR(63) CHARSET utf8mb4", ("'€'", "REPEAT('😀', 63)")),
    Case("VARCHAR(64) CHARSET utf8mb4", ("'€'",)),
    Case("VARCHAR(10) CHARSET ascii", ("'abc'", "CONVERT(0x4180 USING ascii)")),
    Case("VARCHAR(5) COLLATE utf8mb4_bin", ("'é😀'",)),
    *(Case(f"{name}TEXT", ("''", "'hi'", "'😀'", f"REPEAT('€', {n})"))
      for name, n in (("TINY", 80), ("", 20000), ("MEDIUM", 30000), ("LONG", 30000))),
    Case("TEXT CHARSET latin1", ("CONVERT(0x80818283848586878D8F909D USING latin1)",)),
    Case("JSON", ("'{\"a\": 1}'", "'[1, \"ü\"]'", "'  {\"k\" :null}'")),
    Case("BINARY(5)", ("0x6100620000", "''", "0x0000000000", "'abcde'"), HEX),
    Case("BINARY(255)", ("'q'",), HEX),
    Case("VARBINARY(300)", ("0x00FF00", "''", "REPEAT('x', 300)"), HEX),
    Case("VARBINARY(255)", ("0x00",), HEX),
    *(Case(f"{name}BLOB", ("''", "0xFF", *(LONG.format(n=n) for n in sizes)), HEX)
      for name, sizes in (("TINY", (255,)), ("", (255, 256, 65535)), ("MEDIUM", (65536,)), ("LONG", (65536, 70000)))),
    Case("POINT", ("POINT(1,2)",), HEX),
    Case("GEOMETRY", ("ST_GeomFromText('LINESTRING(0 0,1 1)', 4326)",), HEX),
    Case("POLYGON", ("ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))', 3857)",), HEX),
    *(Case(f"{name}BLOB COMPRESSED", ("''", "'abc'", "REPEAT('a', 300)", f"REPEAT(x'00ff', {n})"), HEX)
      for name, n in (("TINY", 120), ("", 30000), ("MEDIUM", 50000), ("LONG", 50000))),
    *(Case(f"{name}TEXT COMPRESSED", ("''", "'é😀'", "REPEAT('ab', 300)", f"REPEAT('€', {n})"), "{c}")
      for name, n in (("", 20000), ("MEDIUM", 30000))),
    Case("TEXT COMPRESSED CHARSET utf16", ("'é😀'", "REPEAT('ab', 300)")),
    Case("VARCHAR(100) COMPRESSED CHARSET latin1", ("''", "'é'", "REPEAT('a', 100)", "'ab  '")),
    Case("VARCHAR(254) COMPRESSED CHARSET latin1", ("REPEAT('a', 254)", "'short'")),
    Case("VARCHAR(255) COMPRESSED CHARSET latin1", ("REPEAT('ü', 255)", "'short'")),
    Case("VARCHAR(500) COMPRESSED", ("REPEAT('a', 300)", "REPEAT('😀', 500)")),
    Case("VARBINARY(2000) COMPRESSED", ("''", "0x00", "REPEAT(x'00ff', 1000)"), HEX),
    Case("VECTOR(3)", ("VEC_FromText('[1,-2,0.5]')", "VEC_FromText('[0,1e-40,3.4e38]')"), "VEC_ToText({c})",
         since=(11, 7), catalog_only=True),
    Case("VARCHAR(10) COLLATE uca1400_ai_ci", ("'é😀'",), since=(10, 10)),
    Case("CHAR(10) CHARSET ucs2 COLLATE uca1400_ai_ci", ("'é'",), since=(10, 10)),
    Case("INET6", ("'::'", "'2001:db8::1'", "'::ffff:1.2.3.4'", "'::1.2.3.4'", "'2001:db8:0:1:1:1:1:1'", "'1::'",
                   "'0:0:1::'", "'1:0:0:2:0:0:0:3'", "'1:0:0:2:0:0:3:4'", "'ff00:1:2:3:4:5:6:7'", "'::1'"),
         catalog_only=True),
    Case("INET4", ("'10.0.0.1'", "'10.0.0.0'", "'0.0.0.0'", "'255.255.255.255'"), since=(10, 10), catalog_only=True),
    Case("UUID", ("'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'",
                  "'01890a5d-ac96-774b-bcce-b302099a8057'"), since=(10, 7), catalog_only=True),
]  # fmt: skip
