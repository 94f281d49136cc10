"""Pair of real servers: one is the primary, and the other one replicates from it and can take over, in both directions.

In: a version. Out: the server that writers may use now, a fault proxy before each server for the daemon, and the
changes of roles. Writers use only the primary, and the daemon can reach only the primary too, as with a virtual IP
address. A change of roles loses no commit: the new primary first replicates the rest of the old one's binlog. After a
crash, the old primary is restarted for this purpose, with no other client (`salvage`).

Both servers lose nothing after kill -9, because the writes of InnoDB and the binlog are in the page cache. Statements
that are not atomic in the server (MyISAM, XA, DDL of old versions) must not run at the moment of a kill. The `turn`
locks of the writers prevent that.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self

import pymysql

from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.proofs.soak.load.ledger import Ledger

WRITER = ("writer", "writer-secret")
REPLICA = ("repl", "replica-secret")
DATABASE = "soak"
OPTIONS = (
    "--innodb-flush-log-at-trx-commit=2",  # written at each commit: the page cache outlives the process
    "--innodb-doublewrite=1",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=32M",
    "--max-allowed-packet=256M",
    "--slave-max-allowed-packet=1G",
    "--binlog-row-metadata=FULL",
    "--max-binlog-size=16M",
    "--log-slave-updates",
    "--gtid-strict-mode=OFF",  # the server's default: it takes numbers that go back
    "--slave-net-timeout=5",
    "--rpl-semi-sync-master-timeout=86400000",  # longer than any run: no commit returns because it waited too long
    "--rpl-semi-sync-master-wait-no-slave=ON",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
)
AS_PRIMARY = ("--rpl-semi-sync-master-enabled=ON",)
CATCH_UP_S = 60.0


class Pair:
    """Use as a context manager; `primary` and `proxy` are those in use."""

    def __init__(self, version: str | None, ledger: Ledger, *options: str) -> None:
        self.servers = tuple(MariaDb(version, *OPTIONS, *options, server_id=number) for number in (1, 2))
        self.proxies: tuple[FaultProxy, ...] = ()
        self.open = threading.Event()
        """Set while writers may write."""
        self.place = 0
        self.changes = 0
        self._switched_off = [0, 0]
        """How often each server, since it was started, was told to switch semi-sync off."""
        self._reachable: int | None = 0
        self._refusals = [0, 0]
        self._ledger = ledger
        self._stack = contextlib.ExitStack()

    @property
    def primary(self) -> MariaDb:
        return self.servers[self.place]

    @property
    def proxy(self) -> FaultProxy:
        return self.proxies[self.place]

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                self._stack.enter_context(server)
                server.add_user(*REPLICA, grants="REPLICATION SLAVE, REPLICATION MASTER ADMIN, BINLOG MONITOR, SELECT")
                server.add_user(*WRITER, grants="ALL PRIVILEGES")
                # Aria, as the fixture's template has it, is not atomic with InnoDB's transactions.
                server.sql("SET sql_log_bin = 0", "ALTER TABLE mysql.gtid_slave_pos ENGINE = InnoDB")
            self.proxies = tuple(
                self._stack.enter_context(FaultProxy(server.host, server.port)) for server in self.servers
            )
        except BaseException:
            self._stack.close()
            raise
        self._follow(self.servers[1], self.servers[0])
        self._route(to=0)
        self.semi_sync(on=True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    # -- the daemon's way ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def refusing(self) -> Iterator[FaultProxy]:
        """New connections to the server that is the primary now are reset at once."""
        place = self.place
        self._refusals[place] += 1
        self._route(to=self._reachable)
        try:
            yield self.proxies[place]
        finally:
            self._refusals[place] -= 1
            self._route(to=self._reachable)

    def _route(self, *, to: int | None) -> None:
        self._reachable = to
        for place, proxy in enumerate(self.proxies):
            proxy.refuse = place != to or self._refusals[place] > 0

    # -- semi-sync -------------------------------------------------------------------------------------------------

    def semi_sync(self, *, on: bool) -> None:
        if not on:
            self._ledger.suspend()
            self._switched_off[self.place] += 1
        self.primary.sql(f"SET GLOBAL rpl_semi_sync_master_enabled = {int(on)}")
        if on:
            self._ledger.resume()

    @property
    def switched_off(self) -> int:
        """How often the primary, since it was started, was told to switch semi-sync off."""
        return self._switched_off[self.place]

    def status(self, *, patience_s: float = 60.0) -> dict[str, str]:
        with (
            self.primary.connect(connect_timeout=patience_s, read_timeout=patience_s) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master%'")
            return dict(cursor.fetchall())

    # -- the primary's life ----------------------------------------------------------------------------------------

    def crash(self, down_s: float) -> None:
        self.primary.kill()
        time.sleep(down_s)
        self.primary.start(*AS_PRIMARY)
        self._switched_off[self.place] = 0

    def restart(self, down_s: float) -> None:
        """A clean one: sessions that wait for an acknowledgement are ended without it, so nothing is promised."""
        self._ledger.suspend()
        self.primary.stop()
        time.sleep(down_s)
        self.primary.start(*AS_PRIMARY)
        self._switched_off[self.place] = 0
        self._ledger.resume()

    def take_over(self, *, crash: bool) -> None:
        """The other server becomes the primary; writers are idle, or lose their connections in the crash."""
        old, new = self.primary, self.servers[1 - self.place]
        self.open.clear()
        self._route(to=None)
        self.proxy.reset_all()
        self._ledger.suspend()
        if crash:
            old.kill()
            old.start()
            self._switched_off[self.place] = 0
        else:
            self._switched_off[self.place] += 1
            old.sql("SET GLOBAL rpl_semi_sync_master_enabled = 0")
            self._end_writers(old)
        self._in_step(old, new)
        new.sql("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL rpl_semi_sync_master_enabled = 1")
        self._follow(old, new)
        self.place = 1 - self.place
        self.changes += 1
        self._route(to=self.place)
        self._ledger.resume()
        self.open.set()

    def _in_step(self, old: MariaDb, new: MariaDb) -> None:
        deadline = time.monotonic() + CATCH_UP_S
        target = old.gtid_binlog_pos()
        while _parts(new.gtid_binlog_pos()) != _parts(target):
            self.check_replication(new)
            if time.monotonic() > deadline:
                raise AssertionError(f"the other server is at {new.gtid_binlog_pos()}, not at {target}")
            time.sleep(0.05)

    def _end_writers(self, server: MariaDb) -> None:
        # An XA transaction whose session still lives can be ended by nobody else, not by replication either.
        for (number,) in server.sql(f"SELECT id FROM information_schema.processlist WHERE user = '{WRITER[0]}'"):
            with contextlib.suppress(pymysql.Error):
                server.sql(f"KILL {number}")
        count = f"SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{WRITER[0]}'"
        wait_until(lambda: server.value(count) == 0, "the old primary let go of the writers' sessions")

    def _follow(self, replica: MariaDb, primary: MariaDb) -> None:
        """From now on; the two are in step, and nobody writes."""
        # By file and offset, as this replica has nothing else to tell apart two transactions of one GTID by.
        file, offset, *_ = primary.sql("SHOW MASTER STATUS")[0]
        plain = ", master_ssl=0, master_ssl_verify_server_cert=0" if replica.version >= "11" else ""
        replica.sql(
            "SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos",
            f"CHANGE MASTER TO master_host='{primary.host}', master_port={primary.port}, master_user='{REPLICA[0]}', "
            f"master_password='{REPLICA[1]}', master_use_gtid=no, master_log_file='{file}', "
            f"master_log_pos={offset}, master_connect_retry=1{plain}",
            "START SLAVE",
        )

    def check_replication(self, replica: MariaDb | None = None) -> None:
        """The real replica lives; its own connection may be on the way back."""
        replica = replica or self.servers[1 - self.place]
        with replica.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            state = cursor.fetchall()[0]
        assert not int(state["Last_SQL_Errno"]), f"the real replica stopped: {state['Last_SQL_Error']}"
        assert state["Slave_IO_Running"] != "No", f"the real replica stopped: {state['Last_IO_Error']}"


def _parts(position: str) -> set[str]:
    return set(position.split(","))
