"""The program as a user runs it: exit codes, structured logs, and a daemon that ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.installation import PROJECT
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

SECRET = "replica-secret"
PROGRAM = [sys.executable, "-m", "replica"]


def environment(server: MariaDb, **more: str) -> dict[str, str]:
    server.add_user("repl", SECRET)
    ours = {
        "MARIADB_REPLICA_HOST": server.host,
        "MARIADB_REPLICA_PORT": str(server.port),
        "MARIADB_REPLICA_USER": "repl",
        "MARIADB_REPLICA_PASSWORD": SECRET,
        "MARIADB_REPLICA_CONNECT_RETRY_S": "1",
    }
    return {**os.environ, **ours, **more}


def called(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], env=env, capture_output=True, text=True, cwd=PROJECT, timeout=60, check=False
    )


def test_run_receives_until_sigterm(any_server: MariaDb, tmp_path: Path) -> None:
    config = tmp_path / "replica.toml"
    config.write_text('start = "earliest"\nheartbeat_s = "1m"\n')
    relay = tmp_path / "relay"
    command = [*PROGRAM, "run", "--config", str(config), "--relay-dir", str(relay)]
    with subprocess.Popen(
        command, env=environment(any_server), stderr=subprocess.PIPE, text=True, cwd=PROJECT
    ) as process:
        try:
            assert process.stderr is not None
            lines: list[dict[str, Any]] = []
            for line in process.stderr:
                lines.append(json.loads(line))
                if lines[-1]["event"] == "connected":
                    break
            any_server.sql("CREATE OR REPLACE DATABASE cli")
            theirs = server_gtids(any_server)
            wait_until(lambda: relay_gtids(any_server, relay) == theirs, "everything is in the relay log")
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
            assert process.wait(60) == 0
        finally:
            process.kill()
    lines += map(json.loads, rest.splitlines())
    assert [line["event"] for line in lines] == ["started", "server setting", "connected", "stopped"]
    assert lines[-1]["position"] == any_server.gtid_binlog_pos()
    assert all({"level", "timestamp"} <= set(line) for line in lines)
    assert SECRET not in json.dumps(lines)


def test_a_permanent_error_is_the_exit_code(any_server: MariaDb, tmp_path: Path) -> None:
    env = environment(any_server, MARIADB_REPLICA_PASSWORD="wrong-and-secret")
    done = called("run", "--relay-dir", str(tmp_path), env=env)
    assert done.returncode == 31
    *logged, last = done.stderr.splitlines()
    failed = json.loads(logged[-1])
    assert (failed["event"], failed["error"], failed["exit_code"]) == ("failed", "AuthenticationError", 31)
    assert last.startswith("mariadb-replica: ")
    assert "wrong-and-secret" not in done.stderr
