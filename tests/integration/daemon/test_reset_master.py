"""RESET MASTER behind the replica's back: the server accepts the old position silently, the replica must not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import PositionLostError
from replica.handshake.start.resume import Stored
from replica.live.embedded import EmbeddedReplica
from replica.live.session import StaleStreamCheck
from replica.protocol.gtid import GtidPosition
from tests.fixtures.logs.listing import relay_gtids
from tests.fixtures.mariadb import wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.relay_log.location import RelayHead
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

WAIT_S = 60.0
NEVER = GtidPosition.parse("4294967295-1-1")


def insert(server: MariaDb, count: int, text: str = "x") -> None:
    for _ in range(count):
        server.sql(f"INSERT INTO d.t VALUES ('{text}')")


def replicated(server: MariaDb, directory: Path) -> RelayHead:
    """Three transactions in a fresh binlog, all of them in the relay log."""
    server.sql("CREATE OR REPLACE DATABASE d", "CREATE TABLE d.t(a TEXT)")
    server.reset_master()
    insert(server, 3)
    with EmbeddedReplica(replica_config(server), directory) as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(GtidPosition.parse("0-1-3"), WAIT_S)
        head = replica.head()
    wait_until(lambda: not server.dump_threads(), "its dump has ended: the next one that is seen is another's")
    return head


@pytest.mark.parametrize(
    ("transactions", "text"),
    [(0, ""), (2, "y"), (3, "longer"), (3, "x"), (5, "x"), (40, "longer")],
    ids=["none", "fewer", "equal", "equal-and-alike", "more-and-alike", "more"],
)
@pytest.mark.edge(82)
def test_a_reset_between_two_connections(server: MariaDb, transactions: int, text: str, tmp_path: Path) -> None:
    head = replicated(server, tmp_path)
    before = relay_gtids(server, tmp_path)
    server.reset_master()
    insert(server, transactions, text)
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(head.position)
        with pytest.raises(PositionLostError) as caught:
            replica.wait_for(NEVER, WAIT_S)
    assert "0-1-3" in caught.value.message
    assert "new checkpoint" in caught.value.hint
    assert relay_gtids(server, tmp_path) == before, "nothing of the other history came in"


@pytest.mark.parametrize("transactions", [2, 3, 40])
def test_the_place_alone_is_enough_after_the_relay_log_was_lost(
    server: MariaDb, transactions: int, tmp_path: Path
) -> None:
    head = replicated(server, tmp_path / "lost")
    server.reset_master()
    insert(server, transactions, "longer")
    with EmbeddedReplica(replica_config(server), tmp_path / "new") as replica:
        replica.start(Stored(head.position, head.primary, server_id=1))
        with pytest.raises(PositionLostError):
            replica.wait_for(NEVER, WAIT_S)


def test_a_reset_while_connected(server: MariaDb, tmp_path: Path) -> None:
    head = replicated(server, tmp_path)
    with (
        FaultProxy(server.host, server.port) as proxy,
        EmbeddedReplica(replica_config(server, port=proxy.port), tmp_path) as replica,
    ):
        replica.start(head.position)
        wait_until(server.dump_threads, "connected")
        proxy.refuse = True
        proxy.reset_all()
        wait_until(lambda: not server.dump_threads(), "disconnected")
        server.reset_master()
        insert(server, 4)
        proxy.refuse = False
        with pytest.raises(PositionLostError):
            replica.wait_for(NEVER, WAIT_S)


@pytest.mark.parametrize("transactions", [0, 4])
def test_a_reset_behind_a_connection_that_stays(
    server: MariaDb, transactions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StaleStreamCheck.__init__, "__kwdefaults__", {"quiet_s": 0.5})
    head = replicated(server, tmp_path)
    before = relay_gtids(server, tmp_path)
    with EmbeddedReplica(replica_config(server, heartbeat_s=0.3), tmp_path) as replica:
        replica.start(head.position)
        wait_until(server.dump_threads, "connected")
        server.reset_master()
        insert(server, transactions)
        with pytest.raises(PositionLostError):
            replica.wait_for(NEVER, WAIT_S)
    assert relay_gtids(server, tmp_path) == before


def test_a_server_at_rest_keeps_its_connection(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StaleStreamCheck.__init__, "__kwdefaults__", {"quiet_s": 0.3})
    answers: list[GtidPosition | None] = []
    asked = StaleStreamCheck._server_position

    async def noted(*arguments: Any) -> GtidPosition | None:
        answers.append(await asked(*arguments))
        return answers[-1]

    monkeypatch.setattr(StaleStreamCheck, "_server_position", noted)
    head = replicated(server, tmp_path)
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(head.position)
        wait_until(server.dump_threads, "connected")
        (thread,) = server.dump_threads()
        wait_until(lambda: len(answers) > 2, "asked several times")
        assert set(answers) == {head.position}
        assert server.dump_threads() == [thread]
        insert(server, 1)
        assert replica.wait_for(GtidPosition.parse("0-1-4"), WAIT_S)


def test_a_foreign_server_with_the_same_id_and_alike_transactions(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    ours, foreign = make_server(server_version), make_server(server_version)
    head = replicated(ours, tmp_path)
    began = int(time.time())
    wait_until(lambda: int(time.time()) > began, "no two servers lived the same life: the times differ")
    replicated(foreign, tmp_path / "foreign")
    insert(foreign, 2)
    assert foreign.gtid_binlog_pos() == "0-1-5"
    with EmbeddedReplica(replica_config(foreign), tmp_path) as replica:
        replica.start(head.position)
        with pytest.raises(PositionLostError):
            replica.wait_for(NEVER, WAIT_S)
    assert relay_gtids(ours, tmp_path) == ["0-1-1", "0-1-2", "0-1-3"]


def test_an_honest_restart_is_no_reset(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version, "--sync-binlog=1")
    head = replicated(server, tmp_path)
    server.kill()
    server.start()
    insert(server, 2)
    server.sql("FLUSH BINARY LOGS")
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(Stored(head.position, head.primary, server_id=1))
        assert replica.wait_for(GtidPosition.parse("0-1-5"), WAIT_S)
    server.sql("FLUSH BINARY LOGS")
    server.purge_binlogs()
    insert(server, 1)
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(GtidPosition.parse("0-1-5"))
        assert replica.wait_for(GtidPosition.parse("0-1-6"), WAIT_S)
