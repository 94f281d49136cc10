from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from replica.errors import (
    DisconnectedError,
)
from replica.live.backpressure import Backpressure
from replica.live.progress import Progress
from replica.live.session import Agreed, Session
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.scripted import in_own_time, one_group, play, sending

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayWriter]:
    with RelayWriter.open(tmp_path / "relay", max_file_bytes=50_000) as writer:
        yield writer


def test_room_is_looked_at_more_often_the_smaller_the_limits(relay: RelayWriter) -> None:
    assert Backpressure(relay).check_every_bytes == 16 << 20
    assert Backpressure(relay, max_relay_bytes=None, min_free_bytes=1600).check_every_bytes == 100
    assert Backpressure(relay, max_relay_bytes=160, min_free_bytes=1600).check_every_bytes == 10


def test_who_paused_wants_a_little_more(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Backpressure(relay, min_free_bytes=1600)
    monkeypatch.setattr(relay, "free_bytes", lambda: 1650)
    assert not room.lacking(paused=False)
    assert room.lacking(paused=True) == "disk nearly full"


def test_without_a_limit_of_its_own_only_the_disk_counts(relay: RelayWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "has_older_files", lambda: True)
    monkeypatch.setattr(relay, "total_bytes", lambda: 1000)
    assert Backpressure(relay, max_relay_bytes=999).lacking(paused=False) == "relay log full"
    assert not Backpressure(relay, max_relay_bytes=None, min_free_bytes=1).lacking(paused=False)
    monkeypatch.setattr(relay, "free_bytes", lambda: 0)
    assert Backpressure(relay, max_relay_bytes=999, min_free_bytes=1).lacking(paused=False) == "disk nearly full"


@in_own_time
async def test_reading_stops_while_the_log_is_full_and_goes_on_after_a_purge(relay: RelayWriter) -> None:
    primary = one_group()
    for seq in range(2, 200):
        primary.transaction(Gtid(0, 1, seq), (5000,))
    wire = primary.wire()
    session = Session(
        relay, Agreed(semi_sync=False, heartbeat_s=10), backpressure=Backpressure(relay, max_relay_bytes=200_000)
    )
    log = RelayLog(relay.directory)
    blocked_tables: list[int] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(wire), 20_000):
            writer.write(wire[start : start + 20_000])
            await writer.drain()
            await asyncio.sleep(0.002)
        await reader.read()

    async def purge() -> None:
        # Longer than the silence that ends a session: a full log is not a dead link.
        await asyncio.sleep(40)
        blocked_tables.append(relay.total_bytes())
        while True:
            log.purge_before(relay.committed)
            await asyncio.sleep(1)

    purging = asyncio.ensure_future(purge())
    error = await play(session, script)
    purging.cancel()
    assert type(error) is DisconnectedError
    assert relay.position == GtidPosition.parse("0-1-199")
    assert blocked_tables[0] < len(wire) // 2


@in_own_time
async def test_a_transaction_larger_than_the_limit_passes(relay: RelayWriter) -> None:
    primary = Primary.dump()
    primary.transaction(Gtid(0, 1, 1), (200_000,) * 5)
    session = Session(
        relay, Agreed(semi_sync=False, heartbeat_s=10), backpressure=Backpressure(relay, max_relay_bytes=100_000)
    )
    await play(session, sending(primary.wire()))
    assert relay.position == GtidPosition.parse("0-1-1"), "no reader could have made room: it must not wait for one"


@in_own_time
async def test_a_disk_without_room_is_noticed_before_the_first_byte_is_read(
    relay: RelayWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 0
    monkeypatch.setattr(relay, "free_bytes", lambda: free)
    reasons: list[str] = []
    progress = Progress()
    session = Session(
        relay,
        Agreed(semi_sync=False, heartbeat_s=10),
        backpressure=Backpressure(relay, min_free_bytes=1 << 20),
        progress=progress,
        on_pause=reasons.append,
    )

    async def make_room() -> None:
        nonlocal free
        await asyncio.sleep(400)  # longer than a link may be silent
        assert (progress.state, progress.pause, progress.received_bytes) == ("paused", "disk nearly full", 0)
        free = 1 << 30

    making = asyncio.ensure_future(make_room())
    error = await play(session, sending(one_group().wire()))
    await making
    assert "closed" in str(error)
    assert reasons == ["disk nearly full", ""]
    assert relay.position == GtidPosition.parse("0-1-1")
