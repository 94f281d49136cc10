"""Values of every kind in a target, read first and changed later: the same text as the server's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server]

COLUMNS = {  # name: (type, how the server says it as text, how Spark does, type in the target)
    "id": ("BIGINT UNSIGNED PRIMARY KEY", "id", "id", "decimal(20,0)"),
    "i": ("INT UNSIGNED NOT NULL", "i", "i", "bigint"),
    "t": ("TINYINT", "t", "t", "tinyint"),
    "d": ("DECIMAL(30,10)", "d", "d", "decimal(30,10)"),
    "wide": ("DECIMAL(60,20)", "wide", "wide", "string"),
    "f": ("FLOAT", "f + 0e0", "CAST(f AS DOUBLE)", "float"),
    "g": ("DOUBLE", "g", "g", "double"),
    "day": ("DATE NOT NULL", "day", "day", "date"),
    "at": (
        "DATETIME(6)",
        "DATE_FORMAT(at, '%Y-%m-%d %H:%i:%s.%f')",
        "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
        "timestamp_ntz",
    ),
    "ts": (
        "TIMESTAMP(3) NULL",
        "DATE_FORMAT(ts, '%Y-%m-%d %H:%i:%s.%f')",
        "date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
        "timestamp",
    ),
    "tm": ("TIME(6)", "tm", "tm", "string"),
    "y": ("YEAR", "y + 0", "y", "int"),
    "e": ("ENUM('a','ü')", "e", "e", "string"),
    "s": ("SET('x','y')", "s", "s", "string"),
    "b": ("BIT(64)", "b + 0", "b", "decimal(20,0)"),
    "raw": ("VARBINARY(20)", "HEX(raw)", "hex(raw)", "binary"),
    "p": ("POINT", "HEX(AsWKB(p))", "substring(hex(p), 9)", "binary"),
    "c": ("CHAR(8) CHARACTER SET latin1", "c", "c", "string"),
    "x`y z,": ("LONGTEXT", "`x``y z,`", "`x``y z,`", "string"),
}
ROWS = (
    r"""(18446744073709551615, 4294967295, -128, 12345678901234567890.0123456789,
    -1234567890123456789012345678901234567890.5, 0.1, -2.25, '2026-11-23', '9999-12-31 23:59:59.999999',
    '2026-11-23 01:02:03.456', '-838:59:59.000001', 2026, 'ü', 'x,y', 0xFFFFFFFFFFFFFFFF, x'00ff', POINT(1, 2), 'é',
    'a\'b \\ 😀')""",
    """(0, 0, NULL, NULL, NULL, NULL, NULL, '1000-01-01', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL)""",
    """(9, 9, 9, -0.1, 0.00000000000000000001, 1e30, 0.5, '2000-02-29', '1000-01-01 00:00:00', '1970-01-01 00:00:01',
    '00:00:00', 1901, 'a', '', 0, '', POINT(-1, 0.5), '', '')""",
)


@pytest.mark.slow
def test_values_are_those_of_the_server(server_version: str, mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb(server_version) as primary:
        primary.add_user()
        columns = ", ".join(f"`{name.replace('`', '``')}` {column[0]}" for name, column in COLUMNS.items())
        primary.sql("CREATE DATABASE shop CHARACTER SET utf8mb4", f"CREATE TABLE shop.kinds ({columns})")
        primary.sql("SET time_zone = '+00:00'", f"INSERT INTO shop.kinds VALUES {', '.join(ROWS[:2])}")
        mirror = mirrored(primary, "shop")
        mirror.run()
        primary.sql(
            "SET time_zone = '+00:00'",
            f"INSERT INTO shop.kinds VALUES {ROWS[2]}",
            "UPDATE shop.kinds SET t = 1, tm = '838:59:59', p = POINT(0, 0) WHERE id = 0",
        )
        mirror.run()
        asked = ", ".join(f"CAST({column[1]} AS CHAR CHARACTER SET utf8mb4)" for column in COLUMNS.values())
        server = primary.sql("SET time_zone = '+00:00'", f"SELECT {asked} FROM shop.kinds ORDER BY id")
        texts = [f"CAST({column[2]} AS STRING)" for column in COLUMNS.values()]
        table = f"spark.table('{mirror.lake}.kinds')"
        rows = mirror.workbench.run(f"result = [list(r) for r in {table}.sort('id').selectExpr(*{texts!r}).collect()]")
        assert [list(map(_number, row)) for row in rows] == [list(map(_number, row)) for row in server]
        kinds = mirror.workbench.run(f"result = [[f.dataType.simpleString(), f.nullable] for f in {table}.schema]")
        assert [kind for kind, _ in kinds] == [column[3] for column in COLUMNS.values()]
        assert [name for name, (_, nullable) in zip(COLUMNS, kinds, strict=True) if not nullable] == ["id", "i"]


def _number(text: str | None) -> object:
    """Values as they are; numbers with a fraction as numbers, which Spark and the server write in their own ways."""
    try:
        return text if text is None or "." not in text or len(text) > 25 else float(text)
    except ValueError:
        return text
