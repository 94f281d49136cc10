"""Numbers go back while the daemon is killed -9 around it: each acknowledged transaction is there once, in order."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import PROJECT
from tests.fixtures.logs.listing import relay_files
from tests.fixtures.mariadb import MariaDb, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.server

SEMI_SYNC = (
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-no-slave=ON",
    "--rpl-semi-sync-master-timeout=86400000",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
)
SECRET = "repl-secret"
WAIT_S = 120.0
_GROUP = re.compile(r"\bGTID (\d+-\d+-\d+)|^###\s+@1=(\d+)", re.MULTILINE)


class Daemon:
    """`python -m replica run`, which takes whatever number comes."""

    def __init__(self, server: MariaDb, folder: Path) -> None:
        server.add_user("repl", SECRET)
        self.relay, self._log = folder / "relay", folder / "daemon.log"
        self._environment = os.environ | {"MARIADB_REPLICA_PASSWORD": SECRET, "MARIADB_REPLICA_USER": "repl"}
        self._command = [sys.executable, "-m", "replica", "run", f"--relay-dir={self.relay}", "--start=earliest"]
        self._command += [f"--host={server.host}:{server.port}", "--semi-sync", "--no-gtid-strict-mode"]
        self._command += ["--server-id=900", "--backoff-max=200ms", "--heartbeat=500ms"]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environment, stderr=log, cwd=PROJECT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_S) == 0, self._log.read_text()[-3000:]


@pytest.fixture
def primary() -> Iterator[MariaDb]:
    with MariaDb(None, *SEMI_SYNC) as server:
        server.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF", "CREATE DATABASE o")
        server.sql("CREATE TABLE o.t (id INT PRIMARY KEY)", "SET GLOBAL rpl_semi_sync_master_enabled = ON")
        yield server


class Load:
    """Transactions one after the other, each under the number it is given and with a row that counts them."""

    def __init__(self, server: MariaDb) -> None:
        self.wanted: list[tuple[str, str]] = []
        self._server = server

    def write(self, number: int) -> None:
        """Returns as soon as it is acknowledged."""
        self._expect(number)
        self._insert(number, len(self.wanted))

    @contextlib.contextmanager
    def writing(self, number: int) -> Iterator[None]:
        """It is in the binlog and waits for the acknowledgement; when this ends it must have come."""
        self._expect(number)
        thread = threading.Thread(target=self._insert, args=(number, len(self.wanted)), daemon=True)
        gtid = self.wanted[-1][0]
        thread.start()
        with self._server.connect() as connection, connection.cursor() as cursor:  # it does not commit
            wait_until(lambda: self._logged(cursor) == gtid, f"{gtid} is in the binlog")
        yield
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"{gtid} was not acknowledged"

    def _expect(self, number: int) -> None:
        self.wanted.append((f"0-{self._server.server_id}-{number}", str(len(self.wanted) + 1)))

    def _insert(self, number: int, row: int) -> None:
        self._server.sql(f"SET gtid_seq_no = {number}", f"INSERT INTO o.t VALUES ({row})")

    @staticmethod
    def _logged(cursor: object) -> str:
        cursor.execute("SELECT @@GLOBAL.gtid_binlog_pos")  # type: ignore[attr-defined]
        return str(cursor.fetchone()[0])  # type: ignore[attr-defined]


def rows_in(server: MariaDb, files: Sequence[Path]) -> list[tuple[str, str]]:
    """The GTID and the row of each transaction, in order, as MariaDB's own tool shows them."""
    command = [server.binary("mariadb-binlog"), "--no-defaults", "--verify-binlog-checksum", "--skip-gtid-strict-mode"]
    command += ["--base64-output=decode-rows", "-v", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, gtid = [], ""
    for named, row in _GROUP.findall(done.stdout):
        if row:
            found.append((gtid, row))
        gtid = named or gtid
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)  # nine starts of a process
@pytest.mark.parametrize("rotate", [False, True])
def test_killed_around_numbers_that_went_back(primary: MariaDb, tmp_path: Path, *, rotate: bool) -> None:
    daemon, load = Daemon(primary, tmp_path), Load(primary)
    try:
        for number in (5, 9):
            load.write(number)
        daemon.kill()  # right behind the highest; the first one that goes back comes while nobody reads
        with load.writing(2):
            daemon.start()
        daemon.kill()  # right behind the first that went back
        daemon.start()
        load.write(3)
        daemon.process.send_signal(signal.SIGSTOP)
        with load.writing(2):  # sent perhaps, acknowledged not
            daemon.kill()
            daemon.start()
        if rotate:
            primary.sql("FLUSH BINARY LOGS")
        for number, pause_s in ((9, 0.0), (1, 0.003), (4, 0.01), (9, 0.05)):
            writer = threading.Thread(target=load.write, args=(number,))
            writer.start()
            time.sleep(pause_s)  # anywhere between the statement and its acknowledgement
            daemon.kill()
            daemon.start()
            writer.join(WAIT_S)
            assert not writer.is_alive(), f"{number} was not acknowledged"
            if rotate and number == 1:
                primary.sql("FLUSH BINARY LOGS")
        load.write(10)
        daemon.kill()  # its number names one place again
        with load.writing(11):
            daemon.start()
        daemon.stop()
    finally:
        daemon.kill()
    assert rows_in(primary, relay_files(daemon.relay)) == load.wanted
    assert load.wanted == rows_in(primary, [primary.datadir / name for name in primary.binlogs()])
