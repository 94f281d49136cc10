"""Makes the binlogs of this folder from their SQL, on a real MySQL server, with what that server says of them.

    python -m tests.vectors.mysql.make

Per `NAME.sql`: `NAME.binlog` (several files: `NAME.1.binlog` ...), `NAME.tables.json` (every table at the end, as
SELECT prints it in UTC) and `NAME.vv` (the text of `mysqlbinlog -vv`). Bytes differ from run to run (times, uuids,
table ids); what the tests check does not.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fixtures.other_servers.mysql import MySql
from tests.kit.tree import files
from tests.vectors.make import statements

if TYPE_CHECKING:
    import pymysql

HERE = Path(__file__).resolve().parent
COLUMNS_SQL = """
    SELECT table_name, column_name, data_type FROM information_schema.columns
    WHERE table_schema = 'v' ORDER BY 1, ordinal_position
"""
LISTING = ("--no-defaults", "-vv", "--base64-output=decode-rows")
LARGE = 1 << 16
"""Bytes from which a file is stored with gzip, as NAME.gz."""


def run(server: MySql, script: str) -> None:
    sessions: dict[str, pymysql.Connection[Any]] = {}
    for session, statement in statements(script):
        if session and not sessions:
            server.sql("RESET BINARY LOGS AND GTIDS")
        if session and session not in sessions:
            # A session that has prepared an XA transaction has to end before another may finish it.
            for connection in sessions.values():
                if connection.open:
                    connection.close()
            sessions[session] = server.connect()
        if session:
            with sessions[session].cursor() as cursor:
                cursor.execute(statement)
        else:
            server.sql(statement)


def tables(server: MySql) -> str:
    """{"table": [[value, ...], ...]} with invisible columns, ordered by the first; values as text, bytes in hex."""
    found: dict[str, list[list[str | None]]] = {}
    columns: dict[str, list[str]] = {}
    for table, column, kind in server.sql(COLUMNS_SQL):
        is_bytes = any(word in kind.lower() for word in ("binary", "blob", "geometry", "bit", "vector"))
        columns.setdefault(table, []).append(f"HEX(`{column}`)" if is_bytes else f"CAST(`{column}` AS CHAR)")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for table, expressions in columns.items():
            cursor.execute(f"SELECT {', '.join(expressions)} FROM v.`{table}` ORDER BY 1")
            found[table] = [list(row) for row in cursor.fetchall()]
    return json.dumps(found, ensure_ascii=False, indent=0) + "\n"


def make(script: Path) -> None:
    with MySql() as server:
        run(server, script.read_text(encoding="utf-8"))
        store(script.with_suffix(".tables.json"), tables(server).encode())
        server.sql("FLUSH BINARY LOGS")
        *binlogs, _ = (server.datadir / str(row[0]) for row in server.sql("SHOW BINARY LOGS"))
        for number, binlog in enumerate(binlogs, 1):
            suffix = f".{number}" if len(binlogs) > 1 else ""
            store(script.with_suffix(f"{suffix}.binlog"), binlog.read_bytes())
            command = [str(server.programs / "mysqlbinlog"), *LISTING, str(binlog)]
            done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "TZ": "UTC"})
            store(script.with_suffix(f"{suffix}.vv"), done.stdout)


def store(target: Path, data: bytes) -> None:
    compressed = target.with_name(target.name + ".gz")
    compressed.unlink(missing_ok=True)
    target.unlink(missing_ok=True)
    if len(data) > LARGE:
        compressed.write_bytes(gzip.compress(data, mtime=0))
    else:
        target.write_bytes(data)


def main() -> None:
    for script in files(HERE, "*.sql"):
        make(script)
        print(script.stem)


if __name__ == "__main__":
    main()
