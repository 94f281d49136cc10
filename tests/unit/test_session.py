"""The session over real sockets, against a scripted other end: what a real server does only once in a while."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from replica.errors import (
    AuthenticationError,
    ChecksumError,
    ConfigError,
    DisconnectedError,
    DuplicateServerIdError,
    PositionLostError,
    PrerequisiteError,
    RelayError,
    ReplicaError,
    ServerError,
)
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.protocol.packets import ErrPacket, pack
from replica.relay.log import RelayLog
from replica.relay.writer import RelayWriter
from replica.semisync.frame import ack_packet
from replica.session import Session, dump_error
from tests.unit.relay.streams import FILE, Primary, packet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayWriter]:
    with RelayWriter.open(tmp_path / "relay", max_file_bytes=50_000) as writer:
        yield writer


async def play(session: Session, script: Script, leftover: bytes = b"") -> ReplicaError:
    """Connect the session to a scripted primary; the error that ended it."""
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    transport.pause_reading()
    try:
        with pytest.raises(ReplicaError) as caught:
            await asyncio.wait_for(session.run(transport, leftover), 20)
        return caught.value
    finally:
        server.close()
        transport.abort()


def one_group(seq: int = 1) -> Primary:
    primary = Primary(seq=seq)
    primary.open_file()
    primary.transaction(Gtid(0, 1, seq))
    return primary


def sending(*pieces: bytes, then_close: bool = True) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        if not then_close:
            await reader.read()
        writer.close()

    return script


async def test_groups_are_kept_and_a_closed_connection_is_an_invitation_to_try_again(relay: RelayWriter) -> None:
    seen: list[GtidPosition] = []
    session = Session(relay, semi_sync=False, heartbeat_s=5, on_progress=lambda: seen.append(relay.position))
    wire = one_group().wire()
    error = await play(session, sending(wire[:300], wire[300:]))
    assert type(error) is DisconnectedError
    assert relay.position == GtidPosition.parse("0-1-1")
    assert seen == [relay.position]
    assert session.received_bytes == len(wire)


async def test_bytes_the_driver_had_already_read_come_first(relay: RelayWriter) -> None:
    wire = one_group().wire()
    error = await play(Session(relay, semi_sync=False, heartbeat_s=5), sending(wire[90:]), leftover=wire[:90])
    assert type(error) is DisconnectedError
    assert relay.position == GtidPosition.parse("0-1-1")


@pytest.mark.edge(71)
async def test_half_a_group_is_dropped_when_the_connection_ends(relay: RelayWriter) -> None:
    primary = one_group()
    primary.transaction(Gtid(0, 1, 2), (9000,), end="")
    await play(Session(relay, semi_sync=False, heartbeat_s=5), sending(primary.wire()))
    assert relay.position == GtidPosition.parse("0-1-1")
    head = RelayLog(relay.directory).head()
    assert head is not None
    assert (relay.directory / "relay.000001").stat().st_size == head.location.offset


async def test_an_end_packet_and_a_reset(relay: RelayWriter) -> None:
    end = pack(bytes.fromhex("fe00000200"), 1)
    error = await play(Session(relay, semi_sync=False, heartbeat_s=5), sending(end, then_close=False))
    assert type(error) is DisconnectedError

    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    error = await play(Session(relay, semi_sync=False, heartbeat_s=5), reset)
    assert type(error) is DisconnectedError


async def test_silence_ends_the_session_sooner_once_groups_came(relay: RelayWriter) -> None:
    loop = asyncio.get_running_loop()
    took: dict[str, float] = {}
    for name, pieces in (("skipping", ()), ("streaming", (one_group().wire(),))):
        begin = loop.time()
        session = Session(relay, semi_sync=False, heartbeat_s=0.1)
        error = await play(session, sending(*pieces, then_close=False))
        took[name] = loop.time() - begin
        assert type(error) is DisconnectedError
        assert "heartbeat" in str(error)
    # The server says nothing while it reads its way to our position: the first wait is ten times as long.
    assert took["skipping"] > took["streaming"]


@pytest.mark.edge(66)
async def test_heartbeats_keep_an_idle_session_alive(relay: RelayWriter) -> None:
    primary = one_group()
    count = len(primary.events)
    for _ in range(8):
        primary.heartbeat()
    wires = [b"".join(packet(e) for e in primary.events[:count]), *(packet(e) for e in primary.events[count:])]

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for wire in wires:
            writer.write(wire)
            await asyncio.sleep(0.1)
        writer.close()

    session = Session(relay, semi_sync=False, heartbeat_s=0.1)
    error = await play(session, script)
    assert "closed" in str(error), "no silence was found in a session with heartbeats"
    assert session.primary == BinlogPosition(FILE, primary.position)
    assert relay.position == GtidPosition.parse("0-1-1")


async def test_a_wanted_ack_is_one_packet_after_the_sync(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    primary = one_group()
    wire = b"".join(packet(e, semi_sync=True) for e in primary.events[:-1])
    wire += packet(primary.events[-1], semi_sync=True, ack=True)
    order: list[str] = []
    real = relay.sync
    monkeypatch.setattr(relay, "sync", lambda: (order.append("sync"), real()))
    answers: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire)
        answers.append(await reader.read(1000))
        order.append("ack")
        writer.close()

    session = Session(relay, semi_sync=True, heartbeat_s=5)
    await play(session, script)
    assert answers == [ack_packet(FILE, primary.position)]
    assert order == ["sync", "ack"]
    assert session.acknowledged == BinlogPosition(FILE, primary.position)


async def test_damaged_events_end_it_with_their_own_error(relay: RelayWriter) -> None:
    primary = one_group()
    primary.transaction(Gtid(0, 1, 2))
    wire = bytearray(primary.wire())
    wire[-30] ^= 4
    error = await play(Session(relay, semi_sync=False, heartbeat_s=5), sending(bytes(wire), then_close=False))
    assert type(error) is ChecksumError
    assert relay.position == GtidPosition.parse("0-1-1")


async def test_an_unusable_log_ends_it(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", refuse)
    error = await play(Session(relay, semi_sync=False, heartbeat_s=5), sending(one_group().wire(), then_close=False))
    assert type(error) is RelayError


async def test_reading_stops_while_the_log_is_full_and_goes_on_after_a_purge(relay: RelayWriter) -> None:
    primary = one_group()
    for seq in range(2, 200):
        primary.transaction(Gtid(0, 1, seq), (5000,))
    wire = primary.wire()
    session = Session(relay, semi_sync=False, heartbeat_s=0.2, max_relay_bytes=200_000)
    log = RelayLog(relay.directory)
    held_back: list[int] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(wire), 20_000):
            writer.write(wire[start : start + 20_000])
            await writer.drain()
            await asyncio.sleep(0.002)
        await reader.read()

    async def purge() -> None:
        # Longer than the silence that ends a session: a full log is not a dead link.
        await asyncio.sleep(1.0)
        held_back.append(relay.total_bytes())
        while True:
            log.purge_before(relay.committed)
            await asyncio.sleep(0.02)

    purging = asyncio.ensure_future(purge())
    error = await play(session, script)
    purging.cancel()
    assert type(error) is DisconnectedError
    assert relay.position == GtidPosition.parse("0-1-199")
    assert held_back[0] < len(wire) // 2


async def test_a_transaction_larger_than_the_limit_passes(relay: RelayWriter) -> None:
    primary = Primary()
    primary.open_file()
    primary.transaction(Gtid(0, 1, 1), (200_000,) * 5)
    session = Session(relay, semi_sync=False, heartbeat_s=0.5, max_relay_bytes=100_000)
    await play(session, sending(primary.wire()))
    assert relay.position == GtidPosition.parse("0-1-1"), "no reader could have made room: it must not wait for one"


async def test_cancelling_closes_the_connection_and_drops_the_open_group(relay: RelayWriter) -> None:
    primary = one_group()
    primary.transaction(Gtid(0, 1, 2), (9000,), end="")
    closed = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(primary.wire())
        with contextlib.suppress(ConnectionError):
            await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(script, "127.0.0.1", 0)
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, *server.sockets[0].getsockname()
    )
    transport.pause_reading()
    reached = asyncio.Event()
    session = Session(relay, semi_sync=False, heartbeat_s=5, on_progress=reached.set)
    task = asyncio.ensure_future(session.run(transport))
    await asyncio.wait_for(reached.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(closed.wait(), 10)
    server.close()
    head = RelayLog(relay.directory).head()
    assert head is not None
    assert (relay.directory / "relay.000001").stat().st_size == head.location.offset


NOT_IN_BINLOG = "Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog"
DIVERGED = (
    f"{NOT_IN_BINLOG}. Since the master's binlog contains GTIDs with higher sequence numbers, it probably means that "
    "the slave has diverged due to executing extra erroneous transactions"
)
PURGED = (
    "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and "
    "required binlog files have been purged."
)
HOLE = (
    "The binlog on the master is missing the GTID 0-1-5 requested by the slave (even though both a prior and a "
    "subsequent sequence number does exist), and GTID strict mode is enabled"
)
SAME_ID = "A slave with the same server_uuid/server_id is already connected; the first event '.'"


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (4052, SAME_ID, DuplicateServerIdError),
        (1236, NOT_IN_BINLOG, PositionLostError),
        (1236, DIVERGED, PositionLostError),
        (1236, PURGED, PositionLostError),
        (1236, HOLE, PositionLostError),
        (1236, "Binary log is not open", PrerequisiteError),
        (1236, "bogus data in log event; the first event 'bin.000001' at 4", ServerError),
        (1236, "something new", ServerError),
        (1941, "Could not parse GTID list", ConfigError),
        (1943, "GTID 0-11-2 and 0-11-1 conflict (duplicate domain id 0)", ConfigError),
        (1045, "Access denied for user 'x'@'y' (using password: YES)", AuthenticationError),
        (1227, "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s)", AuthenticationError),
        (1927, "Connection was killed", DisconnectedError),
        (1317, "Query execution was interrupted", DisconnectedError),
        (9999, "unheard of", ServerError),
    ],
)
def test_what_an_error_packet_means(code: int, text: str, kind: type[ReplicaError]) -> None:
    error = dump_error(ErrPacket(code, "HY000", text))
    assert type(error) is kind
    assert text in str(error)
    if isinstance(error, ServerError):
        assert (error.code, error.sqlstate) == (code, "HY000")


async def test_an_error_packet_ends_the_session_with_its_meaning(relay: RelayWriter) -> None:
    wire = one_group().wire() + pack(b"\xff" + struct.pack("<H", 4052) + b"#HY000same server_id", 9)
    error = await play(Session(relay, semi_sync=False, heartbeat_s=5), sending(wire, then_close=False))
    assert type(error) is DuplicateServerIdError
    assert relay.position == GtidPosition.parse("0-1-1")


async def test_unknown_events_name_their_place(relay: RelayWriter) -> None:
    primary = one_group()
    before = primary.position
    primary.event(173, b"x")
    error = await play(Session(relay, semi_sync=False, heartbeat_s=5), sending(primary.wire(), then_close=False))
    assert f"{FILE}:{before}" in str(error)
    assert "173" in str(error)
