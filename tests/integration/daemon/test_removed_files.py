"""Relay files that somebody removes: while the daemon is up no commit is acknowledged into them, while it is down no
transaction is passed over."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pymysql
import pytest

import replica.live.client
import replica.live.connect
from replica.daemon.status.record import read_status
from replica.errors import RelayError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.fixtures.installation import PROJECT
from tests.fixtures.logs.listing import gtids_in, relay_files, relay_gtids, server_gtids
from tests.fixtures.logs.log_lines import logged
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 60
ACCOUNT = {"user": "repl", "password": "secret"}
NEVER = GtidPosition.parse("4294967295-1-1")
SEMI_SYNC = (
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-no-slave=ON",
    "--rpl-semi-sync-master-timeout=3600000",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
)


class Daemon:
    """`mariadb-replica run` on a folder; `ended` is its exit code and all that it logged."""

    def __init__(self, relay: Path, port: int, *options: str) -> None:
        self.relay = relay
        environment = os.environ | {"MARIADB_REPLICA_USER": "repl", "MARIADB_REPLICA_PASSWORD": "secret"}
        command = [sys.executable, "-m", "replica", "run", f"--relay-dir={relay}", f"--host=127.0.0.1:{port}"]
        command += ["--backoff-initial=20ms", "--backoff-max=100s", "--heartbeat=1h", *options]
        self.log = relay.parent / f"{relay.name}.{time.monotonic_ns()}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stderr=log, cwd=PROJECT)

    def said(self, event: str) -> bool:
        return any(f'"{event}"' in line for line in self.log.read_text().splitlines())

    def wait(self, event: str) -> None:
        def happened() -> bool:
            assert self.said(event) or self.process.poll() is None, self.log.read_text()
            return self.said(event)

        wait_until(happened, event)

    def ended(self) -> tuple[int, dict[str, str]]:
        code = self.process.wait(WAIT_S)
        return code, next(iter(logged(self.log, "failed")), {})

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_S) == 0, self.log.read_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    daemons: list[Daemon] = []

    def begin(server: MariaDb | FaultProxy, *options: str, relay: Path | None = None) -> Daemon:
        daemons.append(Daemon(relay or tmp_path / "relay", server.port, *options))
        return daemons[-1]

    yield begin
    for daemon in daemons:
        daemon.process.kill()
        daemon.process.wait()


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb(None) as server:
        yield prepared(server)


def prepared(server: MariaDb) -> MariaDb:
    server.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    server.add_user("repl", "secret", grants="REPLICATION SLAVE")
    return server


def insert(server: MariaDb, count: int) -> None:
    server.sql(*["INSERT INTO s.t VALUES ()"] * count)


def caught_up(server: MariaDb, relay: Path) -> None:
    def at_the_end() -> bool:
        head = RelayLog(relay).head()
        return head is not None and str(head.position) == server.gtid_binlog_pos()

    wait_until(at_the_end, "all is received")


def received(server: MariaDb, start: Callable[..., Daemon], *options: str) -> Path:
    """The folder of a daemon that has received some transactions, in several files, and was stopped."""
    daemon = start(server, "--start=earliest", *options)
    daemon.wait("connected")
    for _ in range(3):
        insert(server, 2)
        caught_up(server, daemon.relay)
        server.sql("FLUSH BINARY LOGS")
    caught_up(server, daemon.relay)
    daemon.stop()
    assert len(relay_files(daemon.relay)) >= 3
    return daemon.relay


def test_files_lost_while_it_was_down_are_refused_with_the_position_from_which_it_then_goes_on(
    primary: MariaDb, start: Callable[..., Daemon]
) -> None:
    relay = received(primary, start)
    had, last = len(server_gtids(primary)), primary.gtid_binlog_pos()
    insert(primary, 5)
    for path in relay.glob("relay.0*"):
        path.unlink()
    for _ in range(2):
        code, failed = start(primary, "--start=latest").ended()
        assert (code, failed["error"]) == (70, "RelayError")
        assert f"relay.head shows that the log reached {last}" in failed["message"]
        assert f"--start {last}" in failed["hint"]
    daemon = start(primary, f"--start={last}")
    daemon.wait("connected")
    caught_up(primary, relay)
    daemon.stop()
    assert relay_gtids(primary, relay) == server_gtids(primary)[had:]
    assert len(server_gtids(primary)) == had + 5


@pytest.mark.slow
def test_a_position_that_names_two_places_is_not_gone_on_from(start: Callable[..., Daemon]) -> None:
    """What `relay.order` tells outlives the relay files."""
    with MariaDb(None) as server:
        relay = received(prepared(server), start, "--no-gtid-strict-mode")
        again = start(server, "--no-gtid-strict-mode")
        again.wait("connected")
        server.sql("SET SESSION gtid_seq_no = 2", "INSERT INTO s.t VALUES ()")
        caught_up(server, relay)
        again.stop()
        remove_files(relay)
        named = server.gtid_binlog_pos()
        assert named == "0-1-2"
        insert(server, 1)
        code, failed = start(server, "--no-gtid-strict-mode").ended()
        assert (code, f"--start {named}" in failed["hint"]) == (70, True)
        code, failed = start(server, "--no-gtid-strict-mode", f"--start={named}").ended()
        assert (code, failed["error"]) == (32, "AmbiguousPositionError"), failed


def test_a_wholly_removed_folder_begins_where_start_says(primary: MariaDb, start: Callable[..., Daemon]) -> None:
    relay = received(primary, start)
    shutil.rmtree(relay)
    before = len(server_gtids(primary))
    daemon = start(primary, "--start=latest")
    daemon.wait("connected")
    insert(primary, 1)
    caught_up(primary, relay)
    daemon.stop()
    assert relay_gtids(primary, relay) == server_gtids(primary)[before:]


def newest(relay: Path) -> list[Path]:
    return [relay_files(relay)[-1]]


def oldest(relay: Path) -> list[Path]:
    return [relay_files(relay)[0]]


def indexes(relay: Path) -> list[Path]:
    return list(relay.glob("relay.*.idx"))


def all_but_the_log(relay: Path) -> list[Path]:
    return [relay / name for name in ("relay.head", "relay.status", "relay.clock", "relay.lock", "relay.identity")]


@pytest.mark.parametrize(
    "some",
    [
        newest,
        pytest.param(oldest, marks=pytest.mark.slow),
        pytest.param(indexes, marks=pytest.mark.slow),
        pytest.param(all_but_the_log, marks=pytest.mark.slow),
    ],
)
def test_what_is_left_of_the_log_is_gone_on_from_and_the_rest_fetched_again(
    primary: MariaDb, start: Callable[..., Daemon], some: Callable[[Path], list[Path]]
) -> None:
    relay = received(primary, start)
    gone = len(gtids_in(primary, *oldest(relay))) if some is oldest else 0
    insert(primary, 5)
    for path in some(relay):
        path.unlink()
    daemon = start(primary, "--start=latest")
    daemon.wait("connected")
    caught_up(primary, relay)
    daemon.stop()
    assert relay_gtids(primary, relay) == server_gtids(primary)[gone:]


def test_a_hole_in_the_middle_is_refused(primary: MariaDb, start: Callable[..., Daemon]) -> None:
    relay = received(primary, start)
    middle = relay_files(relay)[1]
    middle.unlink()
    code, failed = start(primary).ended()
    assert (code, f"{middle.name} is missing" in failed["message"]) == (70, True)


def test_a_restored_backup_of_the_folder_is_gone_on_from(primary: MariaDb, start: Callable[..., Daemon]) -> None:
    relay = received(primary, start)
    backup = relay.with_name("backup")
    shutil.copytree(relay, backup)
    again = start(primary)
    again.wait("connected")
    insert(primary, 3)
    caught_up(primary, relay)
    again.stop()
    shutil.rmtree(relay)
    backup.rename(relay)
    insert(primary, 2)
    daemon = start(primary)
    daemon.wait("connected")
    caught_up(primary, relay)
    daemon.stop()
    assert relay_gtids(primary, relay) == server_gtids(primary)


@pytest.mark.parametrize(
    "before_it",
    [pytest.param((), id="some binlog", marks=pytest.mark.slow), pytest.param(("RESET MASTER",), id="an empty binlog")],
)
def test_a_daemon_that_received_nothing_yet_goes_on_where_it_began(
    start: Callable[..., Daemon], before_it: tuple[str, ...]
) -> None:
    with MariaDb(None) as server:
        prepared(server)
        for statement in before_it:
            server.sql(statement)
        before = len(server_gtids(server))
        for _ in range(2):
            daemon = start(server, "--start=latest")
            daemon.wait("connected")
            daemon.stop()
            insert(server, 5)
        daemon = start(server, "--start=latest")
        caught_up(server, daemon.relay)
        daemon.stop()
        assert relay_gtids(server, daemon.relay) == server_gtids(server)[before:]


def test_a_first_start_that_was_refused_leaves_nothing_to_go_on_from(
    primary: MariaDb, start: Callable[..., Daemon]
) -> None:
    code, _ = start(primary, "--start=0-77-99999").ended()
    assert code == 32
    daemon = start(primary, "--start=latest")
    daemon.wait("connected")
    insert(primary, 1)
    caught_up(primary, daemon.relay)
    daemon.stop()


# -- while it is up ---------------------------------------------------------------------------------------------------


class Committing:
    """Commits one after the other until the server is killed; `begun` and `done` count them."""

    def __init__(self, server: MariaDb) -> None:
        self.begun = self.done = 0
        self._server = server
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        refused = contextlib.suppress(pymysql.err.Error)
        with refused, self._server.connect() as connection, connection.cursor() as cursor:
            while True:
                self.begun += 1
                cursor.execute("INSERT INTO s.t VALUES ()")
                self.done += 1


def remove_files(relay: Path) -> None:
    for path in relay.glob("relay.0*"):
        path.unlink()


def remove_folder(relay: Path) -> None:
    while relay.exists():  # `rm -r` stops where a file is made meanwhile, as the status is every second
        with contextlib.suppress(OSError):
            shutil.rmtree(relay)


def move_folder(relay: Path) -> None:
    relay.rename(relay.with_name("moved"))


@pytest.mark.parametrize(
    ("lose", "policy"),
    [
        (remove_files, "fsync"),
        (move_folder, "fsync"),
        pytest.param(remove_folder, "fsync", marks=pytest.mark.slow),
        pytest.param(remove_files, "receive", marks=pytest.mark.slow),
    ],
)
def test_no_commit_is_acknowledged_into_files_without_a_name(
    start: Callable[..., Daemon], lose: Callable[[Path], None], policy: str
) -> None:
    with MariaDb(None, *SEMI_SYNC) as server:
        daemon = start(server, "--semi-sync", f"--ack-policy={policy}", "--start=earliest", "--connect-retry=60s")
        server.add_user("repl", "secret", grants="REPLICATION SLAVE")
        daemon.wait("connected")
        server.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY AUTO_INCREMENT)")
        committing = Committing(server)
        wait_until(lambda: committing.done > 20, "commits are acknowledged")
        lose(daemon.relay)
        begun = committing.begun
        code, failed = daemon.ended()
        assert (code, failed["error"]) == (70, "RelayError")
        assert "removed, moved or replaced while it was written" in failed["message"]
        assert committing.done <= begun, "one of those sent after the loss was acknowledged"
        wait_until(lambda: not server.dump_threads(), "it said goodbye")
        server.kill()  # the session waits for an ACK, for ever


def test_it_ends_when_idle_and_when_its_primary_is_away(start: Callable[..., Daemon]) -> None:
    with MariaDb(None) as server, FaultProxy(server.host, server.port) as proxy:
        prepared(server)
        for connected in (True, False):
            daemon = start(proxy, "--start=earliest", "--backoff-initial=100s")
            daemon.wait("connected")
            if not connected:
                proxy.refuse = True
                proxy.reset_all()
                daemon.wait("disconnected")
            remove_folder(daemon.relay)
            code, failed = daemon.ended()
            assert (code, failed["error"]) == (70, "RelayError")
            assert not daemon.relay.exists(), "nothing is written into a folder that is not there"


def test_it_ends_while_its_primary_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nobody to say goodbye to."""
    monkeypatch.setattr(replica.live.connect, "GOODBYE_TIMEOUT_S", 3600.0)
    with MariaDb(None) as server:
        prepared(server)
        with EmbeddedReplica(replica_config(server, connect_timeout_s=3600.0, **ACCOUNT), tmp_path / "relay") as hung:
            hung.start(GtidPosition())
            caught_up(server, tmp_path / "relay")
            server.signal(signal.SIGSTOP)
            try:
                remove_folder(tmp_path / "relay")
                with pytest.raises(RelayError, match="removed, moved or replaced"):
                    hung.wait_for(NEVER, WAIT_S)
            finally:
                server.signal(signal.SIGCONT)


