"""Several hosts: the next one goes on at the same GTID, one that lags is waited for, one that diverged is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.embedded import EmbeddedReplica
from replica.errors import PositionLostError
from replica.protocol.gtid import GtidPosition
from tests.fixtures.listing import relay_gtids
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 30.0


@pytest.fixture
def pair(server_version: str) -> Iterator[tuple[MariaDb, MariaDb]]:
    """A primary and a real replica of it that writes its own binlog."""
    with (
        MariaDb(server_version, "--log-slave-updates", server_id=1) as first,
        MariaDb(server_version, "--log-slave-updates", server_id=2) as second,
    ):
        user, password = first.add_user()
        second.add_user()
        # 11.4 and later verify the primary's certificate unless told otherwise; this one has none.
        plain = ", master_ssl=0, master_ssl_verify_server_cert=0" if server_version >= "11" else ""
        source = f"master_host='{first.host}', master_port={first.port}, master_user='{user}'"
        second.sql(
            f"CHANGE MASTER TO {source}, master_password='{password}', master_use_gtid=slave_pos{plain}", "START SLAVE"
        )
        first.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)")
        yield first, second


def in_step(first: MariaDb, second: MariaDb) -> None:
    wait_until(lambda: second.gtid_binlog_pos() == first.gtid_binlog_pos(), "the server's own replica caught up")


def hosts(*servers: MariaDb) -> str:
    return ",".join(f"{server.host}:{server.port}" for server in servers)


def test_the_next_host_goes_on_at_the_same_gtid(pair: tuple[MariaDb, MariaDb], tmp_path: Path) -> None:
    first, second = pair
    config = replica_config(first, host=hosts(first, second))
    with EmbeddedReplica(config, tmp_path) as replica:
        replica.start(GtidPosition())
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
    config = replica_config(first, host=hosts(first, second))
    with EmbeddedReplica(config, tmp_path) as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(GtidPosition.parse("0-1-2"), WAIT_S)
        in_step(first, second)
        second.sql("STOP SLAVE")
        first.sql("INSERT INTO d.t VALUES (1)")
        assert replica.wait_for(GtidPosition.parse("0-1-3"), WAIT_S)
        first.stop()
        connections = int(second.sql("SHOW STATUS LIKE 'Connections'")[0][1])
        wait_until(
            lambda: int(second.sql("SHOW STATUS LIKE 'Connections'")[0][1]) > connections + 40,
            "it tries again and again",
        )
        assert not second.dump_threads()
        first.start()
        second.sql("START SLAVE")
        in_step(first, second)
        second.sql("STOP SLAVE", "INSERT INTO d.t VALUES (2)")
        first.kill()
        assert replica.wait_for(GtidPosition.parse("0-2-4"), WAIT_S)
    assert relay_gtids(second, tmp_path) == ["0-1-1", "0-1-2", "0-1-3", "0-2-4"]


def test_a_host_that_diverged_is_refused(pair: tuple[MariaDb, MariaDb], tmp_path: Path) -> None:
    first, second = pair
    config = replica_config(first, host=hosts(first, second))
    with EmbeddedReplica(config, tmp_path) as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(GtidPosition.parse("0-1-2"), WAIT_S)
        in_step(first, second)
        second.sql("STOP SLAVE")
        first.sql("INSERT INTO d.t VALUES (1)")
        second.sql("INSERT INTO d.t VALUES (100)", "INSERT INTO d.t VALUES (101)")
        assert replica.wait_for(GtidPosition.parse("0-1-3"), WAIT_S)
        first.kill()
        with pytest.raises(PositionLostError, match="diverged"):
            replica.wait_for(GtidPosition.parse("4294967295-1-1"), WAIT_S)
