"""Inserts whose row images leave columns out: targets have what the server gave these columns, or are set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.statements.test_statements import DEFAULTS, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

MORE = (
    "BINARY(3) DEFAULT 'ab'",
    "VARBINARY(8) NOT NULL",
    "INT DEFAULT (1 + 1)",
    "VARCHAR(36) DEFAULT UUID()",
    "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
    "DECIMAL(10,1) DEFAULT 1.25",
    "ENUM('a','b') DEFAULT 'B'",
    "VARCHAR(40) DEFAULT 'until a trigger sets it'",
    "INT DEFAULT 3 INVISIBLE",
)
TABLES = {
    "kept": "(id INT PRIMARY KEY, v INT NOT NULL DEFAULT 5, note TEXT DEFAULT 'none', b BLOB)",
    "gone": "(id INT PRIMARY KEY, v INT NOT NULL DEFAULT 5, note TEXT DEFAULT 'none', b BLOB)",
    "versions": "(id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL DEFAULT 5, w VARCHAR(9) DEFAULT 'w')",
    "ruled": "(id INT PRIMARY KEY, place CHAR(2) NOT NULL DEFAULT 'DE', email VARCHAR(20) DEFAULT 'a@b', x INT)",
    "at": "(id INT PRIMARY KEY, at TIMESTAMP NOT NULL DEFAULT '2026-01-01 00:00:00', v INT DEFAULT 1)",
    "smile": "(id INT PRIMARY KEY, t VARCHAR(9) DEFAULT '😀', v INT)",  # the catalog shows a ?
    "computed": "(id INT PRIMARY KEY, v INT NOT NULL DEFAULT 5, twice INT AS (v * 2) STORED)",
    "free": "(id INT PRIMARY KEY, v INT NOT NULL DEFAULT 5, twice INT AS (v * 2) STORED)",
}
RULES = {
    "shop.gone": {"mode": "soft_delete"},
    "shop.versions": {"mode": "history"},
    "shop.ruled": {"where": "place = 'DE'", "hash": ["email"], "rename": {"x": "y"}},
}
UNLOGGED = {"10.5": {"ENUM('a','b') NOT NULL": "a"}}
"""Columns in which this server puts '' instead of their default, in some rows of an INSERT IGNORE into a table with a
trigger, while the rows' images leave them out; and the default, which the target then has."""
FREE = {"shop.free": {"leaveOut": ["twice"]}}
NOW = {"gone": "SELECT id, v, note, b FROM {} WHERE NOT _deleted", "versions": "SELECT id, v, w FROM {} WHERE _current"}