def test_the_watch_does_not_keep_it_from_its_goodbye(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ACK found the loss; the watch that looks meanwhile finds it too."""
    monkeypatch.setattr(replica.live.client, "WATCH_EVERY_S", 0.001)
    monkeypatch.setattr(replica.live.client, "PARTING_S", 0.0)
    monkeypatch.setattr(RelayWriter, "check_files", RelayWriter.reopen)  # it looks no earlier than the ACK
    with MariaDb(None, *SEMI_SYNC) as server:
        server.add_user("repl", "secret", grants="REPLICATION SLAVE")
        config = replica_config(server, **ACCOUNT, semi_sync=True, heartbeat_s=3600.0)
        with EmbeddedReplica(config, tmp_path / "relay") as leaving:
            leaving.start(GtidPosition())
            server.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY AUTO_INCREMENT)")
            caught_up(server, tmp_path / "relay")
            remove_files(tmp_path / "relay")
            Committing(server)
            with pytest.raises(RelayError, match="removed, moved or replaced"):
                leaving.wait_for(NEVER, WAIT_S)
        wait_until(lambda: not server.dump_threads(), "it said goodbye")
        server.kill()


def test_its_last_file_is_missed_by_a_replica_that_just_connects(
    primary: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the end of its own log back then; the watch may come later."""
    monkeypatch.setattr(replica.live.client, "WATCH_EVERY_S", 3600.0)
    config, relay = replica_config(primary, **ACCOUNT), tmp_path / "relay"
    position = GtidPosition.parse(primary.gtid_binlog_pos())
    with EmbeddedReplica(config, relay) as first:
        first.start(position)
        insert(primary, 1)
        caught_up(primary, relay)
    with (
        FaultProxy(primary.host, primary.port) as proxy,
        EmbeddedReplica(replica_config(primary, port=proxy.port, **ACCOUNT), relay) as second,
    ):
        proxy.stall()
        second.start(None)
        relay_files(relay)[-1].unlink()
        proxy.resume()
        with pytest.raises(RelayError, match="was removed, moved or replaced"):
            second.wait_for(NEVER, WAIT_S)


def test_what_another_daemon_has_made_is_its_own(primary: MariaDb, start: Callable[..., Daemon]) -> None:
    first = start(primary, "--start=earliest")
    first.wait("connected")
    caught_up(primary, first.relay)
    first.process.send_signal(signal.SIGSTOP)  # so that it cannot end before the other has begun
    shutil.rmtree(first.relay)
    second = start(primary, "--start=earliest")
    second.wait("connected")
    caught_up(primary, second.relay)
    first.process.send_signal(signal.SIGCONT)
    assert first.ended()[0] == 70

    def wrote() -> bool:
        record = read_status(second.relay)
        return record is not None and record.state == "streaming"

    wait_until(wrote, "the status is of the second")
    record = read_status(second.relay)
    assert record is not None
    assert record.pid == second.process.pid
    insert(primary, 3)
    caught_up(primary, second.relay)
    second.stop()
    assert relay_gtids(primary, second.relay) == server_gtids(primary)


def test_a_replica_in_somebody_elses_process_ends_and_goes_on_from_the_callers_position(
    primary: MariaDb, tmp_path: Path
) -> None:
    """As Spark does: a lost relay directory is no data loss, the checkpoint's offset says where to go on."""
    config, relay = replica_config(primary, **ACCOUNT), tmp_path / "relay"
    before = len(server_gtids(primary))
    position = GtidPosition.parse(primary.gtid_binlog_pos())
    with EmbeddedReplica(config, relay) as first:
        first.start(position)
        insert(primary, 3)
        caught_up(primary, relay)
        remove_folder(relay)
        with pytest.raises(RelayError, match="removed, moved or replaced"):
            first.wait_for(NEVER, WAIT_S)
    assert not relay.exists()
    insert(primary, 2)
    with EmbeddedReplica(config, relay) as second:
        second.start(position)
        assert second.wait_for(GtidPosition.parse(primary.gtid_binlog_pos()), WAIT_S)
    assert relay_gtids(primary, relay) == server_gtids(primary)[before:]
