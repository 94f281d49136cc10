"""The binlogs that the benchmarks read: made once by a private server with its own SQL, kept under .cache/bench.

narrow  sysbench's table, one row an autocommitted transaction: insert, update, delete in turn
bulk    multi-row inserts into 16 columns of mixed types
wide    100 columns of mixed types, multi-row inserts, a tenth of the values NULL
tiny    one INT a transaction: nothing but overhead
blob    values of 0.1, 1, 5 and 20 MB in turn (of the Spark benchmark; the relay benchmark makes its own)

Everything is deterministic (no clock, no RAND without a seed), so two machines decode the same rows.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fixtures.mariadb import MariaDb

CACHE: Final = Path(__file__).resolve().parents[3] / ".cache" / "bench"
OPTIONS: Final = (
    "--binlog-row-metadata=FULL",
    "--binlog-row-image=FULL",
    "--binlog-checksum=CRC32",
    "--max-binlog-size=1G",
    "--binlog-cache-size=4M",
    "--max-binlog-stmt-cache-size=1G",
    "--max-allowed-packet=1G",
    "--innodb-autoinc-lock-mode=2",
)
COMPRESS: Final = ("--log-bin-compress=ON", "--log-bin-compress-min-len=10")
DATABASE: Final = "bench"

SYSBENCH_ROW: Final = """id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL"""

BULK_COLUMNS: Final = """
    id BIGINT NOT NULL PRIMARY KEY, a INT, b INT UNSIGNED, c SMALLINT, d TINYINT UNSIGNED, price DECIMAL(12,2),
    ratio DOUBLE, weight FLOAT, name VARCHAR(60), email VARCHAR(80), code CHAR(12), born DATE, made DATETIME(3),
    changed TIMESTAMP(6) NULL, state ENUM('new','paid','sent','done'), note VARCHAR(120)
"""
BULK_VALUES: Final = """
    {id}, CAST({n} AS SIGNED) * 7 % 100000 - 50000, {n} * 13, {n} % 30000, {n} % 256, {n} % 1000000 / 100,
    {n} / 3, {n} / 8, CONCAT('customer number ', {n}), CONCAT('user', {n} % 99991, '@example.org'),
    LPAD(HEX({n}), 12, '0'), DATE '2000-01-01' + INTERVAL {n} % 9000 DAY,
    TIMESTAMP '2020-01-01 00:00:00' + INTERVAL {n} SECOND + INTERVAL {n} % 1000 * 1000 MICROSECOND,
    TIMESTAMP '2021-01-01 00:00:00' + INTERVAL {n} * 1001 MICROSECOND, 1 + {n} % 4,
    IF({n} % 5, REPEAT('n', {n} % 40), NULL)
"""

# Twenty types, five columns of each.
WIDE_TYPES: Final = (
    ("INT", "{n} * {k} % 1000003"),
    ("BIGINT", "{n} * {k} * 1000003"),
    ("SMALLINT", "{n} * {k} % 30000"),
    ("TINYINT", "{n} * {k} % 120"),
    ("MEDIUMINT UNSIGNED", "{n} * {k} % 16000000"),
    ("INT UNSIGNED", "{n} * {k} % 4000000000"),
    ("BIGINT UNSIGNED", "{n} * {k}"),
    ("DOUBLE", "{n} / {k}"),
    ("FLOAT", "{n} / {k}"),
    ("DECIMAL(10,2)", "{n} * {k} % 100000000 / 100"),
    ("DECIMAL(24,6)", "{n} * {k} * 1000003 / 1000000"),
    ("VARCHAR(30)", "CONCAT('value ', {n} * {k} % 9973)"),
    ("VARCHAR(300)", "REPEAT('w', ({n} + {k}) % 30)"),
    ("CHAR(10)", "HEX({n} * {k} % 1000003)"),
    ("VARBINARY(20)", "UNHEX(MD5({n}))"),
    ("DATE", "DATE '1990-01-01' + INTERVAL ({n} + {k}) % 12000 DAY"),
    ("DATETIME", "TIMESTAMP '2001-01-01 00:00:00' + INTERVAL {n} * {k} SECOND"),
    ("DATETIME(6)", "TIMESTAMP '2001-01-01 00:00:00' + INTERVAL {n} * {k} MICROSECOND"),
    ("TIME(3)", "SEC_TO_TIME({n} * {k} % 86400)"),
    ("ENUM('alpha','beta','gamma')", "1 + ({n} + {k}) % 3"),
)
WIDE_COLUMNS: Final = 100


def _wide() -> tuple[str, str]:
    columns, values = ["id BIGINT NOT NULL PRIMARY KEY"], ["{id}"]
    for k in range(1, WIDE_COLUMNS):
        kind, value = WIDE_TYPES[k % len(WIDE_TYPES)]
        columns.append(f"c{k} {kind}")
        values.append(f"IF(({{n}} + {k}) % 10, {value.replace('{k}', str(k))}, NULL)")
    return ", ".join(columns), ", ".join(values)


# One transaction a statement: the server runs the loop itself, a client would be the bottleneck.
NARROW_LOOP: Final = f"""
CREATE PROCEDURE {DATABASE}.fill(first INT, count INT) BEGIN
  DECLARE i INT DEFAULT first;
  WHILE i < first + count DO
    INSERT INTO {DATABASE}.t VALUES (i, i * 7 % 100003, CONCAT(MD5(i), MD5(i + 1), MD5(i + 2), '-', i), MD5(i * 3));
    UPDATE {DATABASE}.t SET k = k + 1, c = CONCAT(MD5(i + 2), '-', MD5(i), MD5(i + 1)) WHERE id = i;
    IF i % 4 THEN DELETE FROM {DATABASE}.t WHERE id = i; END IF;
    SET i = i + 1;
  END WHILE;
