"""`mariadb-replica fleet` on a real server: daemons that share memory and nothing else, and fail each for itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from replica.daemon.status.record import read_status
from replica.errors import AuthenticationError, ConfigError
from tests.fixtures.installation import PROJECT
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.logs.log_lines import logged
from tests.fixtures.mariadb import wait_until
from tools.bench.replica.bench_fleet import pss_mb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

SECRET = "marker-of-a-secret"
WAIT_S = 60
PROGRAM = [sys.executable, "-m", "replica"]


def configure(server: MariaDb, folder: Path, name: str, *, password: str = SECRET, more: str = "") -> None:
    file = folder / f"{name}.toml"
    file.write_text(
        f'host = "{server.host}:{server.port}"\nuser = "repl"\npassword = "{password}"\n'
        f'relay_dir = "{folder / "relay" / name}"\nstart = "earliest"\n{more}'
    )
    file.chmod(0o600)


def test_each_receives_and_fails_for_itself(any_server: MariaDb, tmp_path: Path) -> None:
    any_server.add_user("repl", SECRET, grants="REPLICATION SLAVE")
    any_server.sql("CREATE DATABASE d", "CREATE TABLE d.t (i INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
    for name in ("north", "south"):
        configure(any_server, tmp_path, name)
    configure(any_server, tmp_path, "west", more='cluster = "far west"\n')
    configure(any_server, tmp_path, "locked", password=f"{SECRET} of another server")
    (tmp_path / "broken.toml").write_text("host =")
    log = tmp_path / "log"

    with log.open("wb") as to:
        fleet = subprocess.Popen([*PROGRAM, "fleet", str(tmp_path)], stderr=to, cwd=PROJECT)
    try:
        wait_until(lambda: len(logged(log, "caught up")) == 3, "three have caught up", timeout_s=WAIT_S)
        assert {line["cluster"] for line in logged(log, "caught up")} == {"north", "south", "far west"}
        wait_until(lambda: len(logged(log, "daemon is not started again")) == 2, "two need a person", timeout_s=WAIT_S)
        assert {line["daemon"]: line["exit_code"] for line in logged(log, "daemon is not started again")} == {
            "locked": AuthenticationError.exit_code,
            "broken": ConfigError.exit_code,
        }
        processes = {line["daemon"]: line["pid"] for line in logged(log, "daemon begins")}
        private = [pss_mb(processes[name]) for name in ("north", "south", "west")]
        assert max(private) < 100, "a program of its own takes more than 160"

        os.kill(processes["north"], signal.SIGKILL)
        wait_until(lambda: len(logged(log, "caught up")) == 4, "it was started again", timeout_s=WAIT_S)
        any_server.sql("INSERT INTO d.t VALUES (2)")
        for name in ("north", "south", "west"):
            folder = tmp_path / "relay" / name
            wait_until(
                lambda at=folder: relay_gtids(any_server, at) == server_gtids(any_server),
                f"{name} has all",
                timeout_s=WAIT_S,
            )

        configure(any_server, tmp_path, "locked")
        fleet.send_signal(signal.SIGHUP)
        wait_until(lambda: len(logged(log, "caught up")) == 5, "the repaired one runs", timeout_s=WAIT_S)
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(WAIT_S) == ConfigError.exit_code, "the broken one never ran"
    finally:
        fleet.kill()
        fleet.wait()
    ended = {line["daemon"]: line["exit_code"] for line in logged(log, "daemon has ended")}
    assert ended == dict.fromkeys(("north", "south", "west", "locked"), 0)
    assert all((record := read_status(tmp_path / "relay" / name)) and record.state for name in ended)
    assert SECRET not in log.read_text()
