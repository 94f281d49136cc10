"""Binlogs for the relay benchmarks on a running server: a file each, which the vendor's tool can ask for by name.

Small transactions (narrow, tiny) and multi-row inserts (bulk) come from `workloads`; blob has values of 0.1 to 20 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.protocol.gtid import GtidPosition
from tools.bench.kit.workloads import DATABASE, WORKLOADS, fill

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

SERVER_OPTIONS = (
    "--binlog-row-metadata=FULL",
    "--binlog-checksum=CRC32",
    "--max-binlog-size=1G",
    "--binlog-cache-size=4M",
    "--max-allowed-packet=1G",
    "--innodb-log-file-size=512M",
)
SMALL = ("narrow", "tiny")
LARGE = ("blob", "bulk")
BLOB_BYTES = (100_000, 1_000_000, 5_000_000, 20_000_000)


class Span(NamedTuple):
    """A workload in the server's binlog: its file, and the positions before and after it."""

    name: str
    file: str
    start: GtidPosition
    end: GtidPosition


def write(server: MariaDb, name: str, megabytes: float) -> Span:
    """Run a workload until its binlog file holds `megabytes` * 10^6 bytes."""
    server.sql(f"DROP DATABASE IF EXISTS {DATABASE}")
    if name == "blob":
        return _write_blobs(server, int(megabytes * 1_000_000))
    fill(server, WORKLOADS[name], int(megabytes * 1_000_000))
    return _span(server, name)


def _write_blobs(server: MariaDb, size: int) -> Span:
    server.sql(
        f"CREATE DATABASE {DATABASE}",
        f"CREATE TABLE {DATABASE}.t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)",
        "FLUSH BINARY LOGS",
    )
    with server.connect() as connection, connection.cursor() as cursor:
        written = turn = 0
        while written < size:
            length = BLOB_BYTES[turn % len(BLOB_BYTES)]
            cursor.execute(f"INSERT INTO {DATABASE}.t (b) VALUES (REPEAT(MD5({turn}), {length // 32}))")
            cursor.execute(f"DELETE FROM {DATABASE}.t WHERE id + 2 < LAST_INSERT_ID()")
            written += length
            turn += 1
    return _span(server, "blob")


def _span(server: MariaDb, name: str) -> Span:
    file = server.binlogs()[-1]
    listed = server.sql(f"SHOW BINLOG EVENTS IN '{file}' LIMIT 3")
    first = next(row for row in listed if row[2] == "Gtid_list")
    return Span(name, file, GtidPosition.parse(str(first[5]).strip("[]")), GtidPosition.parse(server.gtid_binlog_pos()))
