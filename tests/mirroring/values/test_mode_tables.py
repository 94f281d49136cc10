"""Tables in each mode, with a crash behind each batch: the server's SELECT is the judge, also of the past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.operations.test_page import BLOCKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

RULES = {
    "shop.soft": {"mode": "soft_delete"},
    "shop.versions": {"mode": "history"},
    "shop.log": {"mode": "append_log"},
}
TABLES = ("soft", "versions", "log")
Rows = list[list[str | None]]

FIRST = (
    "BEGIN; UPDATE {t} SET v = v + 1 WHERE id < 5; UPDATE {t} SET v = v * 10 WHERE id = 2; COMMIT",
    "BEGIN; DELETE FROM {t} WHERE id = 9; INSERT INTO {t} VALUES (100, 's', 1); DELETE FROM {t} WHERE id = 100; COMMIT",
    "UPDATE {t} SET id = 200 WHERE id = 7",
    "SET SESSION binlog_row_image = MINIMAL; UPDATE {t} SET v = -1 WHERE id < 4",
    "SET SESSION binlog_row_image = MINIMAL; DELETE FROM {t} WHERE id = 3; UPDATE {t} SET name = 'two' WHERE id = 2",
    "INSERT INTO {t} VALUES (9, 'back', 9)",
)
SECOND = (
    "INSERT INTO {t} VALUES (300, 'x', 1)",
    "ALTER TABLE {t} ADD COLUMN note TEXT, MODIFY v BIGINT",
    "UPDATE {t} SET note = 'n', v = 5000000000 WHERE id = 200",
    "TRUNCATE TABLE {t}",
    "INSERT INTO {t} VALUES (1, 'again', 1, NULL), (2, 'new', 2, 'y')",
    "ALTER TABLE {t} RENAME COLUMN name TO title",
    "DELETE FROM {t} WHERE id = 2",
)


class Server:
    """The server, and what each table held behind each step."""

    def __init__(self, primary: MariaDb) -> None:
        self.primary = primary
        self.held: dict[str, list[tuple[int, Rows]]] = {table: [] for table in TABLES}

    def rows(self, table: str) -> Rows:
        found = self.primary.sql(f"SELECT * FROM shop.{table} ORDER BY id")
        return [[None if value is None else str(value) for value in row] for row in found]

    def do(self, steps: tuple[str, ...]) -> None:
        for step in steps:
            for table in TABLES:
                self.primary.sql("USE shop", *step.format(t=table).split("; "))
                number = int(self.primary.gtid_binlog_pos().rpartition("-")[2])
                self.held[table].append((number, self.rows(table)))


def taken(mirror: Mirrored, table: str) -> list[dict[str, Any]]:
    """Rows of a target, by column; values as text."""
    rows = f"[r.asDict() for r in spark.table('{mirror.lake}.{table}').collect()]"
    code = f"result = [{{n: None if v is None else str(v) for n, v in r.items()}} for r in {rows}]"
    found: list[dict[str, Any]] = mirror.workbench.run(code)
    return found


def shown(rows: list[dict[str, Any]]) -> Rows:
    """The table's own columns, sorted by the first, which is the key."""
    own = ([value for name, value in row.items() if not name.startswith("_")] for row in rows)
    return sorted(own, key=lambda row: int(row[0] or 0))


