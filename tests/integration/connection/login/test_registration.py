"""Login, inspection, registration and dump against real servers, down to the first packets of the stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from replica.errors import PositionLostError, ServerError
from replica.handshake.login.login import Detached, Login, log_in
from replica.handshake.primary.server import ServerInfo, check, inspect_server
from replica.handshake.registration import Query, Registered, Registration, Steps, register
from replica.handshake.start.binlog import event_at
from replica.handshake.start.resume import Stored, verify
from replica.options.config import ReplicaConfig
from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.events.decode import decode
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.protocol.header import FormatDescriptionEvent, parse_header
from replica.protocol.packets.packets import PacketSplitter
from tests.fixtures.mariadb import wait_until
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

WAIT_S = 60


class _Payloads(asyncio.Protocol):
    """The least that can read a dump: packets into a queue."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._splitter = PacketSplitter()
        self._format: FormatDescriptionEvent | None = None

    def data_received(self, data: bytes) -> None:
        for payload in self._splitter.feed(data):
            self.queue.put_nowait(bytes(payload))

    def connection_lost(self, _exc: Exception | None) -> None:
        self.queue.put_nowait(None)

    async def kinds(self, *, until: EventType) -> list[int]:
        """The types of the next events, decoded, up to the first of this type."""
        found: list[int] = []
        while not found or found[-1] != until:
            payload = await asyncio.wait_for(self.queue.get(), WAIT_S)
            assert payload is not None, "the server closed the connection"
            assert payload[0] == 0, payload
            event = decode(memoryview(payload)[1:], self._format)
            found.append(event.header.event_type)
            if isinstance(event, FormatDescriptionEvent):
                self._format = event
        return found


async def connected(config: ReplicaConfig) -> tuple[Login, ServerInfo]:
    login = await log_in(config, config.endpoints[0])
    return login, await login.run(inspect_server(config.server_id))


async def start(login: Login, wanted: Registration) -> tuple[Registered, Detached, _Payloads]:
    registered = await login.run(register(wanted))
    detached = login.detach()
    protocol = _Payloads()
    detached.transport.set_protocol(protocol)
    protocol.data_received(detached.leftover)
    detached.transport.resume_reading()
    return registered, detached, protocol


async def test_a_server_is_told_everything_and_starts_to_send(server: MariaDb) -> None:
    config = replica_config(server, server_id=4711, report_host="reporter")
    start_at = GtidPosition.parse(server.gtid_binlog_pos())
    login, info = await connected(config)
    assert info.is_mariadb
    assert info.version == server.value("SELECT @@version")
    assert check(info, config.server_id).unmet == ()
    assert login.thread_id in [row[0] for row in server.sql("SELECT id FROM information_schema.processlist")]

    wanted = Registration(server_id=4711, position=start_at, heartbeat_s=0.1, report_host="reporter")
    registered, detached, protocol = await start(login, wanted)
    assert registered == Registered(ChecksumAlgorithm.CRC32, semi_sync=False, semi_sync_enabled=False)
    assert (4711, "reporter") in [row[:2] for row in server.sql("SHOW SLAVE HOSTS")]
    await asyncio.to_thread(wait_until, lambda: login.thread_id in server.dump_threads(), "the dump thread")

    server.sql("CREATE DATABASE IF NOT EXISTS registration")
    kinds = await protocol.kinds(until=EventType.QUERY)
    assert kinds[0] == EventType.ROTATE
    assert EventType.GTID in kinds
    await protocol.kinds(until=EventType.HEARTBEAT)
    detached.transport.abort()
    await asyncio.to_thread(wait_until, lambda: login.thread_id not in server.dump_threads(), "it is gone")


async def test_annotated_rows_come_only_when_asked_for(server: MariaDb) -> None:
    server.sql(
        "CREATE DATABASE IF NOT EXISTS registration",
        "CREATE OR REPLACE TABLE registration.t(a INT)",
    )
    for annotate in (False, True):
        config = replica_config(server)
        position = GtidPosition.parse(server.gtid_binlog_pos())
        login, _ = await connected(config)
        wanted = Registration(server_id=config.server_id, position=position, annotate=annotate)
        _, detached, protocol = await start(login, wanted)
        server.sql("INSERT INTO registration.t VALUES (1)")
        kinds = await protocol.kinds(until=EventType.XID)
        assert (EventType.ANNOTATE_ROWS in kinds) == annotate
        detached.transport.abort()


