"""Compressed connections to real servers: everything in frames, acknowledgements too; cuts and damage."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from replica.errors import ChecksumError, PrerequisiteError
from replica.handshake.login.login import Login, log_in
from replica.handshake.registration import MAX_CATALOG_BYTES, Query, Send
from replica.live.embedded import EmbeddedReplica
from replica.protocol.constants import DumpFlag
from replica.protocol.gtid import GtidPosition
from replica.protocol.packets.login import Capability
from replica.protocol.packets.packets import PACKET_HEADER_LENGTH, PacketSplitter, com_binlog_dump
from tests.fixtures.installation import installations
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network import proxy as proxies
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.handshake.registration import Rows, Steps
    from replica.options.config import ReplicaConfig

pytestmark = pytest.mark.server

WAIT_S = 60


@pytest.fixture(scope="module")
def primary(server_version: str) -> Iterator[MariaDb]:
    """Semi-synchronous, and so patient that a lost acknowledgement would be seen."""
    options = ("--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-timeout=60000")
    with MariaDb(server_version, *options, "--rpl-semi-sync-master-wait-no-slave=OFF", tls=True) as server:
        server.sql("CREATE DATABASE c", "CREATE TABLE c.t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)")
        yield server


def ask(sql: str) -> Steps[Rows]:
    return (yield Query(sql, (), MAX_CATALOG_BYTES))


async def logged_in(config: ReplicaConfig) -> Login:
    return await log_in(config, config.endpoints[0])


def status(server: MariaDb, name: str) -> int:
    return int(server.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")[0][1])


def semi_sync_on(server: MariaDb) -> bool:
    return bool(server.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_status'")[0][1] == "ON")


def fill(server: MariaDb, size: int) -> None:
    """10 small transactions, one of `size` bytes that deflates to nothing, one that does not."""
    server.sql(*(f"INSERT INTO c.t (b) VALUES (REPEAT('{n}', {n * 10}))" for n in range(10)))
    with server.connect(max_allowed_packet=64 << 20) as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO c.t (b) VALUES (REPEAT('x', %s))", (size,))
        cursor.execute("INSERT INTO c.t (b) VALUES (%s)", (random.Random(1).randbytes(size),))


@pytest.mark.parametrize("way", ["plain", "tls", "socket"])
async def test_the_server_agrees_and_long_answers_arrive(primary: MariaDb, way: str) -> None:
    more: dict[str, object] = {"tls": "required"} if way == "tls" else {}
    config = replica_config(primary, compress=True, **more)
    if way == "socket":
        user, password = primary.add_user()
        config = type(config).parse(
            {"unix_socket": str(primary.socket), "user": user, "password": password, "compress": True}
        )
    login = await logged_in(config)
    assert login.compressed
    assert await login.run(ask("SHOW SESSION STATUS LIKE 'Compression'")) == [("Compression", "ON")]
    for size in (1, 100, 20_000, 5_000_000):
        assert await login.run(ask(f"SELECT REPEAT('a', {size})")) == [("a" * size,)]
    long = "z" * 300_000
    assert await login.run(ask(f"SELECT LENGTH('{long}')")) == [("300000",)]
    login.close()


@pytest.mark.parametrize("tls", ["disabled", pytest.param("required", marks=pytest.mark.slow)])
def test_a_semi_synchronous_stream_in_frames(primary: MariaDb, tls: str, tmp_path: Path) -> None:
    # The larger size is that of a full packet, a full frame, and a few bytes that follow in the next of each. Where
    # they are cut is no matter of the version.
    newest = primary.version == list(installations())[-1]
    size = (1 << 24) + 50 if newest and tls == "disabled" else 1_000_000
    primary.sql("SET GLOBAL max_allowed_packet = 67108864")
    before = len(server_gtids(primary))
    wait_until(lambda: status(primary, "clients") == 0, "nobody is left of an earlier test")
    with FaultProxy(primary.host, primary.port) as proxy:
        config = replica_config(primary, port=proxy.port, compress=True, semi_sync=True, tls=tls, heartbeat_s=30)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(primary.gtid_binlog_pos()))
            wait_until(lambda: status(primary, "clients") == 1, "the primary to count us")
            primary.sql("INSERT INTO c.t (b) VALUES ('the first acknowledgement turns waiting on')")
            wait_until(lambda: semi_sync_on(primary), "the first acknowledgement")
            yes, no = status(primary, "yes_tx"), status(primary, "no_tx")
            fill(primary, size)
            assert replica.wait_for(GtidPosition.parse(primary.gtid_binlog_pos()), WAIT_S)
            assert replica.progress.compressed
            assert replica.progress.tls.startswith("TLSv1.") == (tls == "required")
            assert status(primary, "no_tx") == no, "no commit gave up waiting"
            assert status(primary, "yes_tx") - yes == 12
        received = proxy.sent_to_client
    assert relay_gtids(primary, tmp_path) == server_gtids(primary)[before:]
    stored = sum(file.stat().st_size for file in tmp_path.glob("relay.[0-9]*"))
    assert stored > 2 * size
    assert received < stored - 0.9 * size, "what deflates was deflated"


class Taker(asyncio.BufferedProtocol):
    """Takes a stream until it has `total` bytes, and stops reading for a moment at every third piece."""

    def __init__(self, transport: asyncio.Transport, size: int, total: int) -> None:
        self.taken = bytearray()
        self.complete = asyncio.Event()
        self._buffer = memoryview(bytearray(size))
        self._total = total
        self._transport = transport
        self._turn = 0

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.taken += self._buffer[:nbytes]
        self._turn += 1
        if self._turn % 3 == 0:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(0.0005, self._transport.resume_reading)
        if len(self.taken) >= self._total:
            self.complete.set()


def send(payload: bytes) -> Steps[None]:
    yield Send(payload, replies=False)


async def dumped(config: ReplicaConfig, file: str, size: int, total: int) -> list[bytes]:
    """The payloads in the first `total` bytes of a dump of one file, taken in pieces of at most `size` bytes."""
    login = await logged_in(config)
    await login.run(ask("SET @master_binlog_checksum = @@global.binlog_checksum"))
    await login.run(ask("SET @mariadb_slave_capability = 4"))
    await login.run(send(com_binlog_dump(config.server_id, file=file, position=4)))
    detached = login.detach()
    taker = Taker(detached.transport, size, total)
    taker.taken += detached.leftover
    detached.transport.set_protocol(taker)
    detached.transport.resume_reading()
    await asyncio.wait_for(taker.complete.wait(), WAIT_S)
    detached.transport.abort()
    assert len(taker.taken) == total, "nothing but the file"
    return [bytes(payload) for payload in PacketSplitter().feed(taker.taken)]


def last_checkpoint(server: MariaDb, file: str) -> str:
    """The file that the last BINLOG_CHECKPOINT names: a thread of the server writes it some time after FLUSH."""
    events = server.sql(f"SHOW BINLOG EVENTS IN '{file}'")
    return str([info for _, _, kind, _, _, info in events if kind == "Binlog_checkpoint"][-1])


async def test_a_taker_that_pauses_gets_what_a_plain_connection_gives(primary: MariaDb) -> None:
    primary.sql("CREATE OR REPLACE DATABASE pausing", "CREATE TABLE pausing.t (b LONGBLOB)", "FLUSH BINARY LOGS")
    file, noise = primary.binlogs()[-1], random.Random(3)
    wait_until(lambda: last_checkpoint(primary, file) == file, "the server's last event for the file before is written")
    for size in (10, 70_000, 300_000):
        primary.sql("INSERT INTO pausing.t VALUES (%s), (%s)", args=("p" * size, noise.randbytes(size)))
        primary.sql(*(f"INSERT INTO pausing.t VALUES ('{n}')" for n in range(100)))
    config = replica_config(primary)
    login = await logged_in(config)
    await login.run(ask("SET @master_binlog_checksum = @@global.binlog_checksum"))
    await login.run(ask("SET @mariadb_slave_capability = 4"))
    asked = com_binlog_dump(0, flags=DumpFlag.NON_BLOCK, file=file, position=4)
    plain = [b"\0" + event async for event in login.dump(asked)]
    login.close()
    total = sum(len(payload) + PACKET_HEADER_LENGTH for payload in plain)
    assert len(plain) > 600
    for size in (997, 1 << 16, 1 << 20):
        for tls in ("disabled", "required"):
            config = replica_config(primary, compress=True, tls=tls)
            assert await dumped(config, file, size, total) == plain


def test_in_pieces_of_a_few_bytes(any_server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "CHUNK_BYTES", 3)
    any_server.sql("CREATE OR REPLACE DATABASE pieces", "CREATE TABLE pieces.t (b LONGBLOB)")
    before = len(server_gtids(any_server))
    with FaultProxy(any_server.host, any_server.port) as proxy:
        config = replica_config(any_server, port=proxy.port, compress=True, heartbeat_s=30)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(any_server.gtid_binlog_pos()))
            any_server.sql(*(f"INSERT INTO pieces.t VALUES (RANDOM_BYTES({n}))" for n in (1, 30, 200, 1024)))
            assert replica.wait_for(GtidPosition.parse(any_server.gtid_binlog_pos()), WAIT_S)
    assert relay_gtids(any_server, tmp_path) == server_gtids(any_server)[before:]


def test_cut_anywhere_the_stream_goes_on(any_server: MariaDb, tmp_path: Path) -> None:
    any_server.sql("CREATE OR REPLACE DATABASE cut", "CREATE TABLE cut.t (b LONGBLOB)")
    before = len(server_gtids(any_server))
    with FaultProxy(any_server.host, any_server.port) as proxy:
        config = replica_config(any_server, port=proxy.port, compress=True)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(any_server.gtid_binlog_pos()))
            for n in (900, 3000, 20_001, 40_000):
                proxy.cut_after(n)
                any_server.sql(*(f"INSERT INTO cut.t VALUES (RANDOM_BYTES({size}))" for size in (700, 1024, 30, 9)))
                any_server.sql(*("INSERT INTO cut.t VALUES (RANDOM_BYTES(1024))" for _ in range(1 + n // 1000)))
                assert replica.wait_for(GtidPosition.parse(any_server.gtid_binlog_pos()), WAIT_S)
        assert proxy.accepted > 1
    assert relay_gtids(any_server, tmp_path) == server_gtids(any_server)[before:]


def test_damage_anywhere_is_found_and_the_stream_goes_on(any_server: MariaDb, tmp_path: Path) -> None:
    any_server.sql("CREATE OR REPLACE DATABASE damage", "CREATE TABLE damage.t (b LONGBLOB)")
    before = len(server_gtids(any_server))
    with FaultProxy(any_server.host, any_server.port) as proxy:
        # A heartbeat between here and there would move the places.
        config = replica_config(any_server, port=proxy.port, compress=True, heartbeat_s=3600)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(any_server.gtid_binlog_pos()))
            wait_until(lambda: replica.progress.connections, "the dump")
            for place in (40, 500, 1111):  # the contents of a frame; and, below, every byte of a header
                proxy.flip_bits([proxy.sent_to_client + place])
                any_server.sql(*("INSERT INTO damage.t VALUES (RANDOM_BYTES(1024))" for _ in range(3)))
                assert replica.wait_for(GtidPosition.parse(any_server.gtid_binlog_pos()), WAIT_S)
            assert replica.progress.checksum_errors == 3
        # A length that is wrong makes it wait for what never comes: silence ends that.
        config = replica_config(any_server, port=proxy.port, compress=True, heartbeat_s=0.2)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(None)
            wait_until(lambda: replica.progress.connections, "the dump")
            for place in range(7):
                assert replica.wait_for(GtidPosition.parse(any_server.gtid_binlog_pos()), WAIT_S)
                proxy.flip_bits([proxy.sent_to_client + place])
                any_server.sql("INSERT INTO damage.t VALUES (RANDOM_BYTES(700))")
                assert replica.wait_for(GtidPosition.parse(any_server.gtid_binlog_pos()), WAIT_S)
    assert relay_gtids(any_server, tmp_path) == server_gtids(any_server)[before:]


def test_a_server_without_the_capability_is_refused(any_server: MariaDb, tmp_path: Path) -> None:
    def without(greeting: bytes) -> bytes:
        if greeting[4] != 10:  # not a greeting
            return greeting
        at = greeting.index(b"\0", 5) + 1 + 4 + 8 + 1
        flags = int.from_bytes(greeting[at : at + 2], "little") & ~int(Capability.COMPRESS)
        return greeting[:at] + flags.to_bytes(2, "little") + greeting[at + 2 :]

    with FaultProxy(any_server.host, any_server.port) as proxy:
        proxy.mangle = without
        with (
            EmbeddedReplica(replica_config(any_server, port=proxy.port, compress=True), tmp_path) as replica,
            pytest.raises(PrerequisiteError, match="compress"),
        ):
            replica.server_position()


async def test_damage_on_the_way_is_found_by_the_frame(any_server: MariaDb) -> None:
    with FaultProxy(any_server.host, any_server.port) as proxy:
        login = await logged_in(replica_config(any_server, port=proxy.port, compress=True))
        proxy.flip_bits([proxy.sent_to_client + 40])
        with pytest.raises(ChecksumError, match="frame"):
            await login.run(ask("SELECT REPEAT('ab', 5000), VERSION()"))
        login.close()