@pytest.mark.quick_on("newest")
def test_inserts_that_name_a_part_of_the_columns(
    server_version: str, mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    columns = (*(declared.replace(" 😀", "") for declared in DEFAULTS), *MORE)
    last = MORE.index("VARCHAR(40) DEFAULT 'until a trigger sets it'") + len(DEFAULTS)
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    key.chmod(0o600)
    with MariaDb(server_version, "--binlog-row-image=MINIMAL") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop CHARACTER SET utf8mb4")
        listed = ", ".join(f"c{number} {declared}" for number, declared in enumerate(columns))
        primary.sql(
            "USE shop",
            f"CREATE TABLE kinds (id INT AUTO_INCREMENT PRIMARY KEY, {listed})",
            f"CREATE TRIGGER of_kinds BEFORE INSERT ON kinds FOR EACH ROW SET NEW.c{last} = CONCAT('set ', NEW.c2)",
            *(f"CREATE TABLE {name} {body}" for name, body in TABLES.items() if name not in ("computed", "free")),
        )
        mirror = mirrored(primary, "shop", rules=RULES, hashKeyFile=str(key))
        mirror.run()
        primary.sql(
            "USE shop",
            "INSERT IGNORE INTO kinds () VALUES ()",
            "INSERT IGNORE INTO kinds (c3) SELECT seq FROM seq_1_to_3",
            "REPLACE INTO kept (id) VALUES (1), (2)",
            "INSERT INTO kept (id, v) VALUES (3, 3), (4, 4)",
            "INSERT INTO gone (id, v) VALUES (3, 3)",
            "INSERT INTO gone (id) VALUES (4)",
            "DELETE FROM gone WHERE id = 3",
            "INSERT INTO versions (w) VALUES ('a'), (NULL)",
            "UPDATE versions SET w = 'b' WHERE id = 1",
            "INSERT INTO ruled (id) VALUES (1)",
            "INSERT INTO ruled (id, place) VALUES (2, 'FR')",
            "INSERT INTO at (id) VALUES (1)",
            "INSERT INTO smile (id, v) VALUES (1, 1)",
            # The default at the place of the row counts.
            "ALTER TABLE kept ALTER v SET DEFAULT 6, ALTER COLUMN note DROP DEFAULT",
            "SET SESSION sql_mode = ''",  # else 10.5 refuses a row without the column, and IGNORE does not help
            "INSERT INTO kept (id) VALUES (5)",
            "ALTER TABLE kept MODIFY v INT NOT NULL, ADD more VARCHAR(9) DEFAULT 'it''s', RENAME COLUMN b TO c",
            "INSERT IGNORE INTO kept (id) VALUES (6)",
            "SET SESSION binlog_row_image = NOBLOB",
            "INSERT INTO kept (id, v) VALUES (7, 7)",
            "INSERT INTO gone (id, v) VALUES (7, 7)",
        )
        mirror.break_off()
        mirror.run()
        states = mirror.states()
        assert {name: state for name, (state, _) in states.items()} == {
            **dict.fromkeys(("kinds", "kept", "gone", "versions", "ruled"), "current"),
            "at": "failed",
            "smile": "failed",
        }
        assert "leaves out the column t of shop.smile" in str(states["smile"][1])
        assert "leaves out the column at of shop.at" in str(states["at"][1])
        assert "binlog_row_image=FULL" in str(states["at"][1])
        _assert_kinds(mirror, columns, unlogged=UNLOGGED.get(server_version, {}))
        mirror.assert_equal("kept")
        for table, query in NOW.items():
            rows = mirror.workbench.run(
                f"result = [[None if v is None else str(v) for v in r] for r in "
                f"spark.sql({query.format(f'{mirror.lake}.{table}')!r}).collect()]"
            )
            assert sorted(rows, key=str) == sorted(mirror.source(table), key=str), table
        ruled = mirror.target("ruled")
        assert [(row[0], row[1], row[3]) for row in ruled] == [("1", "DE", None)]
        assert len(str(ruled[0][2])) == 64  # the hash of the default
        primary.sql("SET GLOBAL binlog_row_image = FULL")
        primary.sql("INSERT INTO shop.at (id) VALUES (2)")
        mirror.run(resnapshot="shop.at@full")
        mirror.assert_equal("at")


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_changes_whose_images_lack_columns_are_merged_by_tasks(image: str, mirrored: Callable[..., Mirrored]) -> None:
    columns = (
        "(id INT PRIMARY KEY, v INT NOT NULL DEFAULT 5, note TEXT DEFAULT 'none', b BLOB, d DECIMAL(9,2) DEFAULT 1.5)"
    )
    with MariaDb("10.11", f"--binlog-row-image={image}") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop CHARACTER SET utf8mb4", "USE shop", f"CREATE TABLE t {columns}")
        primary.sql("USE shop", "INSERT INTO t (id, b) SELECT seq, REPEAT('b', seq) FROM seq_1_to_30")
        mirror = mirrored(primary, "shop")
        mirror.run()
        for statements in (
            ("UPDATE t SET v = id WHERE id < 5", "UPDATE t SET note = NULL WHERE id = 4"),
            (
                "INSERT INTO t (id) VALUES (40), (41)",
                "INSERT INTO t (id, note) VALUES (42, NULL)",
                "UPDATE t SET d = d + 1 WHERE id IN (3, 40)",
                "DELETE FROM t WHERE id IN (2, 41)",
                "UPDATE t SET b = 'other' WHERE id = 7",
                "REPLACE INTO t (id, v) VALUES (50, 9)",
            ),
            ("DELETE FROM t WHERE id = 40", "INSERT INTO t (id, v) VALUES (40, 0)", "UPDATE t SET note = 'x'"),
        ):
            primary.sql("USE shop", *statements)
            mirror.break_off()
            mirror.run()
            mirror.assert_equal("t")
            assert mirror.workbench.run(_WRITER.format(lake=mirror.lake)) == ["native"]
        primary.sql("UPDATE shop.t SET id = 60 WHERE id = 7")  # an image that lacks columns under another key
        mirror.run()
        assert "changed its key in transaction" in str(mirror.states()["t"][1])


_WRITER = """
result = [row["writer"] for row in spark.table("{lake}.mirror_control").collect()]
"""


def _assert_kinds(mirror: Mirrored, columns: tuple[str, ...], unlogged: Mapping[str, str]) -> None:
    asked = [shown(f"c{number}", declared) for number, declared in enumerate(columns)]
    server = mirror.primary.sql(f"SELECT id, {', '.join(ours for ours, _ in asked)} FROM shop.kinds ORDER BY id")
    rows = mirror.workbench.run(
        f"result = [[None if v is None else str(v) for v in r] for r in spark.table('{mirror.lake}.kinds')"
        f".sort('id').selectExpr('id', *{[theirs for _, theirs in asked]!r}).collect()]"
    )
    found = [[None if value is None else str(value) for value in row] for row in server]
    assert len(found) == 4
    for number, declared in enumerate(columns, 1):
        if declared in unlogged:
            assert {row[number] for row in rows} == {unlogged[declared]}
            continue
        assert [row[number] for row in rows] == [row[number] for row in found], declared


def test_generated_columns_that_images_leave_out_set_the_table_aside(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:  # 11.8.9 has them in the images of inserts alone
        primary.add_user()
        primary.sql("CREATE DATABASE shop")
        for name in ("computed", "free"):
            primary.sql("USE shop", f"CREATE TABLE {name} {TABLES[name]}", f"INSERT INTO {name} (id) VALUES (1)")
        mirror = mirrored(primary, "shop", rules=FREE)
        mirror.run()
        for name in ("computed", "free"):
            primary.sql(f"INSERT INTO shop.{name} (id) VALUES (2)", f"UPDATE shop.{name} SET v = 9 WHERE id = 1")
        mirror.run()
        states = mirror.states()
        assert states["free"] == ("current", None)
        assert mirror.target("free") == [["1", "9"], ["2", "5"]]
        assert states["computed"][0] == "failed"
        error = str(states["computed"][1])
        assert 'shop.computed has generated columns ("twice")' in error
        assert 'the rule {"shop.computed": {"leaveOut": ["twice"]}} and resnapshot="shop.computed@' in error
        ruled = FREE | {"shop.computed": {"leaveOut": ["twice"]}}
        mirror.run(rules=ruled, resnapshot="shop.computed@monday")  # just what the error says
        assert mirror.states()["computed"] == ("current", None)
        assert [row[0] for row in mirror.target("computed")] == ["1", "2"]


def test_a_row_that_comes_to_fit_a_filter_has_what_its_second_image_leaves_out(
    mirrored: Callable[..., Mirrored],
) -> None:
    with MariaDb("11.8", "--binlog-row-image=FULL_NODUP") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, place CHAR(2), v INT)")
        primary.sql("INSERT INTO shop.t VALUES (1, 'FR', 1), (2, 'DE', 2)")
        mirror = mirrored(primary, "shop", rules={"shop.t": {"where": "place = 'DE'"}})
        mirror.run()
        primary.sql("UPDATE shop.t SET place = 'DE' WHERE id = 1", "UPDATE shop.t SET v = 3 WHERE id = 2")
        mirror.run()
        assert mirror.states() == {"t": ("current", None)}
        mirror.assert_equal("t")


@pytest.mark.parametrize(("version", "image"), [("11.8", "FULL"), ("10.11", "FULL"), ("10.11", "MINIMAL")])
def test_a_generated_column_is_what_the_server_has_or_a_reason(
    version: str, image: str, mirrored: Callable[..., Mirrored]
) -> None:
    tables = [f"{kind}_plain_{what}" for kind in ("virtual", "stored") for what in CHANGES] + ["stored_keyed_moves"]
    with MariaDb(version) as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop")
        for name in tables:
            kind, key, _ = name.split("_")
            made = f"CREATE TABLE {name} (id INT{' PRIMARY KEY' * (key == 'keyed')}, g INT AS (id * 2) {kind}, v INT)"
            primary.sql("USE shop", made, f"INSERT INTO {name} (id, v) VALUES (1, 1), (2, 2)")
        mirror = mirrored(primary, "shop", snapshotUnkeyed="whole")
        if image != "FULL":  # refused at the start, where it is the setting of the server
            primary.sql(f"SET GLOBAL binlog_row_image = {image}")
            refused = f"PrerequisiteError: .*g is a generated column, which row images leave out while .* is {image}"
            with pytest.raises(AssertionError, match=refused):
                mirror.run()
            primary.sql("SET GLOBAL binlog_row_image = FULL")
        mirror.run()
        _assert_true_or_told(mirror, tables)
        primary.sql(f"SET GLOBAL binlog_row_image = {image}")
        for name in tables:
            primary.sql("USE shop", CHANGES[name.split("_")[2]].format(name))
        mirror.run()
        _assert_true_or_told(mirror, tables)


CHANGES = {
    "rest": "DO '{}'",
    "moves": "UPDATE {} SET id = 7 WHERE id = 2",
    "goes": "DELETE FROM {} WHERE id = 2",
}


def _assert_true_or_told(mirror: Mirrored, tables: list[str]) -> None:
    wrong = {}
    for name, (state, error) in mirror.states().items():
        equal = state == "current" and mirror.target(name) == mirror.source(name)
        if not equal and not (state == "failed" and "column" in str(error) and "g" in str(error)):
            wrong[name] = (state, error, mirror.target(name))
    assert not wrong
    assert len(mirror.states()) == len(tables)
