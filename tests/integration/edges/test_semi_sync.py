"""Edge cases 72-79: semi-synchronous replication, with acknowledgements as they should be and as they should not."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from replica.live.embedded import EmbeddedReplica
from replica.protocol.constants import EventType
from replica.protocol.gtid import GtidPosition
from replica.protocol.packets.packets import pack
from replica.semisync.frame import ack_packet
from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.raw_dump import REGISTERED, Arrived, RawDump
from tests.fixtures.replicas import replica_config
from tests.integration.connection.semisync.semi_sync import LONG_HEARTBEAT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from replica.options.config import ReplicaConfig

pytestmark = pytest.mark.server

COMPLAINT = "Read semi-sync reply"
TIMEOUT_MS = 120_000
"""Longer than any wait of a test: what releases a commit is an acknowledgement, or that no replica is left."""
EXPIRY_MS = 500
WAIT_S = 60.0


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
        """The end of the next commit, which asks for an acknowledgement.

        Switched off, 10.5 asks for one of a binlog checkpoint as well, which it writes when the engine is done with a
        file: whoever took that for the end of his commit would be one acknowledgement behind.
        """
        return next(event for event in self._events if event.ack_wanted and event.header.event_type == EventType.XID)

    def acknowledge(self, event: Arrived) -> None:
        self.dump.send(ack_packet(event.file, event.position))


def patient(server: MariaDb, **options: object) -> ReplicaConfig:
    """It does not reconnect where the primary stands still for a moment: commits of that time would count as others."""
    return replica_config(server, semi_sync=True, heartbeat_s=LONG_HEARTBEAT_S, **options)


@pytest.mark.edge(72)
def test_a_commit_waits_for_the_acknowledgement_or_for_the_timeout(primary: MariaDb) -> None:
    with Client(primary) as client:
        yes, no, off = counts(primary, "yes_tx", "no_tx", "no_times")
        commit = Commit(primary, "INSERT INTO semi.i VALUES (1)")
        event = client.wanted()
        wait_until(lambda: status(primary, "wait_sessions") == "1", "nobody has acknowledged it")
        client.acknowledge(event)
        assert commit.returned()
        assert counts(primary, "yes_tx", "no_tx") == [yes + 1, no]
        assert status(primary, "status") == "ON"
        primary.sql(f"SET GLOBAL rpl_semi_sync_master_timeout = {EXPIRY_MS}")
        begun = time.monotonic()
        try:
            assert Commit(primary, "INSERT INTO semi.i VALUES (2)").returned()
        finally:
            primary.sql(f"SET GLOBAL rpl_semi_sync_master_timeout = {TIMEOUT_MS}")
        assert time.monotonic() - begun > EXPIRY_MS / 2000
        assert counts(primary, "yes_tx", "no_tx", "no_times") == [yes + 1, no + 1, off + 1]
        assert status(primary, "status") == "OFF"
        # Whoever has caught up switches it on again.
        client.acknowledge(client.wanted())
        wait_until(lambda: status(primary, "status") == "ON", "semi-sync is on again")


@pytest.mark.edge(73)
def test_what_others_see_while_a_commit_waits(primary: MariaDb) -> None:
    count = "SELECT COUNT(*) FROM semi.i WHERE id = 73"
    primary.sql("DELETE FROM semi.i")
    try:
        with Client(primary) as client:
            for seen, point in enumerate(("AFTER_SYNC", "AFTER_COMMIT")):
                primary.sql(f"SET GLOBAL rpl_semi_sync_master_wait_point = {point}")
                commit = Commit(primary, "INSERT INTO semi.i VALUES (73)")
                event = client.wanted()
                wait_until(lambda: status(primary, "wait_sessions") == "1", "the commit waits")
                assert primary.value(count) == 2 * seen, point
                client.acknowledge(event)
                assert commit.returned()
                assert primary.value(count) == 1 + seen, point
    finally:
        primary.sql("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_COMMIT")


def split_after(count: int, event: Arrived) -> tuple[bytes, bytes]:
    good = ack_packet(event.file, event.position)
    return good[:count], good[count:]


@pytest.mark.edge(74)
@pytest.mark.parametrize("count", [4, 10], ids=["after the header", "inside the payload"])
def test_an_acknowledgement_in_two_pieces_does_not_release_a_commit(any_semi_sync: MariaDb, count: int) -> None:
    """The primary waits 1 ms for the rest. Where it stood still and found both pieces at once, it is tried again."""

    def not_taken() -> bool:
        with Client(any_semi_sync) as client:
            yes, no = counts(any_semi_sync, "yes_tx", "no_tx")
            commit = Commit(any_semi_sync, "INSERT INTO semi.i VALUES (74)")
            first, rest = split_after(count, client.wanted())
            client.dump.send(first)
            time.sleep(0.1)
            client.dump.send(rest)
            commit.returned(0.2)
        assert commit.returned(), "released, because no replica is left"
        return counts(any_semi_sync, "yes_tx", "no_tx") == [yes, no + 1]

    wait_until(not_taken, "the primary reads the first piece alone")


KINDS: dict[str, Callable[[str, int], bytes]] = {
    "another sequence id": lambda file, position: pack(ack_packet(file, position)[4:], sequence_id=1),
    "a path instead of a name": lambda file, position: pack(ack_packet(file, position)[4:13] + b"./" + file.encode()),
    "a position before the event": lambda file, _: ack_packet(file, 4),
    "too long": lambda file, position: pack(ack_packet(file, position)[4:] + b"x" * 600),
    "too short": lambda file, position: pack(ack_packet(file, position)[4:12]),
    "another command": lambda _file, _position: pack(b"\x0e"),
}
COUNTED = ("a path instead of a name", "a position before the event")
STILL_LISTENED_TO = (*COUNTED, "too long", "too short")


@pytest.mark.edge(74)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_acknowledgements_do_not_release_a_commit(any_semi_sync: MariaDb, kind: str) -> None:
    with Client(any_semi_sync) as client:
        yes, no, read = counts(any_semi_sync, "yes_tx", "no_tx", "get_ack")
        complaints = any_semi_sync.error_log.count(COMPLAINT)
        commit = Commit(any_semi_sync, "INSERT INTO semi.i VALUES (74)")
        event = client.wanted()
        client.dump.send(KINDS[kind](event.file, event.position))
        if kind in COUNTED:
            wait_until(lambda: counts(any_semi_sync, "get_ack") == [read + 1], "the primary has read it")
        else:
            wait_until(lambda: any_semi_sync.error_log.count(COMPLAINT) > complaints, "the primary complains of it")
        assert not commit.returned(0.2), kind
        if kind in STILL_LISTENED_TO:
            client.acknowledge(event)
            assert commit.returned(), "the connection is still listened to"
            assert counts(any_semi_sync, "yes_tx", "no_tx") == [yes + 1, no]
    assert commit.returned(), "released at last, because no replica is left"
    if kind not in STILL_LISTENED_TO:
        assert counts(any_semi_sync, "yes_tx", "no_tx") == [yes, no + 1]


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
    """One version is enough for what our replica never sends."""
    options = ("--rpl-semi-sync-master-enabled=ON", f"--rpl-semi-sync-master-timeout={TIMEOUT_MS}")
    newest = list(installations())[-1]  # 10.5 does not survive a position in the future
    with MariaDb(newest, *options, "--rpl-semi-sync-master-wait-no-slave=OFF") as server:
        server.sql("CREATE DATABASE semi", "CREATE TABLE semi.i (id INT)")
        yield server


@pytest.mark.edge(75)
@pytest.mark.edge(77)
@pytest.mark.edge(78)
def test_every_kind_of_commit_is_acknowledged_by_the_replica(primary: MariaDb, tmp_path: Path) -> None:
    replica = EmbeddedReplica(patient(primary), tmp_path)
    try:
        replica.start(GtidPosition.parse(primary.gtid_binlog_pos()))
        wait_until(lambda: status(primary, "clients") == "1", "the replica is counted")
        primary.sql("INSERT INTO semi.i VALUES (0)")
        wait_until(lambda: status(primary, "status") == "ON", "the replica has switched semi-sync on")
        (asked,) = counts(primary, "request_ack")
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
            yes, no = counts(primary, "yes_tx", "no_tx")
            asked += 1
            assert Commit(primary, *statements).returned(), statements
            if "XA PREPARE 'x'" in statements:
                # It asks for an acknowledgement and does not wait for it: it counts as one or the other, in time.
                wait_until(lambda y=yes, n=no: sum(counts(primary, "yes_tx", "no_tx")) == y + n + 1, "it is counted")
            else:
                assert counts(primary, "yes_tx", "no_tx") == [yes + 1, no], statements
            wait_until(lambda a=asked: counts(primary, "request_ack") == [a], f"asked for: {statements}")
        assert status(primary, "status") == "ON"
    finally:
        replica.close()
        for _, _, _, xid in primary.sql("XA RECOVER"):
            primary.sql(f"XA ROLLBACK '{xid}'")
    wait_until(lambda: status(primary, "clients") == "0", "it has said goodbye")


@pytest.mark.edge(76)
def test_a_replica_that_comes_back_switches_semi_sync_on(primary: MariaDb, tmp_path: Path) -> None:
    def run() -> EmbeddedReplica:
        replica = EmbeddedReplica(patient(primary), tmp_path)
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
    wait_until(lambda: status(primary, "clients") == "0", "it has said goodbye")


@pytest.mark.edge(79)
def test_acknowledgements_inside_tls(primary: MariaDb, tmp_path: Path) -> None:
    """The primary waits on the socket and reads one packet, whatever else is in the TLS record: ours stand alone."""
    assert primary.certificates is not None
    config = patient(primary, tls="verify-ca", tls_ca=str(primary.certificates.ca))
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
        client.acknowledge(event)
        assert commit.returned()
    listed = primary.sql(f"SHOW BINLOG EVENTS IN '{event.file}'")
    assert [end for _, _, kind, _, end, _ in listed if kind == "Xid"][-1] == event.position
