"""ALTERs that change rows without an event, or names among each other: targets end in what the server has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]


class Case(NamedTuple):
    """A table, its ALTER, and what comes after it. `{t}` is the table's name."""

    columns: str
    rows: str
    alter: str
    later: str
    past: str = ""
    """Columns of the version of row 9, which was deleted before the ALTER, and their values."""


KEYED = "id INT PRIMARY KEY, "
CASES = {
    "padded": Case(
        "id BINARY(4) PRIMARY KEY, v INT", "('a', 1), ('b', 2)", "MODIFY id BINARY(6)", "DELETE FROM {t} WHERE v = 1"
    ),
    "rounded": Case(
        KEYED + "v DOUBLE, f FLOAT",
        "(1, 1.005, 1.23456), (9, 2.25, -0.001)",
        "MODIFY v DOUBLE(10,2), MODIFY f FLOAT(7,2)",
        "UPDATE {t} SET v = 7.125 WHERE id = 2",
    ),
    "numbered": Case(
        "id INT NOT NULL UNIQUE, v INT",
        "(0, 1), (9, 2)",
        "MODIFY id INT AUTO_INCREMENT",
        "INSERT INTO {t} (v) VALUES (3)",
    ),
    "ignored": Case(KEYED + "v INT", "(1, 1), (2, 1), (9, 3)", "ADD UNIQUE KEY (v)", "INSERT INTO {t} VALUES (4, 4)"),
    "timed": Case(
        KEYED + "v TIME", "(1, '01:02:03'), (9, NULL)", "MODIFY v TIME(3)", "UPDATE {t} SET v = '00:00:01' WHERE id = 1"
    ),
    "bits": Case(KEYED + "v BIT(1)", "(1, 1), (9, 0)", "MODIFY v BIT(4)", "INSERT INTO {t} VALUES (3, 9)"),
    "narrow": Case(
        KEYED + "v INT", "(1, 70000000), (9, 3)", "MODIFY v MEDIUMINT", "INSERT INTO {t} VALUES (3, 9)", "v=3"
    ),
    "texts": Case(
        KEYED + "v DECIMAL(38,2)",
        "(1, 1.50), (9, -0.25)",
        "MODIFY v DECIMAL(40,2)",
        "INSERT INTO {t} VALUES (3, 9.99)",
        "v=-0.25",
    ),
    "swapped": Case(
        KEYED + "a INT, b VARCHAR(9)",
        "(1, 1, 'x'), (9, 2, 'y')",
        "RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "INSERT INTO {t} VALUES (3, 9, 'z')",
        "a=y, b=2",
    ),
    "shifted": Case(
        KEYED + "a INT, b VARCHAR(9), c DATE",
        "(1, 1, 'x', NULL), (9, 2, 'y', '2020-01-01')",
        "CHANGE a b INT, CHANGE b c VARCHAR(9), CHANGE c d DATE",
        "INSERT INTO {t} VALUES (3, 9, 'z', NULL)",
        "b=2, c=y, d=2020-01-01",
    ),
    "turned": Case(
        KEYED + "a INT, b INT, c INT",
        "(1, 1, 2, 3), (9, 4, 5, 6)",
        "RENAME COLUMN a TO b, RENAME COLUMN b TO c, RENAME COLUMN c TO a",
        "UPDATE {t} SET a = 0 WHERE id = 1",
        "a=6, b=4, c=5",
    ),
    "called": Case(
        KEYED + "a INT", "(1, 1), (9, 4)", "RENAME COLUMN a TO A", "UPDATE {t} SET A = 0 WHERE id = 1", "A=4"
    ),
    "added": Case(
        KEYED + "a INT, b INT",
        "(1, 1, 1), (9, 4, 5)",
        "RENAME COLUMN a TO c, ADD n INT NOT NULL DEFAULT 7",
        "INSERT INTO {t} VALUES (3, 3, 3, 3)",
        "c=4, b=5, n=None",
    ),
    "renewed": Case(
        KEYED + "a INT, b INT",
        "(1, 1, 1), (9, 4, 5)",
        "DROP a, ADD a INT NOT NULL DEFAULT 7",
        "INSERT INTO {t} VALUES (3, 3, 3)",
        "a=None, b=5",
    ),
    "taken": Case(
        KEYED + "a INT, b INT",
        "(1, 1, 1), (9, 4, 5)",
        "DROP a, RENAME COLUMN b TO a, ADD b INT DEFAULT 6",
        "INSERT INTO {t} VALUES (3, 3, 3)",
        "a=5, b=None",
    ),
}

