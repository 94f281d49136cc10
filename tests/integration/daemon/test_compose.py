"""docker-compose.yml in a real container engine: a primary of each version, and the image of our Dockerfile beside it.

Healthy, semi-synchronous, the commands in the container, a restart of the primary, and an end without a trace of it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pymysql
import pytest

from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]

PROJECT = Path(__file__).resolve().parents[3]
VERSIONS = ("10.5", "10.11", "11.8")


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:  # open at the same time: never the same port twice
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


@dataclass
class Compose:
    """One project: its own names, ports and volumes."""

    version: str
    primary_port: int
    metrics_port: int

    def run(self, *arguments: str, code: int = 0) -> str:
        command = ["docker", "compose", "--project-name", f"replica-{self.primary_port}", *arguments]
        environment = os.environ | {
            "MARIADB_VERSION": self.version,
            "PRIMARY_PORT": str(self.primary_port),
            "METRICS_PORT": str(self.metrics_port),
        }
        done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def replica(self, *arguments: str, code: int = 0) -> str:
        """The program in the running container, without any option that says where it is."""
        return self.run("exec", "-T", "replica", "mariadb-replica", *arguments, code=code)

    def sql(self, *statements: str) -> Sequence[tuple[Any, ...]]:
        with (
            pymysql.connect(
                host="127.0.0.1", port=self.primary_port, user="root", password="root", autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def counter(self, name: str) -> int:
        return int(self.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")[0][1])

    def has_a_replica(self) -> bool:
        """Whether a semi-synchronous one is connected; False too while the server restarts."""
        try:
            return self.counter("clients") == 1
        except pymysql.Error:
            return False

    def in_step(self) -> bool:
        """Whether the primary waits for acknowledgements: it begins to when a replica has caught up with a commit."""
        self.sql("CREATE OR REPLACE TABLE shop.step (id INT)")
        return bool(self.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_status'")[0][1] == "ON")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def image() -> None:
    Compose("11.8", 1, 1).run("build", "replica")


@pytest.fixture(scope="module", params=VERSIONS)
def project(request: pytest.FixtureRequest, image: None) -> Iterator[Compose]:
    found = Compose(request.param, *free_ports())
    try:
        found.run("up", "--detach", "--wait")
        yield found
    finally:
        found.run("down", "--volumes", "--timeout", "10")


def test_it_comes_up_healthy_and_semi_synchronous(project: Compose) -> None:
    status, body = project.get("/healthz")
    assert (status, json.loads(body)["healthy"]) == (200, True)
    wait_until(project.in_step, "the primary waits for the replica")
    before = project.counter("yes_tx")
    project.sql(
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, state VARCHAR(10))", "INSERT INTO shop.orders VALUES (1, 'new')"
    )
    assert project.counter("clients") == 1
    assert project.counter("yes_tx") == before + 2
    wait_until(lambda: project.get("/readyz")[0] == 200, "the replica is ready")


def test_it_is_set_up_as_the_readme_asks(project: Compose) -> None:
    found = project.sql(
        "SELECT @@binlog_format, @@binlog_row_metadata, @@rpl_semi_sync_master_enabled, @@gtid_strict_mode"
    )
    assert list(found) == [("ROW", "FULL", 1, 1)]


def test_the_account_may_replicate_from_it(project: Compose) -> None:
    options = ["--host", f"127.0.0.1:{project.primary_port}", "--user", "repl"]
    done = subprocess.run(
        [sys.executable, "-m", "replica", "check", *options],
        cwd=PROJECT,
        env=os.environ | {"MARIADB_REPLICA_PASSWORD": "replica-secret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ready to replicate" in done.stdout


def test_the_commands_need_no_options_in_the_container(project: Compose) -> None:
    project.sql("UPDATE shop.orders SET state = 'paid' WHERE id = 1")
    gtid = str(project.sql("SELECT @@last_gtid, @@gtid_binlog_pos")[0][1])

    def told_of_it() -> bool:  # the record is written every second
        return bool(json.loads(project.replica("status", "--json"))["status"]["position"]["gtid"] == gtid)

    wait_until(told_of_it, "the status tells of the last transaction")
    rows = [json.loads(line) for line in project.replica("tail", "-n", "1", "--no-follow", "--json").splitlines()]
    assert [(row["gtid"], row["before"]["state"], row["after"]["state"]) for row in rows] == [(gtid, "new", "paid")]
    told = json.loads(project.replica("explain", gtid, "--json"))
    assert told["tables"] == [{"table": "shop.orders", "inserted": 0, "updated": 1, "deleted": 0}]
    assert told["acknowledged"] is True
    assert "0-1-999999" in project.replica("explain", "0-1-999999", code=3)
    assert "holds the last transaction" in project.replica("purge", "--all-but-last")


def test_it_is_not_root_and_writes_nothing_but_its_volumes(project: Compose) -> None:
    inside = ("exec", "-T", "replica", "sh", "-c")
    assert project.run(*inside, "id -u").strip() != "0"
    for place in ("/anywhere", "/home/replica/anywhere", "/opt/replica/anywhere"):
        project.run(*inside, f"touch {place}", code=1)
    # What was compiled into the image is used: neither compiled again nor thrown away.
    assert project.run(*inside, "python -m replica.native.warm --check") == ""


def test_metrics_are_published(project: Compose) -> None:
    status, body = project.get("/metrics")
    assert status == 200
    assert "mariadb_replica_" in body
    assert "replica-secret" not in body


def test_it_finds_the_primary_again(project: Compose) -> None:
    project.run("restart", "primary")
    wait_until(project.has_a_replica, "the replica is back")
    wait_until(project.in_step, "the primary waits for it again")
    before = project.counter("yes_tx")
    project.sql("INSERT INTO shop.orders VALUES (2, 'again')")
    assert project.counter("yes_tx") == before + 1


def test_it_leaves_at_once_and_with_code_0(project: Compose) -> None:
    """PID 1 that ignores SIGTERM would be killed after ten seconds, with code 137; the primary would wait for it."""
    project.run("stop", "--timeout", "60", "replica")
    name = project.run("ps", "--all", "--quiet", "replica").strip()
    inspect = ["docker", "inspect", "--format", "{{.State.ExitCode}}", name]
    assert subprocess.run(inspect, capture_output=True, text=True, check=True).stdout.strip() == "0"
    wait_until(lambda: project.counter("clients") == 0, "the primary has noticed")
    project.run("start", "replica")
    wait_until(project.has_a_replica, "the replica goes on from its volume")
