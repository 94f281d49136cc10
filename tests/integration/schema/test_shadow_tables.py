"""What gh-ost and pt-online-schema-change do to a table under a query: no row comes twice, new columns at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.schema.schema_stream import Stream, changing_tables, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tests.integration.schema.schema_stream import Tables

pytestmark = pytest.mark.server


@pytest.fixture(params=["NO_LOG", "FULL"])
def tables(request: pytest.FixtureRequest, any_server: MariaDb) -> Iterator[Tables]:
    with changing_tables(any_server, request.param) as made:
        yield made


def ghost(t: Tables) -> None:
    """What gh-ost executes, with its cut-over by two renames in one statement."""
    t.run(
        "CREATE TABLE _t_ghc (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64), value VARCHAR(4096))",
        "CREATE TABLE _t_gho LIKE t",
        "ALTER TABLE _t_gho ADD COLUMN b INT NOT NULL DEFAULT 7 AFTER id",
        "INSERT IGNORE INTO _t_gho (id, a) SELECT id, a FROM t LOCK IN SHARE MODE",
        "INSERT INTO _t_ghc (hint, value) VALUES ('state', 'GhostTableMigrated')",
    )
    t.insert("t", 2, a=20)
    t.run(
        "REPLACE INTO _t_gho (id, a) VALUES (2, 20)",
        "RENAME TABLE t TO _t_20260101000000_del, _t_gho TO t",
        "DROP TABLE _t_20260101000000_del, _t_ghc",
    )


def online_schema_change(t: Tables) -> None:
    """What pt-online-schema-change executes: the copy is filled by triggers, in the transactions of the table."""
    copy = "REPLACE INTO _t_new (id, a) VALUES (NEW.id, NEW.a)"
    t.run(
        "CREATE TABLE _t_new (id INT PRIMARY KEY, a INT)",
        "ALTER TABLE _t_new ADD COLUMN b INT NOT NULL DEFAULT 7 AFTER id",
        f"CREATE TRIGGER pt_osc_t_ins AFTER INSERT ON t FOR EACH ROW {copy}",
        "INSERT LOW_PRIORITY IGNORE INTO _t_new (id, a) SELECT id, a FROM t LOCK IN SHARE MODE",
    )
    t.insert("t", 2, a=20)
    t.run("RENAME TABLE t TO _t_old, _t_new TO t", "DROP TABLE IF EXISTS _t_old", "DROP TRIGGER IF EXISTS pt_osc_t_ins")


@pytest.mark.parametrize("change", [ghost, online_schema_change])
@pytest.mark.parametrize("pattern", [True, False])
def test_tools_that_copy_a_table_give_no_row_twice(
    tables: Tables, tmp_path: Path, change: Callable[[Tables], None], *, pattern: bool
) -> None:
    tables.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    tables.start = tables.server.gtid_binlog_pos()
    selected = {"tables": f"{tables.database}.*"} if pattern else {"table": f"{tables.database}.t"}
    stream = Stream(tables.server, tmp_path, tables.start, **selected)
    stream.begin()
    tables.insert("t", 1, a=10)
    change(tables)
    stream.read(tables.insert("t", 3, a=30))
    stream.stop()
    expected = [row for _, row in tables.seen.values()]
    assert expected[-1] == {"id": 3, "b": 7, "a": 30}
    if not pattern:
        expected[-1].pop("b")
    assert rows(stream) == expected
    assert {name for name, _ in stream.seen.values()} == {"t"}
