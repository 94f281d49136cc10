"""Load of the mirror's soak: sysbench and TPC-C on separate tables, and writers of this project that also run DDL.

In: a version, options, a seed, warehouses of TPC-C. Out: a primary whose tables are filled before the first read and
then never stop changing. One thread runs the DDL and the row changes of a table, so that it determines their order.
`FIXED` are the tables without DDL. An audit can always compare them, so faults are planted in these tables.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.fixtures.mariadb import MariaDb
from tools.proofs.soak.load.load_programs import LoadPrograms
from tools.proofs.soak.load.sysbench import WITHOUT_END, check_sysbench, sysbench
from tools.proofs.soak.load.tpcc import DATABASE as TPCC
from tools.proofs.soak.load.tpcc import check_filled, check_go_tpc, fill_command, run_command
from tools.proofs.soak.mirror.family import FAMILY, FILLED, change_family
from tools.proofs.soak.mirror.statements import Alterations, next_statements

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pymysql.cursors import Cursor

    from replica.schema.known_tables import TableName

SHOP, BENCH = "shop", "sbtest"
SYSBENCH_ROWS, SYSBENCH_RATE = 5_000, 8
SCRIPTS = ("oltp_read_write", "oltp_write_only")
ROWS, SIDE_ROWS = 3_000, 900
PAUSE_S = 0.2
STATEMENT_EVERY_S = 40.0
"""Of each table on average: one that is altered again while it is read waits, twice as long each time."""
END_S = 30.0
PLAIN = "id INT PRIMARY KEY, v INT NOT NULL, t VARCHAR(60)"
RANGES = (
    "PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN (2000), PARTITION p2 VALUES LESS THAN MAXVALUE"
)


class LoadTable(NamedTuple):
    """A table of the load: what it is made with, its highest key, and the tables that its thread writes beside it."""

    columns: str = f"({PLAIN})"
    rows: int = ROWS
    beside: tuple[str, ...] = ()
    writes: bool = True


TABLES = {
    "plain": LoadTable(),
    "pairs": LoadTable("(a BIGINT, b SMALLINT, v INT NOT NULL, t VARCHAR(60), PRIMARY KEY (a, b))"),
    "altered": LoadTable(),
    "emptied": LoadTable(),
    "replaced": LoadTable(),
    "swapped": LoadTable(beside=("twin",)),
    "twin": LoadTable(writes=False),
    "parts": LoadTable(f"({PLAIN}) PARTITION BY RANGE (id) ({RANGES})", beside=("side",)),
    "side": LoadTable(rows=SIDE_ROWS, writes=False),
    "parents": LoadTable(),
}
FIXED = {f"{SHOP}.plain": ("id",), f"{SHOP}.pairs": ("a", "b"), f"{BENCH}.sbtest1": ("id",)}
"""With their keys."""


class MirrorLoad:
    """Use as a context manager; `stop()` ends the writers before its end."""

    def __init__(
        self,
        version: str | None,
        seed: int,
        *options: str,
        tables: Collection[str] = tuple(TABLES),
        warehouses: int = 0,
        primary: MariaDb | None = None,
    ) -> None:
        self._is_running = primary is not None
        self.primary = primary or MariaDb(version, *options)
        self.statements: Counter[str] = Counter()
        self.transactions = 0
        self.databases = (SHOP, BENCH, TPCC) if warehouses else (SHOP, BENCH)
        self._warehouses = warehouses
        self._seed = seed
        self._ended = threading.Event()
        self._family = threading.Lock()
        writing = [name for name in tables if TABLES[name].writes]
        self._tables = tables
        self._threads = [threading.Thread(target=self._guarded, args=(name,), daemon=True) for name in writing]
        self._failures: list[BaseException] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        check_sysbench()
        if self._warehouses:
            check_go_tpc()
        with contextlib.ExitStack() as stack:
            if not self._is_running:
                stack.enter_context(self.primary)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-mirror-load-")))
            self._programs = LoadPrograms(folder / "programs.log")
            stack.callback(self.stop)
            self._fill()
            for script in SCRIPTS:
                self._programs.start([*self._sysbench(script, f"--rate={SYSBENCH_RATE}"), *WITHOUT_END, "run"])
            if self._warehouses:
                self._programs.start(run_command(self.primary, self._warehouses))
            for thread in self._threads:
                thread.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _fill(self) -> None:
        if not self._is_running:
            self.primary.add_user()
        self.primary.sql(*(f"CREATE DATABASE {database}" for database in self.databases))
        if "parents" in self._tables:
            made = (f"CREATE TABLE {name} {columns}" for name, columns in FAMILY.items())
            self.primary.sql(f"USE {SHOP}", *made, *FILLED)
        for name in self._tables:
            if name in FAMILY:
                continue
            table = TABLES[name]
            key = "seq DIV 3, seq MOD 3" if name == "pairs" else "seq"
            self.primary.sql(
                f"USE {SHOP}",
                f"CREATE TABLE {name} {table.columns}",
                f"INSERT INTO {name} SELECT {key}, 0, 'first' FROM seq_1_to_{table.rows}",
            )
        self._programs.finish([*self._sysbench(SCRIPTS[0]), "prepare"])
        if self._warehouses:
            self._programs.finish(fill_command(self.primary, self._warehouses))
            check_filled(self.primary)

    def _sysbench(self, script: str, *more: str) -> list[str]:
        sizes = ("--tables=1", f"--table-size={SYSBENCH_ROWS}")
        return sysbench(self.primary, BENCH, script, *sizes, *more)

    def fixed(self) -> list[str]:
        """Return the tables that there are of FIXED."""
        return sorted(table for table in FIXED if table.startswith(BENCH) or table.partition(".")[2] in self._tables)

    @contextlib.contextmanager
    def without_cascades(self) -> Iterator[None]:
        """Hold the writer back of the tables whose foreign keys cascade: behind a mirror that stands still, no audit
        can tell what they took.
        """
        with self._family:
            yield

    def replaced(self) -> frozenset[TableName]:
        """Return the tables of which a statement may put other rows into the place of all."""
        return frozenset((SHOP, name) for name in self._tables if name not in FAMILY and f"{SHOP}.{name}" not in FIXED)

    def check(self) -> None:
        """Raise what a writer ended with."""
        for failure in self._failures:
            raise AssertionError(f"the load failed: {failure!r}") from failure
        self._programs.check()

    def stop(self) -> None:
        """End all writers, each behind a whole transaction."""
        self._ended.set()
        self._programs.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(END_S)

    # -- our writers -----------------------------------------------------------------------------------------------

    def _guarded(self, table: str) -> None:
        try:
            self._write(table)
        except BaseException as failure:  # noqa: BLE001  (raised again in check(), in the main thread)
            self._failures.append(failure)

    def _write(self, table: str) -> None:
        chance = random.Random(f"{self._seed} {table}")
        alterations = Alterations(chance)
        # Not strict: a column that is NOT NULL without a default takes the server's own.
        session = {"database": SHOP, "init_command": "SET sql_mode = ''"}
        with self.primary.connect(**session) as connection, connection.cursor() as cursor:
            while not self._ended.wait(PAUSE_S):
                if table in FAMILY:
                    with self._family:
                        change_family(cursor, chance)
                    self.transactions += 1
                    continue
                if f"{SHOP}.{table}" not in FIXED and chance.random() < PAUSE_S / STATEMENT_EVERY_S:
                    kind, statements = next_statements(table, chance, alterations)
                    for statement in statements:
                        cursor.execute(statement)
                    self.statements[f"{table}: {kind}"] += 1
                for name in (table, *TABLES[table].beside):
                    change(cursor, name, chance)
                    self.transactions += 1
                if (added := alterations.value()) is not None:
                    first = chance.randrange(ROWS)
                    cursor.execute(
                        f"UPDATE {table} SET {added[0]} = {added[1]} WHERE id BETWEEN {first} AND {first + 9}"
                    )


def change(cursor: Cursor, table: str, chance: random.Random) -> None:
    """Change some rows of a table in one transaction."""
    pairs = table == "pairs"
    key, columns = ("a", "(a, b, v, t)") if pairs else ("id", "(id, v, t)")
    first = chance.randrange(ROWS // 3 if pairs else TABLES[table].rows - 10)
    cursor.execute("BEGIN")
    cursor.execute(f"DELETE FROM {table} WHERE {key} BETWEEN {first} AND {first + 5}")
    cursor.execute(f"UPDATE {table} SET v = v + 1 WHERE {key} BETWEEN {first + 10} AND {first + 20}")
    values = "seq, 1, 0, 'new'" if pairs else "seq, 0, 'new'"
    cursor.execute(f"REPLACE INTO {table} {columns} SELECT {values} FROM seq_{first}_to_{first + 4}")
    if chance.random() < 0.1:  # a key that moves
        cursor.execute(f"UPDATE IGNORE {table} SET {key} = {key} + 7 WHERE {key} = {first}")
    cursor.execute("COMMIT")
