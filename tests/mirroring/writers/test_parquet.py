"""format="parquet": logs in folders, broken off at every step; a walk over a log gives the server's SELECT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.values.test_mode_tables import replayed, told_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

TABLES = ("a", "b")
# The n-th rename of a run does not happen: all before it did.
BREAK = """
from streaming_source.mirroring.writers import parquet
whole, calls = parquet.BatchFolders._rename, []
def broken(self, old, new):
    calls.append(str(new))
    if len(calls) == {number}:
        raise RuntimeError("broken off before " + str(new))
    whole(self, old, new)
parquet.BatchFolders._rename = broken
"""
MEND = "parquet.BatchFolders._rename = whole"
STEPS = (
    (),
    (
        "UPDATE a SET v = v + 1 WHERE id < 5",
        "BEGIN; DELETE FROM b WHERE id = 9; INSERT INTO b VALUES (100, 's', 1); COMMIT",
        "SET SESSION binlog_row_image = MINIMAL; UPDATE a SET id = 200 WHERE id = 7; UPDATE a SET v = -1 WHERE id < 4",
    ),
    (
        "INSERT INTO a VALUES (300, 'x', 1)",
        "ALTER TABLE a ADD COLUMN note TEXT COMMENT 'a note', MODIFY v BIGINT",
        "UPDATE a SET note = 'n', v = 5000000000 WHERE id = 200",
        "INSERT INTO b VALUES (9, 'back', 9)",
        "TRUNCATE TABLE a",
        "INSERT INTO a VALUES (1, 'again', 1, NULL), (2, 'new', 2, 'y')",
        "ALTER TABLE a RENAME COLUMN name TO title",
        "DELETE FROM a WHERE id = 2",
        "INSERT INTO a VALUES (3, 't', 3, 'z')",
    ),
)


@pytest.fixture
def primary(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as running:
        running.add_user()
        running.sql("CREATE DATABASE shop")
        for table in TABLES:
            running.sql(
                "USE shop",
                f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL COMMENT 'its name', v INT)",
                f"INSERT INTO {table} SELECT seq, CONCAT('row ', seq), seq FROM seq_1_to_10",
            )
        yield running


@pytest.fixture
def log(primary: MariaDb, tmp_path: Path, mirrored: Callable[..., Mirrored]) -> Mirrored:
    rules = {"shop.*": {"mode": "append_log"}}
    return mirrored(primary, "shop", into=f"{tmp_path}/lake/{{database}}/{{table}}", format="parquet", rules=rules)


def taken(mirror: Mirrored, table: str) -> list[dict[str, Any]]:
    """Rows of a log at the position of the control table, values as text, by column; no column that is gone."""
    code = f"""
from streaming_source import mirror_tables
rows = mirror_tables(spark, into={mirror.arguments["into"]!r})["shop.{table}"]
result = [{{n: None if v is None else str(v) for n, v in r.asDict().items()}} for r in rows.collect()]
"""
    found: list[dict[str, Any]] = mirror.workbench.run(code)
    return found


def states(mirror: Mirrored) -> dict[str, str]:
    code = "from streaming_source import mirror_status\n"
    code += f"result = [list(r) for r in mirror_status(spark, into={mirror.arguments['into']!r})"
    return dict(mirror.workbench.run(f"{code}.select('source_table', 'state').collect()]"))


def under_new_names(row: dict[str, Any]) -> dict[str, Any]:
    """Move what was logged before a column was renamed to where it would stand now."""
    if "title" not in row:
        return row
    return {**{name: value for name, value in row.items() if name != "name"}, "title": row["title"] or row["name"]}


def of_server(mirror: Mirrored, table: str, log: list[dict[str, Any]]) -> list[list[str | None]]:
    """The server's rows with the columns of the log, in its order."""
    names = [row[0] for row in mirror.primary.sql(f"SHOW COLUMNS FROM shop.{table}")]
    rows = [dict(zip(names, row, strict=True)) for row in mirror.source(table)]
    own = [name for name in log[0] if not name.startswith("_")]
    return sorted([[row.get(name) for name in own] for row in rows], key=lambda row: int(row[0] or 0))


