"""A commit whose group we have but whose ACK never reached the primary: it must not wait for the next one to come.

The relay log takes the group without semi-sync, as if the link had died before the ACK; the same log then goes on with
semi-sync, from behind the group, and nothing else is committed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 60.0
NEVER = ("--rpl-semi-sync-master-timeout=600000", "--rpl-semi-sync-master-wait-point=AFTER_SYNC")


def started(server: MariaDb, statement: str) -> threading.Thread:
    thread = threading.Thread(target=server.sql, args=(statement,), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("rotated", [False, True])
def test_a_commit_whose_ack_was_lost_returns_at_the_reconnect(
    server_version: str, tmp_path: Path, *, rotated: bool
) -> None:
    with MariaDb(server_version, *NEVER) as server:
        config = replica_config(server)
        server.sql("CREATE DATABASE d", "CREATE TABLE d.t (a INT)", "SET GLOBAL rpl_semi_sync_master_enabled = 1")
        waiting = started(server, "INSERT INTO d.t VALUES (1)")
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition())
            assert replica.wait_for(GtidPosition.parse("0-1-3"), WAIT_S)
        assert waiting.is_alive()
        if rotated:
            started(server, "FLUSH BINARY LOGS")
            wait_until((server.datadir / "bin.000002").exists, "the binlog was rotated")
        with EmbeddedReplica(config.model_copy(update={"semi_sync": True}), tmp_path) as replica:
            replica.start(GtidPosition())
            waiting.join(WAIT_S)
            assert not waiting.is_alive()
            # And from here on as ever.
            server.sql("INSERT INTO d.t VALUES (2)")
            counters = dict(server.sql("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master%tx'"))
            assert counters["Rpl_semi_sync_master_yes_tx"] == "2"
            assert counters["Rpl_semi_sync_master_no_tx"] == "0"
