"""Writers of every kind of group that a binlog can contain, each in its own session, at the rate of ACKs.

In: the pair of servers and the ledger. Out: transactions of one to some thousand rows over several GTID domains, and
the promise of each COMMIT in the ledger. The transactions include rows of up to 17 MB, DDL, XA over connections and
servers, rollbacks, savepoints, MyISAM, and statements with a wrong clock. A writer that loses its connection reconnects
as soon as there is a primary.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pymysql

from tools.proofs.soak.daemon.pair import DATABASE
from tools.proofs.soak.load.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.proofs.soak.daemon.pair import Pair
    from tools.proofs.soak.load.ledger import Ledger

XAER_NOTA = 1397
SCHEMA = (
    f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4",
    f"CREATE TABLE {DATABASE}.mark (writer INT, number BIGINT, at TIMESTAMP(6), PRIMARY KEY (writer, number))",
    f"CREATE TABLE {DATABASE}.item (id BIGINT PRIMARY KEY, version INT NOT NULL, amount DECIMAL(20,4), note TEXT)",
    f"CREATE TABLE {DATABASE}.batch (id BIGINT PRIMARY KEY, version INT NOT NULL, amount DECIMAL(20,4), note TEXT)",
    f"CREATE TABLE {DATABASE}.body (id BIGINT PRIMARY KEY, content LONGBLOB)",
    f"CREATE TABLE {DATABASE}.prepared (id BIGINT PRIMARY KEY, xid VARCHAR(60))",
    f"CREATE TABLE {DATABASE}.counted (number BIGINT PRIMARY KEY, carried VARCHAR(40))",
    f"CREATE TABLE {DATABASE}.plain (id BIGINT PRIMARY KEY, n INT) ENGINE = MyISAM",
)


class Small(Writer):
    """Transactions of a few rows; some rolled back, some in part, some under a clock that is years off."""

    pause_s = 0.015

    def step(self) -> None:
        dice = self.chance.random()
        if dice < 0.02:
            self.cursor.execute(f"SET timestamp = UNIX_TIMESTAMP() + {self.chance.randrange(-(10**8), 10**8)}")
        self.cursor.execute("BEGIN")
        mark = self.mark()
        for _ in range(self.chance.randint(1, 4)):
            self._change()
        if dice > 0.95:
            self.cursor.execute("SAVEPOINT here")
            self._change()
            self.cursor.execute("ROLLBACK TO SAVEPOINT here")
        if dice > 0.97:
            self.cursor.execute("ROLLBACK")
        else:
            self.commit(mark=mark)
        if dice < 0.02:
            self.cursor.execute("SET timestamp = DEFAULT")

    def _change(self) -> None:
        dice, old = self.chance.random(), self.number + 100 * self.chance.randint(1, max(1, self.key))
        if dice < 0.6:
            values = f"{self.next_key()}, 0, {self.chance.randrange(10**9)} / 7, REPEAT('é水', {self.key % 50})"
            self.cursor.execute(f"INSERT INTO item VALUES ({values})")
        elif dice < 0.85:
            self.cursor.execute(f"UPDATE item SET version = version + 1, note = '{old}' WHERE id = {old}")
        else:
            self.cursor.execute(f"DELETE FROM item WHERE id = {old}")


class Single(Small):
    """Statements with autocommit: one group each."""

    pause_s = 0.01

    def step(self) -> None:
        self.commit(f"INSERT INTO item VALUES ({self.next_key()}, 0, NULL, 'one')")


class Bulk(Writer):
    """Hundreds to thousands of rows in a transaction, in a domain of its own."""

    domain = 1
    pause_s = 0.3

    def step(self) -> None:
        count = self.chance.choice((100, 300, 1000, 3000))
        first = self.next_key()
        self.key += count
        self.cursor.execute("BEGIN")
        mark = self.mark()
        self.cursor.execute(
            f"INSERT INTO batch SELECT {first} + 100 * seq, 0, seq / 3, CONCAT('row ', seq) FROM seq_1_to_{count}"
        )
        self.cursor.execute(f"UPDATE batch SET version = 1 WHERE id BETWEEN {first} AND {first + 30 * count}")
        self.cursor.execute(f"DELETE FROM batch WHERE id > {first + 5000} AND id < {first + 100 * count}")
        self.commit(mark=mark)


class Large(Writer):
    """Rows of up to 17 MB: events in several packets. Keeps few of them."""

    domain = 2
    pause_s = 0.3

    def step(self) -> None:
        size = self.chance.choice((1 << 12, 1 << 16, 1 << 18, 1 << 20))
        if self.chance.random() < 0.02:
            size = (17 << 20) + self.chance.randrange(1 << 16)
        key = self.next_key()
        self.cursor.execute("BEGIN")
        mark = self.mark()
        self.cursor.execute(f"INSERT INTO body VALUES ({key}, REPEAT(MD5({key}), {size // 32}))")
        if self.chance.random() < 0.7:
            self.cursor.execute(f"DELETE FROM body WHERE id < {key} ORDER BY id LIMIT 2")
        self.commit(mark=mark)


class Definitions(Writer):
    """DDL, with a few rows between: tables are made, altered, renamed, emptied and dropped."""

    domain = 3
    pause_s = 0.2
    atomic = False

    def step(self) -> None:
        number = self.next_key()
        name = f"made_{number}"
        self.commit(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT)")
        self.commit(f"INSERT INTO {name} VALUES (1, 1), (2, {number})")
        self.commit(f"ALTER TABLE {name} ADD COLUMN b VARCHAR(20) DEFAULT 'x', ADD KEY (a)")
        self.commit(f"UPDATE {name} SET b = 'y' WHERE id = 2")
        dice = self.chance.random()
        if dice < 0.3:
            self.commit(f"RENAME TABLE {name} TO kept_{number}")
        elif dice < 0.4:
            self.commit(f"TRUNCATE TABLE {name}")
        elif dice < 0.5:
            self.commit(f"CREATE TABLE copy_{number} SELECT * FROM {name}")
        else:
            self.commit(f"DROP TABLE {name}")


class Plain(Writer):
    """MyISAM, alone and beside InnoDB in a transaction that is rolled back."""

    domain = 4
    atomic = False

    def step(self) -> None:
        key = self.next_key()
        if self.chance.random() < 0.8:
            self.commit(f"INSERT INTO plain VALUES ({key}, {key % 1000})")
            return
        self.cursor.execute("BEGIN")
        self.cursor.execute(f"INSERT INTO item VALUES ({key}, 0, NULL, 'rolled back')")
        # A MyISAM row is logged, and waited for, with its own statement; ROLLBACK is then answered without an ACK.
        self.commit(f"INSERT INTO plain VALUES ({key}, -1)")
        self.cursor.execute("ROLLBACK")


class TwoPhase(Writer):
    """XA: prepared in one session, ended there or in another one, perhaps on another server; some rolled back."""

    domain = 5
    pause_s = 0.05
    atomic = False

    def begin(self) -> None:
        self.cursor.execute("XA RECOVER")
        for *_, xid in self.cursor.fetchall():
            name = xid.decode() if isinstance(xid, bytes) else xid
            try:
                self._end(name)
            except pymysql.err.OperationalError as error:
                if error.args[0] != XAER_NOTA:  # the server has not noticed yet that the session before is gone
                    raise

    def step(self) -> None:
        key = self.next_key()
        xid = f"xa-{self.number}-{key}"
        self.cursor.execute(f"XA START '{xid}'")
        self.cursor.execute(f"INSERT INTO prepared VALUES ({key}, '{xid}')")
        self.cursor.execute(f"XA END '{xid}'")
        if self.chance.random() < 0.1:
            self.commit(f"XA COMMIT '{xid}' ONE PHASE")
            return
        self.prepare(xid)
        self.turn.release()  # prepared and at rest: a crash, a change of servers may come now
        try:
            time.sleep(self.chance.uniform(0, 0.2))
        finally:
            self.turn.acquire()
        if not self.pair.open.is_set():
            return
        if self.chance.random() < 0.3:
            self.cursor.connection.close()  # type: ignore[union-attr]
            raise pymysql.err.InterfaceError(0, "the next session ends it")
        self._end(xid)

    def _end(self, xid: str) -> None:
        self.commit(f"XA {'COMMIT' if self.chance.random() < 0.7 else 'ROLLBACK'} '{xid}'")


KINDS: tuple[type[Writer], ...] = (Small, Small, Single, Bulk, Large, Definitions, Plain, TwoPhase)
"""Whose numbers only grow. Those of `GoingBack` have judges of their own."""


def make_writers(pair: Pair, ledger: Ledger, seed: int, kinds: Sequence[type[Writer]] = KINDS) -> list[Writer]:
    pair.primary.sql(*SCHEMA)
    return [kind(number, pair, ledger, seed) for number, kind in enumerate(kinds, 1)]
