"""How a replica leaves its primary and comes back, and what it does about another one with its server id."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import structlog
from pymysql.constants import COMMAND

from replica.errors import DuplicateServerIdError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.protocol.packets.packets import com_register_slave
from replica.relay_log.directory.identity import DumpThread, read_identity, write_identity
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config
from tests.integration.connection.semisync.semi_sync import (
    LONG_HEARTBEAT_S,
    NEVER,
    OPTIONS,
    WAIT_S,
    semi_sync,
    with_database,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.server


def left_behind(directory: Path) -> tuple[DumpThread, ...]:
    identity = read_identity(directory)
    assert identity is not None
    return identity.connections


def test_leaving_is_noticed_at_once(primary: MariaDb, tmp_path: Path, running: Callable[..., EmbeddedReplica]) -> None:
    replica = running(primary, tmp_path, heartbeat_s=LONG_HEARTBEAT_S)
    assert len(left_behind(tmp_path)) == 1
    replica.close()
    wait_until(lambda: semi_sync(primary, "clients") == 0, "the primary knows that we left")
    wait_until(lambda: not primary.dump_threads(), "no dump is left")
    assert not left_behind(tmp_path)
    assert replica.progress.state == "stopped"


KILLED = """
import sys, threading
from pathlib import Path
from replica.options.config import ReplicaConfig
from replica.live.embedded import EmbeddedReplica
replica = EmbeddedReplica(ReplicaConfig.parse(eval(sys.argv[2])), Path(sys.argv[1]))
replica.start(None)
threading.Event().wait()
"""


def test_what_a_killed_replica_left_is_ended_by_the_next_and_no_strangers_dump(
    any_primary: MariaDb, tmp_path: Path, running: Callable[..., EmbeddedReplica]
) -> None:
    """Our socket is closed when we are killed, but an idle primary does not look at it before its next heartbeat."""
    other = running(any_primary, tmp_path / "other", heartbeat_s=LONG_HEARTBEAT_S)
    config = replica_config(any_primary, semi_sync=True, heartbeat_s=LONG_HEARTBEAT_S)
    options = {name: getattr(config, name) for name in ("host", "port", "user", "semi_sync", "heartbeat_s")}
    options["password"] = config.read_password()
    killed = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "ours"), repr(options)])
    try:
        wait_until(lambda: semi_sync(any_primary, "clients") == 2, "both are counted")
    finally:
        killed.kill()
        killed.wait()
    (left,) = left_behind(tmp_path / "ours")
    assert left.thread_id in any_primary.dump_threads()
    before = read_identity(tmp_path / "ours")
    assert before is not None
    with (
        structlog.testing.capture_logs() as logs,
        EmbeddedReplica(config, tmp_path / "ours", log=structlog.get_logger()) as replica,
    ):
        replica.start(None)
        wait_until(lambda: replica.progress.connections == 1, "connected")
        wait_until(lambda: left.thread_id not in any_primary.dump_threads(), "the old dump is gone")
        wait_until(lambda: semi_sync(any_primary, "clients") == 2, "both are counted, and nobody else")
        assert replica.progress.server_id == before.server_id, "a drawn server id is kept"
    assert [e["thread_id"] for e in logs if e["event"] == "ended our own old dump"] == [left.thread_id]
    assert other.progress.disconnects == 0


def test_a_leftover_of_an_earlier_run_of_the_server_is_somebody_elses_now(
    tmp_path: Path, running: Callable[..., EmbeddedReplica]
) -> None:
    with MariaDb(None, *OPTIONS) as server:
        with_database(server)
        replica = running(server, tmp_path / "ours")
        thread = replica.progress.thread_id
        server.kill()
        replica.close()
        assert left_behind(tmp_path / "ours"), "the goodbye found nobody"
        server.start()
        other = running(server, tmp_path / "other")
        stranger = other.progress.thread_id
        path = tmp_path / "ours" / "relay.identity"
        path.write_text(path.read_text().replace(f'"thread_id": {thread}', f'"thread_id": {stranger}'))
        again = running(server, tmp_path / "ours")
        assert other.progress.disconnects == 0
        assert stranger in server.dump_threads()
        again.close()


@contextlib.contextmanager
def killed_and_not_gone(server: MariaDb, replica_id: int, account: Mapping[str, str]) -> Iterator[DumpThread]:
    """A registered replica's connection that was killed, and stays: it opens a pipe that nobody writes to."""
    pipe = server.folder / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    old = server.connect(**account)
    try:
        with old.cursor() as cursor:
            # What a replica asks for its own thread (own_dumps.this_thread).
            cursor.execute(
                "SELECT @@server_id, CAST(UNIX_TIMESTAMP() - VARIABLE_VALUE AS SIGNED), p.ID, p.HOST "
                "FROM information_schema.GLOBAL_STATUS, information_schema.PROCESSLIST p "
                "WHERE VARIABLE_NAME = 'UPTIME' AND p.ID = CONNECTION_ID()"
            )
            thread = DumpThread(f"{server.host}:{server.port}", *cursor.fetchone())
        register = com_register_slave(replica_id)
        old._execute_command(register[0], register[1:])
        old._read_ok_packet()
        old._execute_command(COMMAND.COM_QUERY, f"SELECT LOAD_FILE('{pipe}')".encode())
        state = f"SELECT COMMAND FROM information_schema.PROCESSLIST WHERE ID = {thread.thread_id}"
        wait_until(lambda: server.value(state) == "Query", "it opens the pipe")
        server.sql(f"KILL {thread.thread_id}")
        assert server.value(state) == "Killed"
        yield thread
        assert server.value(state) == "Killed"
    finally:
        with contextlib.suppress(OSError):  # nobody reads, if it went after all
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        old._force_close()


