"""`tail` and `explain` on real servers: straight from a primary, beside a daemon, and over the daemon's death."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from replica.commands.explain.command import explain_primary
from replica.commands.tail.source import warnings_logger
from replica.protocol.gtid import Gtid
from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import wait_until
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

SECRET = "replica-secret"
WAIT_S = 60
PROGRAM = [sys.executable, "-m", "replica"]


def connection(server: MariaDb) -> list[str]:
    server.add_user("repl", SECRET)
    return ["--host", server.host, "--port", str(server.port), "--user", "repl"]


@contextlib.contextmanager
def running(*arguments: str, variables: dict[str, str] | None = None, **more: Any) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"MARIADB_REPLICA_PASSWORD": SECRET} | (variables or {})
    with subprocess.Popen([*PROGRAM, *arguments], env=environment, text=True, cwd=PROJECT, **more) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def tail(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running("tail", "--json", *arguments, variables=variables, **pipes) as process:
        yield process


def row(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        pytest.fail(process.stderr.read())
    found: dict[str, Any] = json.loads(line)
    return found


def explain(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"MARIADB_REPLICA_PASSWORD": SECRET}
    command = [*PROGRAM, "explain", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=PROJECT, check=False)


def test_straight_from_a_primary_with_the_names_of_its_catalog(server: MariaDb, tmp_path: Path) -> None:
    """The server logs no names of columns, as is its default. The options are those of a daemon beside it."""
    server.sql(
        "CREATE OR REPLACE DATABASE tailed",
        "CREATE TABLE tailed.orders (id INT PRIMARY KEY, state ENUM('new','paid'), total DECIMAL(9,2))",
        "CREATE TABLE tailed.other (id INT)",
    )
    threads = set(server.dump_threads())
    daemons = {"MARIADB_REPLICA_SERVER_ID": "4711", "MARIADB_REPLICA_SEMI_SYNC": "true", "TMPDIR": str(tmp_path)}
    with tail(*connection(server), "--table", "tailed.orders", **daemons) as process:
        wait_until(lambda: set(server.dump_threads()) - threads, "tail streams")
        assert list(tmp_path.iterdir()), "its relay log"
        assert "4711" not in [str(host[0]) for host in server.sql("SHOW SLAVE HOSTS")]
        assert server.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")[0][1] == "0"
        server.sql(
            "INSERT INTO tailed.other VALUES (1)",
            "INSERT INTO tailed.orders VALUES (1, 'new', 9.5)",
            "UPDATE tailed.orders SET state = 'paid'",
        )
        first, second = row(process), row(process)
        assert first["after"] == {"id": 1, "state": "new", "total": "9.50"}
        assert (second["before"]["state"], second["after"]["state"]) == ("new", "paid")
        assert second["gtid"] == server.gtid_binlog_pos()
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=WAIT_S)
        assert (process.returncode, rest, said) == (0, "", "")
    wait_until(lambda: set(server.dump_threads()) <= threads, "the primary let it go")
    assert not list(tmp_path.iterdir())


def test_everything_up_to_now_from_a_primary(any_server: MariaDb) -> None:
    any_server.sql(
        "CREATE OR REPLACE DATABASE past",
        "CREATE TABLE past.t (id INT PRIMARY KEY)",
        *(f"INSERT INTO past.t VALUES ({n})" for n in range(5)),
    )
    options = [*connection(any_server), "--from", "earliest", "--no-follow", "--table", "past.t"]
    with tail(*options) as process:
        shown, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said
    assert [json.loads(line)["after"]["id"] for line in shown.splitlines()] == list(range(5))


def test_beside_a_daemon_and_over_its_death(any_server: MariaDb, tmp_path: Path) -> None:
    any_server.sql("CREATE OR REPLACE DATABASE beside", "CREATE TABLE beside.t (id INT PRIMARY KEY)")
    relay = str(tmp_path / "relay")
    daemon = ["run", *connection(any_server), "--relay-dir", relay]
    threads = set(any_server.dump_threads())
    with running(*daemon, stderr=subprocess.DEVNULL) as first:
        wait_until(lambda: set(any_server.dump_threads()) - threads, "the daemon streams")
        with tail("--relay-dir", relay, "--from", "earliest", *connection(any_server)) as process:
            any_server.sql("INSERT INTO beside.t VALUES (1)")
            assert row(process)["after"] == {"id": 1}
            first.kill()
            first.wait()
            any_server.sql("INSERT INTO beside.t VALUES (2)")
            with running(*daemon, stderr=subprocess.DEVNULL):
                assert row(process)["after"] == {"id": 2}
                any_server.sql("INSERT INTO beside.t VALUES (3)")
                assert row(process)["after"] == {"id": 3}
            process.terminate()
            assert process.wait(WAIT_S) == 0
    gtid = any_server.gtid_binlog_pos()
    told = json.loads(explain(gtid, "--relay-dir", relay, "--json").stdout)
    (file, position) = any_server.sql("SHOW MASTER STATUS")[0][:2]
    assert (told["primary"]["file"], told["primary"]["end"]) == (file, position)
    assert told["tables"] == [{"table": "beside.t", "inserted": 1, "updated": 0, "deleted": 0}]
    asked = json.loads(explain(gtid, *connection(any_server), "--json").stdout)
    assert (asked["tables"], asked["primary"]) == (told["tables"], told["primary"])


def test_explain_asks_the_primary(server: MariaDb) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE asked",
        "CREATE TABLE asked.t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB",
        "SET SESSION gtid_domain_id = 3",
        "INSERT INTO asked.t VALUES (1, 1), (2, 2)",
        "SET SESSION gtid_domain_id = 0",
        "UPDATE asked.t SET n = 3",
    )
    wanted = next(gtid for gtid in server.gtid_binlog_pos().split(",") if gtid.startswith("0-"))
    server.sql("DELETE FROM asked.t", "FLUSH BINARY LOGS", "INSERT INTO asked.t VALUES (5, 5)")
    config, log = replica_config(server), warnings_logger()

    def told(gtid: str) -> dict[str, Any]:
        answer: dict[str, Any] = explain_primary(config, Gtid.parse(gtid), log).as_dict()
        return answer

    found = told(wanted)
    assert found["tables"] == [{"table": "asked.t", "inserted": 0, "updated": 2, "deleted": 0}]
    assert found["statements"] == ["UPDATE asked.t SET n = 3"]
    assert found["primary"]["file"] == server.binlogs()[-2]
    assert told("0-1-999999")["reason"] == "not yet"
    assert told("99-1-1")["reason"] == "domain"
    assert told(f"0-77-{wanted.split('-')[2]}")["reason"] == "other server"

    server.purge_binlogs()
    assert told(wanted)["reason"] == "purged"