async def test_semi_sync_is_joined_when_asked_for(server: MariaDb) -> None:
    config = replica_config(server, semi_sync=True)
    login, _ = await connected(config)
    position = GtidPosition.parse(server.gtid_binlog_pos())
    registered, detached, protocol = await start(
        login, Registration(server_id=config.server_id, position=position, semi_sync=True, heartbeat_s=0.3)
    )
    assert registered.semi_sync
    first = await asyncio.wait_for(protocol.queue.get(), WAIT_S)
    assert first is not None
    assert first[:2] == b"\x00\xef"
    clients = server.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")
    assert clients == [("Rpl_semi_sync_master_clients", "1")]
    detached.transport.abort()


async def test_without_checksums_the_announcement_says_so(
    make_server: Callable[..., MariaDb], server_version: str
) -> None:
    server = make_server(server_version, "--binlog-checksum=NONE")
    config = replica_config(server)
    login, info = await connected(config)
    assert any("binlog_checksum" in one.what for one in check(info, config.server_id).warnings)
    registered, detached, protocol = await start(
        login, Registration(server_id=config.server_id, position=GtidPosition())
    )
    assert registered.checksum == ChecksumAlgorithm.NONE
    await protocol.kinds(until=EventType.FORMAT_DESCRIPTION)
    detached.transport.abort()


async def test_a_place_is_checked_against_the_binlog(make_server: Callable[..., MariaDb], server_version: str) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)", "INSERT INTO d.t VALUES (1)")
    place = BinlogPosition(*map(str, server.sql("SHOW MASTER STATUS")[0][:1]), server.sql("SHOW MASTER STATUS")[0][1])
    stored = Stored(GtidPosition.parse(server.gtid_binlog_pos()), place, 1)
    config = replica_config(server)
    login, _ = await connected(config)
    here = await login.run(inspect_server(7))
    await login.run(verify(stored, here))
    server.sql("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (2)")
    await login.run(verify(stored, here))
    server.purge_binlogs()
    await login.run(verify(stored, here))  # a purged file is no reason to doubt the server

    server.reset_master()
    with pytest.raises(PositionLostError, match="no GTID at all"):
        await login.run(verify(stored, here))
    for value in range(10):
        server.sql(f"INSERT INTO d.t VALUES ({value})")
    with pytest.raises(PositionLostError, match="reset"):
        await login.run(verify(stored, here))
    login.close()


async def test_an_event_can_be_had_by_its_place(make_server: Callable[..., MariaDb], server_version: str) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)", "INSERT INTO d.t VALUES (1)", "FLUSH BINARY LOGS")
    data = (server.datadir / "bin.000001").read_bytes()
    config = replica_config(server)
    place, seen = 4, []
    while place < len(data):
        header = parse_header(memoryview(data), place)
        event = data[place : place + header.event_length]
        if header.event_type != EventType.FORMAT_DESCRIPTION:
            login = await log_in(config, config.endpoints[0])
            assert await event_at(login, BinlogPosition("bin.000001", place)) == event
            login.close()
            seen.append(header.event_type)
        place += header.event_length
    assert {EventType.GTID, EventType.QUERY, EventType.TABLE_MAP, EventType.XID, EventType.ROTATE} <= set(seen)
    for missing in (BinlogPosition("bin.000001", place - 10), BinlogPosition("bin.000077", 4)):
        login = await log_in(config, config.endpoints[0])
        with pytest.raises(ServerError) as caught:
            await event_at(login, missing)
        assert caught.value.code == 1236
        login.close()
    await asyncio.to_thread(wait_until, lambda: not server.dump_threads(), "every look has ended")


@pytest.mark.parametrize("password", ["", "plain", "pässwörd-€-密码", 'it\'s "quoted" \\ %s'])
async def test_any_password_logs_in(server: MariaDb, password: str) -> None:
    server.sql("SET sql_log_bin = 0", "CREATE OR REPLACE USER anyone@'%'")
    server.sql("SET sql_log_bin = 0", "SET PASSWORD FOR anyone@'%%' = PASSWORD(%s)", args=(password,))
    config = replica_config(server, user="anyone", password=password)
    login = await log_in(config, config.endpoints[0])
    assert await login.run(_current_user()) == "anyone@%"
    login.close()


def _current_user() -> Steps[str | None]:
    return (yield Query("SELECT CURRENT_USER()"))[0][0]


async def test_the_unix_socket_is_another_way_in(server: MariaDb) -> None:
    server.add_user()
    options = {"user": "repl", "password": "replica-secret", "unix_socket": str(server.socket)}
    login = await log_in(ReplicaConfig.parse(options), ReplicaConfig.parse(options).endpoints[0])
    assert await login.run(_current_user()) == "repl@%"
    login.close()