END
"""
TINY_LOOP: Final = f"""
CREATE PROCEDURE {DATABASE}.fill(first INT, count INT) BEGIN
  DECLARE i INT DEFAULT first;
  WHILE i < first + count DO
    INSERT INTO {DATABASE}.t VALUES (i);
    SET i = i + 1;
  END WHILE;
END
"""


@dataclass(frozen=True)
class Workload:
    name: str
    columns: str
    step: int  # row numbers a call of the filler consumes
    procedure: str = ""
    values: str = ""

    def statement(self, first: int) -> str:
        if self.procedure:
            return f"CALL {DATABASE}.fill({first}, {self.step})"
        n = f"(seq + {first})"
        values = self.values.replace("{id}", n).replace("{n}", n)
        return f"INSERT INTO {DATABASE}.t SELECT {values} FROM seq_0_to_{self.step - 1}"


_WIDE_COLUMNS, _WIDE_VALUES = _wide()
WORKLOADS: Final = {
    w.name: w
    for w in (
        Workload("narrow", SYSBENCH_ROW, 5_000, procedure=NARROW_LOOP),
        Workload("bulk", BULK_COLUMNS, 50_000, values=BULK_VALUES),
        Workload("wide", _WIDE_COLUMNS, 10_000, values=_WIDE_VALUES),
        Workload("tiny", "id INT NOT NULL PRIMARY KEY", 20_000, procedure=TINY_LOOP),
    )
}
BLOB: Final = Workload(
    "blob",
    "id INT NOT NULL PRIMARY KEY, b LONGBLOB",
    4,
    values="{id}, REPEAT(MD5({n}), ELT(1 + {n} % 4, 3125, 31250, 156250, 625000))",
)


def fill(server: MariaDb, workload: Workload, size: int) -> None:
    """Run the workload until the server's current binlog file holds at least `size` bytes."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(f"CREATE TABLE {DATABASE}.t ({workload.columns}) CHARSET utf8mb4")
        if workload.procedure:
            cursor.execute(workload.procedure)
        cursor.execute("FLUSH BINARY LOGS")
        first, written = 1, 0
        while written < size:
            cursor.execute(workload.statement(first))
            first += workload.step
            cursor.execute("SHOW MASTER STATUS")
            written = int(cursor.fetchone()[1])


def binlog(name: str, megabytes: int, *, version: str | None = None, compressed: bool = False) -> Path:
    """The workload's binlog file, made on the first call: at least `megabytes` * 10^6 bytes.

    `compressed`: written with log_bin_compress, every rows event of it.
    """
    path = CACHE / f"{name}-{megabytes}{'-compressed' * compressed}.binlog"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with MariaDb(version, *OPTIONS, *(COMPRESS if compressed else ())) as server:
        fill(server, BLOB if name == BLOB.name else WORKLOADS[name], megabytes * 1_000_000)
        current = server.binlogs()[-1]
        server.stop()
        unfinished = path.with_suffix(".part")
        shutil.copyfile(server.datadir / current, unfinished)
        unfinished.rename(path)
    return path
