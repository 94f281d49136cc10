"""System-versioned tables in each mode: targets hold the rows of now, and closed versions of the stream are no rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.integration.snapshot.tables.test_versioned import TABLES, change
from tests.mirroring.operations.test_audit import AUDIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

MODES = {"soft": "soft_delete", "versions": "history", "log": "append_log"}
LATER = (
    "SET SESSION system_versioning_alter_history = KEEP; ALTER TABLE s.{t} ADD COLUMN w INT DEFAULT 7",
    "UPDATE s.{t} SET w = 1 WHERE id % 7 = 0",
    "DELETE HISTORY FROM s.{t}",
    "UPDATE s.{t} SET v = 5 WHERE id % 11 = 0",
)
UNVERSIONED = (
    "ALTER TABLE s.{t} DROP SYSTEM VERSIONING",
    "UPDATE s.{t} SET v = 6 WHERE id % 3 = 0",
    "ALTER TABLE s.{t} ADD SYSTEM VERSIONING",
    "UPDATE s.{t} SET v = v + 1 WHERE id % 4 = 0",
    "DELETE FROM s.{t} WHERE id % 5 = 0",
)
HOLDS = {
    "soft": "WHERE NOT _deleted",
    "versions": "WHERE _current",
}


@pytest.mark.quick_on("newest")
def test_targets_hold_the_rows_of_now(server_version: str, mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE s")
        tables = {**{name: definition for name, (definition, _, _) in TABLES.items()}}
        tables |= dict.fromkeys(MODES, TABLES["implicit"][0])
        for table, definition in tables.items():
            primary.sql(
                f"CREATE TABLE s.{table} ({definition}",
                f"INSERT INTO s.{table} (id, v) SELECT 99 + seq, seq FROM mysql.seq_1_to_300",
                f"UPDATE s.{table} SET v = 0 WHERE id % 3 = 0",
                f"DELETE FROM s.{table} WHERE id % 5 = 0",
            )
        rules = {f"s.{table}": {"mode": mode} for table, mode in MODES.items()}
        mirror = mirrored(primary, "s", rules=rules)
        mirror.run()
        assert_equal(mirror, tables)
        chance = random.Random(3)
        for step in (None, LATER, UNVERSIONED):
            for table in tables:
                change(primary, chance, table, 30)
                for statement in step or ():
                    if step is UNVERSIONED and table in ("own_names", "parts"):
                        continue
                    primary.sql(*statement.format(t=table).split("; "))
                change(primary, chance, table, 10)
            mirror.run()
            assert_equal(mirror, tables)
        closed = f"SELECT count(*) FROM {mirror.lake}.log WHERE _history AND _change_type = 'insert'"
        assert mirror.workbench.run(f"result = spark.sql({closed!r}).first()[0]") > 0


def assert_equal(mirror: Mirrored, tables: dict[str, str]) -> None:
    states = mirror.states()
    for table in tables:
        assert states[table] == ("current", None)
        if table == "log":
            continue
        query = f"SELECT CAST(id AS STRING), v FROM {mirror.lake}.{table} {HOLDS.get(table, '')}"
        held = mirror.workbench.run(f"result = [list(r) for r in spark.sql({query!r}).collect()]")
        wanted = [[str(key), v] for key, v in mirror.primary.sql(f"SELECT id, v FROM s.{table}")]
        assert sorted(held) == sorted(wanted), table
    server: dict[str, Any] = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
    found, left, _ = mirror.workbench.run(AUDIT.format(control=f"{mirror.lake}.mirror_control", more=server))
    assert [name for name, (_, counts, _) in found.items() if counts] == []
    assert set(found) | set(left) == {f"s.{table}" for table in tables}
    assert set(left) == {"s.log"}
