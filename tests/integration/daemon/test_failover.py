"""Several hosts: the next goes on at the same GTID, one that lags is waited for, one that refuses is passed over."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import structlog

from replica.errors import PositionLostError, PrerequisiteError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.logs.listing import relay_gtids
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config
from tests.integration.connection.semisync.semi_sync import (
    LONG_HEARTBEAT_S,
    OPTIONS,
    noted_acknowledgements,
    semi_sync,
    switched_on,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.options.config import ReplicaConfig

pytestmark = pytest.mark.server

WAIT_S = 60.0


def replicate(first: MariaDb, second: MariaDb) -> None:
    user, password = first.add_user()
    second.add_user()
    # 11.4 and later verify the primary's certificate unless told otherwise; this one has none.
    plain = ", master_ssl=0, master_ssl_verify_server_cert=0" if first.version >= "11" else ""
    source = f"master_host='{first.host}', master_port={first.port}, master_user='{user}'"
    second.sql(
        f"CHANGE MASTER TO {source}, master_password='{password}', master_use_gtid=slave_pos, "
        f"master_connect_retry=1{plain}",
        "START SLAVE",
    )


@pytest.fixture
def pair(server_version: str) -> Iterator[tuple[MariaDb, MariaDb]]:
    """A primary and a real replica of it that writes its own binlog."""
    with (
        MariaDb(server_version, "--log-slave-updates", server_id=1) as first,
        MariaDb(server_version, "--log-slave-updates", server_id=2) as second,
    ):
        replicate(first, second)
        first.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)")
        yield first, second


def in_step(first: MariaDb, second: MariaDb) -> None:
    wait_until(lambda: second.gtid_binlog_pos() == first.gtid_binlog_pos(), "the server's own replica caught up")


def hosts(*servers: MariaDb) -> str:
    return ",".join(f"{server.host}:{server.port}" for server in servers)


def follow(first: MariaDb, second: MariaDb, **options: object) -> ReplicaConfig:
    return replica_config(first, host=hosts(first, second), **options)


@contextlib.contextmanager
def started(config: ReplicaConfig, directory: Path, position: GtidPosition | None = None) -> Iterator[EmbeddedReplica]:
    with EmbeddedReplica(config, directory) as replica:
        replica.start(position)
        yield replica


def test_the_next_host_goes_on_at_the_same_gtid(pair: tuple[MariaDb, MariaDb], tmp_path: Path) -> None:
    first, second = pair
    config = follow(first, second)
    with started(config, tmp_path, GtidPosition()) as replica:
        first.sql("INSERT INTO d.t VALUES (1)")
        assert replica.wait_for(GtidPosition.parse(first.gtid_binlog_pos()), WAIT_S)
        in_step(first, second)
        # Other events before the same groups: file and offset mean nothing on the other server.
        first.kill()
        second.sql("STOP SLAVE", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (2)", "INSERT INTO d.t VALUES (3)")
        assert second.gtid_binlog_pos() == "0-2-5"
        assert replica.wait_for(GtidPosition.parse("0-2-5"), WAIT_S)
        assert second.dump_threads()
    assert relay_gtids(second, tmp_path) == ["0-1-1", "0-1-2", "0-1-3", "0-2-4", "0-2-5"]


def test_a_host_that_lags_is_waited_for(pair: tuple[MariaDb, MariaDb], tmp_path: Path) -> None:
    first, second = pair
    config = follow(first, second)
    with started(config, tmp_path, GtidPosition()) as replica:
        assert replica.wait_for(GtidPosition.parse("0-1-2"), WAIT_S)
        in_step(first, second)
        second.sql("STOP SLAVE")
        first.sql("INSERT INTO d.t VALUES (1)")
        assert replica.wait_for(GtidPosition.parse("0-1-3"), WAIT_S)
        first.stop()
        tries = replica.progress.failed_attempts
        wait_until(lambda: replica.progress.failed_attempts > tries + 6, "it tries both again and again")
        assert not second.dump_threads()
        first.start()
        second.sql("START SLAVE")
        in_step(first, second)
        second.sql("STOP SLAVE", "INSERT INTO d.t VALUES (2)")
        first.kill()
        assert replica.wait_for(GtidPosition.parse("0-2-4"), WAIT_S)
    assert relay_gtids(second, tmp_path) == ["0-1-1", "0-1-2", "0-1-3", "0-2-4"]


def diverge(first: MariaDb, second: MariaDb) -> None:
    """0-1-3 on the first, other transactions with the numbers 3 and 4 on the second."""
    in_step(first, second)
    second.sql("STOP SLAVE")
    first.sql("INSERT INTO d.t VALUES (1)")
    second.sql("INSERT INTO d.t VALUES (100)", "INSERT INTO d.t VALUES (101)")


def test_a_host_that_diverged_is_passed_over(pair: tuple[MariaDb, MariaDb], tmp_path: Path) -> None:
    first, second = pair
    config = follow(first, second)
    with (
        structlog.testing.capture_logs() as logs,
        EmbeddedReplica(config, tmp_path, log=structlog.get_logger()) as replica,
    ):
        replica.start(GtidPosition())
        diverge(first, second)
        assert replica.wait_for(GtidPosition.parse("0-1-3"), WAIT_S)
        first.stop()
        tries = replica.progress.failed_attempts
        wait_until(lambda: replica.progress.failed_attempts > tries + 6, "both are asked again and again")
        first.start()
        first.sql("INSERT INTO d.t VALUES (2)")
        assert replica.wait_for(GtidPosition.parse("0-1-4"), WAIT_S)
    assert relay_gtids(first, tmp_path) == ["0-1-1", "0-1-2", "0-1-3", "0-1-4"]
    (refused,) = (entry for entry in logs if entry["event"] == "refused")
    assert "diverged" in refused["error"]
    assert refused["endpoint"] == hosts(second)


def test_when_every_host_refuses_each_is_named(pair: tuple[MariaDb, MariaDb], tmp_path: Path) -> None:
    first, second = pair
    config = follow(first, second)
    with started(config, tmp_path, GtidPosition()) as replica:
        diverge(first, second)
        assert replica.wait_for(GtidPosition.parse("0-1-3"), WAIT_S)
    first.reset_master()
    first.sql(*["INSERT INTO d.t VALUES (5)"] * 5)
    with started(config, tmp_path) as replica, pytest.raises(PositionLostError, match="every server refused") as caught:
        replica.wait_for(GtidPosition.parse("4294967295-1-1"), WAIT_S)
    assert f"{hosts(first)}: " in caught.value.message
    assert f"{hosts(second)}: " in caught.value.message


def test_a_reset_host_is_passed_over(pair: tuple[MariaDb, MariaDb], tmp_path: Path) -> None:
    first, second = pair
    config = follow(first, second)
    with started(config, tmp_path, GtidPosition()) as replica:
        assert replica.wait_for(GtidPosition.parse("0-1-2"), WAIT_S)
    in_step(first, second)
    second.sql("STOP SLAVE")
    first.reset_master()
    first.sql(*["INSERT INTO d.t VALUES (1)"] * 4)
    second.sql("INSERT INTO d.t VALUES (2)")
    with started(config, tmp_path) as replica:
        assert replica.wait_for(GtidPosition.parse("0-2-3"), WAIT_S)
    assert relay_gtids(second, tmp_path) == ["0-1-1", "0-1-2", "0-2-3"]


def test_a_replica_that_does_not_log_what_it_replicates(tmp_path: Path) -> None:
    """It would accept our position and never send what comes after; once it has taken over it may be read from."""
    with MariaDb(server_id=1) as first, MariaDb(server_id=2) as second:
        replicate(first, second)
        first.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)")
        caught_up = lambda: second.value("SELECT @@gtid_slave_pos") == first.gtid_binlog_pos()  # noqa: E731
        wait_until(caught_up, "the server's own replica caught up")
        config = follow(first, second)
        with started(config, tmp_path, GtidPosition()) as replica:
            assert replica.wait_for(GtidPosition.parse("0-1-2"), WAIT_S)
        alone = replica_config(second)
        with started(alone, tmp_path) as replica, pytest.raises(PrerequisiteError, match="does not log"):
            replica.wait_for(GtidPosition.parse("4294967295-1-1"), WAIT_S)
        first.kill()
        second.sql("STOP SLAVE", "INSERT INTO d.t VALUES (2)")
        with started(config, tmp_path) as replica:
            assert replica.wait_for(GtidPosition.parse("0-2-3"), WAIT_S)
        assert relay_gtids(second, tmp_path) == ["0-1-1", "0-1-2", "0-2-3"]


def test_a_replica_that_went_further_without_logging(tmp_path: Path) -> None:
    with MariaDb(server_id=1) as first, MariaDb(server_id=2) as second:
        replicate(first, second)
        first.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)")
        config = follow(first, second)
        with started(config, tmp_path, GtidPosition()) as replica:
            assert replica.wait_for(GtidPosition.parse("0-1-2"), WAIT_S)
        first.sql("INSERT INTO d.t VALUES (1)")
        wait_until(lambda: second.value("SELECT @@gtid_slave_pos") == "0-1-3", "the server's own replica caught up")
        second.sql("STOP SLAVE", "INSERT INTO d.t VALUES (2)")
        with started(replica_config(second), tmp_path) as replica, pytest.raises(PositionLostError, match="0-1-2"):
            replica.wait_for(GtidPosition.parse("4294967295-1-1"), WAIT_S)
        assert relay_gtids(first, tmp_path) == ["0-1-1", "0-1-2"]


def test_acknowledgements_after_a_failover_are_of_the_new_primarys_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old primary was in a later file: its name, said to the new one, would release commits we never saw."""
    sent = noted_acknowledgements(monkeypatch)
    options = (*OPTIONS, "--log-slave-updates")
    with MariaDb(None, *options, server_id=1) as first, MariaDb(None, *options, server_id=2) as second:
        replicate(first, second)
        first.sql("CREATE DATABASE s", "CREATE TABLE s.t(a INT)", *["FLUSH BINARY LOGS"] * 8)
        config = follow(first, second, semi_sync=True, heartbeat_s=LONG_HEARTBEAT_S)
        with started(config, tmp_path, GtidPosition()) as ours:
            wait_until(lambda: semi_sync(first, "clients") == 1, "the primary counts us")
            wait_until(lambda: switched_on(first), "semi-sync is on")
            load(first, 20)
            in_step(first, second)
            of_the_first = len(sent)
            assert sent[-1][0] == "bin.000009"
            first.kill()
            second.sql("STOP SLAVE")
            wait_until(lambda: semi_sync(second, "clients") == 1, "the new primary counts us")
            wait_until(lambda: switched_on(second), "semi-sync is on")
            yes, no = semi_sync(second, "yes_tx"), semi_sync(second, "no_tx")
            load(second, 20)
            assert (semi_sync(second, "yes_tx"), semi_sync(second, "no_tx")) == (yes + 20, no)
            assert ours.wait_for(GtidPosition.parse(second.gtid_binlog_pos()), WAIT_S)
        for file, position in sent[of_the_first:]:
            assert second.value(f"SELECT BINLOG_GTID_POS('{file}', {position})") is not None, (file, position)
        assert len(sent) > of_the_first


def load(server: MariaDb, count: int) -> None:
    for number in range(count):
        server.sql(f"INSERT INTO s.t VALUES ({number})")
