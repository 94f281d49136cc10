"""The small tables of these cases, and chunks that are small enough for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

METADATA = "--binlog-row-metadata=FULL"
SMALL_CHUNKS = {"snapshotChunkRows": "10", "maxRowsPerTrigger": "10"}


def fill(server: MariaDb, table: str, rows: int, *, step: int = 1) -> None:
    """Ids from `step` on, and a text."""
    server.sql(
        f"CREATE DATABASE IF NOT EXISTS {table.partition('.')[0]}",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, note VARCHAR(40)) ENGINE=InnoDB",
        f"INSERT INTO {table} SELECT seq * {step}, seq, CONCAT('row ', seq) FROM mysql.seq_1_to_{rows}",
    )


def ids(server: MariaDb, table: str) -> list[tuple[int]]:
    return sorted(server.sql(f"SELECT id FROM {table}"))