def at(versions: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """The versions that are valid behind a transaction."""
    place = f"{number:020d}.999999999999"
    return [
        row
        for row in versions
        if row["_from_sequence"] <= place and (row["_to_sequence"] is None or row["_to_sequence"] > place)
    ]


def replayed(log: list[dict[str, Any]]) -> Rows:
    """The rows that a walk over the log leaves."""
    state: dict[str, dict[str, Any]] = {}
    order = {"update_preimage": 0}
    for row in sorted(log, key=lambda row: (row["_sequence"], order.get(row["_change_type"], 1))):
        absent = row["_absent"] or ""
        match row["_change_type"]:
            case "truncate" | "again":
                state = {}
            case "delete":
                del state[row["id"]]
            case "update_preimage":
                old = state.pop(row["id"])
            case "update_postimage":
                key = row["id"] or old["id"]
                state[key] = {name: old[name] if f"'{name}'" in absent else row[name] for name in row}
            case _:
                state[row["id"]] = row
    return shown([*state.values()])


def test_each_mode_holds_what_it_promises(server_version: str, mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop")
        for table in TABLES:
            primary.sql("USE shop", f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, v INT)")
            primary.sql("USE shop", f"INSERT INTO {table} SELECT seq, CONCAT('row ', seq), seq FROM seq_1_to_10")
        server = Server(primary)
        mirror = mirrored(primary, "shop", rules=RULES)
        mirror.break_off()
        mirror.run()
        versions = taken(mirror, "versions")
        assert {(row["_from_gtid"], row["_current"]) for row in versions} == {(primary.gtid_binlog_pos(), "True")}
        assert {row["_change_type"] for row in taken(mirror, "log")} == {"read"}
        for steps, columns in ((FIRST, 3), (SECOND, 4)):
            server.do(steps)
            mirror.break_off()
            mirror.run()
            assert mirror.states() == dict.fromkeys(TABLES, ("current", None))
            versions, soft, log = (taken(mirror, table) for table in ("versions", "soft", "log"))
            for number, rows in server.held["versions"]:
                lacking = [[*row, *[None] * (columns - len(row))] for row in rows]
                assert shown(at(versions, number)) == lacking, number
            assert shown([r for r in versions if r["_current"] == "True"]) == server.rows("versions")
            assert shown([r for r in soft if r["_deleted"] == "False"]) == server.rows("soft")
            assert replayed(log) == server.rows("log")
            gone = {row["id"]: row for row in soft if row["_deleted"] == "True"}
            if steps is FIRST:
                mirror.assert_native(*TABLES)
                assert shown([*gone.values()]) == [["3", "row 3", "-1"], ["7", "row 7", "7"], ["100", "s", "1"]]
                # id 2 in one transaction: 2, then 3, then 30; then MINIMAL images change v and the name
                values = [
                    (r["name"], r["v"]) for r in sorted(versions, key=lambda r: r["_from_sequence"]) if r["id"] == "2"
                ]
                assert values == [("row 2", "2"), ("row 2", "3"), ("row 2", "30"), ("row 2", "-1"), ("two", "-1")]
                assert len(log) == len(told_apart(log))
        assert set(gone) == {"2", "3", "4", "5", "6", "7", "8", "9", "10", "100", "200", "300"}
        assert gone["300"]["title"] == "x"
        assert all(row["_deleted_gtid"].startswith("0-") for row in gone.values())
        code = BLOCKS["history"].replace("lake.shop_orders", f"{mirror.lake}.versions")
        counts = mirror.workbench.run(f"{code}\nresult = [now.count(), then.count()]")
        assert counts == [1, 0]  # no version was valid at that midnight
        modes = {row["source_table"]: row["mode"] for row in taken(mirror, "mirror_control")}
        assert modes == {"soft": "soft_delete", "versions": "history", "log": "append_log"}
        refused = r"holds shop.soft in the mode soft_delete, and its rule says history"
        with pytest.raises(AssertionError, match=refused):
            mirror.run(rules={**RULES, "shop.soft": {"mode": "history"}})
        primary.sql("USE shop", *(f"INSERT INTO {table} VALUES (2, 'b', 2, NULL)" for table in TABLES))
        minimal = (f"UPDATE {table} SET v = 3 WHERE id = 1" for table in TABLES)  # whole rows may come beside them
        primary.sql("USE shop", "SET SESSION binlog_row_image = MINIMAL", *minimal)
        mirror.break_off(resnapshot="shop.*@monday")  # what there was stays when the rows are read again
        mirror.run(resnapshot="shop.*@monday")
        before, known = versions, {*gone, "1"}
        versions, soft, log = (taken(mirror, table) for table in ("versions", "soft", "log"))
        assert {row["id"] for row in soft} == known
        assert shown([r for r in soft if r["_deleted"] == "False"]) == server.rows("soft")
        assert shown([r for r in versions if r["_current"] == "True"]) == server.rows("versions")
        assert {row["_from_sequence"] for row in before} < {row["_from_sequence"] for row in versions}
        assert replayed(log) == server.rows("log")
        assert [row["_change_type"] for row in log].count("again") == 1


def told_apart(log: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """The rows of a log by what tells them apart."""
    return {(row["_sequence"], row["_change_type"]) for row in log}
