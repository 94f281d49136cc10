"""Replaying what `dump` says gives the tables that the server has: --json in a dictionary, --sql on another server.

The log holds random transactions with savepoints and rollbacks, a table of every type, keyless tables with rows that
only their bytes tell apart, generated and invisible columns, a system-versioned table, XA transactions, all row images
and DDL in between, all without row metadata: names come from the DDL in the log.
"""

from __future__ import annotations

import io
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from replica.commands.dump.outputs.json_lines import write_json_rows
from replica.commands.dump.outputs.sql import SqlDump
from replica.readers.rows.names import Names
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import OPTIONS, ChosenTransactions, Reading
from replica.schema.catalog import omits_generated
from tests.fixtures.load.workload import DATABASE, TABLES, Workload
from tests.fixtures.mariadb import MariaDb
from tests.integration.rows.type_cases import CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.server
Tables = dict[str, list[tuple[Any, ...]]]

STATEMENTS = """
CREATE TABLE keyless (a VARCHAR(20), b CHAR(5), c FLOAT, d DOUBLE, e BLOB, f INT)
INSERT INTO keyless VALUES ('a', 'x', 0.1, 0.1, 'b', 1), ('A', 'x', 0.1, 0.1, 'b', 1)
INSERT INTO keyless VALUES ('a ', 'X', 3.4e38, 1e-300, '', 2)
INSERT INTO keyless SELECT * FROM keyless
DELETE FROM keyless WHERE BINARY a = 'A' LIMIT 1
UPDATE keyless SET f = NULL WHERE BINARY a = 'a ' LIMIT 1
UPDATE keyless SET f = 7 WHERE f IS NULL
CREATE TABLE made (id INT PRIMARY KEY, v INT AS (id + 1), p INT AS (id * 2) PERSISTENT, i INT INVISIBLE DEFAULT 5)
INSERT INTO made (id) VALUES (1), (2), (3)
UPDATE made SET id = 10 WHERE id = 1
UPDATE made SET i = 6 WHERE id = 2
DELETE FROM made WHERE id = 3
CREATE TABLE period (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING
INSERT INTO period VALUES (1, 1), (2, 2), (3, 3)
UPDATE period SET n = n + 10 WHERE id < 3
DELETE FROM period WHERE id = 2
SET binlog_row_image = MINIMAL
CREATE TABLE minimal (id INT UNSIGNED PRIMARY KEY, a INT, b BLOB, c VARCHAR(10) CHARSET latin1 DEFAULT 'é')
INSERT INTO minimal (id, a) VALUES (1, 1), (4000000000, 2)
UPDATE minimal SET a = NULL WHERE id = 1
UPDATE minimal SET b = 'x', c = NULL WHERE id > 1
DELETE FROM minimal WHERE id = 1
SET binlog_row_image = NOBLOB
UPDATE minimal SET a = 3
SET binlog_row_image = FULL
ALTER TABLE minimal ADD d INT DEFAULT 9 AFTER id, CHANGE a z BIGINT
UPDATE minimal SET z = -1
RENAME TABLE minimal TO `odd ``name`
INSERT INTO `odd ``name` (id) VALUES (7)
CREATE TABLE copied SELECT id, n FROM period
CREATE PROCEDURE p() BEGIN SELECT 1; SELECT ';'; END
CREATE SEQUENCE s START WITH 5
SELECT NEXTVAL(s)
CREATE TABLE child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES made (id))
SET foreign_key_checks = 0
INSERT INTO child VALUES (1, 99)
SET foreign_key_checks = 1
CREATE TABLE variables (b VARBINARY(9), t VARCHAR(9) CHARSET latin1, n DECIMAL(20,5), d DOUBLE, i BIGINT UNSIGNED)
SET @b = X'00FF80', @e = BINARY '', @t = _latin1 X'E9', @n = -1.50, @d = 1e300, @i = 18446744073709551615, @z = NULL
SET @ucs = _ucs2 X'00E9', @j = -7
SET binlog_format = STATEMENT
INSERT INTO variables VALUES (@b, @t, @n, @d, @i), (@e, @ucs, @n, @j, NULL), (@z, @z, @z, @z, @z)
SET binlog_format = ROW
XA START 'one'
INSERT INTO made (id) VALUES (100)
XA END 'one'
XA PREPARE 'one'
XA COMMIT 'one'
XA START 'two'
INSERT INTO made (id) VALUES (200)
XA END 'two'
XA PREPARE 'two'
XA ROLLBACK 'two'
"""


