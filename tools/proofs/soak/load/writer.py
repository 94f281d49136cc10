"""Session of the load, which runs step after step, reconnects after every crash, and keeps the ledger.

In: the pair of servers and the ledger. Out: transactions at the rate of their ACKs. Errors of a dying server are
expected. Any other error ends the writer and is kept in `failure`.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import pymysql
from pymysql.constants import CLIENT, ER

from tools.proofs.soak.daemon.pair import DATABASE, WRITER
from tools.proofs.soak.load.ledger import Mark

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

    from tools.proofs.soak.daemon.pair import Pair
    from tools.proofs.soak.load.ledger import Ledger

ANSWER_TIMEOUT_S = 180
"""A COMMIT waits as long as the daemon is away; no fault lasts a fraction of this."""
GONE = {ER.SERVER_SHUTDOWN, ER.QUERY_INTERRUPTED, 2003, 2006, 2013, 2014, 1927, 1129, 4031}
BUSY = {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT}


class Writer(threading.Thread, ABC):
    """One session's work, `step` after `step`; `turn` is held during each."""

    domain = 0
    pause_s: ClassVar[float] = 0.02
    atomic: ClassVar[bool] = True
    """Whether a kill -9 of the server in the middle of a step leaves tables and binlog in agreement."""

    def __init__(self, number: int, pair: Pair, ledger: Ledger, seed: int) -> None:
        super().__init__(name=f"{type(self).__name__} {number}", daemon=True)
        self.number = number
        self.pair = pair
        self.ledger = ledger
        self.chance = random.Random(f"{seed} writer {number}")
        self.turn = threading.Lock()
        self.done = 0
        self.key = 0
        self.ending = threading.Event()
        self.failure: BaseException | None = None
        self.cursor: Cursor

    @abstractmethod
    def step(self) -> None: ...

    def begin(self) -> None:
        """After each connect."""

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                if self.pair.open.wait(0.1):
                    self._session()
        except BaseException as error:  # noqa: BLE001  (the run looks at it and fails with it)
            self.failure = error

    def _session(self) -> None:
        connection = None
        try:
            with self.turn:
                connection = self._connect()
                self.cursor = connection.cursor()
                self.begin()
            while self.pair.open.is_set() and not self.ending.is_set():
                with self.turn:
                    if self.pair.open.is_set():
                        self._one()
                time.sleep(self.chance.uniform(0, 2 * self.pause_s))
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError, pymysql.err.InternalError) as error:
            if error.args[0] not in GONE | {0}:
                raise
            time.sleep(0.05)
        finally:
            if connection is not None:
                with contextlib.suppress(pymysql.Error):
                    connection.close()

    def _one(self) -> None:
        try:
            self.step()
        except pymysql.err.OperationalError as error:
            if error.args[0] not in BUSY:
                raise
            self.cursor.execute("ROLLBACK")
        self.done += 1

    def _connect(self) -> pymysql.Connection[Cursor]:
        user, password = WRITER
        return self.pair.primary.connect(
            user=user,
            password=password,
            database=DATABASE,
            client_flag=CLIENT.MULTI_STATEMENTS,
            connect_timeout=5,
            read_timeout=ANSWER_TIMEOUT_S,
            init_command=f"SET gtid_domain_id = {self.domain}, tx_isolation = 'READ-COMMITTED'",
        )

    def next_key(self) -> int:
        self.key += 1
        return self.number + 100 * self.key

    def mark(self) -> Mark:
        mark = Mark(self.number, self.next_key())
        self.cursor.execute(f"INSERT INTO mark VALUES ({mark.writer}, {mark.number}, NOW(6))")
        return mark

    def commit(self, statement: str = "COMMIT", mark: Mark | None = None, carried: str = "") -> None:
        """Run the statement that commits, and enter in the ledger what its OK means.

        `carried`: what tells the transaction apart where others may have its GTID.

        The GTID is asked for in the same packet, so that a server which dies after its OK has mostly told both.
        """
        if self._answered(f"{statement}; SELECT @@last_gtid", mark):
            self.cursor.nextset()
            row = self.cursor.fetchone()
            if row and row[0]:
                self.ledger.named(f"{row[0]}{carried}")

    def prepare(self, xid: str) -> None:
        """XA PREPARE: the session answers nothing more, but its domain has no other writer."""
        if self._answered(f"XA PREPARE '{xid}'", None):
            gtids = self.pair.primary.gtid_binlog_pos().split(",")
            self.ledger.named(next(gtid for gtid in gtids if gtid.startswith(f"{self.domain}-")))

    def _answered(self, statement: str, mark: Mark | None) -> bool:
        promise = self.ledger.promise()
        try:
            self.cursor.execute(statement)
        except pymysql.Error:
            self.ledger.lost()
            raise
        return self.ledger.kept(promise, mark)
