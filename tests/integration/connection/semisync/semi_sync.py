"""Primaries that wait for replicas, and replicas that they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from replica.live import session
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.semisync.frame import ack_packet
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

    import pytest

WAIT_S = 60.0
NEVER = GtidPosition.parse("4294967295-1-1")
LONG_HEARTBEAT_S = 3600
"""No heartbeat comes within a test: what the primary notices, it does not notice by failing to send one."""
OPTIONS = (
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-no-slave=OFF",
    "--rpl-semi-sync-master-timeout=60000",
)


def with_database(server: MariaDb) -> MariaDb:
    server.sql("CREATE OR REPLACE DATABASE s", "CREATE TABLE s.t (id INT) ENGINE=InnoDB")
    return server


def semi_sync(server: MariaDb, name: str) -> int:
    return int(server.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")[0][1])


def switched_on(server: MariaDb) -> bool:
    server.sql("INSERT INTO s.t VALUES (0)")
    return bool(server.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_status'")[0][1] == "ON")


def noted_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every acknowledgement that is sent from now on, in order."""
    seen: list[tuple[str, int]] = []

    def noting(file: str, position: int) -> bytes:
        seen.append((file, position))
        return ack_packet(file, position)

    monkeypatch.setattr(session, "ack_packet", noting)
    return seen


def start_semi_sync(
    stack: contextlib.ExitStack, server: MariaDb, directory: Path, **options: object
) -> EmbeddedReplica:
    """A semi-synchronous replica from now on, that the primary waits for; it ends with the stack.

    No silence ends its connection or makes it repeat an acknowledgement, unless `heartbeat_s` is given.
    """
    config = replica_config(server, **({"semi_sync": True, "heartbeat_s": LONG_HEARTBEAT_S} | options))
    replica = stack.enter_context(EmbeddedReplica(config, directory, log=structlog.get_logger()))
    clients = semi_sync(server, "clients")
    replica.start(None)
    wait_until(lambda: semi_sync(server, "clients") == clients + 1, "the primary counts us")
    wait_until(lambda: switched_on(server), "semi-sync is on")
    return replica
