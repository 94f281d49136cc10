"""The daemon beside real servers: status, health and metrics say what is true, while it runs and when it does not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from replica.daemon.status.record import StatusRecord, read_status, write_status
from replica.errors import DataLossError
from replica.relay_log.directory.readers import ReaderRegistration
from replica.relay_log.log import RelayLog
from tests.fixtures.installation import PROJECT
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.logs.log_lines import logged
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.ports import reserved_port
from tests.fixtures.small_disk import MountRefusedError, small_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

SECRET = "marker-of-a-secret"
SEMI_SYNC = ("--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-wait-no-slave=OFF")
WAIT_S = 60
PROGRAM = [sys.executable, "-m", "replica"]


class Daemon:
    """A daemon process with every endpoint, that questions its primary all the time."""

    def __init__(self, directory: Path, server: MariaDb, *options: str) -> None:
        server.add_user("repl", SECRET, grants="REPLICATION SLAVE")
        self.directory = directory / "relay"
        self.log = directory / "daemon.log"
        self._reservation = contextlib.ExitStack()
        self.port = self._reservation.enter_context(reserved_port())
        environment = os.environ | {"MARIADB_REPLICA_PASSWORD": SECRET, "MARIADB_REPLICA_USER": "repl"}
        command = [
            *PROGRAM,
            "run",
            f"--relay-dir={self.directory}",
            f"--host={server.host}:{server.port}",
            f"--http-listen=127.0.0.1:{self.port}",
            "--monitor=200ms",
            "--heartbeat=10s",  # three of them are silence: no stall of the machine may come near it
            "--start=earliest",
            "--backoff-max=200ms",
            *options,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stderr=log, cwd=PROJECT)

    def events(self) -> list[dict[str, Any]]:
        return logged(self.log)

    def wait_started(self) -> None:
        def started() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return any(event["event"] == "started" for event in self.events())

        wait_until(started, "the daemon has started")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def record(self) -> dict[str, Any]:
        code, text = self.get("/status")
        assert code == 200
        return dict(json.loads(text))

    def ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def metrics(self) -> dict[str, float]:
        """Samples by name and labels, as Prometheus' own parser reads them."""
        code, text = self.get("/metrics")
        assert code == 200
        return {
            sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def ended(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._reservation.close()
        assert SECRET not in self.log.read_text()


def seen_from_outside(directory: Path) -> str:
    record = read_status(directory)
    return "" if record is None else "ready" if record.ready else record.state


def answered(daemon: Daemon) -> str:
    return str((daemon.record()["primary"] or {}).get("gtid", ""))


def written(daemon: Daemon) -> str:
    record = read_status(daemon.directory)
    return record.position.gtid if record else ""


def status(directory: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [*PROGRAM, "status", "--relay-dir", str(directory), *options],
        capture_output=True, text=True, cwd=PROJECT, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert SECRET not in done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout) if "--json" in options else {}, done.stdout


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    daemons: list[Daemon] = []

    def begin(server: MariaDb, *options: str) -> Daemon:
        daemons.append(Daemon(tmp_path, server, *options))
        daemons[-1].wait_started()
        return daemons[-1]

    yield begin
    for daemon in daemons:
        daemon.end()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """systemd's end of the notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        yield receiver


def messages(manager: socket.socket) -> list[str]:
    told = []
    with contextlib.suppress(BlockingIOError):
        while True:
            told.append(manager.recv(10_000).decode())
    return told


@pytest.fixture(scope="module")
def primary(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, *SEMI_SYNC, "--expire-logs-days=2") as running:
        running.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, x BLOB)")
        yield running


def test_the_life_of_a_daemon_as_everybody_sees_it(
    primary: MariaDb, start: Callable[..., Daemon], manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "5000000")
    daemon = start(primary, "--semi-sync")
    wait_until(daemon.ready, "ready")
    primary.sql("FLUSH BINARY LOGS", "INSERT INTO shop.t (x) VALUES (REPEAT('a', 5000))")
    wait_until(lambda: relay_gtids(primary, daemon.directory) == server_gtids(primary), "all groups")
    wait_until(lambda: answered(daemon) == primary.gtid_binlog_pos(), "a fresh answer of the monitor")
    wait_until(lambda: written(daemon) == primary.gtid_binlog_pos(), "a fresh status file")
    in_step = {"seconds": 0.0, "bytes": 0, "groups": 0}
    wait_until(lambda: daemon.record()["behind"].items() >= in_step.items(), "a lag measured after that")
    wait_until(lambda: abs(daemon.record()["primary"]["clock_offset_s"]) < 1, "an answer that did not take long")
    wait_until(lambda: daemon.metrics()["mariadb_replica_primary_semi_sync_clients"] == 1, "the primary counts it")
    told = {f"STATUS=streaming, 0 s behind, at {primary.gtid_binlog_pos()}", "WATCHDOG=1"}
    heard: set[str] = set()
    wait_until(lambda: heard.update(messages(manager)) or told <= heard, "the manager is told")

    assert stat.S_IMODE(daemon.directory.stat().st_mode) == 0o750
    readable = {path.name for path in daemon.directory.iterdir() if path.is_file() and path.stat().st_mode & 0o007}
    assert readable == set(), "rows are not for every user of the machine"
    record = daemon.record()
    file, position = primary.sql("SHOW MASTER STATUS")[0][:2]
    assert record["state"] == "streaming"
    assert record["position"]["gtid"] == primary.gtid_binlog_pos()
    assert record["position"]["primary_file"] == file
    assert position - record["position"]["primary_position"] in (0, 37)  # a BINLOG_CHECKPOINT may follow the last group
    assert record["behind"].keys() == {*in_step, "purge", "purged_in_hours"}
    assert record["behind"]["purge"] == "by age"
    assert 47.9 < record["behind"]["purged_in_hours"] <= 48.0
    assert record["connection"]["primary_version"] == primary.value("SELECT @@version")
    assert record["acks"]["count"] >= 1
    assert record["acks"]["acknowledged"].startswith(file)

    metrics = daemon.metrics()
    assert metrics["mariadb_replica_state/streaming"] == 1
    assert metrics["mariadb_replica_ack_latency_seconds_count"] == metrics["mariadb_replica_acks_total"] >= 1
    assert metrics["mariadb_replica_sequence/0"] == int(primary.gtid_binlog_pos().split("-")[2])
    assert 0 < metrics["process_resident_memory_bytes"] < 300 << 20
    assert daemon.get("/healthz")[0] == 200
    assert daemon.get("/nothing")[0] == 404

    assert daemon.ended(signal.SIGTERM) == 0
    code, seen, _ = status(daemon.directory, "--json")
    assert (code, seen["verdict"]["reason"].split(",")[0]) == (3, "it was stopped on request")
    assert seen["log_end"]["gtid"] == primary.gtid_binlog_pos()
    wait_until(lambda: not primary.dump_threads(), "the primary let it go")
    heard.update(messages(manager))
    assert {f"READY=1\nMAINPID={daemon.process.pid}", "STOPPING=1"} <= heard


def test_a_primary_that_goes_away_comes_back_and_throws_us_out(
    make_server: Callable[..., MariaDb], start: Callable[..., Daemon]
) -> None:
    server = make_server(None, *SEMI_SYNC)
    # What is not heard of for longer than two heartbeats is behind.
    daemon = start(server, "--ready-lag=1s", "--heartbeat=300ms")
    wait_until(daemon.ready, "ready")
    server.kill()
    wait_until(lambda: (daemon.record()["behind"]["seconds"] or 0) > 1, "it is behind by the time that went by")
    code, text = daemon.get("/readyz")
    assert (code, json.loads(text)["ready"]) == (503, False)
    assert json.loads(text)["reason"].startswith("connecting")
    assert daemon.get("/healthz")[0] == 200  # restarting the daemon would mend nothing
    assert daemon.metrics()["mariadb_replica_connected"] == 0
    wait_until(lambda: seen_from_outside(daemon.directory) == "connecting", "the status file says it")
    wait_until(lambda: daemon.record()["primary_error"], "a question that nobody answers")
    code, seen, _ = status(daemon.directory, "--json")
    assert (code, seen["verdict"]["word"]) == (10, "connecting")
    server.start()
    wait_until(daemon.ready, "ready again")
    assert daemon.record()["connection"]["disconnects"] >= 1

    wait_until(server.dump_threads, "its dump")
    server.sql("DROP USER repl@'%'", *(f"KILL {thread}" for thread in server.dump_threads()))
    assert daemon.process.wait(WAIT_S) == 31
    code, seen, _ = status(daemon.directory, "--json")
    assert code == 3
    assert seen["status"]["failure"]["error"] == "AuthenticationError"
    assert seen["verdict"]["reason"].startswith("failed at")
    assert daemon.events()[-1]["event"] == "failed"


@pytest.mark.slow
def test_a_slow_link_is_behind_by_what_the_primary_has_meanwhile(start: Callable[..., Daemon]) -> None:
    with MariaDb() as server, FaultProxy(server.host, server.port) as proxy:
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (x LONGBLOB)")
        daemon = start(server, f"--host={server.host}:{proxy.port}", "--ready-lag=1s")
        wait_until(daemon.ready, "ready")
        proxy.rate = 100_000  # a minute and more for what follows, until it is put right
        with server.connect() as connection, connection.cursor() as cursor:
            for _ in range(2):
                cursor.execute("INSERT INTO shop.t VALUES (REPEAT('x', 4000000))")
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("INSERT INTO shop.t VALUES (1)")
        wait_until(lambda: (daemon.record()["behind"]["groups"] or 0) >= 2, "the primary's answer names more groups")
        wait_until(lambda: not daemon.ready(), "behind by more than a second")
        assert "behind, more than ready_lag_s (1 s)" in daemon.get("/readyz")[1]
        # In another file than the primary's, and the sizes of its files may not be seen: unknown, not zero.
        assert daemon.record()["behind"]["bytes"] is None
        wait_until(lambda: seen_from_outside(daemon.directory) == "streaming", "the status file says not ready")
        assert status(daemon.directory)[0] == 11
        server.sql("GRANT BINLOG MONITOR ON *.* TO repl@'%'")
        wait_until(lambda: (daemon.record()["behind"]["bytes"] or 0) > 1_000_000, "bytes over several files")
        proxy.rate = 0
        wait_until(daemon.ready, "it has caught up")
        wait_until(lambda: daemon.record()["behind"]["bytes"] == 0, "no byte is missing")

        server.signal(signal.SIGSTOP)
        try:
            assert daemon.ended(signal.SIGTERM) == 0  # a primary that hangs does not hold up a stop
        finally:
            server.signal(signal.SIGCONT)


def test_a_second_daemon_a_hung_one_and_a_killed_one(start: Callable[..., Daemon], tmp_path: Path) -> None:
    with MariaDb() as server:
        daemon = start(server)
        wait_until(lambda: seen_from_outside(daemon.directory) == "ready", "the status file says ready")
        assert status(daemon.directory)[0] == 0
        (tmp_path / "second").mkdir()
        second = Daemon(tmp_path / "second", server, f"--relay-dir={daemon.directory}")
        third = Daemon(tmp_path / "second", server, f"--http-listen=127.0.0.1:{daemon.port}")
        assert (second.process.wait(WAIT_S), third.process.wait(WAIT_S)) == (70, 20)
        words = second.log.read_text()
        assert "in use by another replica" in words
        assert f"http_listen 127.0.0.1:{daemon.port} cannot be used" in words
        mine = read_status(daemon.directory)
        assert mine is not None
        assert mine.pid == daemon.process.pid
        assert daemon.ready()

        daemon.process.send_signal(signal.SIGSTOP)
        file = daemon.directory / "relay.status"
        record = StatusRecord.model_validate_json(file.read_bytes())
        # As if it had been stopped for longer: its last record is older.
        write_status(daemon.directory, record.model_copy(update={"written_at": record.written_at - 60}))
        code, _, text = status(daemon.directory)
        assert (code, "wrote its last status" in text) == (4, True)
        assert f"process {daemon.process.pid} holds the relay log" in text
        daemon.process.send_signal(signal.SIGABRT)  # as a watchdog does
        daemon.process.send_signal(signal.SIGCONT)
        # Its last act is to write where each thread was; looking at threads that run may itself be the end of it.
        assert daemon.process.wait(WAIT_S) in (-signal.SIGABRT, -signal.SIGSEGV)
        assert "Fatal Python error: Aborted" in daemon.log.read_text()  # and where each thread was
        code, _, text = status(daemon.directory)
        assert (code, "ended without a final status" in text) == (3, True)
        assert "log ends" in text


def test_old_files_go_and_a_slow_reader_is_dropped_with_a_warning(start: Callable[..., Daemon]) -> None:
    with MariaDb() as server:
        options = ("--relay-max-file-bytes=64k", "--retain-bytes=200k", "--relay-max-bytes=400k")
        daemon = start(server, *options)
        wait_until(daemon.ready, "ready")
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (x BLOB)")
        reader = ReaderRegistration(daemon.directory, "slow query")
        wait_until(lambda: server.gtid_binlog_pos() == daemon.record()["position"]["gtid"], "all received")
        reader.keep_from(RelayLog(daemon.directory).head().location, "0-1-1")
        with server.connect() as connection, connection.cursor() as cursor:
            for _ in range(30):
                cursor.execute("INSERT INTO shop.t VALUES (REPEAT('x', 30000))")
        wait_until(lambda: daemon.metrics()["mariadb_replica_readers_dropped_total"] == 1, "the reader was dropped")
        wait_until(lambda: daemon.record()["relay"]["bytes"] < 400_000, "the log is small again")
        dropped = lambda: [event for event in daemon.events() if event["event"] == "reader dropped"]  # noqa: E731
        wait_until(dropped, "the warning is in its log")
        (warning,) = dropped()
        assert (warning["level"], warning["reader"]) == ("warning", "slow query")
        assert daemon.record()["dropped_readers"] == ["slow query"]
        wait_until(lambda: daemon.metrics()["mariadb_replica_relay_removed_files_total"] > 0, "files are counted")
        with pytest.raises(DataLossError, match="slow query"):
            reader.touch()


def test_the_monitor_follows_a_failover(start: Callable[..., Daemon]) -> None:
    with MariaDb(server_id=1) as first, MariaDb(server_id=2) as second:
        for server in (first, second):  # the same history on both, as replication would have made it
            server.sql(
                "SET SESSION server_id = 1",
                "SET SESSION gtid_seq_no = 7",
                "SET SESSION timestamp = 1700000000",
                "CREATE DATABASE shop",
            )
        second.add_user("repl", SECRET, grants="REPLICATION SLAVE")
        hosts = f"--host={first.host}:{first.port},{second.host}:{second.port}"
        daemon = start(first, hosts, "--gtid-ignore-duplicates")
        wait_until(daemon.ready, "ready")
        first.kill()
        wait_until(lambda: daemon.record()["connection"]["primary_server_id"] == 2, "streaming from the second")
        second.sql("INSERT INTO mysql.servers (Server_name) VALUES ('x')")
        wait_until(lambda: answered(daemon) == second.gtid_binlog_pos(), "asking the second")
        wait_until(daemon.ready, "ready")
        in_step = {"bytes": 0, "groups": 0}
        wait_until(lambda: daemon.record()["behind"].items() >= in_step.items(), "nothing is missing")
        wait_until(lambda: written(daemon) == second.gtid_binlog_pos(), "the status file is of the second")
        record = daemon.record()
        assert record["position"]["gtid"] == second.gtid_binlog_pos()
        _, _, text = status(daemon.directory)
        assert f"{second.host}:{second.port}" in text
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in [event["event"] for event in daemon.events()], "SIGHUP does no harm")
        assert daemon.ended(signal.SIGINT) == 0


def test_a_full_disk_is_said_in_the_status_and_passes(start: Callable[..., Daemon], tmp_path: Path) -> None:
    """On a disk of its own where mounting is allowed; elsewhere on one that never has what min_free_bytes asks for."""
    with MariaDb() as server, contextlib.ExitStack() as stack:
        options = ["--relay-max-file-bytes=1m", "--retain-bytes=1g", "--relay-max-bytes=2g"]
        try:
            disk = stack.enter_context(small_disk(tmp_path, 16))
            filler, directory = disk / "filler", disk / "relay"
            options += [f"--relay-dir={directory}", "--min-free-bytes=4m"]
        except MountRefusedError:
            filler, directory = tmp_path / "filler", tmp_path / "relay"
            options += ["--min-free-bytes=1000t"]
        daemon = start(server, *options)
        if directory.parent == tmp_path:
            server.sql("CREATE DATABASE shop")
            wait_until(lambda: daemon.record()["state"] == "paused", "it never begins")
            assert status(directory)[0] == 12
            return
        wait_until(daemon.ready, "ready")
        filler.write_bytes(bytes(14 << 20))
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (x LONGBLOB)")
        with server.connect() as connection, connection.cursor() as cursor:
            for _ in range(6):
                cursor.execute("INSERT INTO shop.t VALUES (REPEAT('x', 1000000))")
        no_room = ("paused", "disk full")
        wait_until(lambda: seen_from_outside(directory) in no_room, "the file says it, on the very disk that is full")
        assert status(directory)[0] == 12
        assert daemon.get("/readyz")[0] == 503
        assert daemon.get("/healthz")[0] == 200
        filler.unlink()
        wait_until(lambda: daemon.record()["position"]["gtid"] == server.gtid_binlog_pos(), "it goes on")
        wait_until(daemon.ready, "ready again")
        assert daemon.ended(signal.SIGTERM) == 0
