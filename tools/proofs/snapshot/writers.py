"""Six sessions that change all tables at once, in two replication domains, half of the changes in XA transactions.

    python -m tools.proofs.snapshot.writers '{"port", "user", "password", "version", "seed", "sizes", "writers"}'

The writers are a separate process. Its parent writes `go` and `rest` to stdin at any time, and `end` at the end. The
process then ends every open transaction, and prints what it did as one JSON object. The writers of one table use one
domain, because MariaDB does not order changes of different domains. Which statements conflict is left to chance, and
half of them share a few hundred rows.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pymysql

from tools.proofs.snapshot.tables import DATABASE, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymysql.cursors import Cursor

    from tools.proofs.snapshot.tables import Table

BUSY = {1020, 1205, 1213, 1402, 1613, 1614}
"""A row that changed since the snapshot (innodb_snapshot_isolation, on by default in 11.8), lock wait timeout,
deadlock, and what an XA transaction says after them."""
DUPLICATE, XAER_NOTA, XAER_RMFAIL, XA_RBROLLBACK = 1062, 1397, 1399, 1402
SPARE = 1.2
"""Numbers of rows that are drawn, by the last one that a table began with; the smallest table has a hundred."""
HOT, HOT_STEPS = 300, 60
SESSION = "SET SESSION innodb_lock_wait_timeout = 1, gtid_domain_id = {}, time_zone = '+00:00', sql_mode = ''"
LEFT_S = (0.2, 4.0)
"""How long an XA transaction stays prepared when its session is gone; a query does not start behind one of 10 s."""


class SnapshotWriter(threading.Thread):
    """One session's transactions, until it is told to end."""

    def __init__(self, number: int, settings: dict[str, Any], flow: Flow) -> None:
        super().__init__(name=f"writer {number}", daemon=True)
        self.number = number
        self.domain = number % 2
        self.done: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._settings = settings
        self._flow = flow
        self._chance = random.Random(f"{settings['seed']} snapshot writer {number}")
        self._tables = [table for table in tables(settings["version"]) if table.domain == self.domain]
        self._weights = [max(0.3, table.weight) for table in self._tables]
        self._hot: dict[str, int] = {}
        self._prepared: list[tuple[str, float]] = []
        """XA transactions whose session has ended, and when they are to end."""
        self._cursor: Cursor
        self._steps: tuple[Callable[[Table], object], ...] = (
            self._update_range,
            self._update_range,
            self._delete_rows,
            self._insert,
            self._insert,
            self._replace,
            self._on_duplicate,
            self._move,
            self._move,
            self._swap,
            self._shift,
            self._again,
        )

    # -- the session -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._cursor = self._connect()
            count = 0
            while self._flow.wait(self._end_due):
                self._transaction(count)
                count += 1
                time.sleep(self._chance.uniform(0, 2 * self._settings["pause_s"]))
            while self._prepared:
                self._end_left()
        except BaseException as error:  # noqa: BLE001  (the process ends with it)
            self.failure = error

    def _connect(self) -> Cursor:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self._settings["port"],
            user=self._settings["user"],
            password=self._settings["password"],
            database=DATABASE,
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
            init_command=SESSION.format(self.domain),
        )
        return connection.cursor()

    def _transaction(self, count: int) -> None:
        if count % HOT_STEPS == 0:
            self._hot = {table.name: self._chance.randrange(self._numbers(table)) for table in self._tables}
        xid = f"w{self.number}-{count}" if self._chance.random() < 0.5 else ""
        self._cursor.execute(f"XA START '{xid}'" if xid else "BEGIN")
        try:
            for _ in range(self._chance.choice((1, 1, 2, 3, 4))):
                step = self._chance.choice(self._steps)
                table = self._chance.choices(self._tables, self._weights)[0]
                try:
                    step(table)
                except pymysql.err.IntegrityError as error:
                    if error.args[0] != DUPLICATE:
                        raise
                    self.done["refused as duplicates"] += 1
        except pymysql.err.MySQLError as error:
            if error.args[0] not in BUSY:
                raise
            self.done["ended by a lock"] += 1
            self._undo(xid)
            return
        if self._chance.random() < 0.05:
            self._undo(xid)
            self.done["rolled back"] += 1
        elif xid:
            self._two_phases(xid)
        else:
            self._cursor.execute("COMMIT")
            self.done["transactions"] += 1
        self._end_due()

    def _undo(self, xid: str) -> None:
        if not xid:
            self._cursor.execute("ROLLBACK")
            return
        for statement in (f"XA END '{xid}'", f"XA ROLLBACK '{xid}'"):
            try:
                self._cursor.execute(statement)
            except pymysql.err.MySQLError as error:
                if error.args[0] not in BUSY | {XAER_NOTA, XAER_RMFAIL}:  # the server has rolled it back already
                    raise

    def _two_phases(self, xid: str) -> None:
        try:
            self._cursor.execute(f"XA END '{xid}'")
            self._cursor.execute(f"XA PREPARE '{xid}'")
        except pymysql.err.MySQLError as error:
            if error.args[0] not in BUSY:
                raise
            self._undo(xid)
            return
        fate = self._chance.random()
        if fate < 0.1:  # its session ends, another one decides
            self._prepared.append((xid, time.monotonic() + self._chance.uniform(*LEFT_S)))
            self._cursor.connection.close()
            self._cursor = self._connect()
            return
        if fate < 0.35:
            time.sleep(self._chance.uniform(0, 0.3))
        self._decide(xid)

    def _end_due(self) -> None:
        if self._prepared and self._prepared[0][1] < time.monotonic():
            self._end_left()

    def _end_left(self) -> None:
        xid, _ = self._prepared[0]
        try:
            self._decide(xid)
        except pymysql.err.MySQLError as error:
            if error.args[0] not in {XAER_NOTA, XAER_RMFAIL}:  # the old session has not let go of it yet
                raise
            time.sleep(0.05)
            return
        self._prepared.pop(0)

    def _decide(self, xid: str) -> None:
        commit = self._chance.random() < 0.8
        try:
            self._cursor.execute(f"XA {'COMMIT' if commit else 'ROLLBACK'} '{xid}'")
        except pymysql.err.MySQLError as error:
            if error.args[0] != XA_RBROLLBACK:  # it had changed nothing, and its session is gone
                raise
            commit = False
        self.done["XA transactions" if commit else "XA ROLLBACK"] += 1

    # -- statements ------------------------------------------------------------------------------------------------

    def _numbers(self, table: Table) -> int:
        return int(max(50, self._settings["sizes"][table.name]) * 2 * SPARE)

    def _number(self, table: Table) -> int:
        if self._chance.random() < 0.5:
            return (self._hot[table.name] + self._chance.randrange(HOT)) % self._numbers(table)
        return self._chance.randrange(self._numbers(table))

    def _key(self, table: Table) -> tuple[Any, ...]:
        return table.key_of(self._number(table))

    def _values(self) -> tuple[Any, ...]:
        note = None if self._chance.random() < 0.1 else f"{self.number} ß {self._chance.randrange(10**6)}"
        return self._chance.randrange(10**9), note, self._chance.choice((None, 12.5, -3, 0.07))

    def _run(self, table: Table, name: str, statement: str, *values: Any) -> int:
        found = self._cursor.execute(statement.replace("{t}", table.name), values)
        self.done[name] += found
        return found

    @staticmethod
    def _where(table: Table) -> str:
        return " AND ".join(f"{name} = %s" for name, *_ in table.keys)

    def _range(self, table: Table) -> tuple[str, tuple[Any, ...]]:
        """Some rows from a key on, within the same first columns."""
        key = self._key(table)
        first = [f"{name} = %s" for name, *_ in table.keys[:-1]]
        return " AND ".join([*first, f"{table.keys[-1][0]} >= %s"]), key

    def _update_range(self, table: Table) -> None:
        where, key = self._range(table)
        by = ", ".join(name for name, *_ in table.keys)
        limit = self._chance.choice((1, 1, 5, 30))
        statement = f"UPDATE {{t}} SET v = v + 1, note = %s WHERE {where} ORDER BY {by} LIMIT {limit}"
        self._run(table, "updated in ranges", statement, self._values()[1], *key)

    def _delete_rows(self, table: Table) -> None:
        where, key = self._range(table)
        self._run(table, "deleted", f"DELETE FROM {{t}} WHERE {where} LIMIT {self._chance.choice((1, 2, 5))}", *key)

    def _insert(self, table: Table) -> None:
        rows = [(*self._key(table), *self._values()) for _ in range(self._chance.choice((1, 1, 3, 8)))]
        one = f"({', '.join(['%s'] * len(rows[0]))})"
        statement = f"INSERT IGNORE INTO {{t}} VALUES {', '.join([one] * len(rows))}"
        self._run(table, "inserted", statement, *(value for row in rows for value in row))

    def _replace(self, table: Table) -> None:
        values = (*self._key(table), *self._values())
        self._run(table, "REPLACE", f"REPLACE INTO {{t}} VALUES ({', '.join(['%s'] * len(values))})", *values)

    def _on_duplicate(self, table: Table) -> None:
        values = (*self._key(table), *self._values())
        statement = f"INSERT INTO {{t}} VALUES ({', '.join(['%s'] * len(values))}) ON DUPLICATE KEY UPDATE v = v + 7"
        self._run(table, "ON DUPLICATE KEY", statement, *values)

    def _move(self, table: Table) -> None:
        places = ", ".join(f"{name} = %s" for name, *_ in table.keys)
        statement = f"UPDATE {{t}} SET {places}, v = v + 1 WHERE {self._where(table)}"
        self._run(table, "moved", statement, *self._key(table), *self._key(table))

    def _swap(self, table: Table) -> None:
        """Two rows exchange their keys, over a third that no row has."""
        places = ", ".join(f"{name} = %s" for name, *_ in table.keys)
        statement = f"UPDATE {{t}} SET {places} WHERE {self._where(table)}"
        one, other = self._key(table), self._key(table)
        free = table.key_of(2 * self._numbers(table) + self.number)
        if one != other and self._run(table, "swapped", statement, *free, *one):
            self._run(table, "swapped", statement, *one, *other)
            self._run(table, "swapped", statement, *other, *free)

    def _shift(self, table: Table) -> None:
        """Move every key of a range on by a little: each takes the place that the one before it has just left."""
        if not table.shift:
            return
        where, key = self._range(table)
        limit = self._chance.choice((3, 10, 40))
        order = "DESC" if table.name != "word" else "ASC"
        column = table.keys[-1][0]
        (last,) = self._last_of(table, where, key, limit)
        if last is not None:
            statement = f"UPDATE {{t}} SET {column} = {table.shift} WHERE {where} AND {column} <= %s ORDER BY {column}"
            self._run(table, "shifted", f"{statement} {order}", *key, last)

    def _last_of(self, table: Table, where: str, key: tuple[Any, ...], limit: int) -> tuple[Any]:
        column = table.keys[-1][0]
        some = f"SELECT {column} FROM {table.name} WHERE {where} ORDER BY {column} LIMIT {limit}"
        self._cursor.execute(f"SELECT MAX({column}) FROM ({some}) AS some", key)
        row = self._cursor.fetchone()
        return (row[0] if row else None,)

    def _again(self, table: Table) -> None:
        """Delete a row and put another one in its place."""
        key = self._key(table)
        self._run(table, "deleted", f"DELETE FROM {{t}} WHERE {self._where(table)}", *key)
        values = (*key, *self._values())
        self._run(table, "inserted", f"INSERT INTO {{t}} VALUES ({', '.join(['%s'] * len(values))})", *values)


class Flow:
    """Whether writers may write; `wait` is False when all is over."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._over = threading.Event()

    def wait(self, meanwhile: Callable[[], object]) -> bool:
        while not self._over.is_set():
            if self._open.wait(0.1):
                return not self._over.is_set()
            meanwhile()
        return False

    def obey(self, word: str) -> None:
        if word == "go":
            self._open.set()
        elif word == "rest":
            self._open.clear()
        else:
            self._over.set()


def main(settings_json: str) -> int:
    settings = json.loads(settings_json)
    flow = Flow()
    writers = [SnapshotWriter(number, settings, flow) for number in range(settings["writers"])]
    for writer in writers:
        writer.start()
    for line in sys.stdin:
        flow.obey(line.strip())
        failed = next((writer for writer in writers if writer.failure is not None), None)
        if failed is not None or line.strip() == "end":
            break
    flow.obey("end")
    done: Counter[str] = Counter()
    for writer in writers:
        writer.join()
        if writer.failure is not None:
            print(f"{writer.name}: {writer.failure!r}", file=sys.stderr, flush=True)
            return 1
        done += writer.done
    print(json.dumps(dict(done)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
