"""`check` against real servers: what is wrong is found, what it says to do mends it, what is right is left alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from replica.commands.check.command import check_all
from replica.commands.cli import program
from replica.daemon.config import DaemonConfig
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from click.testing import Result as ClickResult

    from replica.commands.check.report import Report, Result

pytestmark = pytest.mark.server

SECRET = "replica-secret"
WELL_SET_UP = (
    "--binlog-row-metadata=FULL",
    "--gtid-strict-mode=ON",
    "--net-buffer-length=128K",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    "--sync-binlog=1",
    "--innodb-flush-log-at-trx-commit=1",
    "--expire-logs-days=10",
)
BADLY_SET_UP = (
    "--binlog-format=MIXED",
    "--binlog-row-image=MINIMAL",
    "--binlog-row-metadata=NO_LOG",
    "--binlog-checksum=NONE",
    "--rpl-semi-sync-master-timeout=100",
    "--sync-binlog=0",
)
EVERYTHING = "REPLICATION SLAVE, REPLICATION MASTER ADMIN, BINLOG MONITOR, SELECT"


def options(*servers: MariaDb, grants: str = EVERYTHING, **more: object) -> dict[str, object]:
    for server in servers:
        server.add_user("repl", SECRET, grants=grants)
    hosts = ",".join(f"{server.host}:{server.port}" for server in servers)
    return {"host": hosts, "user": "repl", "password": SECRET, "connect_timeout_s": 30, **more}


async def checked(given: dict[str, object]) -> list[Report]:
    return await check_all(DaemonConfig.parse(given), {})


def called(*arguments: str, given: dict[str, object]) -> subprocess.CompletedProcess[str]:
    variables = {f"MARIADB_REPLICA_{name.upper()}": str(value) for name, value in given.items()}
    return subprocess.run(
        [sys.executable, "-m", "replica", "check", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        cwd=PROJECT,
        timeout=60,
        check=False,
    )


def shown(*arguments: str, given: dict[str, object]) -> ClickResult:
    """The same in this process: Python and its modules take longer to start than the rest takes."""
    variables = {f"MARIADB_REPLICA_{name.upper()}": str(value) for name, value in given.items()}
    return CliRunner().invoke(program, ["check", *arguments], env=variables)


def states(report: Report) -> dict[str, str]:
    return {one.check: one.state for one in report.results}


def found(reports: Sequence[Report], check: str) -> Result:
    (one,) = [one for report in reports for one in report.results if one.check == check]
    return one


async def test_a_server_that_is_set_up_well_is_ready(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version, *WELL_SET_UP)
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t(a INT)", "SET GLOBAL rpl_semi_sync_master_enabled = ON")
    given = options(server, semi_sync="true", relay_dir=str(tmp_path / "relay"), min_free_bytes="1m")
    theirs, ours = await checked(given)
    assert (theirs.error, ours.error) == (None, None)
    assert theirs.version == server.value("SELECT @@version")
    assert {one.check: one.what for one in theirs.results if one.state != "ok"} == {}
    assert not (tmp_path / "relay").exists()

    done = await asyncio.to_thread(shown, "--json", given=given)
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["ok"], answer["exit_code"]) == (0, True, 0)
    assert [report["subject"] for report in answer["reports"]] == [f"{server.host}:{server.port}", "this machine"]
    assert {check["check"]: check["state"] for check in answer["reports"][0]["checks"]} == states(theirs)
    assert SECRET not in done.stdout


async def test_the_page_sets_up_a_server_that_has_nothing_to_complain_about(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    page = (PROJECT / "docs" / "daemon.md").read_text(encoding="utf-8")
    settings, *_ = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    names = [line.partition("#")[0].split("=") for line in settings.splitlines() if "=" in line]
    server = make_server(server_version, *(f"--{name.strip()}={value.strip()}" for name, value in names))
    for block in re.findall(r"```sql\n(.*?)```", page, re.DOTALL):
        statements = re.sub(r"^--.*$", "", block, flags=re.MULTILINE).split(";")
        server.sql(*(statement for statement in statements if statement.strip()))
    given = {"host": f"{server.host}:{server.port}", "user": "repl", "password": "choose-one", "semi_sync": "true"}
    report, _ = await checked(given | {"relay_dir": str(tmp_path), "min_free_bytes": "1m"})
    assert report.error is None
    assert [one for one in report.results if one.state not in ("ok", "note")] == []


async def test_every_statement_it_proposes_mends_what_it_is_for(
    make_server: Callable[..., MariaDb], server_version: str
) -> None:
    server = make_server(server_version, *BADLY_SET_UP)
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t(a INT)")
    given = options(server, grants="", semi_sync="true", server_id=77)
    before, _ = await checked(given)
    assert before.error is not None
    assert before.error.exit_code == 21
    bad = [one for one in before.results if one.state != "ok"]
    assert {one.check for one in before.missing} == {"binlog_format", "grant"}
    assert {one.check for one in bad if one.state == "warning"} == {
        *("binlog_row_image", "binlog_row_metadata", "binlog_checksum", "grant: tables"),
        *("semi_sync", "semi_sync wait", "semi_sync timeout", "semi_sync durability"),
    }
    for one in bad:
        statements = [part.strip() for part in one.fix.partition(" (")[0].split(";") if part.strip()]
        assert statements, one
        for statement in statements:
            assert statement.startswith(("SET GLOBAL ", "GRANT ")), one
            server.sql(statement.replace("`database`", "`shop`"))
    after, _ = await checked(given)
    assert after.error is None
    assert {one.check: one.what for one in after.results if one.state != "ok"} == {}


async def test_everything_that_is_missing_is_told_at_once(make_server: Callable[..., MariaDb]) -> None:
    server = make_server("11.8", "--skip-log-bin", "--binlog-format=STATEMENT")
    given = options(server, grants="", server_id=1)
    (report, _) = await checked(given)
    assert {one.check for one in report.missing} == {"log_bin", "binlog_format", "grant", "server_id"}
    done = called(given=given)
    assert done.returncode == 21
    for text in ("✗ MISSING  log_bin", "GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%';", "4 missing", "exit code 21"):
        assert text in done.stdout


async def test_an_account_that_may_do_no_more_than_needed(any_server: MariaDb) -> None:
    report, _ = await checked(options(any_server, grants="REPLICATION SLAVE"))
    assert report.error is None
    notes = {name for name, state in states(report).items() if state == "note"}
    assert {"grant: replicas", "grant: binlogs", "binlog_do_db"} <= notes


async def test_servers_that_cannot_be_asked_are_errors_of_their_own(any_server: MariaDb) -> None:
    given = options(any_server)
    given["host"] = f"{given['host']},127.0.0.1:1"
    good, gone, _ = await checked(given)
    assert good.error is None
    assert gone.error is not None
    assert gone.error.exit_code == 40
    wrong, _ = await checked(options(any_server) | {"password": "wrong-and-secret"})
    assert wrong.error is not None
    assert wrong.error.exit_code == 31
    assert "wrong-and-secret" not in str(wrong.error)


async def test_tls_is_shown_as_it_is(make_server: Callable[..., MariaDb]) -> None:
    server = make_server("11.8", tls=True)
    assert server.certificates is not None
    verified, _ = await checked(options(server, tls_ca=str(server.certificates.ca), tls="verify-ca"))
    assert found([verified], "tls").state == "ok"
    assert "TLSv1.3" in found([verified], "tls").what
    unverified, _ = await checked(options(server, tls="required"))
    assert found([unverified], "tls").state == "warning"


async def test_databases_that_the_binlog_leaves_out(make_server: Callable[..., MariaDb], server_version: str) -> None:
    server = make_server(server_version, "--binlog-ignore-db=secret", "--binlog-ignore-db=tmp")
    report, _ = await checked(options(server))
    one = found([report], "binlog_do_db")
    assert (one.state, "secret,tmp is not in the binlog" in one.what) == ("warning", True), one


async def test_another_replica_with_our_id_and_our_own(any_server: MariaDb, tmp_path: Path) -> None:
    with EmbeddedReplica(replica_config(any_server, server_id=4711, heartbeat_s=30), tmp_path) as replica:
        replica.start(GtidPosition.parse(any_server.gtid_binlog_pos()))
        wait_until(lambda: replica.progress.connections, "the replica is connected")
        given = options(any_server, server_id=4711)
        stranger, _ = await checked(given)
        ours, here = await checked(given | {"relay_dir": str(tmp_path)})
    assert stranger.error is not None
    assert stranger.error.exit_code == 33
    assert found([stranger], "replicas").state == "missing"
    assert (ours.error, found([ours], "replicas").state) == (None, "ok")
    assert found([here], "relay_dir").state == "note"


@pytest.fixture
def stopped(server: MariaDb, tmp_path: Path) -> Path:
    """A relay log whose last transaction is two hours old, and a server that has gone on."""
    server.sql("CREATE OR REPLACE DATABASE d", "CREATE TABLE d.t(a INT)", "SET GLOBAL expire_logs_days = 0")
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(GtidPosition.parse(server.gtid_binlog_pos()))
        server.sql(f"SET TIMESTAMP = {int(time.time()) - 7200}", "INSERT INTO d.t VALUES (1)")
        assert replica.wait_for(GtidPosition.parse(server.gtid_binlog_pos()), 60)
    server.sql("INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (3)")
    return tmp_path


async def test_how_far_a_relay_log_is_behind_and_how_long_that_lasts(server: MariaDb, stopped: Path) -> None:
    given = options(server, relay_dir=str(stopped), min_free_bytes="1m")
    report, _ = await checked(given)
    assert report.error is None
    assert found([report], "position").state == "ok"
    behind = found([report], "behind")
    assert behind.state == "note"
    assert "up to 2 transactions" in behind.what
    assert "its last transaction is 2 h old" in behind.what
    assert " B, " in behind.what or " KiB, " in behind.what

    expiry = "binlog_expire_logs_seconds = 7260" if server.version != "10.5" else "expire_logs_days = 1"
    server.sql(f"SET GLOBAL {expiry}")
    report, _ = await checked(given)
    left = found([report], "behind")
    if server.version == "10.5":  # whole days only
        assert (left.state, "more" in left.what) == ("note", True), left
    else:
        assert left.state == "warning", left
        assert "SET GLOBAL binlog_expire_logs_seconds = 14520;" in left.fix


async def test_a_relay_log_whose_continuation_is_gone(server: MariaDb, stopped: Path) -> None:
    given = options(server, relay_dir=str(stopped), min_free_bytes="1m")
    server.purge_binlogs()
    report, _ = await checked(given)
    assert report.error is not None
    assert (report.error.exit_code, "purged" in report.error.message) == (32, True)
    server.reset_master()
    report, _ = await checked(given)
    assert report.error is not None
    assert (report.error.exit_code, found([report], "position").state) == (32, "missing")
    assert called(given=given).returncode == 32


async def test_a_server_that_was_reset_and_has_written_the_same_again(
    make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    server = make_server("11.8")
    again = ("CREATE OR REPLACE DATABASE d", "CREATE TABLE d.t(a INT)", "INSERT INTO d.t VALUES (1)")
    server.reset_master()
    server.sql(*again)
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(GtidPosition())
        position = server.gtid_binlog_pos()
        assert replica.wait_for(GtidPosition.parse(position), 60)
    given = options(server, relay_dir=str(tmp_path), min_free_bytes="1m")
    report, _ = await checked(given)
    assert (report.error, found([report], "behind").state) == (None, "ok")
    server.reset_master()
    server.sql(*again)
    assert server.gtid_binlog_pos() == position
    report, _ = await checked(given)
    assert report.error is not None
    assert (report.error.exit_code, "is a different one now" in report.error.message) == (32, True)


async def test_one_server_by_two_names_is_no_replica_of_itself(any_server: MariaDb) -> None:
    given = options(any_server, server_id=4712)
    given["host"] = f"127.0.0.1:{any_server.port},localhost:{any_server.port}"
    one, same, together, _ = await checked(given)
    assert (one.error, same.error, together.error) == (None, None, None)
    assert states(together)["server ids"] == "warning"


async def test_servers_that_have_nothing_to_do_with_each_other(make_server: Callable[..., MariaDb]) -> None:
    first, second = make_server(None, server_id=1), make_server(None, server_id=2)
    for server in (first, second):
        server.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)")
    *each, together, _ = await checked(options(first, second))
    assert [report.error for report in each] == [None, None]
    assert together.error is not None
    assert together.error.exit_code == 21
    assert states(together)["history"] == "missing"


async def test_a_primary_and_its_replica_are_one_history(make_server: Callable[..., MariaDb]) -> None:
    first, second = (make_server("10.11", "--log-slave-updates", server_id=number) for number in (1, 2))
    user, password = first.add_user()
    source = f"master_host='{first.host}', master_port={first.port}, master_user='{user}', master_password='{password}'"
    second.sql(
        f"CHANGE MASTER TO {source}, master_use_gtid=slave_pos, master_connect_retry=1",
        "START SLAVE",
        "SET GLOBAL read_only = ON",
    )
    first.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)")
    wait_until(lambda: second.gtid_binlog_pos() == first.gtid_binlog_pos(), "the server's own replica caught up")
    one, other, together, _ = await checked(options(first, second, start=first.gtid_binlog_pos()))
    assert [report.error for report in (one, other, together)] == [None, None, None]
    assert set(states(together).values()) == {"ok"}
    assert found([other], "position").state == "ok"
    assert found([other], "read_only").state == "note"
    second.sql("STOP SLAVE", "CREATE DATABASE e")
    first.sql("CREATE DATABASE f")
    *_, together, _ = await checked(options(first, second))
    assert states(together)["history"] == "missing"


def test_the_configuration_is_shown_without_asking_anybody(tmp_path: Path) -> None:
    file = tmp_path / "replica.toml"
    file.write_text(f'host = "db1"\nuser = "repl"\npassword = "{SECRET}"\n')
    done = shown("--config", str(file), "--config-only", "--heartbeat", "3s", given={"port": "3307"})
    values = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert done.exit_code == 0
    assert values["host"] == ["db1", str(file)]
    assert values["port"] == ["3307", "MARIADB_REPLICA_PORT"]
    assert values["heartbeat_s"] == ["3s", "--heartbeat"]
    assert values["password"] == ["********", str(file)]
    assert SECRET not in done.stdout
    as_json = json.loads(shown("--config", str(file), "--config-only", "--json", given={}).stdout)
    assert as_json["host"] == {"value": "db1", "source": str(file)}


def test_the_example_file_is_printed_without_any_option() -> None:
    done = shown("--example-config", given={})
    assert done.exit_code == 0
    assert done.stdout == (PROJECT / "docs/mariadb-replica.example.toml").read_text(encoding="utf-8")