def assert_equal(mirror: Mirrored) -> None:
    assert states(mirror) == dict.fromkeys(TABLES, "current")
    for table in TABLES:
        log = [under_new_names(row) for row in taken(mirror, table)]
        assert replayed(log) == of_server(mirror, table, log), table
        assert len(log) == len(told_apart(log)), table


def broken_off(mirror: Mirrored, number: int) -> bool:
    """Break a run off before one of its renames; tell whether it had so many."""
    try:
        mirror.run(before=BREAK.format(number=number))
    except AssertionError as error:
        if "broken off before" not in str(error):
            raise
        return True
    finally:
        mirror.workbench.run(MEND)
    return False


def test_a_log_in_folders_is_whole_whatever_breaks_off(primary: MariaDb, log: Mirrored) -> None:
    for step in STEPS:
        for line in step:
            primary.sql("USE shop", *line.split("; "))
        renames = 1
        while broken_off(log, renames):
            renames += 1
        assert renames > 2
        log.run()  # a run that has a batch of the one before ends behind it
        assert_equal(log)
    schema = f"mirror_tables(spark, into={log.arguments['into']!r})['shop.a'].schema"
    told = f"[[f.name, f.dataType.simpleString(), f.metadata.get('comment')] for f in {schema} if f.name[0] != '_']"
    columns = [["id", "int", None], ["name", "string", "its name"], ["v", "bigint", None], ["note", "string", "a note"]]
    columns.append(["title", "string", "its name"])
    assert log.workbench.run(f"from streaming_source import mirror_tables\nresult = {told}") == columns


def resnapshot_twice(mirror: Mirrored, table: str) -> None:
    """Have a table read again, and the batch that does it come twice."""
    mirror.resnapshot(table)
    mirror.break_off()
    mirror.run()


def test_a_column_of_another_type_sets_the_table_aside_until_its_folder_is_moved_away(
    primary: MariaDb, log: Mirrored, tmp_path: Path
) -> None:
    log.run()
    primary.sql("USE shop", "ALTER TABLE a MODIFY name VARBINARY(20)", "INSERT INTO b VALUES (60, 'x', 6)")
    log.run()
    assert states(log) == {"a": "failed", "b": "current"}
    code = f"from streaming_source import mirror_status\nrows = mirror_status(spark, into={log.arguments['into']!r})"
    (why,) = log.workbench.run(f"{code}\nresult = [row.error for row in rows.where('error IS NOT NULL').collect()]")
    assert "have name as STRING, and its type is BINARY now" in why
    rows = taken(log, "b")
    assert replayed(rows) == of_server(log, "b", rows)
    lake = tmp_path / "lake" / "shop"
    (lake / "a").rename(lake / "kept")
    resnapshot_twice(log, "a")
    assert states(log) == dict.fromkeys(TABLES, "current")
    assert [row["_change_type"] for row in taken(log, "a")] == ["read"] * 10
    resnapshot_twice(log, "b")
    assert_equal(log)
    assert [row["_change_type"] for row in taken(log, "b")].count("again") == 1
    primary.sql("DROP TABLE shop.a")
    log.run(onDrop="drop")
    assert not (lake / "a").exists()


def test_what_parquet_cannot_be_is_refused(primary: MariaDb, log: Mirrored, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"ConfigError: shop\.b would have the mode current"):
        log.run(rules={"shop.a": {"mode": "append_log"}})
    folder = tmp_path / "lake" / "shop" / "a"
    folder.mkdir(parents=True)
    (folder / "mine.parquet").touch()
    with pytest.raises(AssertionError, match=r"the target .*/a` exists, and no mirror created it"):
        log.run(onTableError="fail")
    log.run()  # a run that has a batch of the one before ends after it
    log.run()
    assert states(log) == {"a": "failed", "b": "current"}
    code = f"from streaming_source import mirror_status\nrows = mirror_status(spark, into={log.arguments['into']!r})"
    (why,) = log.workbench.run(f"{code}\nresult = [row.error for row in rows.where('error IS NOT NULL').collect()]")
    assert "/a` exists, and no mirror created it" in why
    rows = taken(log, "b")
    assert replayed(rows) == of_server(log, "b", rows)
    assert [file.name for file in folder.iterdir()] == ["mine.parquet"]
