"""A daemon that is told to read its options again: it moves to another server, and a bad file does not disturb it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import PROJECT
from tests.fixtures.logs.listing import relay_gtids
from tests.fixtures.logs.log_lines import logged
from tests.fixtures.mariadb import MariaDb, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 60
SECRET = "marker-of-a-secret"


def test_it_moves_to_another_host_and_stays_there_with_a_bad_file(tmp_path: Path) -> None:
    file, log, relay = tmp_path / "replica.toml", tmp_path / "log", tmp_path / "relay"

    def write(*lines: str) -> None:
        file.write_text("\n".join(['user = "repl"', f'relay_dir = "{relay}"', 'start = "earliest"', *lines]))

    with MariaDb(server_id=1) as first, MariaDb(server_id=2) as second:
        for server in (first, second):  # the same history on both, as replication would have made it
            own = ("server_id = 1", "gtid_seq_no = 7", "timestamp = 1700000000")  # the same second too
            server.sql(*(f"SET SESSION {one}" for one in own), "CREATE DATABASE shop")
            server.add_user("repl", SECRET, grants="REPLICATION SLAVE")
        write(f'host = "{first.host}:{first.port}"')
        command = [sys.executable, "-m", "replica", "run", "--config", str(file)]
        environment = os.environ | {"MARIADB_REPLICA_PASSWORD": SECRET}
        with log.open("wb") as output, subprocess.Popen(command, stderr=output, env=environment, cwd=PROJECT) as daemon:
            try:
                wait_until(lambda: daemon.poll() is not None or first.dump_threads(), "streaming from the first")
                write(f'host = "{second.host}:{second.port}"', 'retain_s = "2d"', 'monitor_s = "1m"')
                daemon.send_signal(signal.SIGHUP)
                wait_until(second.dump_threads, "streaming from the second")
                wait_until(lambda: not first.dump_threads(), "it has said goodbye to the first")
                (line,) = logged(log, "reloaded")
                assert (line["changed"], line["needs_restart"]) == ("host, retain_s", "monitor_s")
                assert "no longer one of the hosts" in logged(log, "disconnected")[0]["error"]

                write(f'hots = "{first.host}:{first.port}"')
                daemon.send_signal(signal.SIGHUP)
                wait_until(lambda: logged(log, "not reloaded"), "the bad file is refused")
                assert "unknown option 'hots'" in logged(log, "not reloaded")[0]["message"]
                second.sql("CREATE TABLE shop.t (id INT)")
                wait_until(lambda: second.gtid_binlog_pos() in relay_gtids(second, relay), "it goes on from the second")
            finally:
                daemon.terminate()
                print(log.read_text())  # where it failed
            assert daemon.wait(WAIT_S) == 0
    assert len(logged(log, "connected")) == 2
    assert SECRET not in log.read_text()
