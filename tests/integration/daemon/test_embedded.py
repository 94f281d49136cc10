"""The replica inside another process: calls from any thread, errors in the caller's, a clean end on SIGTERM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.lock import RelayLock
from tests.fixtures.installation import PROJECT
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import wait_until
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

WAIT_S = 60.0
HOST_PROGRAM = """
import signal, sys, json, pathlib
from replica.options.config import ReplicaConfig
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
replica = EmbeddedReplica(ReplicaConfig.parse(json.loads(sys.argv[1])), pathlib.Path(sys.argv[2]))
def ended(*_):
    replica.close()
    sys.exit(0)
signal.signal(signal.SIGTERM, ended)
replica.start(GtidPosition())
while True:
    head = replica.head()
    print(head.position, flush=True)
    replica.wait_beyond(head.location, 60)
"""


def test_waits_end_by_progress_by_time_and_by_close(any_server: MariaDb, tmp_path: Path) -> None:
    any_server.sql("CREATE OR REPLACE DATABASE embedded", "CREATE TABLE embedded.t(a INT)")
    replica = EmbeddedReplica(replica_config(any_server), tmp_path)
    replica.start(GtidPosition.parse(any_server.gtid_binlog_pos()))
    here = replica.head().location
    assert not replica.wait_beyond(here, 0.05)
    any_server.sql("INSERT INTO embedded.t VALUES (1)")
    assert replica.wait_beyond(here, WAIT_S)
    assert replica.head().location > here

    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(replica.wait_beyond(replica.head().location, 60)))
    waiting.start()
    replica.close()
    waiting.join(WAIT_S)
    assert answers == [False]
    replica.close()
    RelayLock(tmp_path).close()
    with pytest.raises(RelayError, match="closed"):
        replica.server_position()


def test_many_threads_may_ask_at_once(any_server: MariaDb, tmp_path: Path) -> None:
    with EmbeddedReplica(replica_config(any_server), tmp_path) as replica:
        replica.start(None)
        answers: list[GtidPosition] = []
        threads = [threading.Thread(target=lambda: answers.append(replica.server_position())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert answers == [GtidPosition.parse(any_server.gtid_binlog_pos())] * 8


def test_close_at_any_moment_gives_the_directory_back(any_server: MariaDb, tmp_path: Path) -> None:
    config = replica_config(any_server)
    for wait_s in (0.0, 0.001, 0.005, 0.02, 0.05):
        replica = EmbeddedReplica(config, tmp_path)
        replica.start(None)
        replica.wait_beyond(replica.head().location, wait_s)
        replica.close()
        RelayLock(tmp_path).close()
    wait_until(lambda: not any_server.dump_threads(), "no connection is left")


def test_before_the_start_there_is_no_head(any_server: MariaDb, tmp_path: Path) -> None:
    with EmbeddedReplica(replica_config(any_server), tmp_path) as replica:
        with pytest.raises(RelayError, match="not started"):
            replica.head()
        replica.start(None)
        with pytest.raises(RelayError, match="already started"):
            replica.start(None)


def test_sigterm_ends_the_process_that_embeds_it(any_server: MariaDb, tmp_path: Path) -> None:
    any_server.sql("CREATE OR REPLACE DATABASE embedded", "CREATE TABLE embedded.t(a INT)")
    config = replica_config(any_server)
    options = {**config.model_dump(include={"host", "port", "user"}), "password": config.read_password()}
    command = [sys.executable, "-c", HOST_PROGRAM, json.dumps(options), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT) as process:
        assert process.stdout is not None
        for value in range(5):
            any_server.sql(f"INSERT INTO embedded.t VALUES ({value})")
        target = any_server.gtid_binlog_pos()
        assert target in (line.strip() for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert relay_gtids(any_server, tmp_path) == server_gtids(any_server)
    wait_until(lambda: not any_server.dump_threads(), "the primary is told")


def test_killed_without_a_word_it_goes_on_at_the_last_group(any_server: MariaDb, tmp_path: Path) -> None:
    any_server.sql("CREATE OR REPLACE DATABASE embedded", "CREATE TABLE embedded.t(a INT)")
    config = replica_config(any_server)
    options = {**config.model_dump(include={"host", "port", "user"}), "password": config.read_password()}
    command = [sys.executable, "-c", HOST_PROGRAM, json.dumps(options), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT) as process:
        assert process.stdout is not None
        any_server.sql("INSERT INTO embedded.t VALUES (1)")
        target = any_server.gtid_binlog_pos()
        assert target in (line.strip() for line in process.stdout)
        process.kill()
    any_server.sql("INSERT INTO embedded.t VALUES (2)")
    with EmbeddedReplica(config, tmp_path) as replica:
        replica.start(GtidPosition.parse(target))
        assert replica.wait_for(GtidPosition.parse(any_server.gtid_binlog_pos()), WAIT_S)
    assert relay_gtids(any_server, tmp_path) == server_gtids(any_server)