def test_our_own_old_dump_that_the_primary_does_not_let_go_of_is_no_stranger(
    primary: MariaDb, tmp_path: Path, running: Callable[..., EmbeddedReplica]
) -> None:
    primary.add_user("lister", "x", grants="REPLICATION SLAVE, REPLICATION MASTER ADMIN, FILE, BINLOG MONITOR")
    account = {"user": "lister", "password": "x"}
    running(primary, tmp_path, server_id=4713, **account).close()
    identity = read_identity(tmp_path)
    assert identity is not None
    config = replica_config(primary, server_id=4713, heartbeat_s=0.5, **account)
    with killed_and_not_gone(primary, 4713, account) as old:
        with EmbeddedReplica(config, tmp_path) as stranger:
            stranger.start(None)
            with pytest.raises(DuplicateServerIdError, match="4713"):
                stranger.wait_for(NEVER, WAIT_S)
        write_identity(tmp_path, identity.with_connection(old))
        with (
            structlog.testing.capture_logs() as logs,
            EmbeddedReplica(config, tmp_path, log=structlog.get_logger()) as replica,
        ):
            replica.start(None)
            primary.sql("INSERT INTO s.t VALUES (4713)")
            assert replica.wait_for(GtidPosition.parse(primary.gtid_binlog_pos()), WAIT_S)
    listed = [entry for entry in logs if entry["event"] == "our own old dump is ended but still listed"]
    assert [(entry["log_level"], entry["thread_id"]) for entry in listed] == [("warning", old.thread_id)]


def test_a_second_replica_with_our_server_id_is_refused_before_it_throws_us_out(
    primary: MariaDb, tmp_path: Path, running: Callable[..., EmbeddedReplica]
) -> None:
    primary.add_user("lister", "x", grants="REPLICATION SLAVE, REPLICATION MASTER ADMIN")
    first = running(primary, tmp_path / "1", server_id=4711, user="lister", password="x", report_host="twin")
    config = replica_config(primary, server_id=4711, user="lister", password="x", heartbeat_s=0.5)
    with EmbeddedReplica(config, tmp_path / "2") as second:
        second.start(None)
        with pytest.raises(DuplicateServerIdError, match=r"twin.*4711"):
            second.wait_for(NEVER, WAIT_S)
    assert (first.progress.connections, first.progress.disconnects) == (1, 0)


def test_thrown_out_by_a_replica_with_our_server_id_is_the_end(
    primary: MariaDb, tmp_path: Path, running: Callable[..., EmbeddedReplica]
) -> None:
    """The primary keeps the reason to itself until somebody acknowledges something: silence must not hide it."""
    # Two periods of silence make it ask; a third would be a dead link, and no stall of the machine may last that long.
    config = replica_config(primary, server_id=4712, semi_sync=True, heartbeat_s=2.0)
    first = running(primary, tmp_path / "1", server_id=4712, heartbeat_s=2.0)
    with EmbeddedReplica(config, tmp_path / "2") as second:
        second.start(None)
        both = (first, second)
        wait_until(lambda: any(replica.progress.state == "failed" for replica in both), "one of them is thrown out")
        # Mostly the first. If the primary hangs up before it says why, that one comes again and throws out the second.
        thrown_out, left = both if first.progress.state == "failed" else both[::-1]
        with pytest.raises(DuplicateServerIdError) as caught:
            thrown_out.wait_for(NEVER, WAIT_S)
        assert caught.value.code == 4052
        wait_until(lambda: left.progress.state == "streaming", "the other is connected")
        connections = first.progress.connections + second.progress.connections
        primary.sql("INSERT INTO s.t VALUES (1)")
        assert left.wait_for(GtidPosition.parse(primary.gtid_binlog_pos()), WAIT_S)
        assert thrown_out.progress.state == "failed"
        assert first.progress.connections + second.progress.connections == connections <= 3, "nobody fights"
