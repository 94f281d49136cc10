"""The daemon as a process beside `mariadb` containers of each version, started by testcontainers.

What a container changes: the server is stopped and started as a whole, its data lives in a layer, its network is the
engine's. The image of our own Dockerfile is tested in tests/integration/daemon/test_compose.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from testcontainers.core.container import DockerContainer

from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.container

VERSIONS = ("10.5", "10.11", "11.8")
PROGRAM = (sys.executable, "-m", "replica")
SECRET = "replica-secret"


class Primary:
    """A `mariadb` container on a fixed port: the engine would choose another one at each start."""

    def __init__(self, version: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.container = (
            DockerContainer(f"mariadb:{version}")
            .with_env("MARIADB_ROOT_PASSWORD", "root")
            .with_env("MARIADB_DATABASE", "shop")
            .with_env("MARIADB_REPLICATION_USER", "repl")
            .with_env("MARIADB_REPLICATION_PASSWORD", SECRET)
            .with_bind_ports(3306, self.port)
            .with_command(
                "--server-id=1 --log-bin=binlog --binlog-format=ROW --binlog-row-metadata=FULL "
                "--gtid-strict-mode=ON --rpl-semi-sync-master-timeout=60000"
            )
        )

    def sql(self, *statements: str) -> Sequence[tuple[Any, ...]]:
        connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", password="root", autocommit=True)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    @property
    def answers(self) -> bool:
        try:
            return bool(self.sql("SELECT COUNT(*) FROM mysql.user WHERE user = 'repl'")[0][0])
        except pymysql.Error:
            return False

    def counter(self, name: str) -> int:
        return int(self.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")[0][1])


@pytest.fixture(scope="module", params=VERSIONS)
def primary(request: pytest.FixtureRequest) -> Iterator[Primary]:
    found = Primary(request.param)
    with found.container:
        wait_until(lambda: found.answers, "the container's server answers")
        found.sql("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        yield found


def replica(*arguments: str, relay: Path) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *arguments, "--relay-dir", str(relay)]
    return subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, timeout=120, check=False)


def test_every_commit_is_acknowledged_and_nothing_is_lost_over_a_restart(primary: Primary, tmp_path: Path) -> None:
    relay = tmp_path / "relay"
    command = [*PROGRAM, "run", "--host", "127.0.0.1", "--port", str(primary.port), "--user", "repl", "--semi-sync"]
    command += ["--start", "earliest", "--relay-dir", str(relay), "--backoff-max", "1s"]
    environment = os.environ | {"MARIADB_REPLICA_PASSWORD": SECRET}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, cwd=PROJECT) as daemon:
        try:
            wait_until(lambda: primary.counter("clients") == 1, "the daemon is a semi-synchronous replica")
            primary.sql("CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20))")
            before = primary.counter("yes_tx")
            primary.sql(*(f"INSERT INTO shop.t VALUES ({n}, 'before')" for n in range(20)))
            assert primary.counter("yes_tx") == before + 20
            assert primary.counter("no_tx") == 0
            primary.container.get_wrapped_container().restart(timeout=30)
            wait_until(lambda: primary.answers, "the server is back")
            primary.sql("SET GLOBAL rpl_semi_sync_master_enabled = ON")
            wait_until(lambda: primary.counter("clients") == 1, "the daemon is back")
            primary.sql(*(f"INSERT INTO shop.t VALUES ({n}, 'after')" for n in range(20, 40)))
            assert primary.counter("no_tx") == 0
            (position,) = primary.sql("SELECT @@gtid_binlog_pos")[0]
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(60) == 0
            assert primary.counter("clients") == 0
        finally:
            daemon.kill()
    shown = replica("tail", "--from", "earliest", "--no-follow", "--json", "--table", "shop.t", relay=relay)
    assert shown.returncode == 0, shown.stderr
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [row["after"]["id"] for row in rows] == list(range(40))
    told = replica("explain", str(position), "--json", relay=relay)
    assert json.loads(told.stdout)["tables"] == [{"table": "shop.t", "inserted": 1, "updated": 0, "deleted": 0}]