def write(server: MariaDb) -> None:
    """Fill the server's log, in several files."""
    version = tuple(map(int, server.value("SELECT VERSION()").split(".")[:2]))
    work = Workload(server, seed=11)
    work.create()
    work.run(400)
    with server.connect() as connection, connection.cursor() as cursor:
        run = cursor.execute
        run("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
        run("CREATE DATABASE types CHARACTER SET utf8mb4")
        run("USE types")
        for number, case in enumerate(CASES):
            if case.since > version:
                continue
            run(
                f"CREATE TABLE t{number} (id INT PRIMARY KEY, n {case.declaration} NULL, m {case.declaration} NOT NULL)"
            )
            rows = [(value, value) for value in case.values] + [("NULL", case.values[0])]
            run(f"INSERT INTO t{number} VALUES " + ", ".join(f"({i}, {n}, {m})" for i, (n, m) in enumerate(rows)))
            run(f"UPDATE t{number} SET n = NULL LIMIT 1")
            run(f"DELETE FROM t{number} ORDER BY id DESC LIMIT 1")
        run("FLUSH BINARY LOGS")
        run("CREATE DATABASE other CHARACTER SET utf8mb4")
        run("USE other")
        for statement in STATEMENTS.strip().splitlines():
            run(statement)


def tables(server: MariaDb) -> Tables:
    """All rows of all user tables, as bytes, in an order of their own; invisible columns too."""
    found: Tables = {}
    with server.connect(conv={}, init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT TABLE_SCHEMA, TABLE_NAME, GROUP_CONCAT(CONCAT('`', COLUMN_NAME, '`') ORDER BY ORDINAL_POSITION) "
            "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA IN ('types', 'other', %s) GROUP BY 1, 2",
            (DATABASE,),
        )
        for database, table, columns in cursor.fetchall():
            name = table.replace("`", "``")
            cursor.execute(f"SELECT {columns} FROM `{database}`.`{name}`")
            found[f"{database}.{table}"] = sorted(cursor.fetchall(), key=repr)
    return found


def reading(server: MariaDb, *, need_names: bool = False) -> Reading:
    files = [str(server.datadir / name) for name in server.binlogs()]
    notices = Notices(io.StringIO())
    return Reading(files, ChosenTransactions(), Names((), notices, OPTIONS.policy, need_names=need_names), notices)


@pytest.fixture(scope="module")
def written(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version) as server:
        write(server)
        yield server


def test_sql_makes_the_same_tables(written: MariaDb, make_server: Callable[..., MariaDb]) -> None:
    out = io.BytesIO()
    read = reading(written, need_names=True)
    SqlDump(read, out, only_rows=False).write()
    assert read.notices.exit_code == 0, read.notices.stream.getvalue()
    other = make_server(written.version)
    client = [
        other.binary("mariadb"),
        "--no-defaults",
        "--skip-ssl",
        f"-S{other.socket}",
        f"-u{other.user}",
        f"-p{other.password}",
    ]
    done = subprocess.run(client, input=out.getvalue(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    expected, found = tables(written), tables(other)
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name] == rows, name


def test_json_gives_the_state_of_keyed_tables(written: MariaDb) -> None:
    out = io.BytesIO()
    write_json_rows(reading(written), out)
    state: dict[str, dict[Any, dict[str, Any]]] = {}
    for line in out.getvalue().splitlines():
        change = json.loads(line)
        if change.get("history"):  # an old version: the current row of that key is gone if this is where it ended
            change["after"] = None if change["op"] == "update" else change["after"]
            if change["op"] == "insert":
                continue
        rows = state.setdefault(f"{change['database']}.{change['table']}", {})
        before, after = change["before"], change["after"]
        if "id" not in (before or after):
            continue
        row = rows.pop(before["id"]) if before else {}
        if after is not None:
            row = {**row, **after}
            rows[row["id"]] = row
    keyed = [f"{DATABASE}.{table.name}" for table in TABLES] + ["other.made", "other.period", "other.child"]
    for name in keyed:
        database, table = name.split(".")
        expected = written_rows(written, database, table)
        if name == "other.made" and omits_generated(written.value("SELECT VERSION()")):
            for row in (*state[name].values(), *expected.values()):  # images of updates do not tell their new values
                del row["v"], row["p"]
        assert {str(key): texts(row) for key, row in state[name].items()} == expected, name


def written_rows(server: MariaDb, database: str, table: str) -> dict[str, dict[str, Any]]:
    with server.connect(conv={}, init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
            "ORDER BY ORDINAL_POSITION",
            (database, table),
        )
        names = [row[0] for row in cursor.fetchall()]
        cursor.execute(f"SELECT {', '.join(names)} FROM {database}.{table}")
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {row["id"]: row for row in rows}


def texts(row: dict[str, Any]) -> dict[str, Any]:
    """As a client without conversions gets the row from SELECT."""
    return {name: text(value) for name, value in row.items() if name not in ("row_start", "row_end")}


def text(value: Any) -> Any:
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return None if value is None else str(value)