IN_CURRENT = ("padded", "rounded", "numbered", "ignored", "timed", "bits", "texts", "swapped", "turned", "called")


def rows(mirror: Mirrored, table: str, where: str = "true") -> list[list[str | None]]:
    """Rows of a target as text, its columns in the server's order."""
    columns = [str(name) for (name, *_) in mirror.primary.sql(f"SHOW COLUMNS FROM shop.{table}")]
    code = f"""
found = spark.table('{mirror.lake}.{table}').where('{where}').select(*{columns!r})
# Python would show a FLOAT with the digits of a DOUBLE, and the server shows it with its own.
casts = [f"CAST(`{{n}}` AS {{'STRING' if t == 'float' else t}}) AS `{{n}}`" for n, t in found.dtypes]
shown = lambda v: bytes(v).decode() if isinstance(v, bytes | bytearray) else str(v)
result = [[None if v is None else shown(v) for v in r] for r in found.selectExpr(*casts).collect()]
"""
    return sorted(mirror.workbench.run(code), key=str)


def held(mirror: Mirrored, table: str) -> list[list[str | None]]:
    """Rows of the server as text."""
    shown = {"time": "CAST({} AS CHAR)"}
    columns = mirror.primary.sql(f"SHOW COLUMNS FROM shop.{table}")
    asked = [shown.get(str(kind).partition("(")[0], "{}").format(name) for (name, kind, *_) in columns]
    found = mirror.primary.sql(f"SELECT {', '.join(asked)} FROM shop.{table}")
    return sorted(([None if v is None else _text(v) for v in row] for row in found), key=str)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def test_alters_that_no_row_tells_end_in_what_the_server_has(mirrored: Callable[..., Mirrored]) -> None:
    tables = [*IN_CURRENT, *(f"{name}_h" for name, case in CASES.items() if case.past)]
    with MariaDb("10.11") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop")
        for name in tables:
            case = CASES[name.removesuffix("_h")]
            primary.sql(
                "USE shop",
                "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
                f"CREATE TABLE {name} ({case.columns})",
                f"INSERT INTO {name} VALUES {case.rows}",
            )
        mirror = mirrored(primary, "shop", rules={"shop.*_h": {"mode": "history"}})
        mirror.run()
        for name in tables:
            case = CASES[name.removesuffix("_h")]
            ignore = "IGNORE" if name.startswith("ignored") else ""
            primary.sql(
                "USE shop",
                "SET sql_mode = ''",
                *([f"DELETE FROM {name} WHERE id = 9"] if case.past else []),
                f"ALTER {ignore} TABLE {name} {case.alter}",
                case.later.format(t=name),
            )
        mirror.break_off()
        mirror.run()
        assert mirror.states() == dict.fromkeys(tables, ("current", None))
        wrong: dict[str, object] = {}
        for name in tables:
            history = name.endswith("_h")
            found, wanted = rows(mirror, name, "_current" if history else "true"), _shown(mirror, name)
            if found != wanted:
                wrong[name] = (found, wanted)
            past = CASES[name.removesuffix("_h")].past if history else ""
            if past and _past(mirror, name, past) != past:
                wrong[f"{name} before"] = (_past(mirror, name, past), past)
        assert not wrong


def _shown(mirror: Mirrored, name: str) -> list[list[str | None]]:
    found = held(mirror, name)
    if name.startswith("bits"):
        found = [[one, None if bits is None else str(ord(bits))] for one, bits in found]
    return sorted(found, key=str)


def _past(mirror: Mirrored, name: str, like: str) -> str:
    """The version of row 9 in the form of `like`."""
    columns = [part.partition("=")[0] for part in like.split(", ")]
    code = f"spark.table('{mirror.lake}.{name}').where('id = 9').select(*{columns!r}).collect()"
    (values,) = mirror.workbench.run(f"result = [[str(v) for v in r] for r in {code}]")
    return ", ".join(f"{column}={value}" for column, value in zip(columns, values, strict=True))
