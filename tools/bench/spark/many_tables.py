"""The same rows in one table, and spread over many: binlogs for `scripts/bench tables`, kept under .cache/bench.

Each row is an INSERT and a transaction of its own, one table after the other, so that no two neighbours are of one
table: the worst order for what is kept by table. The columns are those of the workload narrow.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.workloads import CACHE, DATABASE, OPTIONS, SYSBENCH_ROW

if TYPE_CHECKING:
    from pathlib import Path

ROWS_A_CALL: Final = 5_000
_LOOP: Final = f"""
CREATE PROCEDURE {DATABASE}.fill(first INT, count INT, tables INT) BEGIN
  DECLARE i INT DEFAULT first;
  WHILE i < first + count DO
    EXECUTE IMMEDIATE CONCAT('INSERT INTO {DATABASE}.t', i MOD tables, ' VALUES (?, ?, ?, ?)')
      USING i, i * 7 % 100003, CONCAT(MD5(i), MD5(i + 1), MD5(i + 2), '-', i), MD5(i * 3);
    SET i = i + 1;
  END WHILE;
END
"""


def binlog_of_tables(tables: int, rows: int) -> Path:
    """Return a binlog with so many rows in so many tables, made at the first call."""
    path = CACHE / f"tables-{tables}-{rows}.binlog"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with MariaDb(None, *OPTIONS) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            for table in range(tables):
                cursor.execute(f"CREATE TABLE {DATABASE}.t{table} ({SYSBENCH_ROW}) CHARSET utf8mb4")
            cursor.execute(_LOOP)
            cursor.execute("FLUSH BINARY LOGS")
            for first in range(0, rows, ROWS_A_CALL):
                cursor.execute(f"CALL {DATABASE}.fill({first}, {min(ROWS_A_CALL, rows - first)}, {tables})")
        current = server.binlogs()[-1]
        server.stop()
        unfinished = path.with_suffix(".part")
        shutil.copyfile(server.datadir / current, unfinished)
        unfinished.rename(path)
    return path
