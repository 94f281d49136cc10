"""The session over real sockets, against a scripted other end: what a real server does only once in a while."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from replica.errors import (
    ChecksumError,
    DisconnectedError,
    DiskFullError,
    DuplicateServerIdError,
    RelayError,
)
from replica.live.progress import Progress
from replica.live.session import Agreed, Session
from replica.native.kernel_group import NO_GROUP
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.protocol.packets.packets import pack
from replica.relay_log.kernels.stream_record import Cell
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import FILE, packet
from tests.kit.binlog.scripted import in_own_time, listening, one_group, play, sending

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayWriter]:
    with RelayWriter.open(tmp_path / "relay", max_file_bytes=50_000) as writer:
        yield writer


@in_own_time
async def test_groups_are_kept_and_a_closed_connection_is_an_invitation_to_try_again(relay: RelayWriter) -> None:
    seen: list[GtidPosition] = []
    session = Session(relay, Agreed(semi_sync=False, heartbeat_s=5), on_progress=lambda: seen.append(relay.position))
    wire = one_group().wire()
    error = await play(session, sending(wire[:300], wire[300:]))
    assert type(error) is DisconnectedError
    assert relay.position == GtidPosition.parse("0-1-1")
    assert seen == [relay.position]
    assert session.progress.received_bytes == len(wire)


@in_own_time
async def test_bytes_the_driver_had_already_read_come_first(relay: RelayWriter) -> None:
    wire = one_group().wire()
    error = await play(Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(wire[90:]), leftover=wire[:90])
    assert type(error) is DisconnectedError
    assert relay.position == GtidPosition.parse("0-1-1")


@pytest.mark.edge(71)
@in_own_time
async def test_half_a_group_is_dropped_when_the_connection_ends(relay: RelayWriter) -> None:
    primary = one_group()
    primary.transaction(Gtid(0, 1, 2), (9000,), end="")
    await play(Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(primary.wire()))
    assert relay.position == GtidPosition.parse("0-1-1")
    head = RelayLog(relay.directory).head()
    assert head is not None
    assert (relay.directory / "relay.000001").stat().st_size == head.location.offset


@in_own_time
async def test_an_end_packet(relay: RelayWriter) -> None:
    end = pack(bytes.fromhex("fe00000200"), 1)
    error = await play(Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(end, then_close=False))
    assert type(error) is DisconnectedError


async def test_a_reset(relay: RelayWriter) -> None:
    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with listening(reset) as transport:
        with pytest.raises(DisconnectedError):
            await Session(relay, Agreed(semi_sync=False, heartbeat_s=0)).run(transport)


@pytest.mark.parametrize(("pieces", "limit_s"), [((), 300), ((one_group().wire(),), 30)], ids=["skipping", "streaming"])
@in_own_time
async def test_silence_ends_the_session_sooner_once_groups_came(
    relay: RelayWriter, pieces: tuple[bytes, ...], limit_s: int
) -> None:
    # The server says nothing while it reads its way to our position: the first wait is ten times as long.
    loop = asyncio.get_running_loop()
    error = await play(Session(relay, Agreed(semi_sync=False, heartbeat_s=10)), sending(*pieces, then_close=False))
    assert type(error) is DisconnectedError
    assert "heartbeat" in str(error)
    assert limit_s <= loop.time() <= limit_s + 1


@pytest.mark.edge(66)
@in_own_time
async def test_heartbeats_keep_an_idle_session_alive(relay: RelayWriter) -> None:
    primary = one_group()
    count = len(primary.events)
    for _ in range(8):
        primary.heartbeat()
    wires = [b"".join(packet(e) for e in primary.events[:count]), *(packet(e) for e in primary.events[count:])]

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for wire in wires:
            writer.write(wire)
            await asyncio.sleep(10)
        writer.close()

    session = Session(relay, Agreed(semi_sync=False, heartbeat_s=10))
    error = await play(session, script)
    assert asyncio.get_running_loop().time() >= 90
    assert "closed" in str(error), "no silence was found in a session with heartbeats"
    assert session.progress.primary == BinlogPosition(FILE, primary.position)
    assert relay.position == GtidPosition.parse("0-1-1")


@in_own_time
async def test_damaged_events_end_it_with_their_own_error(relay: RelayWriter) -> None:
    primary = one_group()
    primary.transaction(Gtid(0, 1, 2))
    wire = bytearray(primary.wire())
    wire[-30] ^= 4
    error = await play(Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(bytes(wire), then_close=False))
    assert type(error) is ChecksumError
    assert relay.position == GtidPosition.parse("0-1-1")


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, RelayError), (errno.ENOSPC, DiskFullError)])
@in_own_time
async def test_an_unusable_log_ends_it(
    relay: RelayWriter, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[RelayError]
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.pwrite", refuse)
    error = await play(
        Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(one_group().wire(), then_close=False)
    )
    assert type(error) is kind


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

    async with listening(script) as transport:
        reached = asyncio.Event()
        session = Session(relay, Agreed(semi_sync=False, heartbeat_s=0), on_progress=reached.set)
        task = asyncio.ensure_future(session.run(transport))
        await asyncio.wait_for(reached.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), 60)
    head = RelayLog(relay.directory).head()
    assert head is not None
    assert (relay.directory / "relay.000001").stat().st_size == head.location.offset


@in_own_time
async def test_an_error_packet_ends_the_session_with_its_meaning(relay: RelayWriter) -> None:
    wire = one_group().wire() + pack(b"\xff" + struct.pack("<H", 4052) + b"#HY000same server_id", 9)
    error = await play(Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(wire, then_close=False))
    assert type(error) is DuplicateServerIdError
    assert relay.position == GtidPosition.parse("0-1-1")


@in_own_time
async def test_unknown_events_name_their_place(relay: RelayWriter) -> None:
    primary = one_group()
    before = primary.position
    primary.event(173, b"x")
    error = await play(
        Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(primary.wire(), then_close=False)
    )
    assert f"{FILE}:{before}" in str(error)
    assert "173" in str(error)


@in_own_time
async def test_counters(relay: RelayWriter) -> None:
    progress = Progress()
    for seq in (1, 2):
        primary = one_group(seq)
        primary.heartbeat()
        primary.transaction(Gtid(0, 1, seq + 1), end="")
        session = Session(relay, Agreed(semi_sync=False, heartbeat_s=5), progress=progress)
        await play(session, sending(primary.wire()))
    assert (progress.groups, progress.discarded_groups, progress.heartbeats) == (2, 2, 2)
    assert progress.events == 2 * len(primary.events)
    assert progress.received_bytes == 2 * len(primary.wire())
    assert progress.primary is not None
    assert progress.acks == progress.syncs == 0
    assert progress.last_receipt_at > 1_700_000_000


@in_own_time
async def test_an_idle_session_closes_a_relay_file_that_is_old_enough(
    relay: RelayWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled = asyncio.Event()
    groups: list[int] = []

    def roll() -> None:
        groups.append(relay.state[Cell.group])
        rolled.set()

    monkeypatch.setattr(relay, "roll_if_old", roll)

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(one_group().wire())
        await asyncio.wait_for(rolled.wait(), 10)
        writer.close()

    await play(Session(relay, Agreed(semi_sync=False, heartbeat_s=0)), script)
    assert set(groups) == {NO_GROUP}


@in_own_time
async def test_what_goes_wrong_beside_the_stream_ends_it(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise DiskFullError("no room for a new file")

    monkeypatch.setattr(relay, "roll_if_old", refuse)
    error = await play(
        Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(one_group().wire(), then_close=False)
    )
    assert type(error) is DiskFullError
