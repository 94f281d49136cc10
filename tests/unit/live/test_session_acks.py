"""What a session acknowledges: over real sockets, against a scripted primary."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest

from replica.errors import (
    DuplicateServerIdError,
)
from replica.live.session import Agreed, Session
from replica.protocol.events.binlog_file import encode_rotate
from replica.protocol.gtid import BinlogPosition, Gtid
from replica.protocol.packets.packets import pack
from replica.relay_writer.writer import RelayWriter
from replica.semisync.frame import ack_packet
from tests.kit.binlog.primary import CRC32, FILE, SERVER_ID, Primary, packet
from tests.kit.binlog.scripted import in_own_time, one_group, play, sending

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayWriter]:
    with RelayWriter.open(tmp_path / "relay", max_file_bytes=50_000) as writer:
        yield writer


@in_own_time
async def test_a_wanted_ack_is_one_packet_after_the_sync(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    primary = one_group()
    wire = primary.wire(semi_sync=True, ack_last=True)
    order: list[str] = []
    real = relay.sync

    def sync() -> None:
        order.append("sync")
        real()

    monkeypatch.setattr(relay, "sync", sync)
    answers: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire)
        answers.append(await reader.read(1000))
        order.append("ack")
        writer.close()

    session = Session(relay, Agreed(semi_sync=True, heartbeat_s=5))
    await play(session, script)
    assert answers == [ack_packet(FILE, primary.position)]
    assert order == ["sync", "ack"]
    assert session.progress.acknowledged == BinlogPosition(FILE, primary.position)


@in_own_time
async def test_a_silent_primary_is_nudged_with_what_it_has_and_may_say_why(relay: RelayWriter) -> None:
    """One that threw us out for a replica with our server id sends 4052 only once its ACK receiver wakes."""
    primary = one_group()
    wire = primary.wire(semi_sync=True, ack_last=True)
    answers: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire)
        answers.extend([await reader.read(1000), await reader.read(1000)])
        writer.write(pack(b"\xff" + struct.pack("<H", 4052) + b"#HY000same server_id", 9))
        await reader.read()

    error = await play(Session(relay, Agreed(semi_sync=True, heartbeat_s=10)), script)
    assert type(error) is DuplicateServerIdError
    assert answers == [ack_packet(FILE, primary.position)] * 2, "nothing new is acknowledged"


@in_own_time
async def test_a_primary_that_never_wanted_an_ack_is_nudged_with_the_beginning_of_its_file(relay: RelayWriter) -> None:
    primary = one_group()
    answers: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(primary.wire(semi_sync=True))
        answers.extend([await reader.read(1000), await reader.read()])
        writer.close()

    error = await play(Session(relay, Agreed(semi_sync=True, heartbeat_s=10)), script)
    assert "heartbeat" in str(error)
    assert answers == [ack_packet(FILE, 4), b""], "once a silence"


@in_own_time
async def test_a_primary_that_said_nothing_is_not_nudged(relay: RelayWriter) -> None:
    """The file we know is another connection's: its name may lie in this server's future."""
    await play(Session(relay, Agreed(semi_sync=False, heartbeat_s=5)), sending(one_group().wire()))
    assert relay.primary_file == FILE
    answers: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(await reader.read())
        writer.close()

    await play(Session(relay, Agreed(semi_sync=True, heartbeat_s=10)), script)
    assert answers == [b""]


@in_own_time
async def test_what_is_wanted_between_groups_acknowledges_the_last_group(relay: RelayWriter) -> None:
    """While its semi-sync is off a primary asks for an answer to any event, ends of files and checkpoints included."""
    primary = one_group()
    end = primary.position
    primary.checkpoint()
    answers: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(primary.wire(semi_sync=True, ack=True))
        answers.append(await reader.read(1000))
        writer.close()

    await play(Session(relay, Agreed(semi_sync=True, heartbeat_s=5)), script)
    assert answers == [ack_packet(FILE, end)]


@in_own_time
async def test_an_ack_wanted_in_a_file_is_of_that_file_though_the_next_one_has_begun(relay: RelayWriter) -> None:
    primary = one_group()
    end = primary.position
    wanted_at = len(primary.events) - 1
    primary.rotate("bin.000008")
    primary.transaction(Gtid(0, 1, 2), end="")
    answers: list[bytes] = []
    wire = b"".join(packet(e, semi_sync=True, ack=i == wanted_at) for i, e in enumerate(primary.events))

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire)
        answers.append(await reader.read(1000))
        writer.close()

    await play(Session(relay, Agreed(semi_sync=True, heartbeat_s=5)), script)
    assert answers == [ack_packet(FILE, end)]


@in_own_time
async def test_an_ack_beyond_4_gib_has_all_of_its_position(relay: RelayWriter) -> None:
    primary = Primary.dump(sequence=1)
    primary.position = (1 << 32) - 100  # the next event's 32 bits wrap
    primary.events[0] = encode_rotate(FILE, (1 << 32) - 200, server_id=SERVER_ID, checksum=CRC32)
    primary.transaction(Gtid(0, 1, 1))
    answers: list[bytes] = []
    wire = primary.wire(semi_sync=True, ack_last=True)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire)
        answers.append(await reader.read(1000))
        writer.close()

    await play(Session(relay, Agreed(semi_sync=True, heartbeat_s=5)), script)
    assert primary.position > 1 << 32
    assert answers == [ack_packet(FILE, primary.position)]


@in_own_time
async def test_a_primary_that_reads_no_acks_is_left_before_they_fill_the_memory(relay: RelayWriter) -> None:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Below the stream, which would read ahead.
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(one_group().wire(semi_sync=True))
        await asyncio.sleep(3600)

    def swamp() -> None:  # as many acknowledgements would in minutes, however much this machine's sockets take
        while not session._ended.done():
            session._transport.write(bytes(1 << 20))

    session = Session(relay, Agreed(semi_sync=True, heartbeat_s=5), on_progress=swamp)
    error = await play(session, script)
    assert "no longer reads" in str(error)
