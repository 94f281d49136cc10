"""Tables without a key in the mode current: after each batch the target has each row as often as the server has it."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.operations.test_audit import AUDIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1200)]

KEYLESS = {"snapshotUnkeyed": "whole"}
TABLES = {
    "plain": "(n INT, t VARCHAR(20), x DOUBLE, f FLOAT, b VARBINARY(4), at DATETIME(3), `a}b{c` DECIMAL(5,2) NOT NULL)",
    "floats": "(f FLOAT PRIMARY KEY, n INT)",
    "isam": "(n INT, t TEXT) ENGINE=MyISAM",
    "keyed": "(id INT PRIMARY KEY, v INT)",
    "coded": "(code CHAR(3) NOT NULL UNIQUE, v INT)",
}
SELECTED = {
    "plain": ("n, t, x * 1e0, f * 1e0, HEX(b), SECOND(at), `a}b{c`", "n, t, x, f, hex(b), second(at), `a}b{c`"),
    "floats": ("f * 1e0, n", "f, n"),
    "isam": ("n, t", "n, t"),
    "keyed": ("id, v", "id, v"),
    "coded": ("code, v", "code, v"),
}
WRITTEN = (
    "INSERT INTO plain VALUES {values}",
    "INSERT INTO plain SELECT * FROM plain WHERE n = {n} LIMIT 3",
    "DELETE FROM plain WHERE n = {n} LIMIT 1",
    "DELETE FROM plain WHERE n <=> {null} LIMIT 2",
    "UPDATE plain SET n = {n} WHERE n = {m}",
    "UPDATE plain SET x = -x, f = -f WHERE n = {n} LIMIT 4",
    "UPDATE plain SET t = NULL, b = NULL WHERE n = {n} LIMIT 1",
    "UPDATE plain SET n = NULL WHERE n = {n} LIMIT 1",
    "UPDATE floats SET n = {n} WHERE n < {m}",
    "REPLACE INTO floats VALUES ({n} / 3, {m})",
    "DELETE FROM floats WHERE n = {n} LIMIT 1",
    "INSERT INTO isam VALUES ({n}, NULL), ({n}, NULL), ({m}, 'x ')",
    "DELETE FROM isam WHERE n = {n} LIMIT 1",
    "REPLACE INTO keyed VALUES ({n}, {m})",
)


def write(primary: MariaDb, seed: int, count: int) -> None:
    """Transactions of some statements each."""
    chosen = random.Random(seed)
    steps = ["USE shop"]
    for _ in range(count):
        rows = [
            f"({chosen.randrange(4)}, {chosen.choice(('NULL', repr('t'), repr('t '), repr('T')))}, "
            f"{chosen.choice(('0e0', '-0e0', 'NULL', '0.1'))}, {chosen.choice(('-0e0', '0e0', '0.1', 'NULL'))}, "
            f"{chosen.choice(('NULL', repr(''), '0x00', '0xff'))}, NULL, 1.5)"
            for _ in range(3)
        ]
        told = {"n": chosen.randrange(4), "m": chosen.randrange(4), "null": chosen.choice((1, "NULL"))}
        several = [chosen.choice(WRITTEN).format(values=", ".join(rows), **told) for _ in range(3)]
        steps += ["BEGIN", *several, "COMMIT"]
    primary.sql(*steps)


def held(mirror: Mirrored, table: str) -> tuple[Counter[Any], Counter[Any]]:
    """Rows of the server and of the target, each as often as it is there."""
    theirs, ours = SELECTED[table]
    server = mirror.primary.sql(f"SELECT {theirs} FROM shop.{table}")
    rows = f"spark.table('{mirror.lake}.{table}').selectExpr(*{_parts(ours)!r}).collect()"
    target = mirror.workbench.run(f"result = [[None if v is None else str(v) for v in r] for r in {rows}]")
    return tuple(Counter(tuple(_value(value) for value in row) for row in rows) for rows in (server, target))  # type: ignore[return-value]


def _parts(columns: str) -> list[str]:
    return [f"CAST({part} AS STRING)" for part in columns.split(", ")]


def _value(value: Any) -> Any:
    """Values of both sides in one text; floats with the sign of their zero."""
    try:
        return value if value is None else f"{float(value):.5g}"
    except ValueError:
        return str(value)


def assert_held(mirror: Mirrored) -> None:
    for table in TABLES:
        server, target = held(mirror, table)
        assert target == server, table


@pytest.mark.quick_on("newest")
def test_each_row_is_there_as_often_as_on_the_server(server_version: str, mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb(server_version) as primary:
        primary.add_user()
        primary.sql(
            "CREATE DATABASE shop", "USE shop", *(f"CREATE TABLE {name} {body}" for name, body in TABLES.items())
        )
        primary.sql(
            "USE shop",
            "INSERT INTO plain SELECT seq % 4, NULLIF('t', ELT(seq % 3, 't')), -0e0, seq % 2 / 10, NULL, "
            "'2026-11-23 01:02:03.5', 0 FROM seq_1_to_300",
            "INSERT INTO floats SELECT seq / 3, seq % 4 FROM seq_1_to_30",
            "INSERT INTO isam SELECT seq % 4, NULL FROM seq_1_to_100",
            "INSERT INTO keyed SELECT seq, 0 FROM seq_1_to_10",
            "INSERT INTO coded VALUES ('a', 1), ('b', NULL)",
        )
        mirror = mirrored(primary, "shop", **KEYLESS)
        mirror.break_off()
        mirror.run()
        assert_held(mirror)
        for seed in range(3):
            write(primary, seed, 30)
            mirror.break_off()
            # What others commit into the target meanwhile does not hide that the batch is there.
            mirror.workbench.run(f"spark.sql(\"ALTER TABLE {mirror.lake}.plain SET TBLPROPERTIES ('of' = 'others')\")")
            mirror.run()
            assert_held(mirror)
            mirror.assert_native(*TABLES)
        assert mirror.states() == dict.fromkeys(TABLES, ("current", None))
        primary.sql(
            "USE shop",
            "INSERT INTO isam VALUES (8, 'gone')",
            "TRUNCATE TABLE isam",
            "INSERT INTO isam VALUES (9, 'a'), (9, 'a')",
            "ALTER TABLE plain ADD COLUMN w INT DEFAULT 3 FIRST",
            "DELETE FROM plain WHERE n = 2 LIMIT 5",
            "SET SESSION binlog_row_image = MINIMAL",
            "UPDATE plain SET t = 'least' WHERE n = 1 LIMIT 9",
            "INSERT INTO coded VALUES ('c', 0)",
            "ALTER TABLE coded DROP INDEX code",
            "INSERT INTO coded VALUES ('a', 1), ('a', 1), ('c', 0)",
        )
        mirror.break_off()
        mirror.run()
        assert_held(mirror)
        assert mirror.states() == dict.fromkeys(TABLES, ("current", None))
        server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
        audited = AUDIT.format(control=f"{mirror.lake}.mirror_control", more=server)
        found, left, _ = mirror.workbench.run(audited)
        assert left == {}
        assert {name: counts for name, (_, counts, _) in found.items()} == {f"shop.{name}": {} for name in TABLES}
        # Rows that something else takes away are missed by the audit, and by the change that needs one of them.
        mirror.workbench.run(f"spark.sql(\"DELETE FROM {mirror.lake}.isam WHERE t = 'a'\")")
        found, _, _ = mirror.workbench.run(audited)
        assert found["shop.isam"][1] == {"missing": 2}
        primary.sql("DELETE FROM shop.isam WHERE t = 'a' LIMIT 1", "INSERT INTO shop.keyed VALUES (1000, 1)")
        mirror.run()
        for _ in range(3):
            if mirror.states()["isam"][0] == "current":
                break
            assert "lacks a row that was deleted or updated" in str(mirror.states()["isam"][1])
            mirror.run()
        assert mirror.states() == dict.fromkeys(TABLES, ("current", None))
        assert_held(mirror)


def test_without_the_option_they_are_refused_or_set_aside_and_others_go_on(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("10.11") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "USE shop", "CREATE TABLE keyed (id INT PRIMARY KEY, v INT)")
        primary.sql("CREATE TABLE shop.plain (n INT)", "INSERT INTO shop.plain VALUES (1), (1)")
        mirror = mirrored(primary, "shop")
        with pytest.raises(AssertionError, match=r"PrerequisiteError: .*shop\.plain.* no primary key"):
            mirror.run(tables="shop.plain")
        mirror.run()
        state, error = mirror.states()["plain"]
        assert state == "failed"
        assert "shop.plain cannot be read: it has no primary key" in str(error)
        primary.sql("DROP TABLE shop.plain")
        mirror.run()
        primary.sql("USE shop", "CREATE TABLE plain (n INT)", "INSERT INTO plain VALUES (1), (1)")
        primary.sql("INSERT INTO shop.keyed VALUES (1, 1)")
        mirror.run()
        mirror.assert_equal("keyed")
        state, error = mirror.states()["plain"]
        assert state == "failed"
        assert "shop.plain cannot be read: it has no primary key" in str(error)
        mirror.run(**KEYLESS, resnapshot="shop.plain@counted")
        mirror.assert_equal("keyed", "plain")


def test_a_mode_that_needs_a_key_suspends_a_table_without_one(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("10.11") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "USE shop", "CREATE TABLE keyed (id INT PRIMARY KEY, v INT)")
        primary.sql("CREATE TABLE shop.plain (n INT)", "INSERT INTO shop.plain VALUES (1), (1)")
        primary.sql("INSERT INTO shop.keyed VALUES (1, 1)")
        mirror = mirrored(primary, "shop", **KEYLESS, rules={"shop.plain": {"mode": "history"}})
        mirror.run()
        mirror.assert_equal("keyed")
        state, error = mirror.states()["plain"]
        assert state == "failed"
        assert "shop.plain has no primary key" in str(error)
