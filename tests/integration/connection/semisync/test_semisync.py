"""Semi-synchronous replication of the whole replica: what is acknowledged, and when."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config
from tests.integration.connection.semisync.semi_sync import (
    LONG_HEARTBEAT_S,
    OPTIONS,
    WAIT_S,
    noted_acknowledgements,
    semi_sync,
    switched_on,
    with_database,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.server


@pytest.fixture
def acknowledged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    return noted_acknowledgements(monkeypatch)


def load(server: MariaDb, sessions: int, transactions: int) -> None:
    """Commits at once, with binlog files that end in between."""

    def write(number: int) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            for count in range(transactions):
                cursor.execute(f"INSERT INTO s.t VALUES ({number})")
                if number == 0 and count % 10 == 9:
                    cursor.execute("FLUSH BINARY LOGS")

    threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def check_each(server: MariaDb, sent: list[tuple[str, int]]) -> None:
    """Each is the end of an event group, or of what stands before the first of a file; none goes back."""
    assert sent == sorted(sent)
    for file, position in set(sent):
        assert server.value(f"SELECT BINLOG_GTID_POS('{file}', {position})") is not None, (file, position)
        assert position <= (server.datadir / file).stat().st_size


@pytest.mark.parametrize("point", ["AFTER_SYNC", "AFTER_COMMIT"])
def test_under_load_over_rotations_each_commit_is_acknowledged_after_it_is_durable(
    primary: MariaDb,
    point: str,
    tmp_path: Path,
    acknowledged: list[tuple[str, int]],
    running: Callable[..., EmbeddedReplica],
) -> None:
    primary.sql(f"SET GLOBAL rpl_semi_sync_master_wait_point = {point}")
    replica = running(primary, tmp_path)
    yes, no = semi_sync(primary, "yes_tx"), semi_sync(primary, "no_tx")
    load(primary, sessions=4, transactions=40)
    assert (semi_sync(primary, "yes_tx"), semi_sync(primary, "no_tx")) == (yes + 160, no)
    assert replica.wait_for(GtidPosition.parse(primary.gtid_binlog_pos()), WAIT_S), "readers see it a moment later"
    progress = replica.progress
    wait_until(lambda: progress.acks == len(acknowledged), "the last one sent, of a rotation perhaps, is counted")
    assert progress.acks == len(acknowledged) == progress.syncs == progress.ack_latency.count
    assert progress.acknowledged == replica.head().primary
    assert progress.groups >= 160
    replica.close()
    check_each(primary, acknowledged)


def test_switched_off_and_on_during_the_dump(
    primary: MariaDb, tmp_path: Path, acknowledged: list[tuple[str, int]], running: Callable[..., EmbeddedReplica]
) -> None:
    replica = running(primary, tmp_path)
    primary.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
    before = len(acknowledged)
    load(primary, sessions=1, transactions=20)
    assert replica.wait_for(GtidPosition.parse(primary.gtid_binlog_pos()), WAIT_S)
    assert len(acknowledged) == before, "nobody asked"
    primary.sql("SET GLOBAL rpl_semi_sync_master_enabled = ON")
    wait_until(lambda: switched_on(primary), "semi-sync is on")
    yes = semi_sync(primary, "yes_tx")
    load(primary, sessions=2, transactions=20)
    assert semi_sync(primary, "yes_tx") == yes + 40
    assert replica.progress.connections == 1
    replica.close()
    check_each(primary, acknowledged)


def test_catching_up_after_a_restart_of_the_primary_acknowledges_nothing_ahead(
    primary: MariaDb, tmp_path: Path, acknowledged: list[tuple[str, int]], running: Callable[..., EmbeddedReplica]
) -> None:
    """Semi-sync is on but has seen no commit yet: the primary then asks for every event, also between groups."""
    running(primary, tmp_path).close()
    load(primary, sessions=1, transactions=30)
    primary.stop()
    primary.start()
    replica = running(primary, tmp_path)
    primary.sql("FLUSH BINARY LOGS")
    assert switched_on(primary)
    yes = semi_sync(primary, "yes_tx")
    load(primary, sessions=1, transactions=20)
    assert semi_sync(primary, "yes_tx") == yes + 20
    replica.close()
    check_each(primary, acknowledged)


def test_one_of_several_is_enough_and_one_that_stands_still_holds_up_nobody(
    any_primary: MariaDb, tmp_path: Path, running: Callable[..., EmbeddedReplica]
) -> None:
    with FaultProxy(any_primary.host, any_primary.port) as proxy:
        still = running(any_primary, tmp_path / "still", port=proxy.port, heartbeat_s=LONG_HEARTBEAT_S)
        running(any_primary, tmp_path / "other")
        proxy.stall()
        yes, no = semi_sync(any_primary, "yes_tx"), semi_sync(any_primary, "no_tx")
        load(any_primary, sessions=2, transactions=20)
        assert (semi_sync(any_primary, "yes_tx"), semi_sync(any_primary, "no_tx")) == (yes + 40, no)
        proxy.resume()
        assert still.wait_for(GtidPosition.parse(any_primary.gtid_binlog_pos()), WAIT_S)
        still.close()


def test_receive_acknowledges_without_the_disk(
    any_primary: MariaDb, tmp_path: Path, running: Callable[..., EmbeddedReplica]
) -> None:
    replica = running(any_primary, tmp_path, ack_policy="receive")
    yes = semi_sync(any_primary, "yes_tx")
    load(any_primary, sessions=2, transactions=20)
    assert semi_sync(any_primary, "yes_tx") == yes + 40
    assert replica.progress.acks > 0
    assert replica.progress.syncs == 0


@pytest.mark.parametrize("filters", [("--binlog-ignore-db=hidden",), ("--binlog-do-db=s",)])
def test_what_the_primary_does_not_log_is_not_waited_for(
    make_server: Callable[..., MariaDb],
    filters: tuple[str, ...],
    tmp_path: Path,
    acknowledged: list[tuple[str, int]],
    running: Callable[..., EmbeddedReplica],
) -> None:
    server = make_server(None, *OPTIONS, *filters)
    with_database(server)
    server.sql("CREATE DATABASE hidden", "CREATE TABLE hidden.t (id INT)")
    replica = running(server, tmp_path)
    yes, no = semi_sync(server, "yes_tx"), semi_sync(server, "no_tx")
    for _ in range(5):
        server.sql("USE hidden", "INSERT INTO hidden.t VALUES (1)")
        server.sql("USE s", "INSERT INTO s.t VALUES (1)")
        server.sql("USE s", "BEGIN", "INSERT INTO hidden.t VALUES (2)", "INSERT INTO s.t VALUES (2)", "COMMIT")
    assert (semi_sync(server, "yes_tx"), semi_sync(server, "no_tx")) == (yes + 10, no)
    assert replica.wait_for(GtidPosition.parse(server.gtid_binlog_pos()), WAIT_S)
    replica.close()
    check_each(server, acknowledged)


def test_a_primary_that_waits_for_nobody_is_pointed_out(make_server: Callable[..., MariaDb], tmp_path: Path) -> None:
    server = with_database(make_server(None))
    with structlog.testing.capture_logs() as logs:
        config = replica_config(server, semi_sync=True, heartbeat_s=LONG_HEARTBEAT_S)
        with EmbeddedReplica(config, tmp_path, log=structlog.get_logger()) as replica:
            replica.start(None)
            wait_until(lambda: semi_sync(server, "clients") == 1, "the primary counts us")
            server.sql("SET GLOBAL rpl_semi_sync_master_enabled = ON")
            wait_until(lambda: switched_on(server), "semi-sync is on, without a reconnect")
            assert replica.progress.connections == 1
    fixes: list[Any] = [e["fix"] for e in logs if e["event"] == "server setting" and "commits do not wait" in e["what"]]
    assert not [e for e in logs if e["event"] == "disconnected"]
    (fix,) = fixes
    assert "SET GLOBAL rpl_semi_sync_master_enabled = ON" in fix
