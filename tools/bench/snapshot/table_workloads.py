"""The tables of `scripts/bench snapshot`: filled by the server itself, the same rows on every machine.

narrow  4 columns, 190 bytes a row: INT, INT, CHAR(120), CHAR(60), as sysbench's
mixed   16 columns, about 170 bytes a row: whole numbers, DOUBLE, FLOAT, DECIMAL, temporal types, text
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tools.bench.kit.workloads import DATABASE

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

AT_ONCE: Final = 200_000
OPTIONS: Final = (
    "--innodb-buffer-pool-size=3G",
    "--innodb-log-file-size=512M",
    "--binlog-row-metadata=FULL",
    "--max-allowed-packet=64M",
)


@dataclass(frozen=True)
class TableWorkload:
    """A table with the key `id`, and the values of row number n. `unknown`: columns that ConnectorX cannot read."""

    name: str
    columns: tuple[tuple[str, str, str], ...]
    unknown: frozenset[str] = frozenset()

    def create(self) -> str:
        columns = ", ".join(f"{name} {declared}" for name, declared, _ in self.columns)
        return f"CREATE TABLE {DATABASE}.{self.name} ({columns}) CHARSET utf8mb4"

    def select(self, *, known: bool = False) -> str:
        """The SELECT of all columns, or of those that ConnectorX knows."""
        names = ", ".join(f"`{name}`" for name, *_ in self.columns if not (known and name in self.unknown))
        return f"SELECT {names} FROM {DATABASE}.{self.name}"

    def fill(self, server: MariaDb, rows: int) -> None:
        """Make the table and its rows, without a trace in the binlog."""
        values = ", ".join(value for *_, value in self.columns)
        session = ("SET sql_log_bin = 0", "SET time_zone = '+00:00', sql_mode = ''")
        server.sql(*session, f"CREATE DATABASE IF NOT EXISTS {DATABASE}", self.create())
        for first in range(1, rows + 1, AT_ONCE):
            last = min(rows, first + AT_ONCE - 1)
            numbers = f"(SELECT CAST(seq AS SIGNED) AS n FROM seq_{first}_to_{last}) AS numbers"
            server.sql(*session, f"USE {DATABASE}", f"INSERT INTO {self.name} SELECT {values} FROM {numbers}")


NARROW: Final = TableWorkload(
    "narrow",
    (
        ("id", "INT NOT NULL PRIMARY KEY", "n"),
        ("k", "INT NOT NULL", "n * 7 % 100003"),
        ("c", "CHAR(120) NOT NULL", "CONCAT(MD5(n), MD5(n + 1), MD5(n + 2), '-', n)"),
        ("pad", "CHAR(60) NOT NULL", "MD5(n * 3)"),
    ),
)
MIXED: Final = TableWorkload(
    "mixed",
    (
        ("id", "BIGINT NOT NULL PRIMARY KEY", "n"),
        ("a", "INT", "n * 7 % 100000 - 50000"),
        ("b", "INT UNSIGNED", "n * 13"),
        ("small", "SMALLINT", "n % 30000"),
        ("made_in", "YEAR", "1901 + n % 200"),
        ("ratio", "DOUBLE", "n / 3"),
        ("weight", "FLOAT", "n / 8"),
        ("price", "DECIMAL(16,4)", "n % 100000000 / 100"),
        ("born", "DATE", "DATE '2000-01-01' + INTERVAL n % 9000 DAY"),
        ("made", "DATETIME(6)", "TIMESTAMP '2020-01-01 00:00:00' + INTERVAL n * 1001 MICROSECOND"),
        ("changed", "TIMESTAMP NULL", "TIMESTAMP '2021-01-01 00:00:00' + INTERVAL n SECOND"),
        ("took", "TIME", "SEC_TO_TIME(n % 86400)"),
        ("name", "VARCHAR(60)", "CONCAT('customer number ', n)"),
        ("email", "VARCHAR(80)", "CONCAT('user', n % 99991, '@example.org')"),
        ("code", "CHAR(12)", "LPAD(HEX(n), 12, '0')"),
        ("note", "VARCHAR(120)", "IF(n % 5, REPEAT('n', n % 40), NULL)"),
    ),
    frozenset({"made_in", "took"}),
)
TABLES: Final = {workload.name: workload for workload in (NARROW, MIXED)}
