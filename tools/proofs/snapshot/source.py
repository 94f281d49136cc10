"""Server of the proof, with all conditions at once under which a position and the rows of a snapshot may differ.

In: a version, a seed, a number of rows. Out: a primary with 20 KB binlog files, sync_binlog=1 and semi-sync AFTER_SYNC.
Its replica really acknowledges, and sometimes late. Two sessions query all status variables in a loop. The writers run
in their own process.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.spark.daemons import Daemon
from tools.proofs.snapshot.tables import DATABASE, Table, rows_of, tables

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = (
    "--max-binlog-size=20480",
    "--sync-binlog=1",
    "--binlog-row-metadata=FULL",
    "--innodb-buffer-pool-size=256M",
    "--innodb-log-file-size=64M",
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    "--rpl-semi-sync-master-wait-no-slave=ON",
    "--rpl-semi-sync-master-timeout=600000",
)
WRITER = ("writer", "writer-secret")
MONITORS = 2
MONITORED = "SHOW GLOBAL STATUS; DO SLEEP(0.02);"
FILLED_AT_ONCE = 100_000
HANG_EVERY_S, HANG_S = (1.0, 6.0), (0.05, 1.5)
"""The replica stands still: commits are in the binlog then, and not in the tables."""
START_TIMEOUT_S = 180.0
"""Of the replica: its first start in a new clone compiles every module of Python, perhaps on a busy machine."""
END_TIMEOUT_S = 120.0
WRITERS = 6
XA_OPEN = "'open over the whole snapshot'"


class Source:
    """Use as a context manager; then `fill`, `start`, and `finish` at last."""

    def __init__(self, version: str | None, *, rows: int, seed: int, folder: Path, pause_s: float) -> None:
        self.primary = MariaDb(version, *OPTIONS)
        self.tables: tuple[Table, ...] = tables(self.primary.version)
        self.sizes = {table.name: rows_of(table, rows, self.primary.version) for table in self.tables}
        self.hangs = 0
        self._left_open = False
        self._seed = seed
        self._pause_s = pause_s
        self._folder = folder
        self._daemon: Daemon
        self._stack = contextlib.ExitStack()
        self._over = threading.Event()
        self._writers: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.primary)
            self.primary.add_user(grants="REPLICATION SLAVE, BINLOG MONITOR, SELECT")
            self.primary.add_user(*WRITER, grants="ALL PRIVILEGES")
            acknowledging = self._folder / "acknowledging"
            self._daemon = Daemon(self.primary, acknowledging, "--semi-sync", "--retain-bytes=64m")
            stack.enter_context(self._daemon)
            client = "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'"
            replica = "a replica acknowledges"
            wait_until(lambda: int(self.primary.sql(client)[0][1]) == 1, replica, timeout_s=START_TIMEOUT_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._stack.__exit__(*exc)  # type: ignore[arg-type]

    def fill(self, *, logged: bool) -> None:
        """Make the tables and their rows; without a trace in the binlog unless they are to be `logged`."""
        self.primary.sql(f"CREATE DATABASE {DATABASE}", *(table.create() for table in self.tables))
        for table in self.tables:
            for first in range(0, self.sizes[table.name], FILLED_AT_ONCE):
                rows = min(FILLED_AT_ONCE, self.sizes[table.name] - first)
                session = f"SET sql_log_bin = {int(logged)}, gtid_domain_id = {table.domain}, time_zone = '+00:00'"
                self.primary.sql(f"USE {DATABASE}", session, "SET sql_mode = ''", table.fill(first, rows))

    def leave_open(self) -> None:
        """Leave one XA transaction prepared until the end; queries that start behind it look for it in the binlog."""
        if not self._left_open:
            self._left_open = True
            table = next(table for table in self.tables if table.name == "neg")
            key = table.key_of(-7)[0]
            self.primary.sql(
                f"SET gtid_domain_id = {table.domain}",
                f"XA START {XA_OPEN}",
                f"INSERT INTO {DATABASE}.neg VALUES ({key}, 1, 'open over the whole snapshot', NULL)",
                f"XA END {XA_OPEN}",
                f"XA PREPARE {XA_OPEN}",
            )

    def start(self) -> None:
        """Let the writers wait for `pace`, and look at the status."""
        for _ in range(MONITORS):
            self._stack.enter_context(self._monitor())
        user, password = WRITER
        settings = {
            "port": self.primary.port,
            "user": user,
            "password": password,
            "version": self.primary.version,
            "seed": self._seed,
            "sizes": self.sizes,
            "writers": WRITERS,
            "pause_s": self._pause_s,
        }
        command = [sys.executable, "-m", "tools.proofs.snapshot.writers", json.dumps(settings)]
        self._writers = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT
        )
        self._stack.callback(self._writers.kill)
        hanging = threading.Thread(target=self._hang_at_random, name="hanging commits", daemon=True)
        hanging.start()
        self._stack.callback(hanging.join)
        self._stack.callback(self._over.set)

    @contextlib.contextmanager
    def _monitor(self) -> Any:
        client = [self.primary.binary("mariadb"), "--no-defaults", "--host=127.0.0.1", f"--port={self.primary.port}"]
        client += [f"--user={self.primary.user}", f"--password={self.primary.password}"]
        client += ["--skip-ssl"] if self.primary.version >= "11" else []
        quiet = subprocess.DEVNULL
        with (
            subprocess.Popen(["yes", MONITORED], stdout=subprocess.PIPE, stderr=quiet) as words,
            subprocess.Popen(client, stdin=words.stdout, stdout=quiet, stderr=quiet) as session,
        ):
            try:
                yield
            finally:
                session.kill()
                words.kill()

    def _hang_at_random(self) -> None:
        chance = random.Random(f"{self._seed} hanging commits")
        while not self._over.wait(chance.uniform(*HANG_EVERY_S)):
            self._daemon.signal(signal.SIGSTOP)
            self._over.wait(chance.uniform(*HANG_S))
            self._daemon.signal(signal.SIGCONT)
            self.hangs += 1

    # -- the load --------------------------------------------------------------------------------------------------

    def pace(self, word: str) -> None:
        """`go` or `rest`."""
        self.check()
        assert self._writers is not None
        assert self._writers.stdin is not None
        self._writers.stdin.write(f"{word}\n")
        self._writers.stdin.flush()

    def check(self) -> None:
        """The writers are at work."""
        assert self._writers is not None
        if self._writers.poll() is not None:
            _, error = self._writers.communicate()
            raise AssertionError(f"the writers ended by themselves: {error[-3000:]}")

    @property
    def writing(self) -> bool:
        """Whether the load is not over yet."""
        return not self._over.is_set()

    def finish(self) -> dict[str, int]:
        """End the load, every transaction of it, and the hanging; tell what was done."""
        assert self._writers is not None
        self.check()
        self._over.set()
        out, error = self._writers.communicate("end\n", timeout=END_TIMEOUT_S)
        assert self._writers.returncode == 0, f"the writers failed: {error[-3000:]}"
        if self._left_open:
            self.primary.sql("SET gtid_domain_id = 1", f"XA COMMIT {XA_OPEN}")
        done: dict[str, int] = json.loads(out)
        return done


def binlogs(server: MariaDb) -> list[Path]:
    """Every binlog file, in order: none is ever purged here."""
    return sorted(path for path in server.datadir.glob("bin.*") if path.suffix[1:].isdigit())
