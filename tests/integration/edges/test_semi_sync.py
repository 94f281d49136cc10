"""Edge cases 72-79: semi-synchronous replication, with acknowledgements as they should be and as they should not."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from replica.embedded import EmbeddedReplica
from replica.protocol.constants import EventType
from replica.protocol.gtid import GtidPosition
from replica.protocol.packets import pack
from replica.semisync.frame import ack_packet
from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.raw_dump import REGISTERED, Arrived, RawDump
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

TIMEOUT_MS = 2500
WAIT_S = 30.0


@pytest.fixture(scope="module")
def primary(server_version: str) -> Iterator[MariaDb]:
    options = ("--rpl-semi-sync-master-enabled=ON", f"--rpl-semi-sync-master-timeout={TIMEOUT_MS}")
    with MariaDb(server_version, *options, "--rpl-semi-sync-master-wait-no-slave=OFF", tls=True) as server:
        server.sql("CREATE DATABASE semi", "CREATE TABLE semi.i (id INT)")
        server.sql("CREATE TABLE semi.m (id INT) ENGINE = MyISAM")
        yield server


def status(server: MariaDb, name: str) -> str:
    ((_, value),) = server.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")
    return str(value)


def counts(server: MariaDb, *names: str) -> list[int]:
    return [int(status(server, name)) for name in names]


class Commit(threading.Thread):
    """Statements in a session of their own, which may have to wait."""

    def __init__(self, server: MariaDb, *statements: str) -> None:
        super().__init__(target=server.sql, args=statements, daemon=True)
        self.start()

    def returned(self, timeout_s: float = WAIT_S) -> bool:
        self.join(timeout_s)
        return not self.is_alive()


class Client:
    """A semi-sync dump from now on, whose acknowledgements the test sends by hand."""

    def __init__(self, server: MariaDb, **connect: object) -> None:
        position = server.gtid_binlog_pos()
        self.server = server
        # Only a heartbeat that cannot be sent tells an idle dump thread that its client is gone.
        beat = "SET @master_heartbeat_period = 100000000"
        statements = (*REGISTERED[:2], f"SET @slave_connect_state = '{position}'", beat)
        self.dump = RawDump(server, *statements, flags=0, semi_sync=True, **connect)
        wait_until(lambda: status(server, "clients") == "1", "the primary counts us")
        self._events = self.dump.events()
        # Alone, the primary has switched semi-sync off; whoever has caught up switches it on.
        wait_until(self._switched_on, "semi-sync is on")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.dump.__exit__(*exc)
        wait_until(lambda: status(self.server, "clients") == "0", "the primary has noticed that we are gone")

    def _switched_on(self) -> bool:
        commit = Commit(self.server, "INSERT INTO semi.i VALUES (0)")
        self.acknowledge(self.wanted())
        assert commit.returned()
        return status(self.server, "status") == "ON"

    def wanted(self) -> Arrived:
        """The next event that asks for an acknowledgement."""
        return next(event for event in self._events if event.ack_wanted)

    def acknowledge(self, event: Arrived) -> None:
        self.dump.send(ack_packet(event.file, event.position))


@pytest.mark.edge(72)
def test_a_commit_waits_for_the_acknowledgement_or_for_the_timeout(primary: MariaDb) -> None:
    with Client(primary) as client:
        yes, no, off = counts(primary, "yes_tx", "no_tx", "no_times")
        commit = Commit(primary, "INSERT INTO semi.i VALUES (1)")
        event = client.wanted()
        assert not commit.returned(0.1), "nobody has acknowledged it"
        client.acknowledge(event)
        assert commit.returned()
        assert counts(primary, "yes_tx", "no_tx") == [yes + 1, no]
        assert status(primary, "status") == "ON"
        begun = time.monotonic()
        assert Commit(primary, "INSERT INTO semi.i VALUES (2)").returned()
        assert time.monotonic() - begun > TIMEOUT_MS / 2000
        assert counts(primary, "yes_tx", "no_tx", "no_times") == [yes + 1, no + 1, off + 1]
        assert status(primary, "status") == "OFF"
        # Whoever has caught up switches it on again.
        client.acknowledge(client.wanted())
        wait_until(lambda: status(primary, "status") == "ON", "semi-sync is on again")


@pytest.mark.edge(73)
@pytest.mark.parametrize("point", ["AFTER_SYNC", "AFTER_COMMIT"])
def test_what_others_see_while_a_commit_waits(primary: MariaDb, point: str) -> None:
    primary.sql("TRUNCATE semi.i", f"SET GLOBAL rpl_semi_sync_master_wait_point = {point}")
    try:
        with Client(primary) as client:
            commit = Commit(primary, "INSERT INTO semi.i VALUES (73)")
            event = client.wanted()
            wait_until(lambda: status(primary, "wait_sessions") == "1", "the commit waits")
            assert primary.value("SELECT COUNT(*) FROM semi.i WHERE id = 73") == (1 if point == "AFTER_COMMIT" else 0)
            client.acknowledge(event)
            assert commit.returned()
            assert primary.value("SELECT COUNT(*) FROM semi.i WHERE id = 73") == 1
    finally:
        primary.sql("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_COMMIT")


def refused(event: Arrived) -> dict[str, list[bytes]]:
    """Acknowledgements that do not release the commit, as the pieces they are sent in."""
    good = ack_packet(event.file, event.position)
    payload = good[4:]
    return {
        "split after the header": [good[:4], payload],
        "split inside the payload": [good[:10], good[10:]],
        "another sequence id": [pack(payload, sequence_id=1)],
        "a path instead of a name": [pack(payload[:9] + b"./" + payload[9:])],
        "a position before the event": [ack_packet(event.file, 4)],
        "too long": [pack(payload + b"x" * 600)],
        "too short": [pack(payload[:8])],
        "another command": [pack(b"\x0e")],
    }


KINDS = (
    "split after the header",
    "split inside the payload",
    "another sequence id",
    "a path instead of a name",
    "a position before the event",
    "too long",
    "too short",
    "another command",
)


@pytest.mark.edge(74)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_acknowledgements_do_not_release_a_commit(any_semi_sync: MariaDb, kind: str) -> None:
    with Client(any_semi_sync) as client:
        commit = Commit(any_semi_sync, "INSERT INTO semi.i VALUES (74)")
        event = client.wanted()
        pieces = refused(event)
        assert tuple(pieces) == KINDS
        for number, piece in enumerate(pieces[kind]):
            time.sleep(0.1 * number)  # the primary waits 1 ms for the rest
            client.dump.send(piece)
        assert not commit.returned(0.3), kind
        if kind in ("a path instead of a name", "a position before the event", "too long", "too short"):
            client.acknowledge(event)
            assert commit.returned(), "the connection is still listened to"
        else:
            assert commit.returned(), "only the timeout releases it"


@pytest.mark.edge(74)
def test_acknowledgements_that_nobody_asked_for(any_semi_sync: MariaDb) -> None:
    with Client(any_semi_sync) as client:
        commit = Commit(any_semi_sync, "INSERT INTO semi.i VALUES (74)")
        event = client.wanted()
        client.acknowledge(event)
        assert commit.returned()
        (before,) = counts(any_semi_sync, "get_ack")
        client.acknowledge(event)
        client.acknowledge(event)
        wait_until(lambda: counts(any_semi_sync, "get_ack") == [before + 2], "they are counted")
        second = Commit(any_semi_sync, "INSERT INTO semi.i VALUES (75)")
        client.acknowledge(client.wanted())
        assert second.returned(), "and do no harm"


@pytest.mark.edge(74)
def test_the_primary_believes_a_position_in_the_future(any_semi_sync: MariaDb) -> None:
    with Client(any_semi_sync) as client:
        commit = Commit(any_semi_sync, "INSERT INTO semi.i VALUES (74)")
        event = client.wanted()
        client.dump.send(ack_packet(event.file, event.position + 1_000_000))
        assert commit.returned()
        yes, no, read = counts(any_semi_sync, "yes_tx", "no_tx", "get_ack")
        assert Commit(any_semi_sync, "INSERT INTO semi.i VALUES (75)").returned()
        assert counts(any_semi_sync, "yes_tx", "no_tx", "get_ack") == [yes + 1, no, read], (
            "a commit that nobody acknowledged counts as acknowledged: why ours never names a position it has not seen"
        )
    any_semi_sync.sql("FLUSH BINARY LOGS")  # later tests are past that position


@pytest.fixture(scope="module")
def any_semi_sync() -> Iterator[MariaDb]:
    """One version is enough for what takes a timeout a case."""
    options = ("--rpl-semi-sync-master-enabled=ON", f"--rpl-semi-sync-master-timeout={TIMEOUT_MS}")
    newest = list(installations())[-1]  # 10.5 does not survive a position in the future
    with MariaDb(newest, *options, "--rpl-semi-sync-master-wait-no-slave=OFF") as server:
        server.sql("CREATE DATABASE semi", "CREATE TABLE semi.i (id INT)")
        yield server


@pytest.mark.edge(75)
@pytest.mark.edge(77)
@pytest.mark.edge(78)
def test_every_kind_of_commit_is_acknowledged_by_the_replica(primary: MariaDb, tmp_path: Path) -> None:
    replica = EmbeddedReplica(replica_config(primary, semi_sync=True), tmp_path)
    try:
        replica.start(GtidPosition.parse(primary.gtid_binlog_pos()))
        wait_until(lambda: status(primary, "clients") == "1", "the replica is counted")
        primary.sql("INSERT INTO semi.i VALUES (0)")
        wait_until(lambda: status(primary, "status") == "ON", "the replica has switched semi-sync on")
        for statements in (
            ["INSERT INTO semi.i VALUES (1)"],
            ["BEGIN", "INSERT INTO semi.i VALUES (2)", "INSERT INTO semi.i VALUES (3)", "COMMIT"],
            ["INSERT INTO semi.m VALUES (4)"],
            ["CREATE OR REPLACE TABLE semi.d (id INT)"],
            ["FLUSH BINARY LOGS", "INSERT INTO semi.i VALUES (5)"],
            ["INSERT INTO semi.i VALUES (6)", "FLUSH BINARY LOGS"],
            ["XA START 'x'", "INSERT INTO semi.i VALUES (7)", "XA END 'x'", "XA PREPARE 'x'"],
            ["XA COMMIT 'x'"],
        ):
            asked, yes, no = counts(primary, "request_ack", "yes_tx", "no_tx")
            assert Commit(primary, *statements).returned(), statements
            if "XA PREPARE 'x'" in statements:
                # It asks for an acknowledgement and does not wait for it: it counts as one or the other, in time.
                wait_until(lambda y=yes, n=no: sum(counts(primary, "yes_tx", "no_tx")) == y + n + 1, "it is counted")
            else:
                assert counts(primary, "yes_tx", "no_tx") == [yes + 1, no], statements
            assert counts(primary, "request_ack") == [asked + 1], statements
        assert status(primary, "status") == "ON"
    finally:
        replica.close()
        for _, _, _, xid in primary.sql("XA RECOVER"):
            primary.sql(f"XA ROLLBACK '{xid}'")
    wait_until(lambda: status(primary, "clients") == "0", "it has said goodbye")


@pytest.mark.edge(76)
def test_a_replica_that_comes_back_switches_semi_sync_on(primary: MariaDb, tmp_path: Path) -> None:
    def run() -> EmbeddedReplica:
        replica = EmbeddedReplica(replica_config(primary, semi_sync=True), tmp_path)
        replica.start(start)
        wait_until(lambda: status(primary, "clients") == "1", "the replica is counted")
        return replica

    start = GtidPosition.parse(primary.gtid_binlog_pos())
    run().close()
    wait_until(lambda: status(primary, "clients") == "0", "it has said goodbye")
    (no,) = counts(primary, "no_tx")
    primary.sql("INSERT INTO semi.i VALUES (76)")
    assert counts(primary, "no_tx") == [no + 1], "alone the primary does not wait"
    replica = run()
    try:
        assert replica.wait_for(GtidPosition.parse(primary.gtid_binlog_pos()), WAIT_S)
        primary.sql("INSERT INTO semi.i VALUES (77)")
        wait_until(lambda: status(primary, "status") == "ON", "it has caught up")
        yes, no = counts(primary, "yes_tx", "no_tx")
        primary.sql("INSERT INTO semi.i VALUES (78)")
        assert counts(primary, "yes_tx", "no_tx") == [yes + 1, no]
    finally:
        replica.close()


@pytest.mark.edge(79)
def test_acknowledgements_inside_tls(primary: MariaDb, tmp_path: Path) -> None:
    """The primary waits on the socket and reads one packet, whatever else is in the TLS record: ours stand alone."""
    assert primary.certificates is not None
    config = replica_config(primary, semi_sync=True, tls="verify-ca", tls_ca=str(primary.certificates.ca))
    replica = EmbeddedReplica(config, tmp_path)
    try:
        replica.start(GtidPosition.parse(primary.gtid_binlog_pos()))
        wait_until(lambda: status(primary, "clients") == "1", "the replica is counted")
        primary.sql("INSERT INTO semi.i VALUES (79)")
        wait_until(lambda: status(primary, "status") == "ON", "the replica has switched semi-sync on")
        yes, no = counts(primary, "yes_tx", "no_tx")
        sessions = [Commit(primary, *["INSERT INTO semi.i VALUES (79)"] * 25) for _ in range(4)]
        assert all(session.returned() for session in sessions)
        assert counts(primary, "yes_tx", "no_tx") == [yes + 100, no]
    finally:
        replica.close()
    wait_until(lambda: status(primary, "clients") == "0", "it has said goodbye")


@pytest.mark.edge(77)
def test_positions_inside_a_group_are_counted(primary: MariaDb) -> None:
    """11.7+ leaves log_pos 0 inside a group; what is acknowledged is the end of the event that asks for it."""
    with Client(primary) as client:
        commit = Commit(primary, "INSERT INTO semi.i VALUES (77)")
        event = client.wanted()
        assert event.header.event_type == EventType.XID
        client.acknowledge(event)
        assert commit.returned()
    _, position, *_ = primary.sql("SHOW MASTER STATUS")[0]
    assert event.position == position
