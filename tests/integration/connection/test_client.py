"""The whole replica against real servers: what it writes, and that cuts and crashes lose and repeat nothing."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.protocol.header import parse_header
from replica.relay_log.directory.lock import RelayLock
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import last_event
from tests.fixtures.logs.listing import list_events, relay_files, relay_gtids, server_gtids
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 60.0


def make_tables(server: MariaDb) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE client",
        "CREATE TABLE client.t(id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(2000))",
        "CREATE TABLE client.m(id INT) ENGINE=MyISAM",
    )


def caught_up(replica: EmbeddedReplica, server: MariaDb) -> None:
    target = GtidPosition.parse(server.gtid_binlog_pos())
    assert replica.wait_for(target, WAIT_S), f"{replica.head().position} is not {target}"


class Writer(threading.Thread):
    """Commits small and not so small transactions in two domains until told to stop; survives server restarts."""

    def __init__(self, server: MariaDb, transactions: int) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.transactions = transactions
        self.done = 0

    def run(self) -> None:
        generator = random.Random(7)
        with self.server.connect() as connection, connection.cursor() as cursor:
            for number in range(self.transactions):
                cursor.execute(f"SET gtid_domain_id = {number % 3 % 2}")
                size = generator.choice((1, 50, 1500))
                cursor.execute("BEGIN")
                for _ in range(generator.choice((1, 1, 20))):
                    cursor.execute("INSERT INTO client.t(v) VALUES (%s)", ("x" * size,))
                cursor.execute("COMMIT")
                self.done += 1


def test_what_is_written_is_what_mariadb_binlog_lists(server: MariaDb, tmp_path: Path) -> None:
    start = GtidPosition.parse(server.gtid_binlog_pos())
    before = len(server_gtids(server))
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        assert replica.server_position() == start
        replica.start(start)
        make_tables(server)
        server.sql(
            "INSERT INTO client.t(v) VALUES ('première')",
            "INSERT INTO client.m VALUES (1)",
            "FLUSH BINARY LOGS",
            "UPDATE client.t SET v = 'seconde'",
            "DELETE FROM client.t",
        )
        caught_up(replica, server)
        with pytest.raises(RelayError, match="in use"):
            RelayLock(tmp_path)
        head = replica.head()
        # Not SHOW MASTER STATUS: the server appends a BINLOG_CHECKPOINT behind the last group whenever it likes.
        assert head.primary is not None
        there = server.value(f"SELECT BINLOG_GTID_POS('{head.primary.file}', {head.primary.position})")
        assert GtidPosition.parse(there) == head.position
        assert replica.log.locate(head.position) == head.location
        event = last_event(RelayLog(tmp_path), head.location)
        assert event is not None
        assert (server.datadir / head.primary.file).read_bytes()[: head.primary.position].endswith(event)
        assert parse_header(memoryview(event)).event_length == len(event)
    RelayLock(tmp_path).close()
    assert relay_gtids(server, tmp_path) == server_gtids(server)[before:]
    assert "seconde" in list_events(server, *relay_files(tmp_path))


def test_it_goes_on_where_it_stopped(server: MariaDb, tmp_path: Path) -> None:
    config = replica_config(server, start="latest")
    make_tables(server)
    before = len(server_gtids(server))
    with EmbeddedReplica(config, tmp_path) as first:
        first.start(None)
        wait_until(lambda: first.progress.connections, "connected")
        server.sql("INSERT INTO client.t(v) VALUES ('one')")
        caught_up(first, server)
        stopped_at = first.head()
    server.sql("INSERT INTO client.t(v) VALUES ('two')")
    with EmbeddedReplica(config, tmp_path) as second:
        second.start(stopped_at.position)
        assert second.wait_beyond(stopped_at.location, WAIT_S)
        caught_up(second, server)
    assert relay_gtids(server, tmp_path) == server_gtids(server)[before:]


def test_a_lost_or_older_relay_directory_is_fetched_again(server: MariaDb, tmp_path: Path) -> None:
    config = replica_config(server)
    make_tables(server)
    wanted = GtidPosition.parse(server.gtid_binlog_pos())
    before = len(server_gtids(server))
    server.sql("INSERT INTO client.t(v) VALUES ('one')", "INSERT INTO client.t(v) VALUES ('two')")
    later = GtidPosition.parse(server.gtid_binlog_pos())
    with EmbeddedReplica(config, tmp_path) as other:
        other.start(later)
        server.sql("INSERT INTO client.t(v) VALUES ('three')")
        caught_up(other, server)
    with EmbeddedReplica(config, tmp_path) as replica:
        replica.start(wanted)
        caught_up(replica, server)
        assert replica.log.locate(wanted) is not None
    assert relay_gtids(server, tmp_path) == server_gtids(server)[before:]


def test_earliest_is_the_oldest_binlog_there_is(server: MariaDb, tmp_path: Path) -> None:
    make_tables(server)
    server.sql("FLUSH BINARY LOGS", "INSERT INTO client.t(v) VALUES ('one')", "FLUSH BINARY LOGS")
    oldest = server.binlogs()[-2]
    server.purge_binlogs(oldest)
    with EmbeddedReplica(replica_config(server, start="earliest"), tmp_path) as replica:
        replica.start(None)
        caught_up(replica, server)
    assert relay_gtids(server, tmp_path) == server_gtids(server)


@pytest.mark.edge(71)
def test_cut_at_random_every_group_comes_once(server: MariaDb, tmp_path: Path) -> None:
    make_tables(server)
    before = len(server_gtids(server))
    generator = random.Random(server.version)
    with FaultProxy(server.host, server.port) as proxy:
        config = replica_config(server, host="127.0.0.1", port=proxy.port)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(server.gtid_binlog_pos()))
            writer = Writer(server, transactions=300)
            writer.start()
            cuts = 0
            while writer.is_alive() or cuts < 5:
                if not writer.is_alive():
                    writer = Writer(server, transactions=100)
                    writer.start()
                proxy.cut_after(generator.randrange(1, 60_000))
                wait_until(lambda: not proxy.cut_pending or not writer.is_alive(), "the cut")  # noqa: B023
                cuts += not proxy.cut_pending
            writer.join()
            caught_up(replica, server)
        assert proxy.accepted > 5
    assert relay_gtids(server, tmp_path) == server_gtids(server)[before:]


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.edge(58)
def test_a_restarted_server_is_followed_on(
    make_server: Callable[..., MariaDb], server_version: str, how: str, tmp_path: Path
) -> None:
    server = make_server(server_version, "--sync-binlog=1")
    make_tables(server)
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(GtidPosition())
        for _ in range(2):
            writer = Writer(server, transactions=20)
            writer.start()
            writer.join()
            getattr(server, how)()
            server.start()
        server.sql("INSERT INTO client.t(v) VALUES ('after')")
        caught_up(replica, server)
    assert relay_gtids(server, tmp_path) == server_gtids(server)


@pytest.mark.parametrize("how", ["KILL QUERY", "KILL CONNECTION", "fin", "rst"])
@pytest.mark.edge(68)
def test_every_end_of_a_connection_is_followed_by_another(server: MariaDb, how: str, tmp_path: Path) -> None:
    make_tables(server)
    before = len(server_gtids(server))
    with (
        FaultProxy(server.host, server.port) as proxy,
        EmbeddedReplica(replica_config(server, port=proxy.port), tmp_path) as replica,
    ):
        replica.start(GtidPosition.parse(server.gtid_binlog_pos()))
        server.sql("INSERT INTO client.t(v) VALUES ('one')")
        caught_up(replica, server)
        dump = replica.progress.thread_id
        if how == "fin":
            proxy.close_all()
        elif how == "rst":
            proxy.reset_all()
        else:
            server.sql(f"{how} {dump}")
        server.sql("INSERT INTO client.t(v) VALUES ('two')")
        caught_up(replica, server)
        wait_until(lambda: dump not in server.dump_threads(), "the old connection is gone")
    assert relay_gtids(server, tmp_path) == server_gtids(server)[before:]


@pytest.mark.edge(70)
def test_a_bit_flipped_on_the_wire_is_read_again(server: MariaDb, tmp_path: Path) -> None:
    make_tables(server)
    before = len(server_gtids(server))
    with (
        FaultProxy(server.host, server.port) as proxy,
        EmbeddedReplica(replica_config(server, port=proxy.port), tmp_path) as replica,
    ):
        replica.start(GtidPosition.parse(server.gtid_binlog_pos()))
        wait_until(lambda: replica.progress.connections, "connected")
        marker = b"to be damaged"

        def damage_once(data: bytes) -> bytes:
            if marker in data:
                proxy.mangle = None
                return data.replace(marker, b"to be damagee")
            return data

        proxy.mangle = damage_once
        server.sql("INSERT INTO client.t(v) VALUES ('to be damaged')")
        caught_up(replica, server)
        assert proxy.mangle is None
    assert relay_gtids(server, tmp_path) == server_gtids(server)[before:]
    assert "to be damagee" not in list_events(server, *relay_files(tmp_path))


def test_commits_wait_for_our_acknowledgement(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(
        server_version,
        "--rpl-semi-sync-master-enabled=ON",
        "--rpl-semi-sync-master-wait-no-slave=OFF",
        "--rpl-semi-sync-master-timeout=60000",
    )
    with EmbeddedReplica(replica_config(server, semi_sync=True), tmp_path) as replica:
        replica.start(GtidPosition())
        wait_until(lambda: semi_sync(server, "clients") == 1, "the server counts us as semi-synchronous")
        make_tables(server)
        status = "SHOW STATUS LIKE 'Rpl_semi_sync_master_status'"
        wait_until(lambda: server.sql(status)[0][1] == "ON", "the first acknowledgements")
        yes, no = semi_sync(server, "yes_tx"), semi_sync(server, "no_tx")
        for value in range(20):
            server.sql(f"INSERT INTO client.t(v) VALUES ('{value}')")
        assert (semi_sync(server, "yes_tx"), semi_sync(server, "no_tx")) == (yes + 20, no)
        # Acknowledged means written: nothing has to be waited for. Readers are shown it a moment later.
        written = b"".join(path.read_bytes() for path in relay_files(tmp_path))
        assert b"19" in written[-100:]
        assert replica.wait_for(GtidPosition.parse(server.gtid_binlog_pos()), WAIT_S)
    wait_until(lambda: semi_sync(server, "clients") == 0, "the server no longer counts us")


def semi_sync(server: MariaDb, name: str) -> int:
    return int(server.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")[0][1])
